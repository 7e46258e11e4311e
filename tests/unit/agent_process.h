// SPDX-License-Identifier: Apache-2.0
// The real agent as an ordinary process, in temporary folders, for the tests on both its sides.
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

// A folder with `data` and `tmp` in it; removed by agent_place_remove().
struct agent_place {
    char dir[64];
    char data[80];
    char tmp[80];
    char clock[80];
    atomic_int_least64_t *added_ms; // to the time of its agents
};

void agent_place_make(struct agent_place *place);
void agent_place_remove(const struct agent_place *place);
// Moves the time of its agents on by `ms`; it passes as the machine's besides. Their timers look
// every few milliseconds.
void agent_clock_advance(const struct agent_place *place, int64_t ms);
// Ends with the caller, at the latest.
pid_t agent_process_start(const struct agent_place *place, const char *door, int idle_timeout_s);
// The same, where gateways that hold the other half of `key` (hexadecimal) dial it.
pid_t agent_process_listen(const struct agent_place *place, int port, const char *sandbox,
                           const char *key, int idle_timeout_s);
// A port that nobody has just now.
int agent_free_port(void);
// Begins a connection to a port of this machine: a non-blocking socket.
int agent_dial(int port);
// Asks it to end and returns its exit status, -1 where a signal ended it.
int agent_process_end(pid_t pid, int signum);
// Returns the exit status of one that ends by itself.
int agent_process_wait(pid_t pid);
