// SPDX-License-Identifier: Apache-2.0
// Appends, drops and hands out the lines of an execution.

#include <string.h>

#include "execution_priv.h"
#include "metrics.h"

// What an entry costs beside its text.
enum { ENTRY_OVERHEAD = sizeof(struct output_entry) + 16 };
enum { MAX_KEPT = 64, MAX_KEPT_BYTES = 64 << 10 };

struct subscription {
    TAILQ_ENTRY(subscription) link;
    struct execution *execution;
    struct output_entry *next; // NULL: all was taken
    int64_t seen_seq;
    int64_t seen_bytes; // -1: unknown
    bool finished;
    struct buf dropped;
    loop_fn on_ready;
    void *arg;
};

void
output_log_init(struct output_log *log, const size_t *max_bytes)
{
    *log = (struct output_log){.max_bytes = max_bytes, .opened_us = clock_mono_us()};
    TAILQ_INIT(&log->entries);
    TAILQ_INIT(&log->subscriptions);
}

static void
remove_entry(struct output_log *log, struct output_entry *entry)
{
    struct subscription *subscription;
    TAILQ_FOREACH(subscription, &log->subscriptions, link) {
        if (subscription->next == entry)
            subscription->next = TAILQ_NEXT(entry, link);
    }
    TAILQ_REMOVE(&log->entries, entry, link);
    log->bytes_held -= entry->len + ENTRY_OVERHEAD;
    free(entry);
}

void
output_log_fini(struct output_log *log)
{
    for (struct output_entry *entry; (entry = TAILQ_FIRST(&log->entries));)
        remove_entry(log, entry);
}

// Adds the newest entry to the run that it belongs to. A tenant says how many lines one message
// has: to count a run's bytes anew with each of them would take quadratic time.
static void
add_to_run(struct output_log *log, struct output_entry *entry)
{
    struct output_entry *run = log->last_run;
    if (entry->keep) {
        log->last_run = NULL;
        return;
    }
    if (!run || run->message != entry->message)
        run = log->last_run = entry;
    run->run_bytes += entry->len + ENTRY_OVERHEAD;
}

// Drops the run that begins with `entry`; returns what comes after it.
static struct output_entry *
drop_run(struct output_log *log, struct output_entry *entry)
{
    if (log->last_run == entry)
        log->last_run = NULL;
    for (size_t left = entry->run_bytes; left > 0;) {
        struct output_entry *next = TAILQ_NEXT(entry, link);
        left -= entry->len + ENTRY_OVERHEAD;
        remove_entry(log, entry);
        entry = next;
    }
    return entry;
}

// Drops the oldest messages while what would remain is still beyond the bound. So a single message
// larger than the bound is not lost to a reader that is about to take it.
static void
enforce_bound(struct output_log *log)
{
    struct output_entry *entry = TAILQ_FIRST(&log->entries);
    while (entry && log->bytes_held > *log->max_bytes) {
        if (entry->keep) {
            entry = TAILQ_NEXT(entry, link);
            continue;
        }
        if (log->bytes_held - entry->run_bytes <= *log->max_bytes)
            return;
        entry = drop_run(log, entry);
    }
}

static bool
is_kept(struct output_log *log, enum output_worth worth, size_t len)
{
    switch (worth) {
    case OUTPUT_DROPPABLE:
        return false;
    case OUTPUT_KEPT_IF_SMALL:
        return len <= MAX_KEPT_BYTES && log->n_kept++ < MAX_KEPT;
    case OUTPUT_KEPT:
        return true;
    }
    return true;
}

static void
wake_readers(struct output_log *log, struct output_entry *entry)
{
    struct subscription *next; // a reader may leave from inside its callback
    for (struct subscription *reader = TAILQ_FIRST(&log->subscriptions); reader; reader = next) {
        next = TAILQ_NEXT(reader, link);
        if (!reader->next) {
            reader->next = entry;
            reader->on_ready(reader->arg);
        }
    }
}

void
output_log_append(struct output_log *log, const char *type, enum output_worth worth,
                  json_t *members)
{
    json_auto_t *line =
        json_pack("{s:s, s:I}", "type", type, "seq", (json_int_t)(log->last_seq + 1));
    json_object_update(line, members);
    json_decref(members);
    // A kernel's numbers go out exactly; ours shall not read 12.300000000000001.
    KG_AUTO_FREE char *text = json_line(line, worth == OUTPUT_KEPT ? JSON_REAL_PRECISION(15) : 0);
    size_t len = strlen(text);
    struct output_entry *entry = kg_calloc(1, sizeof *entry + len + 1);
    entry->seq = ++log->last_seq;
    entry->bytes_before = log->bytes_total;
    entry->message = log->last_message;
    entry->keep = is_kept(log, worth, len);
    entry->len = len;
    memcpy(entry->text, text, len + 1);
    TAILQ_INSERT_TAIL(&log->entries, entry, link);
    if (entry->seq == 1)
        metric_observe_since(METRIC_EXECUTION_FIRST_LINE_SECONDS, log->opened_us);
    metric_add(METRIC_OUTPUT_BYTES, (double)len);
    log->bytes_total += (int64_t)len;
    log->bytes_held += len + ENTRY_OVERHEAD;
    add_to_run(log, entry);
    enforce_bound(log);
    if (TAILQ_LAST(&log->entries, output_entries) == entry)
        wake_readers(log, entry);
}

// ---- Subscriptions --------------------------------------------------------------------------

struct subscription *
execution_subscribe(struct execution *execution, int64_t after_seq, loop_fn on_ready, void *arg)
{
    struct subscription *subscription = KG_NEW(struct subscription);
    struct output_log *log = &execution->log;
    if (after_seq > log->last_seq)
        after_seq = log->last_seq;
    subscription->execution = execution_ref(execution);
    subscription->on_ready = on_ready;
    subscription->arg = arg;
    subscription->seen_seq = after_seq;
    subscription->seen_bytes = after_seq == 0 ? 0 : -1;
    struct output_entry *entry = TAILQ_FIRST(&log->entries);
    for (; entry && entry->seq <= after_seq; entry = TAILQ_NEXT(entry, link))
        subscription->seen_bytes = entry->bytes_before + (int64_t)entry->len;
    subscription->next = entry;
    subscription->finished = !entry && execution->state == EXECUTION_DONE;
    TAILQ_INSERT_TAIL(&log->subscriptions, subscription, link);
    return subscription;
}

void
subscription_free(struct subscription *subscription)
{
    if (!subscription)
        return;
    TAILQ_REMOVE(&subscription->execution->log.subscriptions, subscription, link);
    execution_unref(subscription->execution);
    buf_fini(&subscription->dropped);
    free(subscription);
}

void
subscription_abandon(struct subscription *subscription)
{
    KG_AUTO(execution) execution = execution_ref(subscription->execution);
    subscription_free(subscription);
    if (TAILQ_EMPTY(&execution->log.subscriptions) && !execution->keep_running)
        execution_interrupt(execution);
}

// Tells of the lines between what the reader saw and `entry`.
static const char *
say_dropped(struct subscription *subscription, const struct output_entry *entry, size_t *ret_len)
{
    json_int_t messages = entry->seq - 1 - subscription->seen_seq;
    json_auto_t *line = json_pack("{s:s, s:I, s:I}", "type", "dropped", "seq",
                                  (json_int_t)(entry->seq - 1), "messages", messages);
    metric_add(METRIC_OUTPUT_DROPPED_LINES, (double)messages);
    if (subscription->seen_bytes >= 0) {
        json_int_t bytes = entry->bytes_before - subscription->seen_bytes;
        metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)bytes);
        json_object_set_new(line, "bytes", json_integer(bytes));
    }
    KG_AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    buf_fini(&subscription->dropped);
    buf_append_str(&subscription->dropped, text);
    subscription->seen_seq = entry->seq - 1;
    *ret_len = subscription->dropped.len;
    return subscription->dropped.data;
}

const char *
subscription_next(struct subscription *subscription, size_t *ret_len)
{
    struct output_entry *entry = subscription->next;
    if (!entry)
        return NULL;
    if (entry->seq > subscription->seen_seq + 1)
        return say_dropped(subscription, entry, ret_len);
    subscription->next = TAILQ_NEXT(entry, link);
    subscription->seen_seq = entry->seq;
    subscription->seen_bytes = entry->bytes_before + (int64_t)entry->len;
    subscription->finished =
        !subscription->next && subscription->execution->state == EXECUTION_DONE;
    *ret_len = entry->len;
    return entry->text;
}

bool
subscription_finished(const struct subscription *subscription)
{
    return subscription->finished;
}
