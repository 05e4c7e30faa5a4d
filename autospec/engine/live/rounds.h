/* The rounds of every slot: what is drafted, where a policy ends it, what is reported.
 *
 * One thread at a time may call these; live.c sees to it. After any doubt the library is inert for
 * good, and then none of them may be called.
 */
#ifndef AUTOSPEC_LIVE_ROUNDS_H
#define AUTOSPEC_LIVE_ROUNDS_H

#include "engine.h"
#include "shared.h"

/* Attach to the files that `text` names, and begin; `missing` symbols make it inert at once. */
void rounds_start(const char *text, uint32_t missing);

bool rounds_inert(void);

/* The other functions are not to be called: another thread is inside. */
void rounds_contended(void);

/* The engine asked for the draft parameters of a slot. */
void rounds_named(void *spec, int32_t index, struct draft_params *params);

/* The slots named since the last draft are about to draft. */
void rounds_draft(void *spec);

/* A slot's candidates for its next token; ends its draft where the policy says so. */
void rounds_token(const void *sampler, struct candidates *found);

void rounds_drafted(void);

/* The target took `accepted` tokens of a slot's draft. */
void rounds_verdict(int32_t index, uint16_t accepted, uint64_t now);

/* A slot begins a new generation. */
void rounds_request(int32_t index);

#endif
