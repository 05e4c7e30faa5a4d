/* What autospec and the library inside llama-server share: two sealed memory files.
 *
 * The policy file is written by autospec alone and mapped read-only by the library; the ring file
 * is written by the library alone. memory.py describes the same bytes; a test compares the two.
 * Times are CLOCK_MONOTONIC in nanoseconds. No token id and no text is ever stored.
 */
#ifndef AUTOSPEC_LIVE_LAYOUT_H
#define AUTOSPEC_LIVE_LAYOUT_H

#include <stdint.h>

#define LIVE_POLICY_MAGIC 0x504c5341u /* "ASLP" */
#define LIVE_RING_MAGIC 0x524c5341u   /* "ASLR" */
#define LIVE_VERSION 1u

#define LIVE_SLOTS 64
#define LIVE_POSITIONS 64
#define LIVE_LEVELS 64
#define LIVE_BUSY 16
#define LIVE_DEPTHS 8
#define LIVE_ENTRIES 1024u
#define LIVE_SILENCE_NS UINT64_C(60000000000)

enum live_policy_flags {
    LIVE_IN_FORCE = 1,       /* thresholds are obeyed; without it rounds are only reported */
    LIVE_AT_LEAST_PLAIN = 2, /* measured to be at least plain: outlives a silent daemon */
    LIVE_SOLE = 4,           /* one draft model alone drafts: it may be told a limit beforehand */
};

/* `threshold[busy-1][depth][i]`: token i+1 is kept iff the survival with it reaches the threshold.
 * A load above LIVE_BUSY uses the last row, depth d the last bucket with depth_from <= d, and a
 * position from `positions` on is never cut. `acceptance[i]` maps what the draft reports to the
 * chance of acceptance, linear between `level`s and constant beyond them. */
struct live_policy {
    uint32_t flags;
    uint32_t number; /* told back in every round */
    uint32_t positions;
    uint32_t levels;
    uint32_t busy;
    uint32_t depths;
    float depth_from[LIVE_DEPTHS];
    float level[LIVE_LEVELS];
    float acceptance[LIVE_POSITIONS][LIVE_LEVELS];
    float threshold[LIVE_BUSY][LIVE_DEPTHS][LIVE_POSITIONS];
};

/* Sequence lock: `sequence` is odd while `policy` is written. The checksum is the sum over all
 * 32-bit words w_i of w_i * (2i+1) mod 2^64: a writer without memory barriers is caught too. */
struct live_policy_file {
    uint32_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t sequence;
    uint64_t heartbeat_ns;
    uint64_t checksum;
    struct live_policy policy;
};

enum live_state {
    LIVE_WAITING = 1,  /* loaded, no draft seen yet */
    LIVE_CHECKING = 2, /* looking at the first candidates, touching nothing */
    LIVE_LIVE = 3,
    LIVE_INERT = 4, /* for good; `reason` says why */
};

enum live_reason {
    LIVE_NO_REASON = 0,
    LIVE_MISSING_SYMBOL = 1,    /* detail: which, in the order of the hooks in live.c */
    LIVE_BAD_HEADER = 2,        /* magic, version or size of the policy file */
    LIVE_BAD_POLICY = 3,        /* a policy that is whole and makes no sense */
    LIVE_STRANGE_PARAMS = 4,    /* a slot's draft parameters are not laid out as known */
    LIVE_STRANGE_CANDIDATES = 5,
    LIVE_STRANGE_SAMPLER = 6,   /* candidates of no slot that is drafting */
    LIVE_OUT_OF_STEP = 7,       /* the draft does not hold the token that was seen */
    LIVE_CUT_IGNORED = 8,       /* drafting went on after a cut: no p_min above zero */
    LIVE_TOO_MANY = 9,          /* slots, or tokens in a draft */
    LIVE_STRANGE_ACCEPTANCE = 10,
};

enum live_round_flags {
    LIVE_OBEYED = 1,   /* a policy was in force */
    LIVE_CUT = 2,      /* it ended the draft: the last probability is of the token left out */
    LIVE_SKIPPED = 4,  /* it left out drafting, the first step included */
    LIVE_FOREIGN = 8,  /* drafted by something that shows no candidates (n-gram types) */
};

struct live_token {
    float p;      /* of the first candidate */
    float second; /* of the second */
    float purity; /* sum of p^2 over the candidates; -log of it is the Renyi entropy of order 2 */
};

/* `stamp` is 2*index+1 while entry `index` is written and 2*index+2 once it is whole. */
struct live_round {
    uint64_t stamp;
    uint64_t began_ns;
    uint64_t draft_ns;
    uint64_t verify_ns; /* from the end of drafting to the verdict */
    uint32_t slot;
    uint32_t busy;
    uint32_t depth; /* tokens of context before the round */
    uint32_t policy;
    uint16_t seen; /* tokens that have probabilities */
    uint16_t drafted;
    uint16_t accepted;
    uint16_t flags;
    struct live_token token[LIVE_POSITIONS];
};

struct live_ring_file {
    uint32_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t pid;
    uint32_t state;
    uint32_t reason;
    uint32_t detail;
    uint32_t policy; /* number of the policy in force */
    uint64_t head;   /* rounds written since the start */
    uint64_t requests;
    uint64_t unverified; /* drafts that never came to a verdict: cancelled requests */
    uint64_t contended;  /* calls let through since another thread was inside */
    uint64_t torn;       /* readings of a policy that was being written */
    uint64_t stale;      /* drafts that stood aside since the daemon was silent */
    struct live_round round[LIVE_ENTRIES];
};

#endif
