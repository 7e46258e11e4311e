// SPDX-License-Identifier: Apache-2.0
// The output of one command, its last bytes kept, and its readers: each a request whose answer is
// the stream that command_output.h describes. A reader that holds the command back gets all. Any
// other may be COMMAND_LOG_BEHIND bytes behind (what waits on its link, and what is kept); what it
// misses beyond that is dropped, and it is told how much.
#pragma once

#include "request.h"

struct command_log;

enum { COMMAND_LOG_BEHIND = 256 * 1024 };

// `on_room` fires when the log is no longer held. `is_text`: whole characters of UTF-8 are added.
struct command_log *command_log_new(bool is_text, loop_fn on_room, void *arg);
// All readers must have been answered.
void command_log_free(struct command_log *log);

void command_log_add(struct command_log *log, char stream, const char *data, size_t len);
// Whether a reader that holds the command back is behind.
bool command_log_is_held(const struct command_log *log);

// `head` gets a member "dropped_bytes": those before what is kept. `on_gone` (may be NULL) fires
// when the caller has left before the end.
void command_log_join(struct command_log *log, struct request *request, json_t *head, bool holds,
                      loop_fn on_gone, void *arg);
int command_log_n_readers(const struct command_log *log);
// Answers all readers, after what is kept; nothing is added any more. Those that join later are
// answered at once. `end`: as their result; NULL: there is none.
void command_log_end(struct command_log *log, const json_t *end);
