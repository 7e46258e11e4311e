// SPDX-License-Identifier: Apache-2.0
// The Jupyter wire protocol: a kernel's five sockets, and signed messages on them.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum channel { SHELL, CONTROL, STDIN, IOPUB, HB, N_CHANNELS };
enum { IDS_MAX = 8 };

struct frame {
    char *data;
    size_t len;
};

// A message that was received; what it says of itself is NULL where it is not JSON.
struct message {
    struct frame ids[IDS_MAX]; // to whom the answer goes
    size_t n_ids;
    struct frame parent; // the header's text, which messages about it have as parent_header
    json_t *header, *content;
    struct frame *buffers;
    size_t n_buffers;
    enum channel channel;
};

// What is different in the next message, only in that one; the texts belong to it.
struct wire_next {
    bool bad_signature;
    char *metadata;              // JSON
    const struct frame *buffers; // the caller keeps them
    size_t n_buffers;
};
extern struct wire_next wire_next;

// Binds the sockets that a connection file names; ends the process if that fails.
void wire_open(const json_t *connection);
// Closes the sockets when the system has taken all that was sent.
void wire_close(void);

void *wire_socket(enum channel channel);
// The channel with a name, as in "shell_port"; N_CHANNELS if there is none.
enum channel wire_channel(const char *name);

// The next message on a channel, or NULL if none has come. The caller frees it.
struct message *wire_receive(enum channel channel);
void message_free(struct message *message);
const char *message_type(const struct message *message);
// A member of the content; "" where it is not a string.
const char *message_text(const struct message *message, const char *name);

// Sends a message about `request` (NULL: about none). `content` is JSON, or whatever a test wants.
void wire_send_text(const struct message *request, enum channel channel, const char *type,
                    const char *content);
// The same; takes `content`.
void wire_send(const struct message *request, enum channel channel, const char *type,
               json_t *content);
// Sends frames as they are, to the sender of `request`.
void wire_send_frames(const struct message *request, enum channel channel, const json_t *frames);
