// SPDX-License-Identifier: Apache-2.0
// The output log of an execution: its lines, bounded, and those who read them.
#pragma once

#include <sys/queue.h>

#include "jupyter.h"
#include "kernel.h"

// Invariants: seq grows by one a line, also over lines that were dropped; what a reader lost is the
// difference between two entries' counters. Droppable lines of one message that stand next to each
// other are a run, and are dropped together.
struct output_entry {
    TAILQ_ENTRY(output_entry) link;
    int64_t seq;
    int64_t bytes_before; // of all lines before this one, dropped ones too
    int64_t message;      // which message of the kernel it shows a part of
    bool keep;            // says how the execution went: never dropped
    size_t run_bytes;     // of the whole run, overhead included; only in its first entry
    size_t len;
    char text[];
};

struct output_log {
    TAILQ_HEAD(output_entries, output_entry) entries;
    TAILQ_HEAD(subscriptions, subscription) subscriptions;
    int64_t opened_us; // clock_mono_us()
    int64_t last_seq;
    int64_t last_message;
    int64_t bytes_total;           // of all lines ever
    size_t bytes_held;             // of the entries, overhead included
    struct output_entry *last_run; // the first entry of the run that may grow; NULL: none
    const size_t *max_bytes;       // of what is held beyond the oldest message; it may change
    int n_kept;
};

// Error lines are kept as long as they are few and short (a tenant can forge them); the done line
// is kept always.
enum output_worth { OUTPUT_DROPPABLE, OUTPUT_KEPT_IF_SMALL, OUTPUT_KEPT };

void output_log_init(struct output_log *log, const size_t *max_bytes);
void output_log_fini(struct output_log *log);
// Appends one line: {"type", "seq"} and the members of `members` (taken).
void output_log_append(struct output_log *log, const char *type, enum output_worth worth,
                       json_t *members);

// Appends what an iopub message of an execution shows: stream, display_data, update_display_data,
// execute_result, error, clear_output ("Messages on the IOPub channel"). Others show nothing.
void output_append_message(struct output_log *log, const struct jupyter_message *message);
// Appends an `error` line; `traceback` (borrowed) may be NULL.
void output_append_error(struct output_log *log, const char *ename, const char *evalue,
                         const json_t *traceback);
// Appends a `display` line with a bundle of MIME types.
void output_append_display(struct output_log *log, const json_t *bundle);
