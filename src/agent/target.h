// SPDX-License-Identifier: Apache-2.0
// The target that a link line names: RPC_TARGET (see rpc.h), "<kernel>/<channel>",
// "<savepoint>/savepoint", or "port/<number>".
#pragma once

#include "base.h"

enum { TARGET_LINE_MAX = 128, TARGET_NAME_MAX = 32 };

enum target_channel {
    TARGET_RPC,   // the gateway's calls
    TARGET_SHELL, // the numbers are those of the sockets in a connection file
    TARGET_IOPUB,
    TARGET_STDIN,
    TARGET_CONTROL,
    TARGET_HB,
    TARGET_N_CHANNELS,
    TARGET_SAVEPOINT = TARGET_N_CHANNELS, // of one that waits: not in a connection file
    TARGET_PORT,                          // of no kernel
};

struct target {
    enum target_channel channel;
    char kernel[TARGET_NAME_MAX + 1]; // empty for TARGET_RPC and TARGET_PORT
    int port;                         // of TARGET_PORT: 1 to 65535
};

// The name of a channel as it stands in a target and before `_port` in a connection file.
const char *target_channel_name(enum target_channel channel);
// 1 to 32 of A-Za-z0-9._-, the first not a dot.
bool target_kernel_name_valid(const char *name);
// `line` comes without its newline.
KG_MUST_CHECK int target_parse(const char *line, size_t len, struct target *ret,
                               struct kg_error *err);
