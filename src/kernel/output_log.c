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
    int64_t seen_bytes;         // -1: unknown
    struct output_entry *taken; // by the last subscription_next(); NULL: a line of its own
    bool finished;
    struct buf dropped;
    int64_t first_lost; // that the line of its own stands for, to `seen_seq`; 0: it is none
    loop_fn on_ready;
    void *arg;
};

// ---- The budget -----------------------------------------------------------------------------

static void
count_held(struct output_log *log, size_t more, size_t less)
{
    log->bytes_held += more;
    log->bytes_held -= less;
    if (log->in_budget.is_counted) {
        log->budget->held += more;
        log->budget->held -= less;
    }
}

void
output_log_leave_budget(struct output_log *log)
{
    if (!log->in_budget.is_counted)
        return;
    log->budget->held -= log->bytes_held;
    budget_leave(log->budget, &log->in_budget);
}

bool
output_log_is_crowded(const struct output_log *log)
{
    return output_budget_is_crowded(log->budget);
}

// ---- Entries --------------------------------------------------------------------------------

static void
entry_unref(struct output_entry *entry)
{
    if (--entry->refs > 0)
        return;
    if (entry->budget) {
        entry->budget->held -= entry->len + ENTRY_OVERHEAD;
        entry->budget->sending -= entry->len + ENTRY_OVERHEAD;
        output_budget_unref(entry->budget);
    }
    free(entry);
}

static void
remove_entry(struct output_log *log, struct output_entry *entry)
{
    struct subscription *subscription;
    TAILQ_FOREACH(subscription, &log->subscriptions, link) {
        if (subscription->next == entry)
            subscription->next = TAILQ_NEXT(entry, link);
        if (subscription->taken == entry)
            subscription->taken = NULL;
    }
    TAILQ_REMOVE(&log->entries, entry, link);
    count_held(log, 0, entry->len + ENTRY_OVERHEAD);
    if (entry->refs > 1) { // counted until it was sent
        entry->budget = log->budget;
        entry->budget->refs++;
        entry->budget->held += entry->len + ENTRY_OVERHEAD;
        entry->budget->sending += entry->len + ENTRY_OVERHEAD;
    }
    entry_unref(entry);
}

void
output_log_fini(struct output_log *log)
{
    for (struct output_entry *entry; (entry = TAILQ_FIRST(&log->entries));)
        remove_entry(log, entry);
    output_log_leave_budget(log);
    output_budget_unref(log->budget);
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
    while (entry && log->bytes_held > log->max_bytes) {
        if (entry->keep) {
            entry = TAILQ_NEXT(entry, link);
            continue;
        }
        if (log->bytes_held - entry->run_bytes <= log->max_bytes)
            return;
        entry = drop_run(log, entry);
    }
}

// The oldest message that may go; NULL where there is none. `newest`, where it is of this log, may
// not: a reader is about to take it.
static struct output_entry *
oldest_run(const struct output_log *log, const struct output_entry *newest)
{
    struct output_entry *entry = TAILQ_FIRST(&log->entries);
    while (entry && entry->keep)
        entry = TAILQ_NEXT(entry, link);
    bool ours = TAILQ_LAST(&log->entries, output_entries) == newest;
    return entry && ours && entry->message == newest->message ? NULL : entry;
}

// No reader is about to take the newest message of a log that yields.
static struct output_entry *
oldest_of(const struct budget_member *member, const void *newest)
{
    return oldest_run(member->owner, member->yields ? NULL : newest);
}

static bool
log_can_drop(const struct budget_member *member, const void *newest)
{
    return oldest_of(member, newest) != NULL;
}

static void
log_drop(struct budget_member *member, const void *newest)
{
    drop_run(member->owner, oldest_of(member, newest));
}

void
output_log_init(struct output_log *log, struct output_budget *budget, size_t max_bytes,
                size_t max_message_bytes)
{
    *log = (struct output_log){.budget = budget,
                               .max_bytes = max_bytes,
                               .max_message_bytes = max_message_bytes,
                               .opened_us = clock_mono_us()};
    TAILQ_INIT(&log->entries);
    TAILQ_INIT(&log->subscriptions);
    log->in_budget = (struct budget_member){
        .owner = log, .held = &log->bytes_held, .can_drop = log_can_drop, .drop = log_drop};
    budget_join(budget, &log->in_budget);
    budget->refs++;
}

static void
update_yields(struct output_log *log)
{
    log->in_budget.yields = log->is_spare && TAILQ_EMPTY(&log->subscriptions);
}

void
output_log_set_spare(struct output_log *log)
{
    log->is_spare = true;
    update_yields(log);
}

static bool
is_kept(struct output_log *log, enum output_worth worth, size_t len)
{
    switch (worth) {
    case OUTPUT_DROPPABLE:
        return false;
    case OUTPUT_KEPT_IF_SMALL:
        return !log->is_spare && len <= MAX_KEPT_BYTES && log->n_kept++ < MAX_KEPT;
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
output_log_append_entry(struct output_log *log, struct output_entry *entry)
{
    line_number(entry, ++log->last_seq);
    entry->bytes_before = log->bytes_total;
    entry->message = log->last_message;
    entry->keep = is_kept(log, entry->worth, entry->len);
    TAILQ_INSERT_TAIL(&log->entries, entry, link);
    if (entry->seq == 1)
        metric_observe_since(METRIC_EXECUTION_FIRST_LINE_SECONDS, log->opened_us);
    metric_add(METRIC_OUTPUT_BYTES, (double)entry->len);
    log->bytes_total += (int64_t)entry->len;
    count_held(log, entry->len + ENTRY_OVERHEAD, 0);
    add_to_run(log, entry);
    enforce_bound(log);
    if (TAILQ_LAST(&log->entries, output_entries) != entry)
        return;
    budget_enforce(log->budget, entry);
    wake_readers(log, entry);
}

void
output_log_append(struct output_log *log, const char *type, enum output_worth worth,
                  json_t *members)
{
    // A kernel's numbers go out exactly; ours shall not read 12.300000000000001.
    KG_AUTO_FREE char *text =
        json_line(members, worth == OUTPUT_KEPT ? JSON_REAL_PRECISION(15) : 0);
    struct buf line;
    line_begin(&line, type);
    if (json_object_size(members) > 0) {
        buf_append(&line, ",", 1);
        buf_append(&line, text + 1, strlen(text) - 2); // without its braces
    }
    json_decref(members);
    output_log_append_entry(log, line_end(&line, worth));
}

// Where the lines of a message are larger than the bound on all of them: some characters take three
// times as much in a line as they took in the message.
static void
append_dropped(struct output_log *log, size_t bytes)
{
    metric_add(METRIC_OUTPUT_DROPPED_LINES, 1);
    metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)bytes);
    output_log_append(log, "dropped", OUTPUT_DROPPABLE,
                      json_pack("{s:i, s:I}", "messages", 1, "bytes", (json_int_t)bytes));
}

void
output_append_line(struct output_log *log, struct output_entry *line)
{
    log->last_message++;
    if (line->len <= log->max_message_bytes) {
        output_log_append_entry(log, line);
        return;
    }
    append_dropped(log, line->len);
    free(line);
}

void
output_append_lines(struct output_log *log, struct output_lines *lines)
{
    if (!lines)
        return;
    log->last_message++;
    if (lines->bytes > log->max_message_bytes) {
        append_dropped(log, lines->bytes);
        output_lines_free(lines);
        return;
    }
    for (struct output_entry *entry; (entry = TAILQ_FIRST(&lines->entries));) {
        TAILQ_REMOVE(&lines->entries, entry, link);
        output_log_append_entry(log, entry);
    }
    output_lines_free(lines);
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
    update_yields(log);
    return subscription;
}

void
subscription_free(struct subscription *subscription)
{
    if (!subscription)
        return;
    struct output_log *log = &subscription->execution->log;
    TAILQ_REMOVE(&log->subscriptions, subscription, link);
    update_yields(log);
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

// Reports the lines between the last one that the reader saw and `entry`.
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
    buf_append_str(&subscription->dropped, "\n");
    subscription->first_lost = subscription->seen_seq + 1;
    subscription->seen_seq = entry->seq - 1;
    *ret_len = subscription->dropped.len - 1;
    return subscription->dropped.data;
}

const char *
subscription_next(struct subscription *subscription, size_t *ret_len)
{
    struct output_entry *entry = subscription->next;
    subscription->taken = NULL;
    subscription->first_lost = 0;
    if (!entry)
        return NULL;
    if (entry->seq > subscription->seen_seq + 1)
        return say_dropped(subscription, entry, ret_len);
    subscription->next = TAILQ_NEXT(entry, link);
    subscription->seen_seq = entry->seq;
    subscription->seen_bytes = entry->bytes_before + (int64_t)entry->len;
    subscription->taken = entry;
    subscription->finished =
        !subscription->next && subscription->execution->state == EXECUTION_DONE;
    *ret_len = entry->len;
    return entry->text;
}

int64_t
subscription_seq(const struct subscription *subscription)
{
    return subscription->seen_seq;
}

bool
subscription_has_lost(const struct subscription *subscription, int64_t *ret_first,
                      int64_t *ret_last)
{
    *ret_first = subscription->first_lost;
    *ret_last = subscription->seen_seq;
    return subscription->first_lost > 0;
}

size_t
subscription_next_len(const struct subscription *subscription)
{
    const struct output_entry *entry = subscription->next;
    return entry && entry->seq == subscription->seen_seq + 1 ? entry->len : 0;
}

void *
subscription_hold(struct subscription *subscription)
{
    if (subscription->taken)
        subscription->taken->refs++;
    return subscription->taken;
}

void
subscription_release(void *line)
{
    entry_unref(line);
}

bool
subscription_is_crowded(const struct subscription *subscription)
{
    return output_log_is_crowded(&subscription->execution->log);
}

bool
subscription_finished(const struct subscription *subscription)
{
    return subscription->finished;
}
