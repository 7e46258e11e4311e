// SPDX-License-Identifier: Apache-2.0
// The output of a command as the data of a streamed answer. Each part is one byte, COMMAND_STDOUT
// or COMMAND_STDERR, and text: valid UTF-8 of whole characters.
#pragma once

#include "request.h"

enum { COMMAND_STDOUT = 1, COMMAND_STDERR = 2 };

struct command_output;

// The pipes of stdout and stderr: their read ends, non-blocking, and their write ends. What was
// made where it fails is the caller's to close, too; -1 stands for none.
KG_MUST_CHECK int command_pipes_open(int reads[2], int writes[2], struct kg_error *err);
void command_pipes_close(int fds[2]);

struct command_output_settings {
    struct loop *loop;
    struct request *request; // its answer has begun
    int fds[2];              // non-blocking; ownership passes
    size_t max_bytes;        // more is read and dropped; 0: no bound
    loop_fn on_closed;       // both have ended, and all was written
    void *arg;
};

// Reads no faster than the caller of the request does.
struct command_output *command_output_new(const struct command_output_settings *settings);
void command_output_free(struct command_output *output);
bool command_output_is_closed(const struct command_output *output);
// Sends what is there by now, also if the reader is behind, and takes no more: before the result.
void command_output_finish(struct command_output *output);
int64_t command_output_dropped(const struct command_output *output);
