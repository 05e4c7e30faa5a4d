/* The library's side of the shared memory; all of it bounds-checked, nothing of it blocks. */
#ifndef AUTOSPEC_LIVE_SHARED_H
#define AUTOSPEC_LIVE_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

struct live_shared {
    const struct live_policy_file *source; /* NULL when not attached */
    struct live_ring_file *ring;
    struct live_policy policy; /* the snapshot in force, checked */
    uint32_t sequence;         /* that it was taken at; 0: none yet */
    uint64_t head;
};

/* Map the two files that `text` names ("POLICY_FD,RING_FD"); false if anything about them is odd:
 * not sealed against shrinking (SIGBUS), another size, header or version. */
bool live_attach(struct live_shared *shared, const char *text);

void live_detach(struct live_shared *shared);

/* Take over a newer policy if there is a whole one. LIVE_NO_REASON, or why to be inert for good. */
enum live_reason live_refresh(struct live_shared *shared);

/* Whether the policy binds a round that begins at `now`. */
bool live_binds(struct live_shared *shared, uint64_t now);

/* Chance that a token at `position` is accepted for which the draft reports `p`. */
float live_acceptance(const struct live_policy *policy, unsigned position, float p);

/* LIVE_POSITIONS thresholds for a load and a depth. */
const float *live_thresholds(const struct live_policy *policy, unsigned busy, unsigned depth);

/* How many tokens those thresholds can keep at most: a survival is never above 1. */
uint32_t live_limit(const struct live_policy *policy, const float *thresholds);

void live_publish(struct live_shared *shared, struct live_round *round);

void live_tell(struct live_shared *shared, enum live_state state, enum live_reason reason,
               uint32_t detail);

/* Add 1 to a counter in the ring file. */
void live_count(uint64_t *counter);

uint64_t live_now(void);

#endif
