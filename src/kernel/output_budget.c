// SPDX-License-Identifier: Apache-2.0
// The bound on what all readers hold together.

#include "output_budget_priv.h"

#include "base.h"

struct output_budget *
output_budget_new(size_t max)
{
    struct output_budget *budget = KG_NEW(struct output_budget);
    budget->refs = 1;
    budget->max = max;
    TAILQ_INIT(&budget->members);
    return budget;
}

void
output_budget_unref(struct output_budget *budget)
{
    if (--budget->refs == 0)
        free(budget);
}

void
budget_join(struct output_budget *budget, struct budget_member *member)
{
    TAILQ_INSERT_TAIL(&budget->members, member, link);
    member->is_counted = true;
}

void
budget_leave(struct output_budget *budget, struct budget_member *member)
{
    TAILQ_REMOVE(&budget->members, member, link);
    member->is_counted = false;
}

static struct budget_member *
largest_of(const struct output_budget *budget, bool yields, const void *newest)
{
    struct budget_member *largest = NULL, *member;
    TAILQ_FOREACH(member, &budget->members, link) {
        if (member->yields == yields && (!largest || *member->held > *largest->held) &&
            member->can_drop(member, newest))
            largest = member;
    }
    return largest;
}

// A quarter belongs to the members that do not yield in any case: what readers are still sending
// cannot be dropped, and must not empty every log.
void
budget_enforce(struct output_budget *budget, const void *newest)
{
    while (budget->held > budget->max) {
        struct budget_member *largest = largest_of(budget, true, newest);
        if (!largest && budget->held - budget->sending > budget->max / 4)
            largest = largest_of(budget, false, newest);
        if (!largest)
            return;
        largest->drop(largest, newest);
    }
}

bool
output_budget_is_crowded(const struct output_budget *budget)
{
    return budget->held > budget->max;
}
