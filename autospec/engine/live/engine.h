/* What the library must know of the engine's data: the first fields of two structures, which no
 * symbol proves. They are as in llama.cpp build 11434. Until the library trusts them, memory is
 * looked at only after the kernel has said that it can be read. */
#ifndef AUTOSPEC_LIVE_ENGINE_H
#define AUTOSPEC_LIVE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokens {
    const int32_t *begin, *end, *room; /* a std::vector<llama_token> */
};

struct draft_params {
    uint8_t drafting;
    int32_t n_max;
    int32_t depth; /* position of the token that drafting starts from */
    int32_t last;
    const void *prompt;
    const struct tokens *result;
};

struct candidate {
    int32_t id;
    float logit;
    float p;
};

struct candidates {
    struct candidate *data;
    size_t size;
    int64_t selected;
    bool sorted;
};

/* Whether a slot's parameters look as they must before drafting. */
bool engine_params_are_known(const struct draft_params *params, bool trusted);

/* Whether candidates look as they must: sorted, probabilities of a distribution, ids of tokens. */
bool engine_candidates_are_known(const struct candidates *found, bool trusted);

/* Tokens in the draft of a slot whose parameters are known. */
uint32_t engine_drafted(const struct draft_params *params);

#endif
