// SPDX-License-Identifier: Apache-2.0
// Who holds how much of what all share.

#include "budget.h"

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

// ---- Bytes ----------------------------------------------------------------------------------

void
budget_init(struct budget *budget, size_t max)
{
    *budget = (struct budget){.max = max};
}

void
budget_fini(struct budget *budget)
{
    struct budget_share *share;
    while ((share = LIST_FIRST(&budget->shares))) {
        LIST_REMOVE(share, link);
        share->budget = NULL;
    }
}

struct budget_share *
budget_share_join(struct budget *budget, const char *owner)
{
    const char *name = budget_name(owner);
    struct budget_share *share;
    LIST_FOREACH(share, &budget->shares, link) {
        if (strcmp(share->name, name) == 0)
            break;
    }
    if (!share) {
        size_t size = strlen(name) + 1;
        share = kg_calloc(1, sizeof *share + size);
        share->budget = budget;
        memcpy(share->name, name, size);
        LIST_INSERT_HEAD(&budget->shares, share, link);
    }
    share->n_members++;
    return share;
}

void
budget_share_leave(struct budget_share *share)
{
    if (--share->n_members > 0)
        return;
    if (share->budget)
        LIST_REMOVE(share, link);
    free(share);
}

void
budget_share_hold(struct budget_share *share, size_t before, size_t after)
{
    share->held += after - before;
    if (share->budget)
        share->budget->held += after - before;
}

bool
budget_share_has_room(const struct budget_share *share, size_t more)
{
    const struct budget *budget = share->budget;
    return !budget || (budget->held + more <= budget->max && share->held + more <= budget->max / 2);
}
