/* Plays a server for the live library, linked before the fake engine as if preloaded.
 *
 *     driver play ROUNDS SLOTS N_MAX FAULT   one line a round: slot, tokens drafted
 *     driver bench TOKENS                    ns for one drafted token, hooked and not
 *     driver fuzz SECONDS SEED POLICY RING   plays while both files are scribbled over: words at
 *                                            random, or (odd seeds) policies that are whole
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fake_engine.h"
#include "layout.h"

static struct fake_spec spec;
static const int64_t prompt[3] = {0}; /* a vector that nobody reads */
static bool over;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void one_round(int slots, int *depth, bool say) {
    for (int i = 0; i < slots; i++) {
        spec.result[i] = (struct fake_tokens){
            spec.tokens[i], spec.tokens[i], spec.tokens[i] + MOST_DRAFT};
        *_Z35common_speculative_get_draft_paramsP18common_speculativei(&spec, i) =
            (struct fake_params){.drafting = 1,
                                 .n_max = 1000,
                                 .pos0 = depth[i],
                                 .id_last = 7,
                                 .prompt = prompt,
                                 .result = &spec.result[i]};
        if (spec.fault == WILD_DRAFT) {
            spec.params[i].result = (struct fake_tokens *)(uintptr_t)0x7fff00000020;
        } else if (spec.fault == STRANGE_FLAG) {
            spec.params[i].drafting = 1;
            spec.params[i].id_last = -5;
        }
    }
    _Z24common_speculative_draftP18common_speculative(&spec);
    for (int i = 0; i < slots; i++) {
        const int drafted = (int)(spec.result[i].end - spec.result[i].begin);
        int accepted = drafted == 0 ? 0 : (int)(fake_random(&spec) % (uint64_t)(drafted + 1));
        if (spec.fault == MORE_ACCEPTED) {
            accepted = drafted + 1;
        }
        if (drafted > 0) {
            _Z25common_speculative_acceptP18common_speculativeit(&spec, i, (uint16_t)accepted);
        }
        depth[i] += accepted + 1;
        if (say) {
            printf("%d %d\n", i, drafted);
        }
    }
}

static void begin(int slots, int *depth) {
    for (int i = 0; i < slots; i++) {
        depth[i] = 10 * (i + 1);
        _Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE(&spec, i, prompt);
    }
}

static void play(int rounds, int slots) {
    int depth[MOST_SLOTS];
    begin(slots, depth);
    for (int r = 0; r < rounds; r++) {
        one_round(slots, depth, true);
    }
}

/* The fake's own time is taken out: the same tokens without the library's part. */
static void bench(int tokens) {
    int depth[MOST_SLOTS];
    spec.n_max = 16;
    begin(1, depth);
    double best = 1e9, plain = 1e9;
    for (int repeat = 0; repeat < 20; repeat++) {
        double began = seconds();
        for (int t = 0; t < tokens / 16; t++) {
            one_round(1, depth, false);
        }
        const double hooked = (seconds() - began) / tokens;
        best = hooked < best ? hooked : best;
        began = seconds();
        for (int t = 0; t < tokens; t++) {
            fake_sample(&spec, &spec.sampler[0]);
        }
        const double own = (seconds() - began) / tokens;
        plain = own < plain ? own : plain;
    }
    printf("%.1f %.1f\n", best * 1e9, plain * 1e9);
}

struct scribble {
    struct live_policy_file *policy;
    struct live_ring_file *ring;
    bool whole;
    uint64_t random;
};

static uint32_t next(struct scribble *at) {
    at->random = at->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(at->random >> 33);
}

static float unit(struct scribble *at) { return (float)(next(at) % 10001) / 10000.0f; }

static void store(void *memory, size_t word, uint32_t value) {
    __atomic_store_n((uint32_t *)memory + word, value, __ATOMIC_RELAXED);
}

/* Any word but those by which the files are known. */
static void one_word(struct scribble *at) {
    const bool ring = next(at) % 4 == 0;
    const size_t words = (ring ? sizeof *at->ring : sizeof *at->policy) / sizeof(uint32_t);
    store(ring ? (void *)at->ring : (void *)at->policy, 3 + next(at) % (words - 3), next(at));
}

/* A policy of any size within bounds; one in 10000 has a word that is out of them. */
static void one_policy(struct scribble *at) {
    static struct live_policy policy;
    policy.flags = next(at);
    policy.number = next(at);
    policy.positions = next(at) % (LIVE_POSITIONS + 1);
    policy.levels = 1 + next(at) % LIVE_LEVELS;
    policy.busy = 1 + next(at) % LIVE_BUSY;
    policy.depths = 1 + next(at) % LIVE_DEPTHS;
    for (int d = 1; d < LIVE_DEPTHS; d++) {
        policy.depth_from[d] = policy.depth_from[d - 1] + 1.0f + 50.0f * unit(at);
    }
    for (int m = 0; m < LIVE_LEVELS; m++) {
        policy.level[m] = ((float)m + 0.9f * unit(at)) / LIVE_LEVELS;
    }
    for (int i = 0; i < LIVE_POSITIONS; i++) {
        for (int m = 0; m < LIVE_LEVELS; m++) {
            policy.acceptance[i][m] = unit(at);
        }
    }
    float *threshold = &policy.threshold[0][0][0];
    for (size_t i = 0; i < sizeof policy.threshold / sizeof *threshold; i++) {
        threshold[i] = unit(at) * unit(at);
    }
    uint32_t words[sizeof policy / sizeof(uint32_t)];
    memcpy(words, &policy, sizeof words);
    const size_t count = sizeof words / sizeof *words;
    if (next(at) % 10000 == 0) {
        words[next(at) % count] = next(at);
    }
    const uint32_t sequence = at->policy->sequence | 1;
    __atomic_store_n(&at->policy->sequence, sequence, __ATOMIC_SEQ_CST);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        store(&at->policy->policy, i, words[i]);
        sum += words[i] * (2 * (uint64_t)i + 1);
    }
    __atomic_store_n(&at->policy->checksum, sum, __ATOMIC_RELAXED);
    __atomic_store_n(&at->policy->sequence, sequence + 1, __ATOMIC_SEQ_CST);
}

static void *scribbler(void *opaque) {
    struct scribble *at = opaque;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        if (at->whole) {
            one_policy(at);
        } else {
            one_word(at);
        }
    }
    return NULL;
}

static void *map(const char *descriptor, size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(descriptor), 0);
    return memory == MAP_FAILED ? (exit(3), NULL) : memory;
}

static void fuzz(double length, uint64_t seed, char **descriptors) {
    int depth[MOST_SLOTS];
    long rounds = 0;
    struct scribble at = {
        .policy = map(descriptors[0], sizeof *at.policy),
        .ring = map(descriptors[1], sizeof *at.ring),
        .whole = seed % 2 == 1,
        .random = seed,
    };
    pthread_t thread;
    pthread_create(&thread, NULL, scribbler, &at);
    const double end = seconds() + length;
    begin(4, depth);
    while (seconds() < end) {
        one_round(4, depth, false);
        rounds++;
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    printf("%ld\n", rounds);
}

int main(int count, char **arguments) {
    spec.n_max = 8;
    spec.p_min = 1e-6f;
    spec.random = 88172645463325252u;
    if (count == 6 && strcmp(arguments[1], "play") == 0) {
        spec.n_max = atoi(arguments[4]);
        spec.fault = (enum fault)atoi(arguments[5]);
        if (spec.fault == NO_P_MIN) {
            spec.p_min = 0.0f;
        }
        play(atoi(arguments[2]), atoi(arguments[3]));
    } else if (count == 3 && strcmp(arguments[1], "bench") == 0) {
        bench(atoi(arguments[2]));
    } else if (count == 6 && strcmp(arguments[1], "fuzz") == 0) {
        fuzz(atof(arguments[2]), strtoull(arguments[3], NULL, 10), &arguments[4]);
    } else {
        return 2;
    }
    printf("preload=%s files=%s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "",
           getenv("AUTOSPEC_LIVE") ? getenv("AUTOSPEC_LIVE") : "");
    return 0;
}
