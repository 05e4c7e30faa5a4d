#define _GNU_SOURCE
#include "engine.h"

#include <fcntl.h>
#include <unistd.h>

enum {
    MOST_TOKENS = 1 << 22,    /* more than any vocabulary, any context and any draft */
    MOST_CANDIDATES = 1 << 10 /* a draft looks at its top ten */
};

static const float ROUNDING = 1e-3f;

/* Whether `size` bytes at `address` can be read: the kernel refuses to write what it cannot read,
 * where a look of ours would end the server. */
static bool readable(const void *address, size_t size) {
    int ends[2];
    char sink[512];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    bool good = true;
    for (size_t done = 0; good && done < size;) {
        const size_t part = size - done < sizeof sink ? size - done : sizeof sink;
        const ssize_t written = write(ends[1], (const char *)address + done, part);
        good = written > 0 && read(ends[0], sink, sizeof sink) == written;
        done += good ? (size_t)written : 0;
    }
    close(ends[0]);
    close(ends[1]);
    return good;
}

static bool aligned(const void *address, size_t to) {
    return address != NULL && (uintptr_t)address % to == 0;
}

static bool draft_is_empty(const struct tokens *result, bool trusted) {
    if (!aligned(result, sizeof(void *)) || (!trusted && !readable(result, sizeof *result))) {
        return false;
    }
    const uintptr_t begin = (uintptr_t)result->begin, end = (uintptr_t)result->end;
    const uintptr_t room = (uintptr_t)result->room;
    return begin == end && room >= end && room - begin <= MOST_TOKENS * sizeof(int32_t) &&
           begin % sizeof(int32_t) == 0 && room % sizeof(int32_t) == 0;
}

bool engine_params_are_known(const struct draft_params *params, bool trusted) {
    if (!aligned(params, sizeof(void *)) || (!trusted && !readable(params, sizeof *params))) {
        return false;
    }
    if (params->drafting == 0) {
        return true; /* the rest may never have been set */
    }
    return params->drafting == 1 && params->n_max >= -1 && params->depth >= 0 &&
           params->depth <= 1 << 28 && params->last >= 0 && params->last < MOST_TOKENS &&
           aligned(params->prompt, sizeof(void *)) && draft_is_empty(params->result, trusted);
}

bool engine_candidates_are_known(const struct candidates *found, bool trusted) {
    if (!aligned(found, sizeof(void *)) || (!trusted && !readable(found, sizeof *found))) {
        return false;
    }
    if (found->size < 1 || found->size > MOST_CANDIDATES || !aligned(found->data, sizeof(float)) ||
        (!trusted && !readable(found->data, found->size * sizeof *found->data))) {
        return false;
    }
    float before = 1.0f + ROUNDING, sum = 0.0f;
    for (size_t i = 0; i < found->size; i++) {
        const float p = found->data[i].p;
        if (!(p >= 0.0f && p <= before) || found->data[i].id < 0 ||
            found->data[i].id >= MOST_TOKENS) {
            return false;
        }
        sum += p;
        before = p;
    }
    return sum <= 1.0f + ROUNDING;
}

uint32_t engine_drafted(const struct draft_params *params) {
    return (uint32_t)(params->result->end - params->result->begin);
}
