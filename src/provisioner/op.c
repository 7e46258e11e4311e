// SPDX-License-Identifier: Apache-2.0
// Operations of all engines: a queue of which a few run at once, but only the oldest for each
// sandbox; cancelling; finishing.
#include <assert.h>
#include <string.h>

#include "metrics.h"
#include "provisioner_engine.h"

#define MAX_RUNNING 8
#define MAX_REMOVALS 6 // of these

static void op_pump(void *arg);

void
op_queue_init(struct provisioner *provisioner)
{
    TAILQ_INIT(&provisioner->ops);
    provisioner->pump = loop_timer_new(provisioner->loop, op_pump, provisioner);
}

struct provisioner_op *
op_new(struct provisioner *provisioner, enum op_kind kind, const char *id,
       provisioner_done_fn on_done, void *arg)
{
    struct provisioner_op *op = kg_calloc(1, provisioner->engine->op_size);
    op->provisioner = provisioner;
    op->asked_us = clock_mono_us();
    op->kind = kind;
    memcpy(op->id, id, strlen(id));
    op->on_done = on_done;
    op->arg = arg;
    op->n_left = 1;
    TAILQ_INSERT_TAIL(&provisioner->ops, op, next);
    loop_timer_start(provisioner->pump, 0);
    return op;
}

static bool
state_follows(enum op_state from, enum op_state to)
{
    switch (to) {
    case OP_QUEUED:
        return false;
    case OP_RUNNING:
    case OP_WAITING:
        return from == OP_QUEUED;
    case OP_KILLING:
        return from == OP_QUEUED || from == OP_RUNNING;
    case OP_DELETING:
        return from == OP_QUEUED || from == OP_RUNNING || from == OP_KILLING;
    case OP_DONE:
        return from != OP_QUEUED && from != OP_DONE;
    }
    return false;
}

void
op_set_state(struct provisioner_op *op, enum op_state state)
{
    static const char *const names[] = {
        [OP_QUEUED] = "queued",     [OP_RUNNING] = "running", [OP_KILLING] = "killing",
        [OP_DELETING] = "deleting", [OP_WAITING] = "waiting", [OP_DONE] = "done",
    };
    assert(state_follows(op->state, state));
    log_debug("provisioner operation", LOG_STR("sandbox", op->id),
              LOG_STR("from", names[op->state]), LOG_STR("to", names[state]));
    if (op->state == OP_QUEUED && op->kind != OP_CLAIM)
        op->provisioner->n_running++;
    op->state = state;
}

static void
op_free(struct provisioner_op *op)
{
    TAILQ_REMOVE(&op->provisioner->ops, op, next);
    op->provisioner->engine->op_fini(op);
    json_decref(op->meta);
    json_decref(op->zygote_argv);
    json_decref(op->zygote_env);
    free(op);
}

static void
count_op(const struct provisioner_op *op)
{
    static const char *const kinds[] = {[OP_CREATE] = "create",
                                        [OP_CLAIM] = "claim",
                                        [OP_DESTROY] = "destroy",
                                        [OP_RECOVER] = "recover"};
    metric_observe_since(METRIC_PROVISIONER_CALL_SECONDS, op->asked_us, kinds[op->kind]);
    if (op->err.code)
        metric_add(METRIC_PROVISIONER_ERRORS, 1, kinds[op->kind]);
}

void
op_start_delete(struct provisioner_op *op)
{
    struct kg_error err = {0};
    op_set_state(op, OP_DELETING);
    if (folder_remove(op->provisioner->state_dir, op->id, &err) < 0)
        log_warning("cannot remove a sandbox's folder", LOG_ERR(&err));
}

void
op_finish_delete(struct provisioner_op *op, const struct kg_error *err)
{
    if (err->code && !op->err.code)
        op->err = *err;
    op_finish(op);
}

void
op_finish(struct provisioner_op *op)
{
    struct provisioner *provisioner = op->provisioner;
    struct provisioner_op done = *op;
    count_op(op);
    op_set_state(op, OP_DONE);
    provisioner->n_running -= op->kind != OP_CLAIM;
    op_free(op);
    loop_timer_start(provisioner->pump, 0);
    if (!done.cancelled)
        done.on_done(done.err.code ? &done.err : NULL, done.arg);
    else if (done.err.code)
        log_warning("provisioner operation failed", LOG_STR("sandbox", done.id),
                    LOG_ERR(&done.err));
}

struct provisioner_op *
op_find(const struct provisioner *provisioner, const char *id)
{
    struct provisioner_op *op;
    TAILQ_FOREACH(op, &provisioner->ops, next) {
        if (strcmp(op->id, id) == 0)
            return op;
    }
    return NULL;
}

// Whether there is a place for it now. Removals never take all places, so a client that ends many
// sessions at once does not keep others from getting one. A claim costs little and needs no place.
static bool
has_place(const struct provisioner_op *op, size_t n_removals)
{
    if (op->kind == OP_CLAIM)
        return true;
    return op->provisioner->n_running < MAX_RUNNING &&
           (op->kind != OP_DESTROY || n_removals < MAX_REMOVALS);
}

// The oldest one that has a place and whose sandbox is free.
static struct provisioner_op *
op_next(const struct provisioner *provisioner)
{
    size_t n_removals = 0;
    struct provisioner_op *op;
    TAILQ_FOREACH(op, &provisioner->ops, next)
        n_removals += op->state != OP_QUEUED && op->kind == OP_DESTROY;
    TAILQ_FOREACH(op, &provisioner->ops, next) {
        if (op->state == OP_QUEUED && has_place(op, n_removals) &&
            op_find(provisioner, op->id) == op)
            return op;
    }
    return NULL;
}

static void
op_pump(void *arg)
{
    struct provisioner *provisioner = arg;
    struct provisioner_op *op = op_next(provisioner);
    if (!op)
        return;
    loop_timer_start(provisioner->pump, 0); // for the next one
    provisioner->engine->op_start(op);      // may free it, and whatever its callback frees
}

void
op_queue_fini(struct provisioner *provisioner)
{
    struct provisioner_op *op;
    while ((op = TAILQ_FIRST(&provisioner->ops))) {
        assert(op->cancelled || op->internal);
        op_free(op);
    }
    loop_timer_free(provisioner->pump);
}

// ---- Steps that engines share ---------------------------------------------------------------

void
op_claim(struct provisioner_op *op)
{
    if (op->state != OP_RUNNING)
        op_set_state(op, OP_RUNNING);
    if (folder_write_meta(op->provisioner->state_dir, op->id, op->meta, &op->err) == 0)
        op->err.code = KG_OK;
    op_finish(op);
}

void
op_recover_step(struct provisioner_op *op)
{
    if (--op->n_left == 0)
        op_finish(op);
}

static void
leftover_on_removed(const struct kg_error *err, void *arg)
{
    struct provisioner_op *recovery = arg;
    if (err)
        log_warning("cannot remove a leftover sandbox", LOG_ERR(err));
    if (recovery)
        op_recover_step(recovery);
}

struct provisioner_op *
op_remove_leftover(struct provisioner *provisioner, const char *id, struct provisioner_op *recovery)
{
    log_info("removing a leftover sandbox", LOG_STR("sandbox", id));
    if (recovery)
        recovery->n_left++;
    struct provisioner_op *op = op_new(provisioner, OP_DESTROY, id, leftover_on_removed, recovery);
    op->internal = true;
    return op;
}

bool
op_report(struct provisioner_op *recovery, const char *id, int pid, const json_t *meta)
{
    struct kg_error err = {0};
    watch_stop(recovery->provisioner, id); // of the time when this gateway held it before
    if (watch_start(recovery->provisioner, id, pid, recovery->on_exit, recovery->arg, &err) < 0) {
        log_warning("cannot recover a sandbox", LOG_STR("sandbox", id), LOG_ERR(&err));
        return false;
    }
    recovery->on_found(id, meta, recovery->arg);
    return true;
}

bool
op_take_up(struct provisioner_op *recovery, const char *id, int pid)
{
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    if (folder_read_meta(recovery->provisioner->state_dir, id, &meta, &err) < 0) {
        log_warning("cannot recover a sandbox", LOG_STR("sandbox", id), LOG_ERR(&err));
        return false;
    }
    return op_report(recovery, id, pid, meta);
}
