// SPDX-License-Identifier: Apache-2.0
// The output log of an execution: its lines, bounded, and those who read them.
#pragma once

#include <sys/queue.h>

#include "jupyter.h"
#include "kernel.h"
#include "output_budget_priv.h"

// Error lines are kept as long as they are few and short (a tenant can forge them); the done line
// is kept always.
enum output_worth { OUTPUT_DROPPABLE, OUTPUT_KEPT_IF_SMALL, OUTPUT_KEPT };

// A line. Before it is appended it has no number, and `text` is NULL.
//
// Invariants of a log: seq grows by one a line, also over lines that were dropped; what a reader
// lost is the difference between two entries' counters. Droppable lines of one message that are
// next to each other are a run, and are dropped together.
struct output_entry {
    TAILQ_ENTRY(output_entry) link;
    int64_t seq;
    int64_t bytes_before; // of all lines before this one, dropped ones too
    int64_t message;      // which message of the kernel it shows a part of
    bool keep;            // says how the execution went: never dropped
    int refs;             // the log's, and those of readers who are still sending it
    size_t run_bytes;     // of the whole run, overhead included; only in its first entry
    const char *type;
    enum output_worth worth;
    size_t len;
    struct output_budget *budget; // which counts it although its log has dropped it; NULL: none
    char *text;  // inside `room`: the line as readers get it, with a newline after it
    char room[]; // for the line's head, then its members as text
};
TAILQ_HEAD(output_entries, output_entry);

struct output_log {
    struct output_entries entries;
    TAILQ_HEAD(subscriptions, subscription) subscriptions;
    struct output_budget *budget;
    struct budget_member in_budget; // while its execution has not ended
    bool is_spare;                  // see output_log_set_spare()
    int64_t opened_us;              // clock_mono_us()
    int64_t last_seq;
    int64_t last_message;
    int64_t bytes_total;           // of all lines ever
    size_t bytes_held;             // of the entries, overhead included
    size_t max_bytes;              // of what is held beyond the oldest message
    size_t max_message_bytes;      // of the lines of one message
    struct output_entry *last_run; // the first entry of the run that may grow; NULL: none
    int n_kept;
};

void output_log_init(struct output_log *log, struct output_budget *budget, size_t max_bytes,
                     size_t max_message_bytes);
void output_log_fini(struct output_log *log);
// While nobody reads this log, it yields to what others hold, with its errors, too.
void output_log_set_spare(struct output_log *log);
// The execution has ended: what it holds counts as replay from here on.
void output_log_leave_budget(struct output_log *log);
// Whether more is held than the budget allows: by lines that readers are still sending.
bool output_log_is_crowded(const struct output_log *log);

// ---- Lines ----------------------------------------------------------------------------------

// Appends one line: {"type", "seq"} and the members of `members` (taken).
void output_log_append(struct output_log *log, const char *type, enum output_worth worth,
                       json_t *members);
// Numbers and appends a line (taken), as a part of the message that came last.
void output_log_append_entry(struct output_log *log, struct output_entry *entry);

// What an iopub message of an execution shows (stream, display_data, update_display_data,
// execute_result, error, clear_output: "Messages on the IOPub channel"), or the pages of an
// execute_reply. A message that was too large shows one `dropped` line. NULL: nothing. A pure
// function: any thread may call it.
struct output_lines {
    // Those of an `error` message show it on stderr, for where it is not how the execution ends.
    struct output_entries entries;
    size_t bytes;
    struct output_entry *error; // the line of an error or of a reply that says one; NULL: none
};
struct output_lines *output_lines_of(const struct jupyter_message *message);
void output_lines_free(struct output_lines *lines);
// An `error` line that is not the kernel's; `traceback` (borrowed) may be NULL.
struct output_entry *output_error_line(const char *ename, const char *evalue,
                                       const json_t *traceback);
// Appends the lines of one message (taken; NULL is fine). Where they are larger than all that the
// log may hold, one `dropped` line takes their place.
void output_append_lines(struct output_log *log, struct output_lines *lines);
// The same with one line (taken).
void output_append_line(struct output_log *log, struct output_entry *line);

// ---- Writing a line: output_line.c ----------------------------------------------------------

// A line is begun, gets its members in order, and is ended; `type` is a constant.
void line_begin(struct buf *line, const char *type);
void line_add_string(struct buf *line, const char *name, const char *text, size_t len);
void line_add_json(struct buf *line, const char *name, const json_t *value);
// Adds `name` with a value that the caller appends.
void line_add_name(struct buf *line, const char *name);
// Takes the line out of the buffer.
struct output_entry *line_end(struct buf *line, enum output_worth worth);
// Writes the line's head in front of its members: from here on it has a number and a text.
void line_number(struct output_entry *entry, int64_t seq);
