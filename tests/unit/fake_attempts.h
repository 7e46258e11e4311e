// SPDX-License-Identifier: Apache-2.0
// What the system call filter of a sandbox refuses and allows, tried from inside.
#pragma once

#include <stdbool.h>

// Tries a group of calls, and writes a line `NAME=RESULT` for each to `fd`. `group` is `calls`,
// `arguments`, `udp`, `terminals`, `fcntls` or `options`; false if it is none of these.
bool attempt(const char *group, int fd);
