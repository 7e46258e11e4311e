// SPDX-License-Identifier: Apache-2.0
// Every process of the sandbox, as /proc shows them; how to end those that a kernel left behind.
#pragma once

#include <sys/types.h>

#include "base.h"

// Sends SIGKILL to every process that stands below this one, but not to those that belong to the
// `n_spared` sessions in `spared` (by session, or by descent from the leader). As PID 1 with
// nothing to spare, that is everything. Returns how many were still alive: 0 means done.
int processes_kill(const pid_t *spared, size_t n_spared);
// What PROCESSES_MARK and a keeper's pid make: the environment of its command where orphans do not
// come to the keeper, that is where the kernel does not know PR_SET_CHILD_SUBREAPER (gVisor of
// 2022). There a process belongs to a keeper that is in its session, descends from it or carries
// its mark; one that leaves all three behind outlives its command, until the session ends.
#define PROCESSES_MARK "KG_KEEPER="

// Sends a signal that is to end them to every process that descends from `root`, or belongs to it,
// but not to that itself.
void processes_signal(pid_t root, int signum);
// Sends SIGSTOP to those of them that run. Returns how many these were: 0 means that none can fork.
int processes_freeze(pid_t root);
// Which of the `n` roots `pid` is or descends from, or is in whose session; -1: none.
int processes_root_of(pid_t pid, const pid_t *roots, size_t n);
// How many belong to `root`, itself not counted.
int processes_count(pid_t root);
// The threads of all processes.
int processes_threads(void);
// The bytes of a process that no other process shares; -1 where Linux does not tell. It takes some
// milliseconds for each GiB that the process has.
int64_t process_own_memory(pid_t pid);
// Clock ticks that a process has run; 0 if there is none.
uint64_t process_ticks(pid_t pid);
