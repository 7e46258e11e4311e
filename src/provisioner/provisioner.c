// SPDX-License-Identifier: Apache-2.0
// Picks the engine, checks arguments, and starts operations.
#include "provisioner.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "provisioner_engine.h"
#include "provisioner_replicas.h"

static bool
engine_asked_for(const struct provisioner_engine *engine, const char *name)
{
    if (strcmp(name, "auto") == 0)
        return engine->is_on_this_machine;
    return strcmp(name, engine->name) == 0;
}

struct provisioner *
provisioner_new(struct loop *loop, const struct provisioner_settings *settings,
                struct kg_error *err)
{
    KG_AUTO_BUF reasons = {0};
    struct kg_error why;
    for (const struct provisioner_engine *const *engine = settings->engines; *engine; engine++) {
        if (!engine_asked_for(*engine, settings->engine))
            continue;
        struct provisioner *provisioner = (*engine)->create(loop, settings, &why);
        if (provisioner)
            return provisioner;
        buf_printf(&reasons, "%s%s: %.110s", reasons.len ? "; " : "", (*engine)->name, why.message);
    }
    if (strcmp(settings->engine, "auto") != 0)
        *err = why;
    else
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s", reasons.data);
    return NULL;
}

void
provisioner_free(struct provisioner *provisioner)
{
    if (provisioner)
        provisioner->engine->free(provisioner);
}

const char *
provisioner_name(const struct provisioner *provisioner)
{
    return provisioner->engine->name;
}

struct provisioner_traits
provisioner_traits(const struct provisioner *provisioner)
{
    struct provisioner_traits traits = {.engine = provisioner->engine->name,
                                        .can_enter = provisioner_can_enter(provisioner)};
    if (provisioner->engine->traits)
        provisioner->engine->traits(provisioner, &traits);
    return traits;
}

struct provisioner_traits
provisioner_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn,
                   void *arg)
{
    struct provisioner_traits first = {0};
    for (const struct provisioner_engine *const *engine = settings->engines; *engine; engine++) {
        struct provisioner_traits traits = {.engine = (*engine)->name};
        if (engine_asked_for(*engine, settings->engine) &&
            (*engine)->doctor(settings, fn, arg, &traits) && !first.engine)
            first = traits;
    }
    return first;
}

static int
check_id(const char *id, struct kg_error *err)
{
    if (sandbox_id_valid(id))
        return 0;
    return kg_error_set(err, KG_INTERNAL, 0, "invalid sandbox id \"%s\"", id);
}

bool
provisioner_dials(const struct provisioner *provisioner)
{
    return provisioner->gateway_key != NULL;
}

// The door is such a folder, too.
bool
provisioner_shares_folders(const struct provisioner *provisioner)
{
    return !provisioner_dials(provisioner);
}

int
provisioner_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
                 struct kg_error *err)
{
    assert(provisioner_dials(provisioner));
    return provisioner->engine->dial(provisioner, id, ret_epoch, err);
}

bool
provisioner_can_enter(const struct provisioner *provisioner)
{
    return provisioner->engine->can_enter && provisioner->engine->can_enter(provisioner);
}

int
provisioner_open_entry(const struct provisioner *provisioner, const char *id,
                       struct provisioner_entry *ret, struct kg_error *err)
{
    *ret = (struct provisioner_entry){.pidfd = -1};
    if (!provisioner_can_enter(provisioner))
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "nothing can enter the sandboxes of this engine");
    if (provisioner->engine->open_entry(provisioner, id, ret, err) == 0)
        return 0;
    provisioner_entry_fini(ret);
    return -1;
}

void
provisioner_entry_fini(struct provisioner_entry *entry)
{
    if (entry->pidfd >= 0)
        close(entry->pidfd);
    for (size_t i = 0; i < entry->n_groups; i++)
        close(entry->groups[i]);
    *entry = (struct provisioner_entry){.pidfd = -1};
}

char *
provisioner_sandbox_dir(const struct provisioner *provisioner, const char *id)
{
    return folder_path(provisioner->state_dir, id, "door");
}

bool
provisioner_opens_doors(const struct provisioner *provisioner)
{
    return provisioner->engine->open_door && !provisioner_dials(provisioner);
}

void
provisioner_open_door(struct provisioner *provisioner, const char *id, provisioner_door_fn fn,
                      void *arg)
{
    provisioner->engine->open_door(provisioner, id, fn, arg);
}

void
provisioner_close_door(struct provisioner *provisioner, const char *id)
{
    provisioner->engine->close_door(provisioner, id);
}

struct provisioner_op *
provisioner_create(struct provisioner *provisioner, const struct provisioner_sandbox_spec *spec,
                   provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                   struct kg_error *err)
{
    if (check_id(spec->id, err) < 0)
        return NULL;
    if (folder_make(provisioner->state_dir, spec->id, err) < 0)
        return NULL;
    if (spec->zygote && folder_mark_zygote(provisioner->state_dir, spec->id, err) < 0)
        return NULL;
    struct provisioner_op *op = op_new(provisioner, OP_CREATE, spec->id, on_done, arg);
    op->on_exit = on_exit;
    op->idle_timeout_s = spec->agent_idle_timeout_s;
    op->network = spec->network;
    if (spec->zygote) {
        op->zygote_argv = json_deep_copy(spec->zygote->argv);
        op->zygote_env = json_deep_copy(spec->zygote->env);
    }
    return op;
}

struct provisioner_op *
provisioner_take(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                 provisioner_exit_fn on_exit, void *arg, struct kg_error *err)
{
    if (check_id(id, err) < 0)
        return NULL;
    if (!folder_exists(provisioner->state_dir, id) &&
        folder_make(provisioner->state_dir, id, err) < 0)
        return NULL;
    watch_stop(provisioner, id); // of the time when this gateway held it before
    struct provisioner_op *op = op_new(provisioner, OP_CREATE, id, on_done, arg);
    op->takes = true;
    op->on_exit = on_exit;
    return op;
}

int
provisioner_check(const struct provisioner *provisioner, struct kg_error *err)
{
    return provisioner->engine->check ? provisioner->engine->check(provisioner, err) : 0;
}

void
provisioner_retire(struct provisioner *provisioner)
{
    if (provisioner->engine->retire)
        provisioner->engine->retire(provisioner);
}

bool
provisioner_is_idle(const struct provisioner *provisioner)
{
    bool busy = provisioner->engine->is_busy && provisioner->engine->is_busy(provisioner);
    return TAILQ_EMPTY(&provisioner->ops) && !busy;
}

void
provisioner_op_cancel(struct provisioner_op *op)
{
    if (!op)
        return;
    op->cancelled = true;
    if (op->provisioner->engine->op_cancelled)
        op->provisioner->engine->op_cancelled(op);
}

bool
provisioner_op_explain(const struct provisioner_op *op, struct kg_error *err)
{
    const struct provisioner_engine *engine = op->provisioner->engine;
    return engine->op_explain && engine->op_explain(op, err);
}

struct provisioner_op *
provisioner_destroy(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                    void *arg, struct kg_error *err)
{
    if (check_id(id, err) < 0)
        return NULL;
    watch_stop(provisioner, id);
    return op_new(provisioner, OP_DESTROY, id, on_done, arg);
}

void
provisioner_forget(struct provisioner *provisioner, const char *id)
{
    watch_mute(provisioner, id);
}

struct provisioner_op *
provisioner_claim(struct provisioner *provisioner, const char *id, const json_t *meta,
                  int64_t memory_mb, provisioner_done_fn on_done, void *arg, struct kg_error *err)
{
    if (check_id(id, err) < 0)
        return NULL;
    struct provisioner_op *op = op_new(provisioner, OP_CLAIM, id, on_done, arg);
    op->meta = json_deep_copy(meta);
    op->memory_mb = memory_mb;
    return op;
}

struct provisioner_op *
provisioner_record(struct provisioner *provisioner, const char *id, const json_t *meta,
                   provisioner_done_fn on_done, void *arg, struct kg_error *err)
{
    struct provisioner_op *op = provisioner_claim(provisioner, id, meta, 0, on_done, arg, err);
    if (op)
        op->again = true;
    return op;
}

int
provisioner_limit(const struct provisioner *provisioner, const char *id, int64_t memory_mb,
                  struct kg_error *err)
{
    if (!provisioner->engine->limit)
        return kg_error_set(err, KG_INVALID, 0, "this engine cannot limit a sandbox's memory");
    return provisioner->engine->limit(provisioner, id, memory_mb, err);
}

struct provisioner_op *
provisioner_recover(struct provisioner *provisioner, provisioner_found_fn on_found,
                    provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                    struct kg_error *err)
{
    (void)err;
    bool first = TAILQ_EMPTY(&provisioner->ops) && TAILQ_EMPTY(&provisioner->watches);
    assert(first || provisioner_replica_id(provisioner));
    struct provisioner_op *op = op_new(provisioner, OP_RECOVER, "", on_done, arg);
    op->on_found = on_found;
    op->on_exit = on_exit;
    return op;
}
