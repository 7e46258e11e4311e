// SPDX-License-Identifier: Apache-2.0
// The event loop of a process: timers, descriptors, signals and child processes, on libevent; and
// threads for slow work. Callbacks run on the loop's thread, and never before the call that started
// the operation has returned.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base.h"

struct loop;
struct event_base;

struct loop *loop_new(void);
// All watches, timers and processes must have been freed, and all work done or cancelled. Waits for
// cancelled work that is running.
void loop_free(struct loop *loop);
// Runs until loop_stop().
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
// For modules that use libevent themselves (bufferevents).
struct event_base *loop_event_base(struct loop *loop);
KG_DEFINE_AUTO(loop, loop_free)

typedef void (*loop_fn)(void *arg);
// Calls `fn` after each turn: one wait, and the callbacks of the events that it returned. NULL:
// none.
void loop_set_turn(struct loop *loop, loop_fn fn, void *arg);

// ---- Timers ---------------------------------------------------------------------------------

// A one-shot timer. It can be started again, also from its own callback.
struct loop_timer;
struct loop_timer *loop_timer_new(struct loop *loop, loop_fn fn, void *arg);
void loop_timer_free(struct loop_timer *timer);
// Fires once, `delay_ms` from now; replaces an earlier start. 0: in the next turn.
void loop_timer_start(struct loop_timer *timer, int64_t delay_ms);
// Fires in this turn, after the callbacks that are due in it; replaces an earlier start.
void loop_timer_fire(struct loop_timer *timer);
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_active(const struct loop_timer *timer);
KG_DEFINE_AUTO(loop_timer, loop_timer_free)
// Calls `fn` once, `delay_ms` from now; never, if the loop is freed before.
void loop_later(struct loop *loop, int64_t delay_ms, loop_fn fn, void *arg);

// ---- Descriptors ----------------------------------------------------------------------------

enum { LOOP_READ = 1, LOOP_WRITE = 2, LOOP_EDGE = 4 };

// Watches a descriptor, which the caller owns and which must outlive the watch. Level-triggered,
// unless LOOP_EDGE is set. The callback's `events` are LOOP_READ, LOOP_WRITE or both.
struct loop_fd;
typedef void (*loop_fd_fn)(int fd, int events, void *arg);
struct loop_fd *loop_fd_new(struct loop *loop, int fd, int events, loop_fd_fn fn, void *arg);
// Changes the events that are watched; 0 pauses the watch.
void loop_fd_set(struct loop_fd *watch, int events);
void loop_fd_free(struct loop_fd *watch);
KG_DEFINE_AUTO(loop_fd, loop_fd_free)

// ---- Changes of files -----------------------------------------------------------------------

// Watches files and folders (inotify(7), whose masks these are). inotify queues an event before the
// writer's call returns.
struct loop_inotify;
// `name` is that of an entry of a watched folder; "": what is watched has changed itself, or events
// were lost. `cookie` joins the two events of a rename. It must not free the watch.
typedef void (*loop_inotify_fn)(int wd, uint32_t mask, uint32_t cookie, const char *name,
                                void *arg);
// `on_events` fires after `on_event` was called for the events that had come, up to 64 KiB of them
// in one turn of the loop; it may free the watch. Without a descriptor from the system nothing is
// watched, and loop_inotify_add() fails.
struct loop_inotify *loop_inotify_new(struct loop *loop, loop_inotify_fn on_event,
                                      loop_fn on_events, void *arg);
// The watch descriptor of a path; -1, with errno: it is not watched.
int loop_inotify_add(struct loop_inotify *watch, const char *path, uint32_t mask);
// Calls `on_event` for what has happened until now, without waiting for the loop's next turn.
void loop_inotify_take(struct loop_inotify *watch);
// Not that of a descriptor that an IN_IGNORED event has named.
void loop_inotify_remove(struct loop_inotify *watch, int wd);
// While paused, events wait in the system, which drops them beyond its bound (IN_Q_OVERFLOW).
void loop_inotify_pause(struct loop_inotify *watch, bool paused);
void loop_inotify_free(struct loop_inotify *watch);
KG_DEFINE_AUTO(loop_inotify, loop_inotify_free)

// ---- Signals --------------------------------------------------------------------------------

struct loop_signal;
typedef void (*loop_signal_fn)(int signum, void *arg);
struct loop_signal *loop_signal_new(struct loop *loop, int signum, loop_signal_fn fn, void *arg);
void loop_signal_free(struct loop_signal *signal);
KG_DEFINE_AUTO(loop_signal, loop_signal_free)
// Holds back SIGTERM and SIGINT from now on: a process that is ending, and frees its watches of
// them, is not killed by a further one.
void loop_hold_termination(void);

// ---- Child processes ------------------------------------------------------------------------

struct loop_process_spec {
    const char *const *argv; // NULL-terminated; argv[0] is looked up in PATH
    const char *cwd;         // or NULL
    const char *output_path; // stdout and stderr are appended to this file; NULL: captured
    size_t output_max;       // captured bytes kept (the last ones); 0: 8 KiB
    int64_t timeout_ms;      // SIGKILL after that; 0: none
};

// How a child ended. `output` is NUL-terminated, and borrowed for the time of the callback.
struct loop_process_result {
    int exit_code; // -1: ended by a signal
    int signal;
    bool timed_out;
    const char *output;
    size_t output_len;
};

// A child process of the gateway, such as an OCI runtime. Its stdin is empty, and it inherits no
// other descriptor. Fails at once if the program cannot be run. The callback fires once, when the
// child has ended and its output was read; then the handle is freed. If another process keeps the
// output open, the callback fires 200 ms after the child's end.
struct loop_process;
typedef void (*loop_process_fn)(const struct loop_process_result *result, void *arg);
KG_MUST_CHECK struct loop_process *loop_process_start(struct loop *loop,
                                                      const struct loop_process_spec *spec,
                                                      loop_process_fn fn, void *arg,
                                                      struct kg_error *err);
// Kills the child, reaps it, frees the handle; the callback will not fire.
void loop_process_cancel(struct loop_process *process);

// ---- Work off the loop ----------------------------------------------------------------------

// Slow pure work (parsing, hashing, scans of folders) that must not block the loop. A few threads
// run it: the work of one lane in its order, and the lanes in turn, so that one client's work does
// not delay that of others. The threads are started with the first work.
//
// From the start until `done` the job belongs to the worker: `run` uses the job and nothing shared
// (no log, no metrics, no object of the loop), and nothing else uses the job.
struct loop_work;
// Runs run(job) on a worker, then done(job) on the loop; the handle is invalid when `done` is
// called. If `done` is NULL, `run` frees the job, and the handle must not be used.
struct loop_work *loop_work_start(struct loop *loop, uint64_t lane, loop_fn run, loop_fn done,
                                  void *job);
// The lane of an owner, and that of the gateway's own work.
uint64_t loop_lane_of(const char *owner);
enum { LOOP_LANE_GATEWAY = 0 };
// `done` will not be called. `discard` (may be NULL) is called on the loop: at once if the work has
// not begun, else when it has run. `work` may be NULL.
void loop_work_cancel(struct loop_work *work, loop_fn discard);

// ---- Other processes ------------------------------------------------------------------------

// Watches any process by a pidfd, child or not. Fires once, when it has ended.
struct loop_pid_watch;
KG_MUST_CHECK struct loop_pid_watch *loop_pid_watch_new(struct loop *loop, int pid, loop_fn fn,
                                                        void *arg, struct kg_error *err);
void loop_pid_watch_free(struct loop_pid_watch *watch);
KG_DEFINE_AUTO(loop_pid_watch, loop_pid_watch_free)
