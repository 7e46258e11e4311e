// SPDX-License-Identifier: Apache-2.0
// The life of a sandbox on the gateway's side.
#include "sandbox.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "egress.h"
#include "metrics.h"
#include "provisioner_replicas.h"
#include "rpc.h"
#include "sandbox_priv.h"

enum { ID_LEN = 16 }; // it is part of the names of hosts, by which ports are reached

static const char *
state_name(enum sandbox_state state)
{
    static const char *const names[] = {
        [SANDBOX_CREATING] = "creating",     [SANDBOX_READY] = "ready",
        [SANDBOX_CLAIMING] = "claiming",     [SANDBOX_CLAIMED] = "claimed",
        [SANDBOX_DESTROYING] = "destroying", [SANDBOX_GONE] = "gone",
    };
    return names[state];
}

static bool
edge_is_legal(enum sandbox_state from, enum sandbox_state to)
{
    switch (to) {
    case SANDBOX_CREATING:
        return false;
    case SANDBOX_READY: // from claiming: the claim has failed
        return from == SANDBOX_CREATING || from == SANDBOX_CLAIMING;
    case SANDBOX_CLAIMING:
        return from == SANDBOX_READY;
    case SANDBOX_CLAIMED: // from creating: it was claimed when it was adopted
        return from == SANDBOX_CREATING || from == SANDBOX_CLAIMING;
    case SANDBOX_DESTROYING:
        return from != SANDBOX_DESTROYING;
    case SANDBOX_GONE:
        return from != SANDBOX_GONE;
    }
    return false;
}

static void
sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state)
{
    assert(edge_is_legal(sandbox->state, state));
    log_debug("sandbox state", LOG_STR("sandbox", sandbox->id),
              LOG_STR("from", state_name(sandbox->state)), LOG_STR("to", state_name(state)));
    sandbox->state = state;
}

// ---- The end --------------------------------------------------------------------------------

// Closes the links and cancels our own calls. Calls of others remain, to be failed or cancelled.
static void
close_gateway_side(struct sandbox *sandbox)
{
    event_stream_free(KG_STEAL(sandbox->event_stream));
    sandbox_call_cancel(KG_STEAL(sandbox->info_call));
    wire_free(KG_STEAL(sandbox->idle_wire));
    loop_timer_stop(sandbox->ready_timer);
    if (provisioner_opens_doors(sandbox->context.provisioner))
        provisioner_close_door(sandbox->context.provisioner, sandbox->id);
    door_free(KG_STEAL(sandbox->door));
    egress_user_free(KG_STEAL(sandbox->egress));
    if (sandbox->op)
        provisioner_op_cancel(KG_STEAL(sandbox->op));
}

// Another gateway has the container now.
static void
let_go(struct sandbox *sandbox)
{
    sandbox->lost = true;
    provisioner_forget(sandbox->context.provisioner, sandbox->id);
}

// No callback of these calls can start another call, since the door is closed.
static void
fail_calls(struct sandbox *sandbox)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "the sandbox was ended meanwhile");
    while (sandbox_fail_call(sandbox, &err))
        ;
}

void
sandbox_free(struct sandbox *sandbox)
{
    if (!sandbox)
        return;
    close_gateway_side(sandbox);
    if (!sandbox->lost) // else it was forgotten, and the same container may be here again
        provisioner_forget(sandbox->context.provisioner, sandbox->id);
    if (sandbox->context.living)
        LIST_REMOVE(sandbox, link);
    fail_calls(sandbox);
    loop_timer_free(sandbox->ready_timer);
    loop_timer_free(sandbox->end_timer);
    free(sandbox->door_path);
    free(sandbox->dir);
    free(sandbox->looked_by);
    free(sandbox);
}

void
sandbox_hand_over(struct sandbox *sandbox)
{
    struct provisioner *provisioner = sandbox->context.provisioner;
    char id[sizeof sandbox->id];

    memcpy(id, sandbox->id, sizeof id);
    sandbox_free(sandbox);
    provisioner_hand_over(provisioner, id);
}

int
sandbox_check(const struct sandbox_context *context, struct kg_error *err)
{
    return provisioner_check(context->provisioner, err);
}

void
sandbox_offer(struct sandbox *sandbox)
{
    struct provisioner *provisioner = sandbox->context.provisioner;
    if (provisioner_replica_id(provisioner))
        provisioner_offer(provisioner, sandbox->id);
}

static void
on_cleaned_up(const struct kg_error *err, void *arg)
{
    struct sandbox *sandbox = arg;

    sandbox->op = NULL;
    if (err)
        log_warning("cannot clean up after a sandbox", LOG_STR("sandbox", sandbox->id),
                    LOG_ERR(err));
}

static void
sandbox_end(struct sandbox *sandbox, const struct kg_error *reason)
{
    struct kg_error err = {0};

    if (sandbox->state == SANDBOX_DESTROYING || sandbox->state == SANDBOX_GONE)
        return;
    log_info("sandbox ended", LOG_STR("sandbox", sandbox->id), LOG_ERR(reason));
    metric_add(METRIC_SANDBOXES_LOST, !sandbox->lost);
    sandbox->end_reason = *reason;
    sandbox_set_state(sandbox, SANDBOX_GONE);
    close_gateway_side(sandbox);
    if (!sandbox->lost) {
        sandbox->op = provisioner_destroy(sandbox->context.provisioner, sandbox->id, on_cleaned_up,
                                          sandbox, &err);
        if (!sandbox->op)
            on_cleaned_up(&err, sandbox);
    }
    loop_timer_start(sandbox->end_timer, 0);
}

static void
sandbox_destroyed(struct sandbox *sandbox, const struct kg_error *err)
{
    provisioner_done_fn fn = sandbox->on_destroyed;
    void *arg = sandbox->on_destroyed_arg;

    sandbox_set_state(sandbox, SANDBOX_GONE);
    sandbox_free(sandbox);
    if (fn)
        fn(err, arg);
}

// One callback for each turn of the loop, since each may free the sandbox.
static void
on_end_step(void *arg)
{
    struct sandbox *sandbox = arg;

    if (sandbox->state == SANDBOX_DESTROYING) {
        const struct kg_error err = sandbox->end_reason;
        sandbox_destroyed(sandbox, err.code ? &err : NULL);
        return;
    }
    const struct kg_error reason = sandbox->end_reason;
    loop_timer_start(sandbox->end_timer, 0);
    if (sandbox_fail_call(sandbox, &reason))
        return;
    loop_timer_stop(sandbox->end_timer);
    sandbox->events.on_gone(sandbox, &reason, sandbox->arg);
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct sandbox *sandbox = arg;

    sandbox->op = NULL;
    sandbox_destroyed(sandbox, err);
}

void
sandbox_destroy(struct sandbox *sandbox, provisioner_done_fn on_done, void *arg)
{
    sandbox_set_state(sandbox, SANDBOX_DESTROYING);
    sandbox->on_destroyed = on_done;
    sandbox->on_destroyed_arg = arg;
    close_gateway_side(sandbox);
    fail_calls(sandbox);
    loop_timer_stop(sandbox->end_timer);
    sandbox->end_reason = (struct kg_error){0};
    if (!sandbox->lost)
        sandbox->op = provisioner_destroy(sandbox->context.provisioner, sandbox->id, on_destroyed,
                                          sandbox, &sandbox->end_reason);
    if (!sandbox->op)
        loop_timer_start(sandbox->end_timer, 0);
}

// ---- The beginning --------------------------------------------------------------------------

static void
ready_if_all_is_there(struct sandbox *sandbox)
{
    if (!sandbox->made || !sandbox->answered)
        return;
    loop_timer_stop(sandbox->ready_timer);
    sandbox_set_state(sandbox, sandbox->adopted_claimed ? SANDBOX_CLAIMED : SANDBOX_READY);
    sandbox->event_stream = event_stream_new(sandbox);
    sandbox->events.on_ready(sandbox, sandbox->arg);
}

// The provisioner may know why the sandbox is late; that error is more useful.
static void
end_late(struct sandbox *sandbox, const struct kg_error *err)
{
    struct kg_error why = *err;

    if (sandbox->op && provisioner_op_explain(sandbox->op, &why))
        err = &why;
    sandbox_end(sandbox, err);
}

static void
on_info(const json_t *body, const struct kg_error *err, void *arg)
{
    struct sandbox *sandbox = arg;
    (void)body;

    sandbox->info_call = NULL;
    if (err) {
        end_late(sandbox, err);
        return;
    }
    sandbox->answered = true;
    ready_if_all_is_there(sandbox);
}

static void
on_made(const struct kg_error *err, void *arg)
{
    struct sandbox *sandbox = arg;

    sandbox->op = NULL;
    if (err) {
        if (err->code == KG_NOT_FOUND)
            let_go(sandbox);
        sandbox_end(sandbox, err);
        return;
    }
    sandbox->made = true;
    ready_if_all_is_there(sandbox);
}

static void
on_ready_timeout(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the sandbox's agent did not answer in time");
    end_late(arg, &err);
}

void
sandbox_on_exit(struct sandbox *sandbox)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's container has ended");
    sandbox_end(sandbox, &err);
}

static void
on_exit_of(const char *id, void *arg)
{
    (void)id;
    sandbox_on_exit(arg);
}

static int
overtaken(struct kg_error *err)
{
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "another gateway has taken the sandbox over");
}

// Another gateway took the container over and gave it up before this one noticed: what used it here
// ends, and does not touch it any more.
static void
supersede(const struct sandbox_context *context, const char *id)
{
    struct kg_error err = {0};
    struct sandbox *sandbox;

    (void)overtaken(&err);
    LIST_FOREACH(sandbox, context->living, link) {
        if (strcmp(sandbox->id, id) != 0)
            continue;
        sandbox->lost = true;
        sandbox_end(sandbox, &err);
    }
}

static struct sandbox *
sandbox_new(const struct sandbox_context *context, const char *id,
            const struct sandbox_events *events, void *arg)
{
    struct sandbox *sandbox = KG_NEW(struct sandbox);

    assert(strlen(id) < sizeof sandbox->id);
    sandbox->context = *context;
    sandbox->events = *events;
    sandbox->arg = arg;
    sandbox->memory_bytes = -1;
    memcpy(sandbox->id, id, strlen(id) + 1);
    KG_AUTO_FREE char *door = provisioner_sandbox_dir(context->provisioner, id);
    sandbox->door_path = kg_asprintf("%s/door.sock", door);
    sandbox->dir = kg_strndup(door, (size_t)(strrchr(door, '/') - door));
    TAILQ_INIT(&sandbox->calls);
    sandbox->ready_timer = loop_timer_new(context->loop, on_ready_timeout, sandbox);
    sandbox->end_timer = loop_timer_new(context->loop, on_end_step, sandbox);
    if (context->living) {
        supersede(context, id);
        LIST_INSERT_HEAD(context->living, sandbox, link);
    }
    return sandbox;
}

static void
on_way_out(int fd, void *arg)
{
    struct sandbox *sandbox = arg;
    egress_user_take(sandbox->egress, fd);
}

static void
on_tools(int fd, void *arg)
{
    struct sandbox *sandbox = arg;
    if (sandbox->events.on_tools)
        sandbox->events.on_tools(sandbox, fd, sandbox->arg);
    else
        close(fd);
}

static void
on_overtaken(void *arg)
{
    struct sandbox *sandbox = arg;
    struct provisioner *provisioner = sandbox->context.provisioner;
    struct kg_error err;

    if (sandbox->state == SANDBOX_CLAIMING) { // the claim fails, so another sandbox can be tried
        sandbox->overtaken = true;
        return;
    }
    let_go(sandbox);
    if (provisioner_replica_id(provisioner))
        provisioner_overtaken(provisioner, sandbox->id);
    (void)overtaken(&err);
    sandbox_end(sandbox, &err);
}

static int
dial_agent(uint64_t *ret_epoch, void *arg)
{
    const struct sandbox *sandbox = arg;
    struct kg_error err;

    if (!sandbox->made) // if it is being taken over, an earlier epoch of it may be known
        return -1;
    int fd = provisioner_dial(sandbox->context.provisioner, sandbox->id, ret_epoch, &err);
    if (fd < 0)
        log_debug("cannot dial an agent", LOG_STR("sandbox", sandbox->id), LOG_ERR(&err));
    return fd;
}

static void
on_door_socket(int fd, void *arg)
{
    const struct sandbox *sandbox = arg;
    door_unix_listen(sandbox->door, fd);
}

static struct door *
make_door(struct sandbox *sandbox, struct kg_error *err)
{
    const struct sandbox_context *context = &sandbox->context;
    const struct door_events events = {
        .on_way_out = sandbox->egress ? on_way_out : NULL,
        .on_tools = on_tools,
        .on_overtaken = on_overtaken,
        .arg = sandbox,
    };
    if (provisioner_opens_doors(context->provisioner)) {
        provisioner_open_door(context->provisioner, sandbox->id, on_door_socket, sandbox);
        return door_unix_new(context->loop, NULL, &events, err);
    }
    if (!provisioner_dials(context->provisioner))
        return door_unix_new(context->loop, sandbox->door_path, &events, err);
    const struct door_tcp_settings tcp = {
        .sandbox = sandbox->id, .key = context->link_key, .dial = dial_agent, .arg = sandbox};
    return door_tcp_new(context->loop, &tcp, &events);
}

// Opens the door and waits for the agent's answer.
static int
sandbox_start(struct sandbox *sandbox, const struct sandbox_spec *spec, struct kg_error *err)
{
    if (spec->network && sandbox->context.egress)
        sandbox->egress = egress_user_new(sandbox->context.egress);
    sandbox->door = make_door(sandbox, err);
    if (!sandbox->door)
        return -1;
    sandbox->info_call =
        sandbox_agent_call(sandbox, "info", NULL, spec->ready_timeout_ms, on_info, sandbox, err);
    if (!sandbox->info_call)
        return -1;
    loop_timer_start(sandbox->ready_timer, spec->ready_timeout_ms);
    return 0;
}

struct sandbox *
sandbox_create(const struct sandbox_context *context, const struct sandbox_spec *spec,
               const struct sandbox_events *events, void *arg, struct kg_error *err)
{
    char id[ID_LEN + 1];

    id_random(id, ID_LEN);
    KG_AUTO(sandbox) sandbox = sandbox_new(context, id, events, arg);
    const struct provisioner_sandbox_spec provisioner_spec = {
        .id = sandbox->id,
        .agent_idle_timeout_s = spec->agent_idle_timeout_s,
        .network = spec->network,
    };
    sandbox->op = provisioner_create(context->provisioner, &provisioner_spec, on_made, on_exit_of,
                                     sandbox, err);
    if (!sandbox->op || sandbox_start(sandbox, spec, err) != 0)
        return NULL;
    return KG_STEAL(sandbox);
}

struct sandbox *
sandbox_take(const struct sandbox_context *context, const struct sandbox_spec *spec,
             const struct sandbox_events *events, void *arg, struct kg_error *err)
{
    struct provisioner *provisioner = context->provisioner;
    const char *id =
        provisioner_replica_id(provisioner) ? provisioner_free_sandbox(provisioner) : NULL;
    if (!id || strlen(id) >= sizeof((struct sandbox *)NULL)->id) {
        (void)kg_error_set(err, KG_NOT_FOUND, 0, "no other gateway keeps a sandbox ready");
        return NULL;
    }
    KG_AUTO(sandbox) sandbox = sandbox_new(context, id, events, arg);
    sandbox->op = provisioner_take(provisioner, sandbox->id, on_made, on_exit_of, sandbox, err);
    if (!sandbox->op || sandbox_start(sandbox, spec, err) != 0)
        return NULL;
    return KG_STEAL(sandbox);
}

struct sandbox *
sandbox_adopt(const struct sandbox_context *context, const char *id, bool claimed,
              const struct sandbox_spec *spec, const struct sandbox_events *events, void *arg,
              struct kg_error *err)
{
    if (strlen(id) >= sizeof((struct sandbox *)NULL)->id) {
        (void)kg_error_set(err, KG_INTERNAL, 0, "invalid sandbox id");
        return NULL;
    }
    KG_AUTO(sandbox) sandbox = sandbox_new(context, id, events, arg);
    sandbox->made = true;
    sandbox->adopted_claimed = claimed;
    if (sandbox_start(sandbox, spec, err) != 0)
        return NULL;
    return KG_STEAL(sandbox);
}

// ---- Properties -----------------------------------------------------------------------------

void
sandbox_set_events(struct sandbox *sandbox, const struct sandbox_events *events, void *arg)
{
    sandbox->events = *events;
    sandbox->arg = arg;
}

const char *
sandbox_id(const struct sandbox *sandbox)
{
    return sandbox->id;
}

enum sandbox_state
sandbox_state(const struct sandbox *sandbox)
{
    return sandbox->state;
}

bool
sandbox_is_lost(const struct sandbox *sandbox)
{
    return sandbox->lost;
}

const struct sandbox_activity *
sandbox_activity(const struct sandbox *sandbox)
{
    return &sandbox->activity;
}

int64_t
sandbox_memory(const struct sandbox *sandbox)
{
    return sandbox->memory_bytes;
}

const char *
sandbox_dir(const struct sandbox *sandbox)
{
    return sandbox->dir;
}

void
sandbox_note_look(struct sandbox *sandbox, const char *cursor)
{
    free(sandbox->looked_by);
    sandbox->looked_by = kg_strdup(cursor);
    sandbox->looked_us = clock_mono_us();
}

int64_t
sandbox_looked_us(const struct sandbox *sandbox, const char *cursor)
{
    bool by_another = sandbox->looked_by && strcmp(sandbox->looked_by, cursor) != 0;
    return by_another ? sandbox->looked_us : INT64_MAX;
}

// ---- The claim ------------------------------------------------------------------------------

static void
on_claimed(const struct kg_error *err, void *arg)
{
    struct sandbox *sandbox = arg;
    struct kg_error lost;

    sandbox->op = NULL;
    if (err && sandbox->overtaken) {
        kg_error_set(&lost, KG_NOT_FOUND, 0, "another gateway has taken the sandbox");
        err = &lost;
    }
    if (err && err->code == KG_NOT_FOUND) {
        let_go(sandbox);
        sandbox_set_state(sandbox, SANDBOX_GONE);
        close_gateway_side(sandbox);
    } else {
        sandbox_set_state(sandbox, err ? SANDBOX_READY : SANDBOX_CLAIMED);
        if (sandbox->overtaken) // after the claim
            on_overtaken(sandbox);
    }
    sandbox->on_claimed(sandbox, err, sandbox->on_claimed_arg);
}

int
sandbox_claim(struct sandbox *sandbox, const json_t *meta, int64_t memory_mb, sandbox_claim_fn fn,
              void *arg, struct kg_error *err)
{
    if (sandbox->state != SANDBOX_READY)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is not ready");
    sandbox->op = provisioner_claim(sandbox->context.provisioner, sandbox->id, meta, memory_mb,
                                    on_claimed, sandbox, err);
    if (!sandbox->op)
        return -1;
    sandbox->on_claimed = fn;
    sandbox->on_claimed_arg = arg;
    sandbox_set_state(sandbox, SANDBOX_CLAIMING);
    return 0;
}

struct provisioner_op *
sandbox_record(struct sandbox *sandbox, const json_t *meta,
               void (*fn)(const struct kg_error *err, void *arg), void *arg, struct kg_error *err)
{
    if (sandbox->state != SANDBOX_CLAIMED) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the sandbox is not ready");
        return NULL;
    }
    return provisioner_record(sandbox->context.provisioner, sandbox->id, meta, fn, arg, err);
}

void
sandbox_record_cancel(struct provisioner_op *op)
{
    provisioner_op_cancel(op);
}
