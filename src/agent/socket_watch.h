// SPDX-License-Identifier: Apache-2.0
// Bounds the TCP sockets of a sandbox. Linux counts a connection as somebody's memory when it is
// accepted; until then it and its data are nobody's, also if the client has closed its end. When
// the sandbox has more than SOCKETS_MAX sockets, all processes but the agent are killed.
#pragma once

#include "loop.h"

enum { SOCKETS_MAX = 4096 };

struct socket_watch;
// NULL unless this process is the first one in its process namespace: it kills all others there.
// `cgroup_root` is borrowed.
struct socket_watch *socket_watch_new(struct loop *loop, const char *cgroup_root);
void socket_watch_free(struct socket_watch *watch);
