// SPDX-License-Identifier: Apache-2.0
// A kernel publishes an error before it replies, and may publish errors that are not the cell's
// (code that shows a traceback and goes on) or reply with one that it has not published. So an
// error that was published waits for the end, where the cell gets the one line that it should have.

#include "cell_priv.h"

#include <string.h>

// A larger error is shown at once, and is the cell's one line in any case: all logs are bounded
// together, and what waits here is not in a log.
enum { MAX_WAITING_BYTES = 64 << 10 };

// ---- The table ------------------------------------------------------------------------------

enum stop { NOT_STOPPED, INTERRUPTED, TIMED_OUT, STOPPED_OR_NOT };
enum { ANY_END = -1, ANY_REPLY = -1 };
enum error { NO_ERROR, THE_KERNELS, OURS };

// The first row that fits says how a cell has ended. THE_KERNELS: the line is the error that the
// kernel has told, and is made of `ename` and `evalue` where it has told none. OURS: it is always
// made of these, which are the caller's where they are NULL.
static const struct {
    int end;
    enum stop stop;
    int reply;
    enum execution_status status;
    enum error error;
    const char *ename;
    const char *evalue;
} table[] = {
    {CELL_GONE, STOPPED_OR_NOT, ANY_REPLY, EXECUTION_DIED, OURS, NULL, NULL},
    {CELL_REMOVED, TIMED_OUT, ANY_REPLY, EXECUTION_TIMEOUT, OURS, "TimeoutError",
     "its time was over before it began"},
    {ANY_END, TIMED_OUT, ANY_REPLY, EXECUTION_TIMEOUT, OURS, "TimeoutError", NULL},
    {CELL_REMOVED, STOPPED_OR_NOT, ANY_REPLY, EXECUTION_INTERRUPTED, OURS, "KeyboardInterrupt",
     "the code was interrupted before it began"},
    {CELL_RESTARTED, STOPPED_OR_NOT, ANY_REPLY, EXECUTION_INTERRUPTED, OURS, "KernelRestarted",
     "the kernel was restarted"},
    {CELL_KILLED, STOPPED_OR_NOT, ANY_REPLY, EXECUTION_INTERRUPTED, THE_KERNELS,
     "KeyboardInterrupt", "the code did not react to the interrupt, so its kernel was replaced"},
    {CELL_DIED, INTERRUPTED, ANY_REPLY, EXECUTION_INTERRUPTED, THE_KERNELS, "KeyboardInterrupt",
     "the kernel's process ended when it was interrupted"},
    {ANY_END, INTERRUPTED, ANY_REPLY, EXECUTION_INTERRUPTED, THE_KERNELS, "KeyboardInterrupt", ""},
    {CELL_DIED, NOT_STOPPED, ANY_REPLY, EXECUTION_DIED, OURS, NULL, NULL},
    {ANY_END, NOT_STOPPED, CELL_OK, EXECUTION_OK, NO_ERROR, NULL, NULL},
    {ANY_END, NOT_STOPPED, CELL_ERROR, EXECUTION_ERROR, THE_KERNELS, "KernelError",
     "the kernel did not say what has failed"},
    {ANY_END, NOT_STOPPED, CELL_ABORTED, EXECUTION_INTERRUPTED, OURS, "ExecutionAborted",
     "the kernel has skipped the code, because earlier code has failed"},
    {ANY_END, NOT_STOPPED, CELL_UNREAD, EXECUTION_ERROR, THE_KERNELS, "KernelError",
     "the kernel's reply was too large to be read, so it is not known how the code ended"},
    {ANY_END, NOT_STOPPED, CELL_NO_REPLY, EXECUTION_ERROR, THE_KERNELS, "KernelError",
     "the kernel did not say how the code ended"},
};

static enum stop
stop_of(const struct execution *execution)
{
    bool stopped =
        execution->state == EXECUTION_INTERRUPTING || execution->state == EXECUTION_KILLING;
    if (!stopped)
        return NOT_STOPPED;
    return execution->stop_status == EXECUTION_TIMEOUT       ? TIMED_OUT
           : execution->stop_status == EXECUTION_INTERRUPTED ? INTERRUPTED
                                                             : NOT_STOPPED;
}

static size_t
find_row(enum cell_end end, enum stop stop, enum cell_reply reply)
{
    size_t i = 0;
    while ((table[i].end != ANY_END && table[i].end != (int)end) ||
           (table[i].stop != STOPPED_OR_NOT && table[i].stop != stop) ||
           (table[i].reply != ANY_REPLY && table[i].reply != (int)reply))
        i++;
    return i;
}

// ---- What the kernel says -------------------------------------------------------------------

static const char *
string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static enum cell_reply
reply_of(const struct jupyter_message *reply)
{
    const char *status = string_of(reply->content, "status");
    if (reply->cut_bytes > 0)
        return CELL_UNREAD;
    return strcmp(status, "ok") == 0        ? CELL_OK
           : strcmp(status, "aborted") == 0 ? CELL_ABORTED
                                            : CELL_ERROR;
}

// Whether the code asked the kernel to end.
static bool
asks_exit(const json_t *content)
{
    bool exits = false;
    size_t i;
    json_t *payload;
    json_array_foreach(json_object_get(content, "payload"), i, payload) {
        if (strcmp(string_of(payload, "source"), "ask_exit") == 0)
            exits = !json_is_true(json_object_get(payload, "keepkernel"));
    }
    return exits;
}

static void
take_reply(struct cell *cell, struct execution *execution, struct jupyter_message *reply)
{
    const json_t *exit_code = json_object_get(reply->content, "exit_code"); // our kernelspecs'
    json_int_t count = json_integer_value(json_object_get(reply->content, "execution_count"));
    struct output_lines *lines = reply->shaped;
    if (count > 0)
        execution->count = count;
    cell->reply = reply_of(reply);
    cell->exits = asks_exit(reply->content);
    if (json_is_integer(exit_code))
        cell->exit_code = (int)(json_integer_value(exit_code) & 0xff);
    if (lines && lines->error && lines->error->len <= MAX_WAITING_BYTES)
        cell->replied = KG_STEAL(lines->error);
    execution_take_lines(execution, reply);
}

// It was not the cell's end.
static void
show_on_stderr(struct cell *cell, struct execution *execution)
{
    output_append_lines(&execution->log, KG_STEAL(cell->published));
}

static void
append_error(struct cell *cell, struct execution *execution, struct output_entry *line)
{
    cell->has_error = true;
    output_append_line(&execution->log, line);
}

static void
take_error(struct cell *cell, struct execution *execution, struct jupyter_message *message)
{
    struct output_lines *lines = KG_STEAL(message->shaped);
    show_on_stderr(cell, execution);
    if (lines->error->len <= MAX_WAITING_BYTES) {
        cell->published = lines;
        return;
    }
    append_error(cell, execution, KG_STEAL(lines->error));
    output_lines_free(lines);
}

void
cell_take(struct cell *cell, struct execution *execution, struct jupyter_message *message)
{
    const struct output_lines *lines = message->shaped;
    if (strcmp(message->msg_type, "execute_reply") == 0)
        take_reply(cell, execution, message);
    else if (lines && lines->error)
        take_error(cell, execution, message);
    else
        execution_take_lines(execution, message);
    if (strcmp(message->msg_type, "status") == 0)
        cell->idle |= strcmp(string_of(message->content, "execution_state"), "idle") == 0;
}

void
cell_fail(struct cell *cell, const char *ename, const char *evalue, const json_t *traceback)
{
    cell->reply = CELL_ERROR;
    free(cell->replied);
    cell->replied = output_error_line(ename, evalue, traceback);
}

bool
cell_is_answered(const struct cell *cell)
{
    return cell->reply != CELL_NO_REPLY || cell->idle;
}

// ---- The end --------------------------------------------------------------------------------

static struct output_entry *
made_line(const struct execution *execution, size_t row, const char *reason, const char *detail)
{
    KG_AUTO_FREE char *limit =
        kg_asprintf("the execution took longer than %.15g s (%s)",
                    (double)execution->timeout_ms / 1000, execution->timeout_source);
    const char *ename = table[row].ename ? table[row].ename : reason;
    const char *evalue = table[row].evalue                        ? table[row].evalue
                         : table[row].status == EXECUTION_TIMEOUT ? limit
                                                                  : detail;
    return output_error_line(ename, evalue, NULL);
}

enum execution_status
cell_end(struct cell *cell, struct execution *execution, enum cell_end end, const char *reason,
         const char *detail)
{
    bool exited = end == CELL_DIED && cell->exits; // as the code has asked
    size_t row = find_row(exited ? CELL_ANSWERED : end, stop_of(execution), cell->reply);
    enum error error = table[row].error;
    if (error == THE_KERNELS && cell->published)
        append_error(cell, execution, KG_STEAL(cell->published->error));
    else
        show_on_stderr(cell, execution);
    if (error == THE_KERNELS && !cell->has_error && cell->replied)
        append_error(cell, execution, KG_STEAL(cell->replied));
    if (error != NO_ERROR && !cell->has_error)
        append_error(cell, execution, made_line(execution, row, reason, detail));
    execution->exit_code = cell->exit_code;
    cell_fini(cell);
    return table[row].status;
}

void
cell_fini(struct cell *cell)
{
    output_lines_free(cell->published);
    free(cell->replied);
    *cell = CELL_INIT;
}
