// SPDX-License-Identifier: Apache-2.0
// Who holds how much of what all share.

#include "budget.h"

#include <assert.h>
#include <string.h>

#include "base.h"

// ---- Who counts as one ----------------------------------------------------------------------

static bool (*registered)(const char *owner, const void *arg);
static const void *registered_arg;

void
budget_set_registered(bool (*has_registered)(const char *owner, const void *arg), const void *arg)
{
    registered = has_registered;
    registered_arg = arg;
}

const char *
budget_name(const char *owner)
{
    return registered && registered(owner, registered_arg) ? BUDGET_REGISTERED : owner;
}

bool
budget_is_common(const char *one_owner, const char *other_owner)
{
    return strcmp(one_owner, other_owner) == 0 ||
           strcmp(budget_name(one_owner), budget_name(other_owner)) == 0;
}

// ---- Budgets --------------------------------------------------------------------------------

static LIST_HEAD(, budget) budgets;

void
budget_init(struct budget *budget, const char *name, size_t max, size_t max_share)
{
    *budget = (struct budget){.name = name, .max = max, .max_share = max_share};
    LIST_INSERT_HEAD(&budgets, budget, link);
}

void
budget_set_several_owners(struct budget *budget, bool several_owners)
{
    budget->max_share = several_owners ? budget->max / 2 : budget->max;
}

void
budget_fini(struct budget *budget)
{
    struct budget_share *share;
    while ((share = LIST_FIRST(&budget->shares))) {
        LIST_REMOVE(share, link);
        share->budget = NULL;
    }
    LIST_REMOVE(budget, link);
}

const struct budget *
budget_next(const struct budget *budget)
{
    return budget ? LIST_NEXT(budget, link) : LIST_FIRST(&budgets);
}

// ---- Shares ---------------------------------------------------------------------------------

static struct budget_share *
budget_find_share(const struct budget *budget, const char *name)
{
    struct budget_share *share;
    LIST_FOREACH(share, &budget->shares, link) {
        if (strcmp(share->name, name) == 0)
            return share;
    }
    return NULL;
}

static bool
budget_fits(const struct budget *budget, size_t held_by_owner, size_t more)
{
    return budget->held + more <= budget->max && held_by_owner + more <= budget->max_share;
}

size_t
budget_held_by(const struct budget *budget, const char *owner)
{
    const struct budget_share *share = budget_find_share(budget, budget_name(owner));
    return share ? share->held : 0;
}

bool
budget_has_room(const struct budget *budget, const char *owner, size_t more)
{
    return budget_fits(budget, budget_held_by(budget, owner), more);
}

const struct budget_share *
budget_largest(const struct budget *budget)
{
    const struct budget_share *share, *largest = LIST_FIRST(&budget->shares);
    LIST_FOREACH(share, &budget->shares, link) {
        if (share->held > largest->held)
            largest = share;
    }
    return largest;
}

// ---- Holds ----------------------------------------------------------------------------------

void
budget_hold_start(struct budget_hold *hold, struct budget *budget, const char *owner)
{
    assert(!hold->share && hold->held == 0);
    const char *name = budget_name(owner);
    struct budget_share *share = budget_find_share(budget, name);
    if (!share) {
        size_t size = strlen(name) + 1;
        share = kg_calloc(1, sizeof *share + size);
        share->budget = budget;
        memcpy(share->name, name, size);
        TAILQ_INIT(&share->holds);
        LIST_INSERT_HEAD(&budget->shares, share, link);
    }
    hold->share = share;
    TAILQ_INSERT_TAIL(&share->holds, hold, link);
}

void
budget_hold_set(struct budget_hold *hold, size_t held)
{
    struct budget_share *share = hold->share;
    share->held += held - hold->held;
    if (share->budget)
        share->budget->held += held - hold->held;
    hold->held = held;
}

bool
budget_hold_has_room(const struct budget_hold *hold, size_t more)
{
    const struct budget_share *share = hold->share;
    return !share->budget || budget_fits(share->budget, share->held, more);
}

bool
budget_hold_counts(const struct budget_hold *hold)
{
    return hold->share && hold->share->budget;
}

void
budget_hold_end(struct budget_hold *hold)
{
    struct budget_share *share = hold->share;
    if (!share)
        return;
    budget_hold_set(hold, 0);
    TAILQ_REMOVE(&share->holds, hold, link);
    *hold = (struct budget_hold){0};
    if (!TAILQ_EMPTY(&share->holds))
        return;
    if (share->budget)
        LIST_REMOVE(share, link);
    free(share);
}
