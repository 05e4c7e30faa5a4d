#include "fake_engine.h"

#include <math.h>
#include <stddef.h>

uint64_t fake_random(struct fake_spec *spec) {
    spec->random ^= spec->random << 13;
    spec->random ^= spec->random >> 7;
    spec->random ^= spec->random << 17;
    return spec->random;
}

void fake_sample(struct fake_spec *spec, struct fake_sampler *sampler) {
    float left = 1.0f;
    for (int i = 0; i < CANDIDATES; i++) {
        const float share = 0.5f + 0.49f * (float)(fake_random(spec) % 1000) / 1000.0f;
        sampler->data[i] = (struct fake_candidate){
            .id = (int32_t)(fake_random(spec) % 4096) * 16 + i, .p = left * share};
        left -= sampler->data[i].p;
    }
    sampler->found = (struct fake_candidates){
        .data = sampler->data, .size = CANDIDATES, .selected = 0, .sorted = true};
    switch (spec->fault) {
    case UNSORTED:
        sampler->data[1].p = sampler->data[0].p + 0.1f;
        break;
    case NOT_A_NUMBER:
        sampler->data[3].p = NAN;
        break;
    case SUM_OVER_ONE:
        for (int i = 0; i < CANDIDATES; i++) {
            sampler->data[i].p = 0.5f;
        }
        break;
    case NEGATIVE_ID:
        sampler->data[0].id = -7;
        break;
    case NO_CANDIDATES:
        sampler->found.size = 0;
        break;
    case WILD_CANDIDATES:
        sampler->found.data = (struct fake_candidate *)(uintptr_t)0x7fff00000010;
        break;
    default:
        break;
    }
}

void _Z24common_speculative_draftP18common_speculative(void *opaque) {
    struct fake_spec *spec = opaque;
    bool drafting[MOST_SLOTS];
    int left = 0;
    for (int i = 0; i < MOST_SLOTS; i++) {
        drafting[i] = spec->params[i].drafting == 1;
        left += drafting[i];
        if (drafting[i] && spec->fault == FOREIGN_DRAFT) {
            *spec->result[i].end++ = 42;
            drafting[i] = false;
            left--;
        }
    }
    for (int position = 0; left > 0; position++) {
        for (int i = 0; i < MOST_SLOTS; i++) {
            if (!drafting[i]) {
                continue;
            }
            const bool odd = position > 0 && position % 2 == 1;
            struct fake_sampler *sampler = &spec->sampler[i];
            if (spec->fault == SWAPPED_SAMPLERS && odd) {
                sampler = &spec->sampler[i ^ 1];
            } else if (spec->fault == STRANGER && odd) {
                sampler = &spec->sampler[MOST_SLOTS];
            }
            fake_sample(spec, sampler);
            const struct fake_candidates *found =
                _Z29common_sampler_get_candidatesP14common_samplerb(sampler, true);
            /* Broken candidates are for the library to look at, not for us. */
            const struct fake_candidate best = sampler->data[0];
            const bool broken = found->data != sampler->data || found->size != CANDIDATES;
            if (!broken && best.p < spec->p_min) {
                drafting[i] = false;
                left--;
                continue;
            }
            *spec->result[i].end++ = spec->fault == OTHER_TOKENS ? -1 : best.id;
            const int drafted = (int)(spec->result[i].end - spec->result[i].begin);
            if (drafted >= spec->n_max || drafted >= spec->params[i].n_max) {
                drafting[i] = false;
                left--;
            }
        }
    }
    for (int i = 0; i < MOST_SLOTS; i++) {
        spec->params[i].drafting = 0;
    }
}

void _Z25common_speculative_acceptP18common_speculativeit(void *spec, int32_t slot,
                                                          uint16_t accepted) {
    (void)spec, (void)slot, (void)accepted;
}

void _Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE(void *spec,
                                                                          int32_t slot,
                                                                          const void *prompt) {
    (void)spec, (void)slot, (void)prompt;
}

struct fake_params *_Z35common_speculative_get_draft_paramsP18common_speculativei(void *spec,
                                                                                 int32_t slot) {
    return &((struct fake_spec *)spec)->params[slot];
}

struct fake_candidates *_Z29common_sampler_get_candidatesP14common_samplerb(void *sampler,
                                                                            bool sort) {
    (void)sort;
    return &((struct fake_sampler *)sampler)->found;
}
