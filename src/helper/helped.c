// SPDX-License-Identifier: Apache-2.0
// The engine "oci" of a gateway with a helper: its operations are requests to the helper. Here are
// only the sessions' records and the folders of the kernels' sockets, below a folder of the
// gateway's own.
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "provisioner_engine.h"

enum {
    BACK_MS = 15 * 1000, // what is to be removed waits so long for another helper
};

// The door of one sandbox: a socket that nobody has asked for yet, or somebody who waits for it.
struct helped_door {
    TAILQ_ENTRY(helped_door) link;
    char id[SANDBOX_ID_MAX + 1];
    int fd;                 // -1: it was passed on, or has not come
    provisioner_door_fn fn; // NULL: nobody has asked
    void *arg;
};

// The socket of an agent that was dialled (for tests, see oci.c), until the next attempt takes it.
struct helped_dial {
    TAILQ_ENTRY(helped_dial) link;
    struct helped *helped;
    char id[SANDBOX_ID_MAX + 1];
    struct helper_call *call;
    int fd;
    uint64_t epoch;
};

struct helped {
    struct provisioner base;
    struct helper *helper;
    TAILQ_HEAD(, helped_door) doors;
    TAILQ_HEAD(, helped_dial) dials;
    struct loop_timer *pass;     // gives sockets to those who wait
    struct helper_call *listing; // after another helper has come
    TAILQ_HEAD(, helped_seen) seen;
};

// A sandbox that the helper has reported in an answer that is not complete yet.
struct helped_seen {
    TAILQ_ENTRY(helped_seen) link;
    char id[SANDBOX_ID_MAX + 1];
};

struct helped_op {
    struct provisioner_op base;
    struct helper_call *call;
    struct loop_timer *back; // while it waits for another helper
};

static struct helped *
helped_of(const struct provisioner_op *op)
{
    return (struct helped *)op->provisioner;
}

static void
set_id(struct helper_request *request, const char *id)
{
    memcpy(request->id, id, strlen(id)); // at most SANDBOX_ID_MAX characters
}

// ---- Doors ----------------------------------------------------------------------------------

static struct helped_door *
door_find(const struct helped *helped, const char *id)
{
    struct helped_door *door;
    TAILQ_FOREACH(door, &helped->doors, link) {
        if (strcmp(door->id, id) == 0)
            return door;
    }
    return NULL;
}

static struct helped_door *
door_get(struct helped *helped, const char *id)
{
    struct helped_door *door = door_find(helped, id);
    if (door)
        return door;
    door = KG_NEW(struct helped_door);
    memcpy(door->id, id, strlen(id));
    door->fd = -1;
    TAILQ_INSERT_TAIL(&helped->doors, door, link);
    return door;
}

static void
door_drop(struct helped *helped, struct helped_door *door)
{
    if (!door)
        return;
    TAILQ_REMOVE(&helped->doors, door, link);
    if (door->fd >= 0)
        close(door->fd);
    free(door);
}

static void
pass_sockets(void *arg)
{
    struct helped *helped = arg;
    struct helped_door *door, *next;
    for (door = TAILQ_FIRST(&helped->doors); door; door = next) {
        next = TAILQ_NEXT(door, link);
        if (!door->fn || door->fd < 0)
            continue;
        door->fn(KG_STEAL_FD(door->fd), door->arg); // it may close this door
        loop_timer_start(helped->pass, 0);
        return;
    }
}

static void
door_keep_socket(struct helped *helped, const char *id, int fd)
{
    struct helped_door *door = door_get(helped, id);
    if (door->fd >= 0)
        close(door->fd);
    door->fd = fd;
    if (door->fn)
        loop_timer_fire(helped->pass);
}

static void
helped_open_door(struct provisioner *provisioner, const char *id, provisioner_door_fn fn, void *arg)
{
    struct helped *helped = (struct helped *)provisioner;
    struct helped_door *door = door_get(helped, id);
    door->fn = fn;
    door->arg = arg;
    if (door->fd >= 0)
        loop_timer_start(helped->pass, 0);
}

static void
helped_close_door(struct provisioner *provisioner, const char *id)
{
    struct helped *helped = (struct helped *)provisioner;
    door_drop(helped, door_find(helped, id));
}

// ---- Operations -----------------------------------------------------------------------------

static void
helped_op_fini(struct provisioner_op *base)
{
    struct helped_op *op = (struct helped_op *)base;
    helper_call_cancel(op->call);
    loop_timer_free(op->back);
}

static bool
op_ask(struct helped_op *op, struct helper_request *request, helper_reply_fn fn,
       struct kg_error *err)
{
    set_id(request, op->base.id);
    op->call = helper_ask(helped_of(&op->base)->helper, request, fn, op, err);
    return op->call != NULL;
}

// What comes with an answer that has no descriptor by the protocol.
static void
close_stray(int fd)
{
    if (fd >= 0)
        close(fd);
}

// Removes the gateway's part.
static void
op_remove_folder(struct helped_op *op, const struct kg_error *err)
{
    struct provisioner_op *base = &op->base;
    struct kg_error why = *err, folder_err;
    door_drop(helped_of(base), door_find(helped_of(base), base->id));
    if (folder_remove(base->provisioner->state_dir, base->id, &folder_err) < 0 && !why.code)
        why = folder_err;
    op_finish_delete(base, &why);
}

static void start_destroy(void *arg);

static void
on_destroyed(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped_op *op = arg;
    struct helper_reply done = *reply;
    struct kg_error err = {0};
    close_stray(fd);
    op->call = NULL;
    (void)helper_reply_error(&done, &err);
    if (err.code && helper_check(helped_of(&op->base)->helper, NULL) < 0)
        start_destroy(op); // waits for the next helper
    else
        op_remove_folder(op, &err);
}

static void
on_no_helper(void *arg)
{
    struct helped_op *op = arg;
    struct kg_error err = {0};
    loop_timer_free(KG_STEAL(op->back));
    if (helper_check(helped_of(&op->base)->helper, &err) < 0)
        op_remove_folder(op, &err);
    else
        start_destroy(op);
}

// What another helper finds without a record is removed, too: see on_back().
static void
start_destroy(void *arg)
{
    struct helped_op *op = arg;
    struct helper_request request = {.verb = HELPER_DESTROY};
    struct kg_error err;
    if (op->base.state != OP_DELETING)
        op_set_state(&op->base, OP_DELETING);
    if (op_ask(op, &request, on_destroyed, &err))
        return;
    if (!helper_can_come_back(helped_of(&op->base)->helper)) {
        op_remove_folder(op, &err);
        return;
    }
    op->back = loop_timer_new(op->base.provisioner->loop, on_no_helper, op);
    loop_timer_start(op->back, BACK_MS);
}

// A helper that has failed has left nothing. What one that has ended was making is removed when the
// next one is there; the caller need not wait for that.
static void
create_failed(struct helped_op *op)
{
    struct provisioner_op *base = &op->base;
    if (helper_check(helped_of(base)->helper, NULL) < 0) {
        (void)op_remove_leftover(base->provisioner, base->id, NULL);
        op_finish(base);
        return;
    }
    op_set_state(base, OP_DELETING);
    op_remove_folder(op, &(struct kg_error){0});
}

static void
on_created(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped_op *op = arg;
    struct provisioner_op *base = &op->base;
    if (reply->event == HELPER_DOOR && fd >= 0) {
        door_keep_socket(helped_of(base), base->id, fd);
        return;
    }
    close_stray(fd);
    if (reply->event != HELPER_DONE)
        return;
    op->call = NULL;
    if (helper_reply_error(reply, &base->err)) {
        create_failed(op);
        return;
    }
    // Without a process id it cannot fail.
    if (!base->cancelled &&
        watch_start(base->provisioner, base->id, 0, base->on_exit, base->arg, &base->err) == 0)
        op_finish(base);
    else
        start_destroy(op);
}

static void
start_create(struct helped_op *op)
{
    struct provisioner_op *base = &op->base;
    struct helper_request request = {
        .verb = HELPER_CREATE, .flag = base->network, .number = base->idle_timeout_s};
    if (base->cancelled) {
        op_set_state(base, OP_DELETING);
        op_remove_folder(op, &(struct kg_error){0});
        return;
    }
    op_set_state(base, OP_RUNNING);
    if (op_ask(op, &request, on_created, &base->err))
        return;
    op_set_state(base, OP_DELETING);
    op_remove_folder(op, &(struct kg_error){0});
}

static void
on_limited(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped_op *op = arg;
    close_stray(fd);
    op->call = NULL;
    if (helper_reply_error(reply, &op->base.err))
        op_finish(&op->base);
    else
        op_claim(&op->base);
}

static void
start_claim(struct helped_op *op)
{
    struct helper_request request = {.verb = HELPER_LIMIT, .number = op->base.memory_mb};
    op_set_state(&op->base, OP_RUNNING);
    if (op->base.memory_mb == 0)
        op_claim(&op->base);
    else if (!op_ask(op, &request, on_limited, &op->base.err))
        op_finish(&op->base);
}

// ---- Finding sandboxes ----------------------------------------------------------------------

static void
seen_add(struct helped *helped, const char *id)
{
    struct helped_seen *seen = KG_NEW(struct helped_seen);
    memcpy(seen->id, id, strlen(id));
    TAILQ_INSERT_TAIL(&helped->seen, seen, link);
}

static bool
seen_has(const struct helped *helped, const char *id)
{
    const struct helped_seen *seen;
    TAILQ_FOREACH(seen, &helped->seen, link) {
        if (strcmp(seen->id, id) == 0)
            return true;
    }
    return false;
}

static void
seen_clear(struct helped *helped)
{
    struct helped_seen *seen;
    while ((seen = TAILQ_FIRST(&helped->seen))) {
        TAILQ_REMOVE(&helped->seen, seen, link);
        free(seen);
    }
}

// The folder of a sandbox that has ended.
static void
recover_folder(const char *id, void *arg)
{
    struct helped_op *op = arg;
    if (!seen_has(helped_of(&op->base), id))
        op_remove_leftover(op->base.provisioner, id, &op->base);
}

static void
on_recovered(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped_op *op = arg;
    struct provisioner_op *base = &op->base;
    struct helped *helped = helped_of(base);
    if (reply->event == HELPER_FOUND && sandbox_id_valid(reply->id)) {
        if (fd >= 0)
            door_keep_socket(helped, reply->id, fd);
        seen_add(helped, reply->id);
        if (!base->cancelled && !op_take_up(base, reply->id, 0))
            op_remove_leftover(base->provisioner, reply->id, base);
        return;
    }
    close_stray(fd);
    if (reply->event != HELPER_DONE)
        return;
    op->call = NULL;
    if (!helper_reply_error(reply, &base->err) &&
        folder_list(base->provisioner->state_dir, recover_folder, op, &base->err) < 0) {
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&base->err));
        base->err.code = KG_OK;
    }
    seen_clear(helped);
    op_recover_step(base);
}

static void
start_recover(struct helped_op *op)
{
    struct helper_request request = {.verb = HELPER_LIST, .flag = 1};
    op_set_state(&op->base, OP_WAITING);
    if (!op_ask(op, &request, on_recovered, &op->base.err))
        op_recover_step(&op->base);
}

static void
helped_op_start(struct provisioner_op *base)
{
    struct helped_op *op = (struct helped_op *)base;
    switch (base->kind) {
    case OP_CREATE:
        start_create(op);
        break;
    case OP_CLAIM:
        start_claim(op);
        break;
    case OP_DESTROY:
        start_destroy(op);
        break;
    case OP_RECOVER:
        start_recover(op);
        break;
    }
}

// ---- Ends, and another helper ---------------------------------------------------------------

static void
on_exited(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped *helped = arg;
    struct sandbox_watch *watch = watch_find(&helped->base, reply->id);
    close_stray(fd);
    if (watch)
        watch_fire(watch);
}

// Sandboxes that have ended meanwhile, and those of which nobody here knows.
static void
compare_listed(struct helped *helped)
{
    struct sandbox_watch *watch, *next;
    for (watch = TAILQ_FIRST(&helped->base.watches); watch; watch = next) {
        next = TAILQ_NEXT(watch, next);
        if (seen_has(helped, watch->id))
            continue;
        watch_fire(watch);
        next = TAILQ_FIRST(&helped->base.watches); // its callback may have ended others
    }
    const struct helped_seen *seen;
    TAILQ_FOREACH(seen, &helped->seen, link) {
        if (!watch_find(&helped->base, seen->id) && !op_find(&helped->base, seen->id))
            op_remove_leftover(&helped->base, seen->id, NULL);
    }
}

static void
on_listed(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped *helped = arg;
    close_stray(fd);
    if (reply->event == HELPER_FOUND && sandbox_id_valid(reply->id))
        seen_add(helped, reply->id);
    if (reply->event != HELPER_DONE)
        return;
    helped->listing = NULL;
    if (!helper_reply_error(reply, NULL))
        compare_listed(helped);
    seen_clear(helped);
}

static void
on_back(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped *helped = arg;
    const struct helper_request request = {.verb = HELPER_LIST};
    struct kg_error err;
    struct provisioner_op *base;
    close_stray(fd);
    if (helper_reply_error(reply, &err)) {
        log_error("another helper has started, and cannot make sandboxes", LOG_ERR(&err));
        return;
    }
    log_info("another helper has started: new sandboxes can be made");
    helped->listing = helper_ask(helped->helper, &request, on_listed, helped, &err);
    TAILQ_FOREACH(base, &helped->base.ops, next) {
        struct helped_op *op = (struct helped_op *)base;
        if (!op->back)
            continue;
        loop_timer_free(KG_STEAL(op->back));
        start_destroy(op);
    }
}

// ---- The engine -----------------------------------------------------------------------------

static struct provisioner *
helped_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    if (helper_reply_error(helper_started(settings->helper), err))
        return NULL;
    struct helped *helped = KG_NEW(struct helped);
    TAILQ_INIT(&helped->doors);
    TAILQ_INIT(&helped->dials);
    TAILQ_INIT(&helped->seen);
    helped->helper = settings->helper;
    if (provisioner_init(&helped->base, &provisioner_helped, loop, settings, err) < 0) {
        provisioner_fini(&helped->base);
        free(helped);
        return NULL;
    }
    helped->pass = loop_timer_new(loop, pass_sockets, helped);
    helper_on(helped->helper, HELPER_EXITED, on_exited, helped);
    helper_on(helped->helper, HELPER_BACK, on_back, helped);
    return &helped->base;
}

static void
dial_drop(struct helped_dial *dial)
{
    TAILQ_REMOVE(&dial->helped->dials, dial, link);
    helper_call_cancel(dial->call);
    if (dial->fd >= 0)
        close(dial->fd);
    free(dial);
}

static void
helped_free(struct provisioner *provisioner)
{
    struct helped *helped = (struct helped *)provisioner;
    helper_off(helped->helper, helped);
    helper_call_cancel(helped->listing);
    provisioner_fini(&helped->base);
    while (!TAILQ_EMPTY(&helped->doors))
        door_drop(helped, TAILQ_FIRST(&helped->doors));
    while (!TAILQ_EMPTY(&helped->dials))
        dial_drop(TAILQ_FIRST(&helped->dials));
    seen_clear(helped);
    loop_timer_free(helped->pass);
    free(helped);
}

static bool
helped_can_enter(const struct provisioner *provisioner)
{
    return helper_started(((const struct helped *)provisioner)->helper)->flag;
}

static void
helped_traits(const struct provisioner *provisioner, struct provisioner_traits *ret)
{
    ret->memory_bound = helper_started(((const struct helped *)provisioner)->helper)->number;
}

static int
helped_check(const struct provisioner *provisioner, struct kg_error *err)
{
    const struct helper *helper = ((const struct helped *)provisioner)->helper;
    if (helper_check(helper, err) < 0)
        return -1;
    return helper_reply_error(helper_started(helper), err) ? -1 : 0;
}

// ---- Agents that are dialled ----------------------------------------------------------------

static void
on_dialled(const struct helper_reply *reply, int fd, void *arg)
{
    struct helped_dial *dial = arg;
    dial->call = NULL;
    dial->fd = fd;
    dial->epoch = (uint64_t)reply->number;
    if (fd < 0)
        dial_drop(dial);
}

// The socket is there at a later attempt.
static int
helped_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
            struct kg_error *err)
{
    struct helped *helped = (struct helped *)provisioner;
    struct helper_request request = {.verb = HELPER_DIAL};
    struct helped_dial *dial;
    TAILQ_FOREACH(dial, &helped->dials, link) {
        if (strcmp(dial->id, id) == 0 && dial->fd >= 0) {
            int fd = KG_STEAL_FD(dial->fd);
            *ret_epoch = dial->epoch;
            dial_drop(dial);
            return fd;
        }
    }
    set_id(&request, id);
    dial = KG_NEW(struct helped_dial);
    dial->helped = helped;
    dial->fd = -1;
    memcpy(dial->id, id, strlen(id));
    TAILQ_INSERT_TAIL(&helped->dials, dial, link);
    dial->call = helper_ask(helped->helper, &request, on_dialled, dial, err);
    if (dial->call)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent is being dialled");
    dial_drop(dial);
    return -1;
}

const struct provisioner_engine provisioner_helped = {
    .name = "oci",
    .is_on_this_machine = true,
    .create = helped_create,
    .free = helped_free,
    .traits = helped_traits,
    .dial = helped_dial,
    .open_door = helped_open_door,
    .close_door = helped_close_door,
    .can_enter = helped_can_enter,
    .check = helped_check,
    .op_size = sizeof(struct helped_op),
    .op_start = helped_op_start,
    .op_fini = helped_op_fini,
};
