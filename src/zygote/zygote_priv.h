// SPDX-License-Identifier: Apache-2.0
// One zygote: its container, its connection, and the forks that were requested of it.
#pragma once

#include <sys/queue.h>

#include "zygotes.h"

#define ZYGOTE_ID_MAX 16

struct provisioner_op;

// starting -> warming -> ready -> ended         (ended from each)
enum zygote_state {
    ZYGOTE_STARTING, // its container is being made; it has not connected
    ZYGOTE_WARMING,  // it imports and rehearses
    ZYGOTE_READY,
    ZYGOTE_ENDED,
};

struct zygote_fork {
    TAILQ_ENTRY(zygote_fork) link;
    int64_t id;
    zygote_forked_fn fn; // NULL: cancelled
    void *arg;
    int64_t deadline_ms;
};

// What is copied from struct zygote_spec.
struct zygote_plan {
    char *kernel;
    json_t *argv;
    json_t *env;
    json_t *hello;
};

struct zygote_events {
    void (*on_ready)(void *arg);
    // It has ended, or could not be started, or did not answer: the owner calls zygote_end(). Its
    // forks have failed. Not from inside zygote_new().
    void (*on_ended)(const struct kg_error *reason, void *arg);
};

struct zygote {
    struct loop *loop;
    struct provisioner *provisioner;
    const struct zygote_plan *plan;
    const struct zygote_events *events;
    void *arg;
    char id[ZYGOTE_ID_MAX + 1];
    enum zygote_state state;
    struct provisioner_op *making; // or NULL
    int library_fd;
    int filter_fd;
    int listen_fd; // -1 once it has connected
    int fd;        // its connection; -1 before
    char *door;
    struct loop_fd *watch; // of one of these
    struct loop_timer *timer;
    TAILQ_HEAD(, zygote_fork) forks; // oldest first
    int64_t started_ms;
    int64_t n_asked;
    int64_t n_forks;
    struct kg_error failure; // code KG_OK: none
};

// Starts to create a zygote. `library_fd` and `filter_fd` are borrowed. Returns NULL with `err`.
KG_MUST_CHECK struct zygote *zygote_new(struct loop *loop, struct provisioner *provisioner,
                                        const struct zygote_plan *plan, int library_fd,
                                        int filter_fd, const struct zygote_events *events,
                                        void *arg, struct kg_error *err);
// Removes its container in the background, and frees it; forks under way fail.
void zygote_end(struct zygote *zygote);
KG_MUST_CHECK struct zygote_fork *zygote_ask(struct zygote *zygote, const char *sandbox_id,
                                             const char *id, zygote_forked_fn fn, void *arg,
                                             struct kg_error *err);
