// SPDX-License-Identifier: Apache-2.0
// Picks the engine and hands every call to it.
#include "provisioner.h"

#include <string.h>

#include "provisioner_priv.h"

// In the order in which "auto" tries them.
static const struct provisioner_engine *const engines[] = {&provisioner_oci};

static bool
engine_asked_for(const struct provisioner_engine *engine, const char *name)
{
    return !strcmp(name, "auto") || !strcmp(name, engine->name);
}

struct provisioner *
provisioner_new(struct loop *loop, const struct provisioner_settings *settings,
                struct kg_error *err)
{
    kg_error_set(err, KG_INVALID, 0, "there is no provisioner \"%s\"", settings->engine);
    for (size_t i = 0; i < KG_ARRAY_LEN(engines); i++) {
        if (!engine_asked_for(engines[i], settings->engine))
            continue;
        struct provisioner *provisioner = engines[i]->create(loop, settings, err);
        if (provisioner)
            return provisioner;
    }
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

bool
provisioner_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn,
                   void *arg)
{
    bool any = false;
    for (size_t i = 0; i < KG_ARRAY_LEN(engines); i++)
        if (engine_asked_for(engines[i], settings->engine))
            any |= engines[i]->doctor(settings, fn, arg);
    return any;
}

char *
provisioner_sandbox_dir(const struct provisioner *provisioner, const char *id)
{
    return folder_path(provisioner->state_dir, id, "door");
}

struct provisioner_op *
provisioner_create(struct provisioner *provisioner, const struct provisioner_sandbox_spec *spec,
                   provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                   struct kg_error *err)
{
    if (!sandbox_id_valid(spec->id)) {
        kg_error_set(err, KG_INTERNAL, 0, "\"%s\" is no sandbox id", spec->id);
        return NULL;
    }
    return provisioner->engine->sandbox_create(provisioner, spec, on_done, on_exit, arg, err);
}

bool
provisioner_is_idle(const struct provisioner *provisioner)
{
    return provisioner->engine->is_idle(provisioner);
}

void
provisioner_op_cancel(struct provisioner_op *op)
{
    if (op)
        op->provisioner->engine->op_cancel(op);
}

struct provisioner_op *
provisioner_destroy(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                    void *arg, struct kg_error *err)
{
    if (!sandbox_id_valid(id)) {
        kg_error_set(err, KG_INTERNAL, 0, "\"%s\" is no sandbox id", id);
        return NULL;
    }
    return provisioner->engine->sandbox_destroy(provisioner, id, on_done, arg, err);
}

int
provisioner_claim(struct provisioner *provisioner, const char *id, const json_t *meta,
                  struct kg_error *err)
{
    if (!sandbox_id_valid(id))
        return kg_error_set(err, KG_INTERNAL, 0, "\"%s\" is no sandbox id", id);
    return provisioner->engine->sandbox_claim(provisioner, id, meta, err);
}

struct provisioner_op *
provisioner_recover(struct provisioner *provisioner, provisioner_found_fn on_found,
                    provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                    struct kg_error *err)
{
    return provisioner->engine->recover(provisioner, on_found, on_done, on_exit, arg, err);
}
