// SPDX-License-Identifier: Apache-2.0
// What waits for the reader of a tap.

#include "tap_queue_priv.h"

#include "base.h"

struct tap_message {
    struct kernel_message message; // points into `raw` and `buffers`
    struct jupyter_raw *raw;
    size_t cost;
    int refs;
    int n_items;     // of the references, those of queues
    bool is_sending; // no queue has it any more, and a reader has
    struct output_budget *budget;
    struct kernel_bytes buffers[];
};

struct tap_item {
    TAILQ_ENTRY(tap_item) link;
    TAILQ_ENTRY(tap_item) in_droppable;
    bool is_droppable;
    enum kernel_tap_kind kind;
    struct tap_message *message; // NULL: an event
    size_t cost;
};

// ---- Messages -------------------------------------------------------------------------------

static struct kernel_bytes
bytes_of(const struct jupyter_frame *frame)
{
    return (struct kernel_bytes){frame->data, frame->len};
}

struct tap_message *
tap_message_new(struct output_budget *budget, enum jupyter_channel channel, struct jupyter_raw *raw)
{
    size_t size = sizeof(struct tap_message) + raw->n_buffers * sizeof(struct kernel_bytes);
    struct tap_message *message = kg_calloc(1, size);
    message->raw = raw;
    message->refs = 1;
    message->cost = size + sizeof *raw + raw->n_buffers * sizeof raw->buffers[0] + raw->bytes;
    message->budget = budget;
    message->message = (struct kernel_message){
        .channel = (enum kernel_channel)channel,
        .header = bytes_of(&raw->parts[JUPYTER_HEADER]),
        .parent_header = bytes_of(&raw->parts[JUPYTER_PARENT_HEADER]),
        .metadata = bytes_of(&raw->parts[JUPYTER_METADATA]),
        .content = bytes_of(&raw->parts[JUPYTER_CONTENT]),
        .n_buffers = raw->n_buffers,
        .buffers = message->buffers,
    };
    for (size_t i = 0; i < raw->n_buffers; i++)
        message->buffers[i] = bytes_of(&raw->buffers[i]);
    budget->refs++;
    budget->held += message->cost;
    return message;
}

struct tap_message *
tap_message_ref(struct tap_message *message)
{
    if (message)
        message->refs++;
    return message;
}

void
tap_message_unref(struct tap_message *message)
{
    if (!message || --message->refs > 0)
        return;
    message->budget->held -= message->cost;
    if (message->is_sending)
        message->budget->sending -= message->cost;
    output_budget_unref(message->budget);
    jupyter_raw_free(message->raw);
    free(message);
}

// A queue has let go of a message; a reader may still have it.
static void
tap_message_leave_queue(struct tap_message *message)
{
    if (--message->n_items == 0 && message->refs > 1) {
        message->is_sending = true;
        message->budget->sending += message->cost;
    }
    tap_message_unref(message);
}

// ---- Dropping -------------------------------------------------------------------------------

static void
remove_item(struct tap_queue *queue, struct tap_item *item)
{
    TAILQ_REMOVE(&queue->items, item, link);
    queue->held -= item->cost;
    if (item->is_droppable)
        TAILQ_REMOVE(&queue->droppable, item, in_droppable);
    else
        queue->kept -= item->cost;
    free(item);
}

// Counts what is dropped as lost.
static void
drop_item(struct tap_queue *queue, struct tap_item *item)
{
    struct tap_message *message = item->message;
    remove_item(queue, item);
    if (!message)
        return;
    tap_queue_lose(queue, message->raw->bytes);
    tap_message_leave_queue(message);
}

static void
cut(struct tap_queue *queue)
{
    for (struct tap_item *item; (item = TAILQ_FIRST(&queue->items));)
        drop_item(queue, item);
    tap_queue_push_event(queue, KERNEL_TAP_CUT);
    queue->is_cut = true;
}

// The oldest item that may be dropped; the newest message is there for a reader that is about to
// take it.
static struct tap_item *
oldest_droppable(const struct tap_queue *queue, const void *newest)
{
    struct tap_item *first = TAILQ_FIRST(&queue->droppable);
    return first && first->message != newest ? first : NULL;
}

// A reader whose queue has nothing to drop, and is large, is cut: a tenant can send any number of
// messages that may not be dropped.
static bool
queue_can_drop(const struct budget_member *member, const void *newest)
{
    const struct tap_queue *queue = member->owner;
    return oldest_droppable(queue, newest) || queue->kept > queue->max_bytes / 16;
}

static void
queue_drop(struct budget_member *member, const void *newest)
{
    struct tap_queue *queue = member->owner;
    struct tap_item *item = oldest_droppable(queue, newest);
    if (item)
        drop_item(queue, item);
    else
        cut(queue);
}

// `newest` has just been added, and costs `kept` of what may not be dropped.
static void
enforce_bound(struct tap_queue *queue, const struct tap_message *newest, size_t kept)
{
    struct tap_item *item;
    while (queue->held > queue->max_bytes && (item = oldest_droppable(queue, newest)))
        drop_item(queue, item);
    if (queue->kept - kept > queue->max_bytes)
        cut(queue);
    budget_enforce(queue->budget, newest);
}

// ---- Adding and taking ----------------------------------------------------------------------

static size_t
add_item(struct tap_queue *queue, enum kernel_tap_kind kind, struct tap_message *message,
         bool droppable)
{
    struct tap_item *item = KG_NEW(struct tap_item);
    item->kind = kind;
    item->message = message;
    item->is_droppable = droppable;
    item->cost = sizeof *item + (message ? message->cost : 0);
    TAILQ_INSERT_TAIL(&queue->items, item, link);
    queue->held += item->cost;
    if (droppable)
        TAILQ_INSERT_TAIL(&queue->droppable, item, in_droppable);
    else
        queue->kept += item->cost;
    return item->cost;
}

void
tap_queue_push(struct tap_queue *queue, struct tap_message *message, bool droppable)
{
    if (queue->is_cut)
        return;
    message->refs++;
    message->n_items++;
    if (message->is_sending) { // another queue has dropped it already
        message->is_sending = false;
        message->budget->sending -= message->cost;
    }
    size_t cost = add_item(queue, KERNEL_TAP_MESSAGE, message, droppable);
    enforce_bound(queue, message, droppable ? 0 : cost);
}

void
tap_queue_push_event(struct tap_queue *queue, enum kernel_tap_kind kind)
{
    if (queue->is_cut)
        return;
    add_item(queue, kind, NULL, false);
}

void
tap_queue_lose(struct tap_queue *queue, uint64_t bytes)
{
    queue->lost_messages++;
    queue->lost_bytes += bytes;
}

bool
tap_queue_take(struct tap_queue *queue, struct kernel_tap_item *ret)
{
    struct tap_item *item = TAILQ_FIRST(&queue->items);
    tap_message_unref(KG_STEAL(queue->taken));
    *ret = (struct kernel_tap_item){0};
    if (queue->lost_messages > 0) {
        *ret = (struct kernel_tap_item){.kind = KERNEL_TAP_LOST,
                                        .lost_messages = queue->lost_messages,
                                        .lost_bytes = queue->lost_bytes};
        queue->lost_messages = queue->lost_bytes = 0;
        return true;
    }
    if (!item)
        return false;
    ret->kind = item->kind;
    if (item->message) {
        queue->taken = item->message;
        queue->taken->refs++;
        ret->message = &queue->taken->message;
        tap_message_leave_queue(queue->taken);
    }
    remove_item(queue, item);
    return true;
}

// ---- Life -----------------------------------------------------------------------------------

void
tap_queue_init(struct tap_queue *queue, struct output_budget *budget, size_t max_bytes)
{
    *queue = (struct tap_queue){.budget = budget, .max_bytes = max_bytes};
    TAILQ_INIT(&queue->items);
    TAILQ_INIT(&queue->droppable);
    queue->in_budget = (struct budget_member){
        .owner = queue, .held = &queue->held, .can_drop = queue_can_drop, .drop = queue_drop};
    budget->refs++;
    budget_join(budget, &queue->in_budget);
}

void
tap_queue_fini(struct tap_queue *queue)
{
    for (struct tap_item *item; (item = TAILQ_FIRST(&queue->items));)
        drop_item(queue, item);
    tap_message_unref(KG_STEAL(queue->taken));
    budget_leave(queue->budget, &queue->in_budget);
    output_budget_unref(queue->budget);
}

void
kernel_message_release(void *held)
{
    tap_message_unref(held);
}
