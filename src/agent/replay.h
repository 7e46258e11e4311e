// SPDX-License-Identifier: Apache-2.0
// The last output of a command, for those that join it late: a ring of bytes, and of which stream
// each of them is.
#pragma once

#include "base.h"

enum {
    REPLAY_BYTES = 64 * 1024,
    REPLAY_RUNS = 4096, // changes between streams; before more of them the oldest output goes
};

// All zero: empty. Positions count the bytes since the command's start.
struct replay {
    bool is_text; // whole characters are added, kept and read; else bytes
    char *bytes;
    size_t cap, first, len;
    uint32_t *runs; // bytes of one stream: the stream above RUN_LEN_BITS, the length below
    size_t runs_cap, first_run, n_runs;
    uint64_t end;
};

void replay_fini(struct replay *replay);
void replay_add(struct replay *replay, char stream, const char *data, size_t len);
// The position of the oldest byte that is kept.
uint64_t replay_start(const struct replay *replay);
// Copies what there is of one stream from `at`, which is kept and begins a character: at most `max`
// bytes, at least 4. Returns how many: 0 at the end.
size_t replay_read(const struct replay *replay, uint64_t at, size_t max, char *ret,
                   char *ret_stream);
