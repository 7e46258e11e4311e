// SPDX-License-Identifier: Apache-2.0
// A client of a tap that takes everything at once.

#include "tap_client.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static json_t *
load(struct kernel_bytes bytes)
{
    json_t *value = json_loadb(bytes.data, bytes.len, JSON_ALLOW_NUL, NULL);
    assert(json_is_object(value));
    return value;
}

static void
take(struct tap_client *client, const struct kernel_tap_item *item)
{
    assert(client->n_got < TAP_CLIENT_LOG);
    struct tap_got *got = &client->got[client->n_got++];
    *got = (struct tap_got){.kind = item->kind, .lost_messages = item->lost_messages};
    if (item->kind != KERNEL_TAP_MESSAGE)
        return;
    const struct kernel_message *message = item->message;
    json_auto_t *header = load(message->header);
    got->channel = message->channel;
    got->type = kg_strdup(json_string_value(json_object_get(header, "msg_type")));
    got->parent = load(message->parent_header);
    got->metadata = load(message->metadata);
    got->content = load(message->content);
    if (message->n_buffers > 0) {
        got->buffer = kg_memdup0(message->buffers[0].data, message->buffers[0].len);
        got->buffer_len = message->buffers[0].len;
    }
}

static void
tap_client_on_ready(void *arg)
{
    struct tap_client *client = arg;
    struct kernel_tap_item item;
    client->n_woken++;
    while (!client->is_deaf && kernel_tap_next(client->tap, &item))
        take(client, &item);
}

struct tap_client *
tap_client_new(struct kernel *kernel, const char *session, size_t max_bytes)
{
    struct tap_client *client = KG_NEW(struct tap_client);
    const struct kernel_tap_settings settings = {
        .owner = "me", .session_id = "s1", .max_bytes = max_bytes};
    struct kg_error err;
    client->session = session;
    client->tap = kernel_tap_open(kernel, &settings, tap_client_on_ready, client, &err);
    assert(client->tap);
    return client;
}

void
tap_client_clear(struct tap_client *client)
{
    for (size_t i = 0; i < client->n_got; i++) {
        struct tap_got *got = &client->got[i];
        free(got->type);
        json_decref(got->parent);
        json_decref(got->metadata);
        json_decref(got->content);
        free(got->buffer);
    }
    client->n_got = 0;
}

void
tap_client_free(struct tap_client *client)
{
    if (!client)
        return;
    kernel_tap_close(client->tap);
    tap_client_clear(client);
    free(client);
}

int
tap_client_send(struct tap_client *client, enum kernel_channel channel, const char *type,
                json_t *content, struct kg_error *err)
{
    KG_AUTO_FREE char *msg_id = kg_asprintf("%s-%d", client->session, ++client->n_sent);
    json_auto_t *header = json_pack("{s:s, s:s, s:s}", "msg_id", msg_id, "session", client->session,
                                    "msg_type", type);
    KG_AUTO_FREE char *header_text = json_dumps(header, 0);
    KG_AUTO_FREE char *content_text = json_dumps(content, 0);
    json_decref(content);
    static const struct kernel_bytes buffer = {"\0\1buffer", 8};
    const struct kernel_message message = {
        .channel = channel,
        .header = {header_text, strlen(header_text)},
        .content = {content_text, strlen(content_text)},
        .n_buffers = strcmp(type, "comm_msg") == 0,
        .buffers = &buffer,
    };
    return kernel_tap_send(client->tap, &message, err);
}

void
tap_client_say(struct tap_client *client, enum kernel_channel channel, const char *type,
               json_t *content)
{
    struct kg_error err = {0};
    if (tap_client_send(client, channel, type, content, &err) < 0) {
        fprintf(stderr, "%s was not taken: %s\n", type, err.message);
        abort();
    }
}

void
tap_client_execute(struct tap_client *client, const char *code)
{
    tap_client_say(client, KERNEL_SHELL, "execute_request",
                   json_pack("{s:s, s:b, s:b, s:{}, s:b, s:b}", "code", code, "silent", 0,
                             "store_history", 1, "user_expressions", "allow_stdin", 1,
                             "stop_on_error", 1));
}

const struct tap_got *
tap_client_find(const struct tap_client *client, enum kernel_channel channel, const char *type)
{
    for (size_t i = 0; i < client->n_got; i++) {
        const struct tap_got *got = &client->got[i];
        if (got->kind == KERNEL_TAP_MESSAGE && got->channel == channel &&
            (!*type || strcmp(got->type, type) == 0))
            return got;
    }
    return NULL;
}

const struct tap_got *
tap_client_find_event(const struct tap_client *client, enum kernel_tap_kind kind)
{
    for (size_t i = 0; i < client->n_got; i++) {
        if (client->got[i].kind == kind)
            return &client->got[i];
    }
    return NULL;
}

bool
tap_client_is_idle(const struct tap_client *client)
{
    KG_AUTO_FREE char *msg_id = kg_asprintf("%s-%d", client->session, client->n_sent);
    for (size_t i = 0; i < client->n_got; i++) {
        const struct tap_got *got = &client->got[i];
        const char *parent = json_string_value(json_object_get(got->parent, "msg_id"));
        const char *state = json_string_value(json_object_get(got->content, "execution_state"));
        if (parent && strcmp(parent, msg_id) == 0 && state && strcmp(state, "idle") == 0)
            return true;
    }
    return false;
}
