/* The part of llama.cpp that the live library stands before, with drafts made of arithmetic. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_SLOTS = 80, MOST_DRAFT = 80, CANDIDATES = 10 };

enum fault {
    NO_FAULT,
    UNSORTED,
    NOT_A_NUMBER,
    SUM_OVER_ONE,
    NEGATIVE_ID,
    NO_CANDIDATES,
    WILD_CANDIDATES,
    WILD_DRAFT,
    STRANGE_FLAG,
    NO_P_MIN,
    SWAPPED_SAMPLERS,
    STRANGER,
    OTHER_TOKENS,
    MORE_ACCEPTED,
    FOREIGN_DRAFT,
};

struct fake_params {
    uint8_t drafting;
    int32_t n_max;
    int32_t pos0;
    int32_t id_last;
    const void *prompt;
    struct fake_tokens *result;
    void *result_q;
    float temp;
    uint32_t seed;
};

struct fake_tokens {
    int32_t *begin, *end, *room;
};

struct fake_candidate {
    int32_t id;
    float logit;
    float p;
};

struct fake_candidates {
    struct fake_candidate *data;
    uint64_t size;
    int64_t selected;
    bool sorted;
};

struct fake_sampler {
    struct fake_candidates found;
    struct fake_candidate data[CANDIDATES];
};

struct fake_spec {
    struct fake_params params[MOST_SLOTS];
    struct fake_tokens result[MOST_SLOTS];
    int32_t tokens[MOST_SLOTS][MOST_DRAFT];
    struct fake_sampler sampler[MOST_SLOTS + 1];
    int n_max;
    float p_min;
    enum fault fault;
    uint64_t random;
};

extern void _Z24common_speculative_draftP18common_speculative(void *spec);
extern void _Z25common_speculative_acceptP18common_speculativeit(void *spec, int32_t slot,
                                                                 uint16_t accepted);
extern void _Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE(
    void *spec, int32_t slot, const void *prompt);
extern struct fake_params *_Z35common_speculative_get_draft_paramsP18common_speculativei(
    void *spec, int32_t slot);
extern struct fake_candidates *_Z29common_sampler_get_candidatesP14common_samplerb(void *sampler,
                                                                                   bool sort);

uint64_t fake_random(struct fake_spec *spec);
void fake_sample(struct fake_spec *spec, struct fake_sampler *sampler);

#endif
