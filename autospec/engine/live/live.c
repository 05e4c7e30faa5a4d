/* Ends drafts inside a stock llama-server where autospec's policy says so, and reports each round.
 *
 * Preloaded, it stands before functions that the engine exports by name. While the engine drafts,
 * it looks at the candidates of each token; where the survival falls under the threshold of the
 * position it sets the first candidate's p to zero, and the engine's own p_min ends the draft. It
 * can shorten a draft or leave it alone; what the target accepts is none of its business.
 *
 * This file is the hooks; rounds.c decides.
 *
 * Nothing here allocates, locks or, once the layouts have been checked, calls the system while a
 * token is drafted. Two threads inside at once do not happen in the engine; the second would be
 * let through unseen. Any doubt makes the library inert for good.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "rounds.h"

#define EXPORT __attribute__((visibility("default")))

static bool taken;
static __thread bool inside __attribute__((tls_model("initial-exec")));

static struct {
    uintptr_t (*draft)(void *spec);
    uintptr_t (*accept)(void *spec, int32_t slot, uint16_t accepted);
    uintptr_t (*begin)(void *spec, int32_t slot, const void *prompt);
    struct draft_params *(*params)(void *spec, int32_t slot);
    struct candidates *(*candidates)(void *sampler, bool sort);
} engine;

/* The library's own state belongs to one thread at a time; the others are let through. */
static bool enter(void) {
    if (rounds_inert()) {
        return false;
    }
    if (__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE)) {
        rounds_contended();
        return false;
    }
    return true;
}

static void leave(const bool *entered) {
    if (*entered) {
        inside = false;
        __atomic_store_n(&taken, false, __ATOMIC_RELEASE);
    }
}

/* Left also when the engine throws through us. */
#define ENTERED __attribute__((cleanup(leave))) const bool

/* The hooks. Their names carry the types of the arguments; what they return is handed on as it
 * is, so that a build whose function returns something else is not harmed. */

EXPORT uintptr_t _Z24common_speculative_draftP18common_speculative(void *spec) {
    ENTERED entered = enter();
    if (!entered) {
        return engine.draft(spec);
    }
    rounds_draft(spec);
    inside = !rounds_inert();
    const uintptr_t result = engine.draft(spec);
    inside = false;
    if (!rounds_inert()) {
        rounds_drafted();
    }
    return result;
}

EXPORT struct candidates *_Z29common_sampler_get_candidatesP14common_samplerb(void *sampler,
                                                                              bool sort) {
    struct candidates *found = engine.candidates(sampler, sort);
    if (inside && !rounds_inert()) {
        rounds_token(sampler, found);
    }
    return found;
}

EXPORT uintptr_t _Z25common_speculative_acceptP18common_speculativeit(void *spec, int32_t index,
                                                                      uint16_t accepted) {
    const uint64_t now = live_now();
    ENTERED entered = enter();
    if (entered) {
        rounds_verdict(index, accepted, now);
    }
    return engine.accept(spec, index, accepted);
}

EXPORT uintptr_t _Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE(
    void *spec, int32_t index, const void *prompt) {
    ENTERED entered = enter();
    if (entered) {
        rounds_request(index);
    }
    return engine.begin(spec, index, prompt);
}

EXPORT struct draft_params *_Z35common_speculative_get_draft_paramsP18common_speculativei(
    void *spec, int32_t index) {
    struct draft_params *params = engine.params(spec, index);
    ENTERED entered = enter();
    if (entered) {
        rounds_named(spec, index, params);
    }
    return params;
}

static uint32_t find_engine(void) {
    static const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"_Z24common_speculative_draftP18common_speculative", &engine.draft},
        {"_Z25common_speculative_acceptP18common_speculativeit", &engine.accept},
        {"_Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE", &engine.begin},
        {"_Z35common_speculative_get_draft_paramsP18common_speculativei", &engine.params},
        {"_Z29common_sampler_get_candidatesP14common_samplerb", &engine.candidates},
    };
    uint32_t missing = 0;
    for (uint32_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(RTLD_NEXT, wanted[i].name);
        memcpy(wanted[i].function, &found, sizeof found);
        missing |= (uint32_t)(found == NULL) << i;
    }
    return missing;
}

/* Take this library, and nothing else, out of LD_PRELOAD. */
static void stay_here(void) {
    Dl_info self;
    const char *preload = getenv("LD_PRELOAD");
    if (preload == NULL || dladdr((void *)(uintptr_t)&find_engine, &self) == 0) {
        return;
    }
    char *kept = calloc(strlen(preload) + 1, 1);
    if (kept == NULL) {
        return;
    }
    for (const char *at = preload; *at != '\0';) {
        const size_t length = strcspn(at, ": ");
        if (length > 0 &&
            !(length == strlen(self.dli_fname) && memcmp(at, self.dli_fname, length) == 0)) {
            if (*kept != '\0') {
                strcat(kept, ":");
            }
            strncat(kept, at, length);
        }
        at += length + (at[length] != '\0');
    }
    if (*kept == '\0') {
        unsetenv("LD_PRELOAD");
    } else {
        setenv("LD_PRELOAD", kept, 1);
    }
    free(kept);
}

__attribute__((constructor)) static void start(void) {
    rounds_start(getenv("AUTOSPEC_LIVE"), find_engine());
    unsetenv("AUTOSPEC_LIVE");
    stay_here();
}
