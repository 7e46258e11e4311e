// SPDX-License-Identifier: Apache-2.0
// A cell: one execute_request, as far as its kernel has said something about it, and its end. What
// can end it and what is said of it then is one table (cell.c; docs/api.md, "How it ends").
#pragma once

#include "execution_priv.h"

enum cell_reply {
    CELL_NO_REPLY,
    CELL_OK,
    CELL_ERROR,
    CELL_ABORTED, // the kernel has skipped it ("stop_on_error" in the protocol)
    CELL_UNREAD,  // the reply was too large
};

enum cell_end {
    CELL_ANSWERED,   // its reply and its idle status have come
    CELL_UNANSWERED, // idle has come, and then nothing; or the answer to a later request
    CELL_REMOVED,    // it waited, and is not to run any more
    CELL_KILLED,     // it did not react to an interrupt, and its process was killed
    CELL_RESTARTED,  // a client has restarted the kernel
    CELL_DIED,       // its process has ended, or cannot be used any more
    CELL_GONE,       // its session is being ended
};

enum { CELL_NO_EXIT = -1 };

// Initialised with CELL_INIT.
struct cell {
    enum cell_reply reply;
    bool idle;
    bool exits;     // the reply says that the process will end
    int exit_code;  // that the code has ended with, 0 to 255; CELL_NO_EXIT: it did not exit
    bool has_error; // an error line is in the log
    // The error that the kernel has published last, until it is known to be the cell's.
    struct output_lines *published;
    struct output_entry *replied; // the line of a reply that says `error`; NULL: none
};
#define CELL_INIT ((struct cell){.exit_code = CELL_NO_EXIT})

// Takes a message about the cell: on iopub, or its execute_reply. Appends its lines to the log.
void cell_take(struct cell *cell, struct execution *execution, struct jupyter_message *message);
// What goes before its code has failed.
void cell_fail(struct cell *cell, const char *ename, const char *evalue, const json_t *traceback);
// The first of reply and idle has come: an interrupt would hit what runs next.
bool cell_is_answered(const struct cell *cell);
// Ends the cell: returns its status, and has appended the error line where that is not `ok`.
// `reason` and `detail` are the line's ename and evalue for CELL_DIED and CELL_GONE, else NULL. The
// cell is as new then.
enum execution_status cell_end(struct cell *cell, struct execution *execution, enum cell_end end,
                               const char *reason, const char *detail);
void cell_fini(struct cell *cell);
