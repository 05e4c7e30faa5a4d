#define _GNU_SOURCE
#include "shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS = 3, WORDS = sizeof(struct live_policy) / sizeof(uint32_t) };

_Static_assert(sizeof(struct live_policy) % sizeof(uint32_t) == 0, "copied in words");
_Static_assert(sizeof(struct live_round) % sizeof(uint64_t) == 0, "entries stay aligned");

static void *map_sealed(int fd, size_t size, int protection) {
    struct stat found;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
        return NULL;
    }
    if (fstat(fd, &found) != 0 || found.st_size != (off_t)size) {
        return NULL;
    }
    void *memory = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool known(const uint32_t *header, uint32_t magic, size_t size) {
    return __atomic_load_n(&header[0], __ATOMIC_RELAXED) == magic &&
           __atomic_load_n(&header[1], __ATOMIC_RELAXED) == LIVE_VERSION &&
           __atomic_load_n(&header[2], __ATOMIC_RELAXED) == size;
}

bool live_attach(struct live_shared *shared, const char *text) {
    char *end = NULL;
    const long policy_fd = strtol(text, &end, 10);
    if (end == text || *end != ',' || policy_fd < 3 || policy_fd > 1 << 20) {
        return false;
    }
    const char *rest = end + 1;
    const long ring_fd = strtol(rest, &end, 10);
    if (end == rest || *end != '\0' || ring_fd < 3 || ring_fd > 1 << 20) {
        return false;
    }
    shared->source = map_sealed((int)policy_fd, sizeof *shared->source, PROT_READ);
    shared->ring = map_sealed((int)ring_fd, sizeof *shared->ring, PROT_READ | PROT_WRITE);
    if (shared->source == NULL || shared->ring == NULL ||
        !known(&shared->ring->magic, LIVE_RING_MAGIC, sizeof *shared->ring)) {
        live_detach(shared);
        return false;
    }
    fcntl((int)policy_fd, F_SETFD, FD_CLOEXEC);
    fcntl((int)ring_fd, F_SETFD, FD_CLOEXEC);
    __atomic_store_n(&shared->ring->pid, (uint32_t)getpid(), __ATOMIC_RELAXED);
    return true;
}

void live_detach(struct live_shared *shared) {
    if (shared->source != NULL) {
        munmap((void *)(uintptr_t)shared->source, sizeof *shared->source);
        shared->source = NULL;
    }
    if (shared->ring != NULL) {
        munmap(shared->ring, sizeof *shared->ring);
        shared->ring = NULL;
    }
}

static bool rises(const float *values, uint32_t count, float from, float to) {
    for (uint32_t i = 0; i < count; i++) {
        if (!(values[i] >= from && values[i] <= to) || (i > 0 && !(values[i] > values[i - 1]))) {
            return false;
        }
    }
    return true;
}

static bool sensible(const struct live_policy *policy) {
    if (policy->positions > LIVE_POSITIONS || policy->levels < 1 || policy->levels > LIVE_LEVELS ||
        policy->busy < 1 || policy->busy > LIVE_BUSY || policy->depths < 1 ||
        policy->depths > LIVE_DEPTHS) {
        return false;
    }
    if (!rises(policy->level, policy->levels, 0.0f, 1.0f) ||
        !rises(policy->depth_from, policy->depths, 0.0f, 1e9f) || policy->depth_from[0] != 0.0f) {
        return false;
    }
    for (uint32_t i = 0; i < policy->positions; i++) {
        for (uint32_t m = 0; m < policy->levels; m++) {
            if (!(policy->acceptance[i][m] >= 0.0f && policy->acceptance[i][m] <= 1.0f)) {
                return false;
            }
        }
        for (uint32_t b = 0; b < policy->busy; b++) {
            for (uint32_t d = 0; d < policy->depths; d++) {
                if (!(policy->threshold[b][d][i] >= 0.0f)) {
                    return false;
                }
            }
        }
    }
    return true;
}

enum live_reason live_refresh(struct live_shared *shared) {
    const struct live_policy_file *source = shared->source;
    if (!known(&source->magic, LIVE_POLICY_MAGIC, sizeof *source)) {
        return LIVE_BAD_HEADER;
    }
    static struct live_policy fresh;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const uint32_t before = __atomic_load_n(&source->sequence, __ATOMIC_ACQUIRE);
        if (before == shared->sequence) {
            return LIVE_NO_REASON;
        }
        if (before % 2 == 0) {
            const uint32_t *from = (const uint32_t *)&source->policy;
            uint64_t sum = 0;
            for (uint64_t i = 0; i < WORDS; i++) {
                const uint32_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
                memcpy((char *)&fresh + i * sizeof word, &word, sizeof word);
                sum += word * (2 * i + 1);
            }
            const uint64_t checksum = __atomic_load_n(&source->checksum, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            const uint32_t after = __atomic_load_n(&source->sequence, __ATOMIC_RELAXED);
            if (before == after && sum == checksum) {
                if (!sensible(&fresh)) {
                    return LIVE_BAD_POLICY;
                }
                shared->policy = fresh;
                shared->sequence = before;
                __atomic_store_n(&shared->ring->policy, fresh.number, __ATOMIC_RELAXED);
                return LIVE_NO_REASON;
            }
        }
        live_count(&shared->ring->torn);
    }
    return LIVE_NO_REASON;
}

bool live_binds(struct live_shared *shared, uint64_t now) {
    if (shared->sequence == 0 || !(shared->policy.flags & LIVE_IN_FORCE)) {
        return false;
    }
    if (shared->policy.flags & LIVE_AT_LEAST_PLAIN) {
        return true;
    }
    const uint64_t beat = __atomic_load_n(&shared->source->heartbeat_ns, __ATOMIC_RELAXED);
    /* A beat may be a little younger than `now`, never much. */
    const uint64_t apart = now > beat ? now - beat : beat - now;
    if (apart > LIVE_SILENCE_NS) {
        live_count(&shared->ring->stale);
        return false;
    }
    return true;
}

float live_acceptance(const struct live_policy *policy, unsigned position, float p) {
    const float *level = policy->level, *acceptance = policy->acceptance[position];
    const uint32_t last = policy->levels - 1;
    if (p <= level[0]) {
        return acceptance[0];
    }
    if (p >= level[last]) {
        return acceptance[last];
    }
    uint32_t low = 0, high = last; /* level[low] < p < level[high] */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (level[middle] < p) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const float share = (p - level[low]) / (level[high] - level[low]);
    return acceptance[low] + share * (acceptance[high] - acceptance[low]);
}

const float *live_thresholds(const struct live_policy *policy, unsigned busy, unsigned depth) {
    const uint32_t row = (busy < policy->busy ? busy : policy->busy) - 1;
    uint32_t bucket = policy->depths - 1;
    while (bucket > 0 && policy->depth_from[bucket] > (float)depth) {
        bucket--;
    }
    return policy->threshold[row][bucket];
}

uint32_t live_limit(const struct live_policy *policy, const float *thresholds) {
    uint32_t limit = 0;
    while (limit < policy->positions && thresholds[limit] <= 1.0f) {
        limit++;
    }
    return limit;
}

void live_publish(struct live_shared *shared, struct live_round *round) {
    struct live_round *entry = &shared->ring->round[shared->head % LIVE_ENTRIES];
    const size_t used = offsetof(struct live_round, token) +
                        (round->seen < LIVE_POSITIONS ? round->seen : LIVE_POSITIONS) *
                            sizeof round->token[0];
    round->stamp = 2 * shared->head + 1;
    __atomic_store_n(&entry->stamp, round->stamp, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy((char *)entry + sizeof entry->stamp, (char *)round + sizeof round->stamp,
           used - sizeof round->stamp);
    __atomic_store_n(&entry->stamp, round->stamp + 1, __ATOMIC_RELEASE);
    shared->head++;
    __atomic_store_n(&shared->ring->head, shared->head, __ATOMIC_RELEASE);
}

void live_tell(struct live_shared *shared, enum live_state state, enum live_reason reason,
               uint32_t detail) {
    if (shared->ring != NULL) {
        __atomic_store_n(&shared->ring->reason, reason, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->ring->detail, detail, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->ring->state, state, __ATOMIC_RELEASE);
    }
}

void live_count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

uint64_t live_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
