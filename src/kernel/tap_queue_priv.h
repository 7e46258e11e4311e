// SPDX-License-Identifier: Apache-2.0
// The queue of a tap: what the kernel has said and the reader has not taken yet, bounded.
#pragma once

#include <sys/queue.h>

#include "jupyter.h"
#include "kernel_tap.h"
#include "output_budget_priv.h"

// A message of the kernel, shared by the queues and readers that hold it. It counts in the budget
// once, until the last of them lets go of it.
struct tap_message;
// Takes `raw`. The caller has a reference.
struct tap_message *tap_message_new(struct output_budget *budget, enum jupyter_channel channel,
                                    struct jupyter_raw *raw);
struct tap_message *tap_message_ref(struct tap_message *message); // NULL is fine
void tap_message_unref(struct tap_message *message);

struct tap_item;
TAILQ_HEAD(tap_items, tap_item);

// Invariants: `droppable` has the items of `items` that may be dropped, in the same order; `held`
// is the cost of all items, `kept` of those that may not be dropped. A queue that is cut is empty
// but for one item.
struct tap_queue {
    struct tap_items items;
    struct tap_items droppable;
    size_t held;
    size_t kept;
    size_t max_bytes;
    struct output_budget *budget;
    struct budget_member in_budget;
    uint64_t lost_messages; // not reported yet
    uint64_t lost_bytes;
    bool is_cut;
    struct tap_message *taken; // the one that the reader has taken last
};

void tap_queue_init(struct tap_queue *queue, struct output_budget *budget, size_t max_bytes);
void tap_queue_fini(struct tap_queue *queue);
void tap_queue_push(struct tap_queue *queue, struct tap_message *message, bool droppable);
void tap_queue_push_event(struct tap_queue *queue, enum kernel_tap_kind kind);
void tap_queue_lose(struct tap_queue *queue, uint64_t bytes); // a message that was too large
bool tap_queue_take(struct tap_queue *queue, struct kernel_tap_item *ret);
