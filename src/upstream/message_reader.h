// SPDX-License-Identifier: Apache-2.0
// Reads the messages of a server: small ones at once, large ones on a worker. What waits for one is
// counted in a budget. The server's credentials, if it repeats them, are hidden.
#pragma once

#include "budget.h"
#include "loop.h"
#include "message.h"
#include "servers_file.h"

struct message_reader;

struct message_reader_events {
    // `tag` is what was given with the text. `message` is freed afterwards, its value maybe on a
    // worker, so that nobody may keep a reference to that; NULL: it cannot be read, and `err` says
    // why.
    void (*on_message)(struct message *message, int64_t tag, const struct kg_error *err, void *arg);
    // After the last message of that tag: see message_reader_end().
    void (*on_end)(int64_t tag, const struct kg_error *why, void *arg);
};

// All is borrowed. Messages are read in the lane of the server's name, and count as its.
struct message_reader *message_reader_new(struct loop *loop, struct budget *budget,
                                          const struct server_spec *server,
                                          const struct message_reader_events *events, void *arg);
void message_reader_free(struct message_reader *reader);
// on_message is called once, maybe before this returns.
void message_reader_take(struct message_reader *reader, const char *text, size_t len, int64_t tag);
// Whether a message of that tag is being read.
bool message_reader_has(const struct message_reader *reader, int64_t tag);
// No further text of that tag comes, since `why`. on_end is called after what is being read; at
// once, if there is none.
void message_reader_end(struct message_reader *reader, int64_t tag, const struct kg_error *why);
