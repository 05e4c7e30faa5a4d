/* Ends drafts inside a stock llama-server where autospec's policy says so, and reports each round.
 *
 * Preloaded, it stands before functions that the engine exports by name. While the engine drafts,
 * it looks at the candidates of each token; where the survival falls under the threshold of the
 * position it sets the first candidate's p to zero, and the engine's own p_min ends the draft. It
 * can shorten a draft or leave it alone; what the target accepts is none of its business.
 *
 * One round of a slot: get_draft_params names the slot, draft() drafts (get_candidates once for
 * each token), accept() brings the verdict. accept() is not called for an empty draft, which ends
 * with the slot's next draft() instead.
 *
 * Nothing here allocates, locks or, once the layouts have been checked, calls the system while a
 * token is drafted. Two threads inside at once do not happen in the engine; the second would be
 * let through unseen. Any doubt makes the library inert for good.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "shared.h"

#define EXPORT __attribute__((visibility("default")))

enum { CHECKED_TOKENS = 4, REMEMBERED = 16 };

struct slot {
    struct draft_params *named;  /* since the last draft(); NULL if not */
    struct draft_params *params; /* while drafting */
    const void *sampler;         /* whose candidates are this slot's, in this draft() */
    bool drafting;
    bool open; /* drafted, without a verdict yet */
    bool cut;
    uint64_t drafted_at;
    float survival;
    const float *threshold; /* NULL: not bound by a policy */
    uint32_t candidates;
    int32_t candidate[REMEMBERED]; /* of the last token; never leaves the process */
    struct live_round round;
};

static struct {
    struct live_shared shared;
    enum live_state state;
    uint32_t checked;
    void *spec;     /* that the named slots belong to */
    int32_t slots;  /* one more than the highest that was named */
    struct slot slot[LIVE_SLOTS];
} live;

static bool taken;
static __thread bool inside __attribute__((tls_model("initial-exec")));

static struct {
    uintptr_t (*draft)(void *spec);
    uintptr_t (*accept)(void *spec, int32_t slot, uint16_t accepted);
    uintptr_t (*begin)(void *spec, int32_t slot, const void *prompt);
    struct draft_params *(*params)(void *spec, int32_t slot);
    struct candidates *(*candidates)(void *sampler, bool sort);
} engine;

static void be_inert(enum live_reason reason, uint32_t detail) {
    __atomic_store_n(&live.state, LIVE_INERT, __ATOMIC_RELAXED);
    live_tell(&live.shared, LIVE_INERT, reason, detail);
}

/* The library's own state belongs to one thread at a time; the others are let through. */
static bool enter(void) {
    if (__atomic_load_n(&live.state, __ATOMIC_RELAXED) == LIVE_INERT) {
        return false;
    }
    if (__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE)) {
        live_count(&live.shared.ring->contended);
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

static void publish(struct slot *slot, uint32_t accepted, uint64_t now) {
    slot->open = false;
    slot->round.accepted = (uint16_t)accepted;
    slot->round.verify_ns = now - slot->drafted_at;
    live_publish(&live.shared, &slot->round);
}

static void abandon(struct slot *slot) {
    if (slot->open) {
        slot->open = false;
        live_count(&live.shared.ring->unverified);
    }
}

/* A round whose draft was empty gets no verdict: it ended where this one begins. */
static void close_before(struct slot *slot, uint32_t depth, uint64_t now) {
    if (slot->open && slot->round.drafted == 0 && depth == slot->round.depth + 1) {
        publish(slot, 0, now);
    }
    abandon(slot);
}

static void begin_round(int32_t index, unsigned busy, bool bound, uint64_t now) {
    struct slot *slot = &live.slot[index];
    const uint32_t depth = (uint32_t)slot->params->depth;
    close_before(slot, depth, now);
    const struct live_policy *policy = &live.shared.policy;
    slot->threshold = bound ? live_thresholds(policy, busy, depth) : NULL;
    slot->sampler = NULL;
    slot->cut = false;
    slot->survival = 1.0f;
    slot->candidates = 0;
    slot->round = (struct live_round){
        .began_ns = now,
        .slot = (uint32_t)index,
        .busy = busy,
        .depth = depth,
        .policy = policy->number,
        .flags = bound ? LIVE_OBEYED : 0,
    };
    if (bound && policy->flags & LIVE_MAY_SKIP && policy->positions > 0 &&
        slot->threshold[0] > 1.0f) {
        /* An engine that finds the flag cleared leaves this slot out of the draft. */
        slot->params->drafting = 0;
        slot->round.flags |= LIVE_SKIPPED;
    }
}

/* Begin a round for each slot that is about to draft. */
static void begin_rounds(void *spec) {
    unsigned busy = 0;
    const bool trusted = live.state == LIVE_LIVE;
    for (int32_t i = 0; i < live.slots; i++) {
        struct slot *slot = &live.slot[i];
        slot->params = spec == live.spec ? slot->named : NULL;
        slot->named = NULL;
        slot->drafting = false;
        if (slot->params == NULL) {
            continue;
        }
        if (!engine_params_are_known(slot->params, trusted)) {
            be_inert(LIVE_STRANGE_PARAMS, (uint32_t)i);
            return;
        }
        slot->drafting = slot->params->drafting == 1;
        busy += slot->drafting;
    }
    const enum live_reason reason = live_refresh(&live.shared);
    if (reason != LIVE_NO_REASON) {
        be_inert(reason, 0);
        return;
    }
    const uint64_t now = live_now();
    const bool bound = busy > 0 && trusted && live_binds(&live.shared, now);
    for (int32_t i = 0; i < live.slots; i++) {
        if (live.slot[i].drafting) {
            begin_round(i, busy, bound, now);
        }
    }
}

static bool holds(const struct slot *slot, int32_t token) {
    for (uint32_t i = 0; i < slot->candidates && i < REMEMBERED; i++) {
        if (slot->candidate[i] == token) {
            return true;
        }
    }
    return slot->candidates > REMEMBERED;
}

/* What the engine drafted must be what was seen, token by token. */
static bool in_step(const struct slot *slot, uint32_t drafted) {
    const struct tokens *result = slot->params->result;
    return drafted == 0 || slot->round.seen == 0 || drafted != slot->round.seen ||
           holds(slot, result->begin[drafted - 1]);
}

static void end_rounds(void) {
    const uint64_t now = live_now();
    for (int32_t i = 0; i < live.slots; i++) {
        struct slot *slot = &live.slot[i];
        if (!slot->drafting || live.state == LIVE_INERT) {
            continue;
        }
        const uint32_t drafted = engine_drafted(slot->params);
        if (slot->round.seen == 0 && drafted > 0) {
            slot->round.flags |= LIVE_FOREIGN;
        } else if (drafted > slot->round.seen || !in_step(slot, drafted)) {
            be_inert(LIVE_OUT_OF_STEP, drafted);
            return;
        }
        slot->round.drafted = (uint16_t)(drafted < UINT16_MAX ? drafted : UINT16_MAX);
        slot->round.draft_ns = now - slot->round.began_ns;
        slot->drafted_at = now;
        slot->open = true;
        slot->drafting = false;
    }
}

/* The slot that `sampler` drafts for. The engine goes through the slots in order, so a sampler
 * that was not seen yet belongs to the next slot that waits for its first token. */
static struct slot *slot_of(const void *sampler) {
    struct slot *next = NULL;
    for (int32_t i = 0; i < live.slots; i++) {
        struct slot *slot = &live.slot[i];
        if (slot->drafting && slot->sampler == sampler) {
            return slot;
        }
        if (next == NULL && slot->drafting && slot->sampler == NULL &&
            slot->params->drafting == 1) {
            next = slot;
        }
    }
    if (next != NULL) {
        next->sampler = sampler;
    }
    return next;
}

static void report(struct slot *slot, const struct candidates *found) {
    struct live_token *token = &slot->round.token[slot->round.seen];
    token->p = found->data[0].p;
    token->second = found->size > 1 ? found->data[1].p : 0.0f;
    token->purity = 0.0f;
    slot->candidates = (uint32_t)found->size;
    for (size_t i = 0; i < found->size; i++) {
        token->purity += found->data[i].p * found->data[i].p;
        if (i < REMEMBERED) {
            slot->candidate[i] = found->data[i].id;
        }
    }
}

static void consider(const void *sampler, struct candidates *found) {
    if (!engine_candidates_are_known(found, live.state == LIVE_LIVE)) {
        be_inert(LIVE_STRANGE_CANDIDATES, 0);
        return;
    }
    struct slot *slot = slot_of(sampler);
    if (slot == NULL) {
        be_inert(LIVE_STRANGE_SAMPLER, 0);
        return;
    }
    if (slot->cut) {
        be_inert(LIVE_CUT_IGNORED, slot->round.seen);
        return;
    }
    const unsigned position = slot->round.seen;
    if (engine_drafted(slot->params) != position || !in_step(slot, position)) {
        be_inert(LIVE_OUT_OF_STEP, position);
        return;
    }
    if (position >= LIVE_POSITIONS) {
        return;
    }
    report(slot, found);
    slot->round.seen++;
    if (live.state != LIVE_LIVE) {
        live.checked++;
        live.state = live.checked < CHECKED_TOKENS ? LIVE_CHECKING : LIVE_LIVE;
        live_tell(&live.shared, live.state, LIVE_NO_REASON, 0);
        return;
    }
    const struct live_policy *policy = &live.shared.policy;
    if (slot->threshold == NULL || position >= policy->positions) {
        return;
    }
    slot->survival *= live_acceptance(policy, position, found->data[0].p);
    if (slot->survival < slot->threshold[position]) {
        slot->cut = true;
        slot->round.flags |= LIVE_CUT;
        found->data[0].p = 0.0f;
    }
}

/* The hooks. Their names carry the types of the arguments; what they return is handed on as it
 * is, so that a build whose function returns something else is not harmed. */

EXPORT uintptr_t _Z24common_speculative_draftP18common_speculative(void *spec) {
    ENTERED entered = enter();
    if (!entered) {
        return engine.draft(spec);
    }
    begin_rounds(spec);
    inside = live.state != LIVE_INERT;
    const uintptr_t result = engine.draft(spec);
    if (inside) {
        inside = false;
        end_rounds();
    }
    return result;
}

EXPORT struct candidates *_Z29common_sampler_get_candidatesP14common_samplerb(void *sampler,
                                                                              bool sort) {
    struct candidates *found = engine.candidates(sampler, sort);
    if (inside && live.state != LIVE_INERT) {
        consider(sampler, found);
    }
    return found;
}

EXPORT uintptr_t _Z25common_speculative_acceptP18common_speculativeit(void *spec, int32_t index,
                                                                      uint16_t accepted) {
    const uint64_t now = live_now();
    ENTERED entered = enter();
    if (entered && index >= 0 && index < LIVE_SLOTS && live.slot[index].open) {
        struct slot *slot = &live.slot[index];
        if (accepted > slot->round.drafted) {
            be_inert(LIVE_STRANGE_ACCEPTANCE, accepted);
        } else {
            publish(slot, accepted, now);
        }
    }
    return engine.accept(spec, index, accepted);
}

EXPORT uintptr_t _Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE(
    void *spec, int32_t index, const void *prompt) {
    ENTERED entered = enter();
    if (entered && index >= 0 && index < LIVE_SLOTS) {
        abandon(&live.slot[index]);
        live_count(&live.shared.ring->requests);
    }
    return engine.begin(spec, index, prompt);
}

EXPORT struct draft_params *_Z35common_speculative_get_draft_paramsP18common_speculativei(
    void *spec, int32_t index) {
    struct draft_params *params = engine.params(spec, index);
    ENTERED entered = enter();
    if (!entered) {
        return params;
    }
    if (index < 0 || index >= LIVE_SLOTS) {
        be_inert(LIVE_TOO_MANY_SLOTS, (uint32_t)index);
        return params;
    }
    if (spec != live.spec) {
        live.spec = spec;
        live.slots = 0;
        memset(live.slot, 0, sizeof live.slot);
    }
    live.slots = index < live.slots ? live.slots : index + 1;
    live.slot[index].named = params;
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
    const uint32_t missing = find_engine();
    const char *files = getenv("AUTOSPEC_LIVE");
    live.state = LIVE_INERT;
    if (files != NULL && live_attach(&live.shared, files)) {
        if (missing != 0) {
            be_inert(LIVE_MISSING_SYMBOL, missing);
        } else {
            live.state = LIVE_WAITING;
            live_tell(&live.shared, LIVE_WAITING, LIVE_NO_REASON, 0);
        }
    }
    unsetenv("AUTOSPEC_LIVE");
    stay_here();
}
