// SPDX-License-Identifier: Apache-2.0
// An engine whose sandboxes are entries of a table and folders. The table may lie in memory that a
// test shares with the process in which the engine runs.
#pragma once

#include "provisioner_engine.h"

enum { FAKE_SANDBOXES = 64 };

// What the id of a sandbox begins with says what becomes of it; all others are made at once.
enum {
    FAKE_FAILS = 'f',
    FAKE_WAITS = 'w', // until the operation is cancelled
    FAKE_ENDS = 'x',  // once it is made
};

struct fake_sandboxes {
    char living[FAKE_SANDBOXES]
               [SANDBOX_ID_MAX + 1]; // without zygotes' containers; "": a free place
    size_t n_living;
    size_t most; // living at a time
    char zygotes[FAKE_SANDBOXES][SANDBOX_ID_MAX + 1];
    size_t n_calls;     // that named a sandbox
    size_t n_strangers; // of these, that named one which does not live
};

extern const struct provisioner_engine fake_engine;
extern struct fake_sandboxes *fake_sandboxes; // the engine's; set it before the engine is made

bool fake_sandbox_lives(const struct fake_sandboxes *table, const char *id);
// As if its container had been made beside the gateway.
void fake_sandbox_add(struct fake_sandboxes *table, const char *id);
