// SPDX-License-Identifier: Apache-2.0
// Several gateways of one installation: calls of the engine, which knows the others.
#include "provisioner_replicas.h"

#include "provisioner_engine.h"

const char *
provisioner_replica_id(const struct provisioner *provisioner)
{
    const struct provisioner_replica_engine *engine = provisioner->engine->replicas;
    return engine ? engine->id(provisioner) : NULL;
}

void
provisioner_on_lost(struct provisioner *provisioner, loop_fn fn, void *arg)
{
    provisioner->engine->replicas->on_lost(provisioner, fn, arg);
}

bool
provisioner_leads(const struct provisioner *provisioner)
{
    return provisioner->engine->replicas->leads(provisioner);
}

void
provisioner_on_lead(struct provisioner *provisioner, loop_fn fn, void *arg)
{
    provisioner->engine->replicas->on_lead(provisioner, fn, arg);
}

size_t
provisioner_claimed_elsewhere(const struct provisioner *provisioner, const char *whose)
{
    return provisioner->engine->replicas->claimed_elsewhere(provisioner, whose);
}

bool
provisioner_holds_for(const struct provisioner *provisioner, const char *replica_id,
                      const char *owner)
{
    return provisioner->engine->replicas->holds_for(provisioner, replica_id, owner);
}

void
provisioner_offer(struct provisioner *provisioner, const char *id)
{
    provisioner->engine->replicas->offer(provisioner, id);
}

const char *
provisioner_free_sandbox(const struct provisioner *provisioner)
{
    return provisioner->engine->replicas->free_sandbox(provisioner);
}

void
provisioner_hand_over(struct provisioner *provisioner, const char *id)
{
    provisioner->engine->replicas->hand_over(provisioner, id);
}

void
provisioner_overtaken(struct provisioner *provisioner, const char *id)
{
    provisioner->engine->replicas->overtaken(provisioner, id);
}

void
provisioner_leave(struct provisioner *provisioner)
{
    provisioner->engine->replicas->leave(provisioner);
}

struct provisioner_place
provisioner_replica_place(const struct provisioner *provisioner, const char *id, size_t len)
{
    return provisioner->engine->replicas->place(provisioner, id, len);
}

bool
provisioner_replica_is_silent(const struct provisioner *provisioner, const char *id)
{
    return provisioner->engine->replicas->is_silent(provisioner, id);
}

size_t
provisioner_other_replicas(const struct provisioner *provisioner,
                           struct provisioner_place ret[PROVISIONER_REPLICAS_MAX])
{
    return provisioner->engine->replicas->others(provisioner, ret);
}

bool
provisioner_session_place(const struct provisioner *provisioner, const char *owner,
                          const char *session_id, struct provisioner_place *ret)
{
    return provisioner->engine->replicas->session_place(provisioner, owner, session_id, ret);
}

struct provisioner_place
provisioner_sandbox_place(const struct provisioner *provisioner, const char *id)
{
    return provisioner->engine->replicas->sandbox_place(provisioner, id);
}

struct provisioner_search *
provisioner_search_start(struct provisioner *provisioner, const char *owner, const char *session_id,
                         provisioner_place_fn fn, void *arg, struct kg_error *err)
{
    return provisioner->engine->replicas->search_start(provisioner, owner, session_id, fn, arg,
                                                       err);
}

void
provisioner_search_cancel(struct provisioner_search *search)
{
    search->provisioner->engine->replicas->search_cancel(search);
}
