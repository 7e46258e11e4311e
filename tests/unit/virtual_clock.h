// SPDX-License-Identifier: Apache-2.0
// A clock that a unit test moves. A test program that is linked with it has its clock_mono_us(),
// clock_mono_ms(), clock_wall_ms() and loop_timer_…() instead of those of kg_base and kg_loop,
// which are then not linked. Time stands still until the test moves it: no timer fires beforehand,
// however long the test runs, and each fires at exactly its time. Descriptors, processes and
// threads are real.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "loop_wait.h"

// Moves the time on by `ms`. Timers that become due fire in the order of their times, each while it
// is that time; in between, and at the end, the loop works until nothing is ready. Not from a
// callback.
void virtual_clock_advance(struct loop *loop, int64_t ms);
// Moves the time to that of the loop's first timer, which fires. False, and the time is not moved,
// if there is none within `max_ms`.
bool virtual_clock_step(struct loop *loop, int64_t max_ms);
// The time until the loop's first timer fires; -1: there is none.
int64_t virtual_clock_next_ms(struct loop *loop);
// Moves the time without a loop: timers that are due fire when it is run.
void virtual_clock_move(int64_t ms);

// Waits for a condition while time passes: whenever the loop has nothing to do, the time moves to
// that of its first timer. For what is in this process alone, as an engine and a fake server are:
// nobody knows here whether a child process, or a thread, has something to do. Expects a `loop` in
// `f`.
#define PASS_TIME_UNTIL(f, condition) UNTIL_(condition, virtual_clock_pass((f)->loop))
void virtual_clock_pass(struct loop *loop);

// The same with time that passes as the machine's does. But a turn of the loop takes no longer than
// what it was going to wait for, so no deadline comes because this process did not get to run. For
// short pauses, beside threads and child processes.
#define LET_TIME_RUN_UNTIL(f, condition) UNTIL_(condition, virtual_clock_turn((f)->loop))
// One turn of the loop in which time passes like that.
void virtual_clock_turn(struct loop *loop);
