// SPDX-License-Identifier: Apache-2.0
// What all clients of a gateway share, such as the memory for large messages: how much of it is
// held, and by whom. There is a bound on it, and one on the share of each owner. All on the thread
// of the loop.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

// ---- Who counts as one ----------------------------------------------------------------------

// The name under which what an owner holds is counted. It is the owner's own (`owner` is returned),
// except for users who registered themselves: since anybody can make any number of them, they are
// one owner together, of this name, which no owner can have.
#define BUDGET_REGISTERED "registered users"
const char *budget_name(const char *owner);
// Whether what they hold is counted together.
bool budget_is_common(const char *one_owner, const char *other_owner);
// Who has registered. Called for owners of any name. NULL, as at the start: nobody has.
void budget_set_registered(bool (*has_registered)(const char *owner, const void *arg),
                           const void *arg);

// ---- Budgets --------------------------------------------------------------------------------

// A bound on one thing that all clients share: on bytes, or on places. The budget's user decides
// which of them it is, and what happens where there is no room.
struct budget {
    const char *name; // in the metrics
    size_t max;
    size_t max_share; // of one owner
    size_t held;
    LIST_HEAD(, budget_share) shares;
    LIST_ENTRY(budget) link;
};

// What one request, message or job of an owner holds. All zero: it is in no budget.
struct budget_hold {
    struct budget_share *share;
    size_t held;
    void *holder; // for the budget's user
    TAILQ_ENTRY(budget_hold) link;
};

// Of the owners that count as one; there as long as one of their holds is.
struct budget_share {
    LIST_ENTRY(budget_share) link;
    struct budget *budget; // NULL: it has ended
    size_t held;
    TAILQ_HEAD(, budget_hold) holds; // in the order in which they were started
    bool mark;                       // for the budget's user
    char name[];
};

// `name` is borrowed. The budget stays where it is until budget_fini().
void budget_init(struct budget *budget, const char *name, size_t max, size_t max_share);
// From now on an owner's share is half of all, or all where there is only one owner.
void budget_set_several_owners(struct budget *budget, bool several_owners);
// Shares that have holds stay, and count no further.
void budget_fini(struct budget *budget);
// All budgets, one after the other, in no order; NULL: the first, and after the last one.
const struct budget *budget_next(const struct budget *budget);

// Finds or makes the owner's share, and counts `hold` (all zero until now) in it. It holds nothing
// yet, and stays where it is until budget_hold_end().
void budget_hold_start(struct budget_hold *hold, struct budget *budget, const char *owner);
// From now on it holds so much, whether or not there is room.
void budget_hold_set(struct budget_hold *hold, size_t held);
// Whether `more` fit, in all and in the owner's share. They do where the budget has ended.
bool budget_hold_has_room(const struct budget_hold *hold, size_t more);
// Whether it is in a budget that has not ended.
bool budget_hold_counts(const struct budget_hold *hold);
// Gives all back. `hold` is all zero then; it may have been before.
void budget_hold_end(struct budget_hold *hold);

// What the holds of an owner hold together.
size_t budget_held_by(const struct budget *budget, const char *owner);
// budget_hold_has_room() for an owner that may have no hold.
bool budget_has_room(const struct budget *budget, const char *owner, size_t more);
// The share that holds most; NULL: there are no holds.
const struct budget_share *budget_largest(const struct budget *budget);
