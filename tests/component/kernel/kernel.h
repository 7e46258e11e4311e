// SPDX-License-Identifier: Apache-2.0
// A scripted kernel: cells, each of which is a coroutine, and the loop that resumes them. The steps
// that a cell can have are in steps.h.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "wire.h"

// One execute_request, until its script has ended.
struct cell {
    struct message *request;
    struct frame header; // the request's, whatever parent a step has chosen
    struct shell *shell; // in which it runs; NULL once it runs in the background
    int count;
    double wake;            // when it is resumed at the latest
    bool interrupted;       // and has not noticed yet
    bool catches;           // an interrupt only ends the step
    bool ended;             // no further step
    bool replied, idled;    // said, or not to be said
    struct coroutine *runs; // the loop's
    struct cell *next;
};

// ---- The loop -------------------------------------------------------------------------------

// Serves requests until loop_end(); then the process ends.
void loop_run(void) __attribute__((noreturn));
// Ends the process when what came in has been answered.
void loop_end(int code);
// Ends the process when the system has taken all that was sent.
void loop_quit(int code) __attribute__((noreturn));
// Seconds of a clock that only goes forward.
double loop_now(void);
// Runs a cell's script in a coroutine of its own, until it waits.
void loop_start(struct cell *cell);
// The shell of a subshell's id, or NULL.
struct shell *shell_find(const char *id);
// Makes a subshell, and returns its id; NULL: there are too many.
const char *shell_add(void);
bool shell_remove(const char *id);
// A list of the subshells' ids.
json_t *shell_list(void);
// Every request that waits in the shell gets an aborted reply, as after an error.
void shell_abort(struct shell *shell);
// The next request of the shell can begin.
void shell_free(struct shell *shell);
// What the client has answered since the last call, or NULL. The caller frees it.
char *loop_take_answer(void);
// From here on interrupts are lost.
void loop_set_deaf(bool is_deaf);
// An interrupt that came as a message.
void loop_interrupt(void);

// ---- Cells ----------------------------------------------------------------------------------

void cell_start(struct message *request, struct shell *shell);
void cell_free(struct cell *cell);
// The cell's script, line by line, and its end; in the cell's coroutine.
void cell_run(struct cell *cell);
// Lets everything else happen, until something has happened or the time has passed. Returns false
// after an interrupt, which has ended the cell unless it catches that.
bool cell_wait(struct cell *cell, double seconds);
// An iopub message of the cell.
void cell_say(struct cell *cell, const char *type, json_t *content);
void cell_say_state(const struct message *request, const char *state);
// Its execute_reply, unless there was one; takes `content`.
void cell_reply(struct cell *cell, json_t *content);
// Its idle status, unless there was one.
void cell_idle(struct cell *cell);
// From here on messages of the cell have this text as parent header.
void cell_set_parent(struct cell *cell, const struct frame *header);
// The reply and the idle status, with the right parent; the shell goes on with its next request.
void cell_end(struct cell *cell);
// Ends the cell with an error: on iopub and in the reply.
void cell_raise(struct cell *cell, const char *name, const char *value);
// The header of the last cell that ended: a parent that is wrong.
const struct frame *cell_last_header(void);
// The code of all cells so far.
json_t *cell_history(void);

// ---- Requests -------------------------------------------------------------------------------

// Answers a request that is not a cell's.
void request_handle(struct message *request);
