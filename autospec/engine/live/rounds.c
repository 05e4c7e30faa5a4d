/* One round of a slot: it is named, drafts token by token, and gets a verdict from the target. An
 * empty draft gets none; it ends with the slot's next draft instead. */
#include "rounds.h"

#include <string.h>

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
    void *spec;    /* that the named slots belong to */
    int32_t slots; /* one more than the highest that was named */
    struct slot slot[LIVE_SLOTS];
} live;

static void be_inert(enum live_reason reason, uint32_t detail) {
    __atomic_store_n(&live.state, LIVE_INERT, __ATOMIC_RELAXED);
    live_tell(&live.shared, LIVE_INERT, reason, detail);
}

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

/* What would be cut at any survival is not drafted at all: that saves the step before the cut. The
 * engine takes a limit for each round, and a slot whose flag is cleared is left out. */
static void limit_draft(struct slot *slot, uint32_t limit) {
    if (limit == 0) {
        slot->params->drafting = 0;
        slot->round.flags |= LIVE_SKIPPED;
    } else if (limit < live.shared.policy.positions &&
               (slot->params->n_max <= 0 || limit < (uint32_t)slot->params->n_max)) {
        slot->params->n_max = (int32_t)limit;
    }
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
    if (bound && policy->flags & LIVE_SOLE) {
        limit_draft(slot, live_limit(policy, slot->threshold));
    }
}

void rounds_draft(void *spec) {
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

void rounds_drafted(void) {
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

void rounds_token(const void *sampler, struct candidates *found) {
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
    if (position >= LIVE_POSITIONS) {
        be_inert(LIVE_TOO_MANY, position);
        return;
    }
    if (engine_drafted(slot->params) != position || !in_step(slot, position)) {
        be_inert(LIVE_OUT_OF_STEP, position);
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

void rounds_verdict(int32_t index, uint16_t accepted, uint64_t now) {
    if (index < 0 || index >= live.slots || !live.slot[index].open) {
        return;
    }
    if (accepted > live.slot[index].round.drafted) {
        be_inert(LIVE_STRANGE_ACCEPTANCE, accepted);
        return;
    }
    publish(&live.slot[index], accepted, now);
}

void rounds_request(int32_t index) {
    live_count(&live.shared.ring->requests);
    if (index >= 0 && index < live.slots) {
        abandon(&live.slot[index]);
    }
}

void rounds_named(void *spec, int32_t index, struct draft_params *params) {
    if (index < 0 || index >= LIVE_SLOTS) {
        be_inert(LIVE_TOO_MANY, (uint32_t)index);
        return;
    }
    if (spec != live.spec) {
        live.spec = spec;
        live.slots = 0;
        memset(live.slot, 0, sizeof live.slot);
    }
    live.slots = index < live.slots ? live.slots : index + 1;
    live.slot[index].named = params;
}

bool rounds_inert(void) { return __atomic_load_n(&live.state, __ATOMIC_RELAXED) == LIVE_INERT; }

void rounds_contended(void) { live_count(&live.shared.ring->contended); }

void rounds_start(const char *text, uint32_t missing) {
    live.state = LIVE_INERT;
    if (text == NULL || !live_attach(&live.shared, text)) {
        return;
    }
    if (missing != 0) {
        be_inert(LIVE_MISSING_SYMBOL, missing);
        return;
    }
    live.state = LIVE_WAITING;
    live_tell(&live.shared, LIVE_WAITING, LIVE_NO_REASON, 0);
}
