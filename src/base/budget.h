// SPDX-License-Identifier: Apache-2.0
// What all clients of a gateway share, such as the memory for large messages: how much of it is
// held, and by whom. One owner may hold half of it. All on the thread of the loop.
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

// ---- Bytes ----------------------------------------------------------------------------------

struct budget {
    size_t max; // bytes
    size_t held;
    LIST_HEAD(, budget_share) shares;
};

// Of the owners that count as one.
struct budget_share {
    LIST_ENTRY(budget_share) link;
    struct budget *budget; // NULL: it has ended
    size_t held;           // bytes
    size_t n_members;
    char name[];
};

void budget_init(struct budget *budget, size_t max);
// Shares that have members stay, and count no further.
void budget_fini(struct budget *budget);
// Finds or makes the owner's share, and makes the caller a member, until budget_share_leave(). A
// member takes what it holds off before it leaves.
struct budget_share *budget_share_join(struct budget *budget, const char *owner);
void budget_share_leave(struct budget_share *share);
// From now on a member holds `after` bytes instead of `before`.
void budget_share_hold(struct budget_share *share, size_t before, size_t after);
// Whether `more` bytes fit, in all and in the share.
bool budget_share_has_room(const struct budget_share *share, size_t more);
