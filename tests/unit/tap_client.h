// SPDX-License-Identifier: Apache-2.0
// A client of a tap: what it got, in order, and what it sends.
#pragma once

#include <jansson.h>

#include "kernel_tap.h"

enum { TAP_CLIENT_LOG = 4096 };

// What was got: a message as "CHANNEL TYPE", an event as "ready", "restarting", …
struct tap_got {
    enum kernel_tap_kind kind;
    enum kernel_channel channel;
    char *type;     // of a message
    json_t *parent; // its parent header
    json_t *metadata;
    json_t *content;
    char *buffer; // the first one, with a NUL behind it; NULL: none
    size_t buffer_len;
    uint64_t lost_messages;
};

struct tap_client {
    struct kernel_tap *tap;
    const char *session;
    int n_sent;
    struct tap_got got[TAP_CLIENT_LOG];
    size_t n_got;
    bool is_deaf; // takes nothing
    int n_woken;
};

struct tap_client *tap_client_new(struct kernel *kernel, const char *session, size_t max_bytes);
void tap_client_free(struct tap_client *client);
KG_DEFINE_AUTO(tap_client, tap_client_free)
// Sends a message with a header of the client's own ("SESSION-1", …); takes `content`.
int tap_client_send(struct tap_client *client, enum kernel_channel channel, const char *type,
                    json_t *content, struct kg_error *err);
// The same; it must be taken.
void tap_client_say(struct tap_client *client, enum kernel_channel channel, const char *type,
                    json_t *content);
void tap_client_execute(struct tap_client *client, const char *code);
// The first that has been got: of a type ("" any) on a channel, or an event; NULL: none.
const struct tap_got *tap_client_find(const struct tap_client *client, enum kernel_channel channel,
                                      const char *type);
const struct tap_got *tap_client_find_event(const struct tap_client *client,
                                            enum kernel_tap_kind kind);
// The last status of a request of this client is idle.
bool tap_client_is_idle(const struct tap_client *client);
void tap_client_clear(struct tap_client *client);
