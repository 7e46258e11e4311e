// SPDX-License-Identifier: Apache-2.0
// What a command reads: bytes that wait for its stdin or its terminal, in order, and are written as
// it takes them. What was accepted and the command does not read before its end is lost, as it is
// in any pipe.
#pragma once

#include "request.h"

struct command_input;

enum { COMMAND_INPUT_MAX = 1024 * 1024 }; // that wait, or are on their way from a caller

// Owns `fd`, which does not block: a pipe's or a terminal's.
struct command_input *command_input_new(struct loop *loop, int fd, bool terminal);
// Refuses what has not come as a whole.
void command_input_free(struct command_input *input);
// -1: the command reads no more.
int command_input_fd(const struct command_input *input);

// Takes the body of the request, all or nothing of it, and answers {} when all of it waits or was
// written. KG_SESSION_BUSY: with it, more than COMMAND_INPUT_MAX would wait. KG_INVALID: the input
// has ended.
void command_input_take(struct command_input *input, struct request *request);
// Ends the input after what waits. A terminal gets what terminal_end_of_input() says, and more may
// follow.
KG_MUST_CHECK int command_input_end(struct command_input *input, struct kg_error *err);
