/* Plays a server for the live library, linked before the fake engine as if preloaded.
 *
 *     driver play ROUNDS SLOTS N_MAX FAULT   one line a round: slot, tokens drafted
 *     driver bench TOKENS                    ns for one drafted token, hooked and not
 *     driver fuzz SECONDS SEED POLICY RING   plays while both files are scribbled over
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "fake_engine.h"

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
    void *memory[2];
    size_t size[2];
    uint64_t random;
};

static void *scribbler(void *opaque) {
    struct scribble *at = opaque;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        at->random = at->random * 6364136223846793005u + 1442695040888963407u;
        const int which = (int)(at->random >> 62) == 3;
        const size_t word = (at->random >> 20) % (at->size[which] / 4);
        /* Mostly beyond the header: a broken header ends the game at once. */
        if (word >= 3 || (at->random >> 8) % 5000 == 0) {
            __atomic_store_n((uint32_t *)at->memory[which] + word,
                             (uint32_t)(at->random >> 31), __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void *map(const char *descriptor, size_t *size) {
    struct stat found;
    const int fd = atoi(descriptor);
    if (fstat(fd, &found) != 0) {
        exit(3);
    }
    *size = (size_t)found.st_size;
    void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? (exit(3), NULL) : memory;
}

static void fuzz(double length, uint64_t seed, char **descriptors) {
    int depth[MOST_SLOTS];
    long rounds = 0;
    struct scribble at = {.random = seed};
    at.memory[0] = map(descriptors[0], &at.size[0]);
    at.memory[1] = map(descriptors[1], &at.size[1]);
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
