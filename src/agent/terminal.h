// SPDX-License-Identifier: Apache-2.0
// Pseudo-terminals: a master's side, which the agent has, and one that the command gets.
#pragma once

#include <sys/types.h>

#include "base.h"

enum { TERMINAL_SIZE_MAX = 1000 };

struct terminal_size {
    int cols, rows; // 1 to TERMINAL_SIZE_MAX
};

KG_MUST_CHECK int terminal_size_check(int64_t cols, int64_t rows, struct terminal_size *ret,
                                      struct kg_error *err);
// Both ends are to be closed; the master's does not block. KG_SESSION_BUSY: the sandbox has no
// more.
KG_MUST_CHECK int terminal_open(const struct terminal_size *size, int *ret_master, int *ret_slave,
                                struct kg_error *err);
// All take the master's side. The kernel tells the foreground group by SIGWINCH.
KG_MUST_CHECK int terminal_resize(int fd, const struct terminal_size *size, struct kg_error *err);
// The group of processes in the foreground; 0 if there is none, or the kernel does not tell.
pid_t terminal_foreground(int fd);
// What somebody at the terminal types to end the input: VEOF, twice where a line has begun, since
// the first one only ends this. A program that reads keys gets it as one byte. Returns the length.
size_t terminal_end_of_input(int fd, bool line_has_begun, char ret[2]);
