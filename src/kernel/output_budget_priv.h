// SPDX-License-Identifier: Apache-2.0
// What readers of kernels' output may hold altogether: the logs of executions under way, the queues
// of taps, and what is still being sent although its log or queue has dropped it. Beyond the bound
// the member that holds most loses its oldest message, whichever member has grown. Those that yield
// are first.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct budget_member {
    TAILQ_ENTRY(budget_member) link;
    bool is_counted; // has joined a budget
    bool yields;     // nobody reads it
    void *owner;
    const size_t *held; // bytes
    // Whether there is a message that may be dropped; `newest` (may be another member's) may not.
    bool (*can_drop)(const struct budget_member *member, const void *newest);
    void (*drop)(struct budget_member *member, const void *newest);
};

struct output_budget {
    int refs; // the registry's, the members', and those of messages that are still being sent
    size_t max;
    size_t held;
    size_t sending; // of `held`: dropped, and still being sent
    TAILQ_HEAD(, budget_member) members;
};

struct output_budget *output_budget_new(size_t max);
void output_budget_unref(struct output_budget *budget);
// The members count what they hold in `held` themselves.
void budget_join(struct output_budget *budget, struct budget_member *member);
void budget_leave(struct output_budget *budget, struct budget_member *member);
void budget_enforce(struct output_budget *budget, const void *newest);
// Whether more is held than the bound: by messages that are still being sent.
bool output_budget_is_crowded(const struct output_budget *budget);
