// SPDX-License-Identifier: Apache-2.0
// Creating and destroying sandboxes: a queue of operations, of which a few are under way at once,
// each one a small state machine around a runtime's process.
#include "oci_op.h"

#include <assert.h>
#include <string.h>

#include "metrics.h"

#define MAX_RUNNING 8
#define PROCESS_TIMEOUT_MS 60000
#define KILL_MS 5000 // for a killed container's control group to empty
#define KILL_PAUSE_MS 3

// ---- Life of an operation -------------------------------------------------------------------

struct oci_op *
oci_op_new(struct oci *oci, enum oci_op_kind kind, const char *id, provisioner_done_fn on_done,
           void *arg)
{
    struct oci_op *op = KG_NEW(struct oci_op);
    op->base.provisioner = &oci->base;
    op->base.asked_us = clock_mono_us();
    op->kind = kind;
    memcpy(op->id, id, strlen(id));
    op->on_done = on_done;
    op->arg = arg;
    TAILQ_INSERT_TAIL(&oci->ops, op, next);
    loop_timer_start(oci->pump, 0);
    return op;
}

static bool
state_follows(enum oci_op_state from, enum oci_op_state to)
{
    switch (to) {
    case OCI_OP_QUEUED:
        return false;
    case OCI_OP_RUNNING:
    case OCI_OP_WAITING:
        return from == OCI_OP_QUEUED;
    case OCI_OP_KILLING:
        return from == OCI_OP_QUEUED || from == OCI_OP_RUNNING;
    case OCI_OP_DELETING:
        return from == OCI_OP_KILLING;
    case OCI_OP_DONE:
        return from != OCI_OP_QUEUED && from != OCI_OP_DONE;
    }
    return false;
}

void
oci_op_set_state(struct oci_op *op, enum oci_op_state state)
{
    static const char *const names[] = {
        [OCI_OP_QUEUED] = "queued",     [OCI_OP_RUNNING] = "running", [OCI_OP_KILLING] = "killing",
        [OCI_OP_DELETING] = "deleting", [OCI_OP_WAITING] = "waiting", [OCI_OP_DONE] = "done",
    };
    assert(state_follows(op->state, state));
    log_debug("provisioner operation", LOG_STR("sandbox", op->id),
              LOG_STR("from", names[op->state]), LOG_STR("to", names[state]));
    if (op->state == OCI_OP_QUEUED)
        oci_of(op)->n_running++;
    op->state = state;
}

static void
op_free(struct oci_op *op)
{
    TAILQ_REMOVE(&oci_of(op)->ops, op, next);
    loop_process_cancel(op->process);
    loop_timer_free(op->timer);
    free(op);
}

static void
count_op(const struct oci_op *op)
{
    static const char *const kinds[] = {
        [OCI_OP_CREATE] = "create", [OCI_OP_DESTROY] = "destroy", [OCI_OP_RECOVER] = "recover"};
    metric_observe_since(METRIC_PROVISIONER_CALL_SECONDS, op->base.asked_us, kinds[op->kind]);
    if (op->err.code)
        metric_add(METRIC_PROVISIONER_ERRORS, 1, kinds[op->kind]);
}

void
oci_op_finish(struct oci_op *op)
{
    struct oci *oci = oci_of(op);
    struct oci_op done = *op;
    count_op(op);
    oci_op_set_state(op, OCI_OP_DONE);
    oci->n_running--;
    op_free(op);
    loop_timer_start(oci->pump, 0);
    if (!done.cancelled)
        done.on_done(done.err.code ? &done.err : NULL, done.arg);
    else if (done.err.code)
        log_warning("provisioner operation failed", LOG_STR("sandbox", done.id),
                    LOG_ERR(&done.err));
}

void
oci_op_cancel(struct provisioner_op *base)
{
    ((struct oci_op *)base)->cancelled = true;
}

void
oci_op_drop_all(struct oci *oci)
{
    struct oci_op *op;
    while ((op = TAILQ_FIRST(&oci->ops))) {
        assert(op->cancelled || op->internal);
        op_free(op);
    }
}

// Runs a runtime's command for the operation, which is also the argument of `fn`.
static int
op_process(struct oci_op *op, struct runtime_argv *argv, const char *output_path,
           loop_process_fn fn)
{
    struct loop_process_spec spec = {
        .argv = argv->items,
        .output_path = output_path,
        .timeout_ms = PROCESS_TIMEOUT_MS,
    };
    op->process = loop_process_start(oci_of(op)->base.loop, &spec, fn, op, &op->err);
    return op->process ? 0 : -1;
}

// ---- Destroying -----------------------------------------------------------------------------

// Removes the folder, or keeps it for a later try where something still is there.
static void
finish_delete(struct oci_op *op, const struct loop_process_result *result)
{
    struct oci *oci = oci_of(op);
    KG_AUTO_FREE char *container = oci_container_id(oci, op->id);
    struct kg_error err = {0};
    if (runtime_knows(oci, op->id))
        runtime_error(oci, op->id, result, &err);
    else if (!cgroup_sweep(container))
        kg_error_set(&err, KG_INTERNAL, 0, "control group %s does not go away", container);
    else if (folder_remove(oci->base.state_dir, op->id, &err) == 0)
        err.code = KG_OK;
    if (!op->err.code) // else that of a create, which says more
        op->err = err;
    oci_op_finish(op);
}

static void
on_deleted(const struct loop_process_result *result, void *arg)
{
    struct oci_op *op = arg;
    op->process = NULL;
    finish_delete(op, result);
}

static void
start_delete(struct oci_op *op)
{
    struct oci *oci = oci_of(op);
    oci_op_set_state(op, OCI_OP_DELETING);
    if (!runtime_knows(oci, op->id)) {
        finish_delete(op, NULL);
        return;
    }
    // A container without a folder still needs a place for the runtime's log.
    KG_AUTO_FREE char *folder = folder_path(oci->base.state_dir, op->id, NULL);
    struct runtime_argv argv;
    runtime_argv_delete(oci, op->id, &argv);
    if (dir_make(folder, 0700, &op->err) < 0 || op_process(op, &argv, NULL, on_deleted) < 0)
        oci_op_finish(op);
    runtime_argv_fini(&argv);
}

static void
kill_group(void *arg)
{
    struct oci_op *op = arg;
    KG_AUTO_FREE char *container = oci_container_id(oci_of(op), op->id);
    if (cgroup_sweep(container) || clock_mono_ms() >= op->kill_until_ms)
        start_delete(op);
    else
        loop_timer_start(op->timer, KILL_PAUSE_MS);
}

// Before the runtime's own `delete --force`, which would kill too, but looks only every 100 ms.
static void
start_kill(struct oci_op *op)
{
    oci_op_set_state(op, OCI_OP_KILLING);
    op->kill_until_ms = clock_mono_ms() + KILL_MS;
    op->timer = loop_timer_new(oci_of(op)->base.loop, kill_group, op);
    kill_group(op);
}

struct provisioner_op *
oci_sandbox_destroy(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                    void *arg, struct kg_error *err)
{
    (void)err;
    struct oci *oci = (struct oci *)provisioner;
    oci_watch_stop(oci, id);
    return &oci_op_new(oci, OCI_OP_DESTROY, id, on_done, arg)->base;
}

// ---- Creating -------------------------------------------------------------------------------

static void
on_ran(const struct loop_process_result *result, void *arg)
{
    struct oci_op *op = arg;
    struct oci *oci = oci_of(op);
    op->process = NULL;
    int pid;
    if (result->exit_code != 0)
        runtime_error(oci, op->id, result, &op->err);
    else if (!op->cancelled && runtime_init_pid(oci, op->id, &pid, &op->err) == 0 &&
             oci_watch_start(oci, op->id, pid, op->on_exit, op->arg, &op->err) < 0)
        kg_error_set(&op->err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's agent ended at once");
    if (op->err.code || op->cancelled)
        start_kill(op);
    else
        oci_op_finish(op);
}

static void
start_run(struct oci_op *op)
{
    struct oci *oci = oci_of(op);
    oci_op_set_state(op, OCI_OP_RUNNING);
    KG_AUTO_FREE char *timeout = kg_asprintf("%d", op->idle_timeout_s);
    KG_AUTO_FREE char *output = folder_path(oci->base.state_dir, op->id, "agent.log");
    struct runtime_argv argv;
    runtime_argv_run(oci, op->id, true, &argv);
    json_t *args = json_pack("[s, s, s, s, s]", SANDBOX_AGENT, "--door", SANDBOX_DOOR "/door.sock",
                             "--idle-timeout", timeout);
    if (bundle_write(oci, op->id, args, &op->err) < 0 || op_process(op, &argv, output, on_ran) < 0)
        start_kill(op);
    runtime_argv_fini(&argv);
}

struct provisioner_op *
oci_sandbox_create(struct provisioner *provisioner, const struct provisioner_sandbox_spec *spec,
                   provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                   struct kg_error *err)
{
    struct oci *oci = (struct oci *)provisioner;
    if (spec->network) {
        kg_error_set(err, KG_INVALID, 0, "the provisioner oci gives no network");
        return NULL;
    }
    if (folder_make(provisioner->state_dir, spec->id, err) < 0)
        return NULL;
    struct oci_op *op = oci_op_new(oci, OCI_OP_CREATE, spec->id, on_done, arg);
    op->on_exit = on_exit;
    op->idle_timeout_s = spec->agent_idle_timeout_s;
    return &op->base;
}

// ---- The queue ------------------------------------------------------------------------------

static void
op_start(struct oci_op *op)
{
    switch (op->kind) {
    case OCI_OP_CREATE:
        if (op->cancelled)
            start_kill(op);
        else
            start_run(op);
        break;
    case OCI_OP_DESTROY:
        start_kill(op);
        break;
    case OCI_OP_RECOVER:
        oci_recover_start(op);
        break;
    }
}

// Whether an older operation on the same sandbox is still there.
static bool
op_must_wait(struct oci_op *op)
{
    struct oci_op *older;
    TAILQ_FOREACH(older, &oci_of(op)->ops, next) {
        if (older == op)
            return false;
        if (!strcmp(older->id, op->id))
            return true;
    }
    return false;
}

void
oci_op_pump(void *arg)
{
    struct oci *oci = arg;
    struct oci_op *op = TAILQ_FIRST(&oci->ops);
    while (op && oci->n_running < MAX_RUNNING) {
        if (op->state == OCI_OP_QUEUED && !op_must_wait(op)) {
            op_start(op); // may have ended it, and whatever its callback ended
            loop_timer_start(oci->pump, 0);
            return;
        }
        op = TAILQ_NEXT(op, next);
    }
}
