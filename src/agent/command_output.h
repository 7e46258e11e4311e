// SPDX-License-Identifier: Apache-2.0
// What a command writes, from its pipes or its terminal to its log. The data of a streamed answer
// has one byte for its kind in front of each part:
//   COMMAND_STDOUT, COMMAND_STDERR  text: valid UTF-8 of whole characters
//   COMMAND_TERMINAL                bytes, as the command wrote them
//   COMMAND_DROPPED                 a decimal number of bytes that this reader misses here, because
//                                   it was too slow; what follows begins with a whole character
#pragma once

#include "command_log.h"

enum { COMMAND_STDOUT = 1, COMMAND_STDERR, COMMAND_TERMINAL, COMMAND_DROPPED };

struct command_output;

// The pipes of stdout and stderr: their read ends, non-blocking, and their write ends. What was
// made where it fails is the caller's to close, too; -1 stands for none.
KG_MUST_CHECK int command_pipes_open(int reads[2], int writes[2], struct kg_error *err);
void command_pipes_close(int fds[2]);

struct command_output_settings {
    struct loop *loop;
    struct command_log *log;
    int fds[2]; // non-blocking; ownership passes. Of a terminal its master's side, and -1
    bool terminal;
    size_t max_bytes;  // more is read and dropped; 0: no bound
    loop_fn on_closed; // nothing holds them open now, and all was written
    void *arg;
};

// Reads on as long as the log is not held.
struct command_output *command_output_new(const struct command_output_settings *settings);
void command_output_free(struct command_output *output);
// A terminal may be opened again later, until command_output_finish().
bool command_output_is_closed(const struct command_output *output);
// The log is no longer held.
void command_output_resume(struct command_output *output);
// Takes what is there by now, also if the log is held, and closes: before the result.
void command_output_finish(struct command_output *output);
int64_t command_output_dropped(const struct command_output *output);
