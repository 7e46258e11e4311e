// SPDX-License-Identifier: Apache-2.0
#include "fake_engine.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

struct fake_sandboxes *fake_sandboxes;

// ---- The table --------------------------------------------------------------------------------

static char *
table_find(char (*ids)[SANDBOX_ID_MAX + 1], const char *id)
{
    for (size_t i = 0; i < FAKE_SANDBOXES; i++) {
        if (strcmp(ids[i], id) == 0)
            return ids[i];
    }
    return NULL;
}

static void
table_add(char (*ids)[SANDBOX_ID_MAX + 1], const char *id)
{
    char *place = table_find(ids, "");
    assert(place);
    memcpy(place, id, strlen(id) + 1);
}

bool
fake_sandbox_lives(const struct fake_sandboxes *table, const char *id)
{
    return table_find(((struct fake_sandboxes *)(uintptr_t)table)->living, id) != NULL;
}

void
fake_sandbox_add(struct fake_sandboxes *table, const char *id)
{
    table_add(table->living, id);
    table->n_living++;
    if (table->n_living > table->most)
        table->most = table->n_living;
}

static void
table_remove(struct fake_sandboxes *table, const char *id)
{
    char *zygote = table_find(table->zygotes, id);
    char *living = table_find(table->living, id);
    if (zygote)
        *zygote = '\0';
    if (living) {
        *living = '\0';
        table->n_living--;
    }
}

// Counts a call that names a sandbox. One that has ended may still be named.
static void
count_call(const char *id)
{
    fake_sandboxes->n_calls++;
    fake_sandboxes->n_strangers += id[0] != FAKE_ENDS && !fake_sandbox_lives(fake_sandboxes, id);
}

// ---- Operations -------------------------------------------------------------------------------

static void
op_remove(struct provisioner_op *op)
{
    table_remove(fake_sandboxes, op->id);
    op_start_delete(op);
    op_finish(op);
}

static void
op_finish_and_end(struct provisioner_op *op)
{
    struct provisioner *provisioner = op->provisioner;
    struct sandbox_watch *watch = watch_find(provisioner, op->id);
    table_remove(fake_sandboxes, op->id);
    op_finish(op);
    watch_fire(watch);
}

static void
op_make(struct provisioner_op *op)
{
    if (op->cancelled) {
        op_remove(op);
        return;
    }
    op_set_state(op, OP_RUNNING);
    if (op->zygote_argv)
        table_add(fake_sandboxes->zygotes, op->id);
    else if (op->id[0] == FAKE_WAITS)
        return;
    else if (op->id[0] == FAKE_FAILS ||
             watch_start(op->provisioner, op->id, 0, op->on_exit, op->arg, &op->err) < 0)
        (void)kg_error_set(&op->err, KG_PROVISIONER_UNAVAILABLE, 0, "this one cannot be made");
    else
        fake_sandbox_add(fake_sandboxes, op->id);
    if (op->err.code)
        op_remove(op);
    else if (!op->zygote_argv && op->id[0] == FAKE_ENDS)
        op_finish_and_end(op);
    else
        op_finish(op);
}

static void
op_report_all(struct provisioner_op *op)
{
    op_set_state(op, OP_WAITING);
    for (size_t i = 0; i < FAKE_SANDBOXES; i++) {
        if (fake_sandboxes->living[i][0])
            op_report(op, fake_sandboxes->living[i], 0, NULL);
    }
    op_recover_step(op);
}

static void
fake_op_start(struct provisioner_op *op)
{
    switch (op->kind) {
    case OP_CREATE:
        op_make(op);
        break;
    case OP_DESTROY:
        if (!table_find(fake_sandboxes->zygotes, op->id))
            count_call(op->id);
        op_remove(op);
        break;
    case OP_CLAIM:
        op_claim(op);
        break;
    case OP_RECOVER:
        op_report_all(op);
        break;
    }
}

static void
fake_op_cancelled(struct provisioner_op *op)
{
    if (op->kind == OP_CREATE && op->state == OP_RUNNING)
        op_remove(op);
}

static void
fake_op_fini(struct provisioner_op *op)
{
    (void)op;
}

// ---- The engine -------------------------------------------------------------------------------

static struct provisioner *
fake_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    struct provisioner *provisioner = KG_NEW(struct provisioner);
    if (provisioner_init(provisioner, &fake_engine, loop, settings, err) == 0)
        return provisioner;
    provisioner_fini(provisioner);
    free(provisioner);
    return NULL;
}

static void
fake_free(struct provisioner *provisioner)
{
    provisioner_fini(provisioner);
    free(provisioner);
}

static int
fake_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
          struct kg_error *err)
{
    (void)provisioner, (void)err;
    count_call(id);
    *ret_epoch = 1;
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int
fake_open_entry(const struct provisioner *provisioner, const char *id,
                struct provisioner_entry *ret, struct kg_error *err)
{
    (void)provisioner, (void)ret;
    count_call(id);
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "nothing is in there");
}

static bool
fake_can_enter(const struct provisioner *provisioner)
{
    (void)provisioner;
    return true;
}

static int
fake_limit(const struct provisioner *provisioner, const char *id, int64_t memory_mb,
           struct kg_error *err)
{
    (void)provisioner, (void)memory_mb, (void)err;
    count_call(id);
    return 0;
}

const struct provisioner_engine fake_engine = {
    .name = "oci",
    .is_on_this_machine = true,
    .create = fake_create,
    .free = fake_free,
    .dial = fake_dial,
    .open_entry = fake_open_entry,
    .can_enter = fake_can_enter,
    .limit = fake_limit,
    .op_size = sizeof(struct provisioner_op),
    .op_start = fake_op_start,
    .op_cancelled = fake_op_cancelled,
    .op_fini = fake_op_fini,
};
