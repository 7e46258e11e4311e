// SPDX-License-Identifier: Apache-2.0
// Reads the header of a client's message, and builds the messages that go out.

#include "tap_header_priv.h"

#include <string.h>

enum {
    MAX_HEADER_BYTES = 16 << 10,
    MAX_PARENT_BYTES = 64 << 10,
    MAX_ID = 128,
    MAX_TYPE = 64,
};

static int
check_text(const json_t *header, const char *key, size_t max, struct kg_error *err)
{
    const json_t *value = json_object_get(header, key);
    size_t len = json_string_length(value);
    if (len < 1 || len > max || strlen(json_string_value(value)) != len)
        return kg_error_set(err, KG_INVALID, 0, "header: %s must be a string of 1 to %zu bytes",
                            key, max);
    return 0;
}

// Whether a text begins as ISO 8601 does: kernels that parse the date fail otherwise.
static bool
is_date(const char *text)
{
    static const char pattern[] = "0000-00-00T00:00:00";
    for (size_t i = 0; text && pattern[i]; i++) {
        bool fits = pattern[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == pattern[i];
        if (!fits)
            return false;
    }
    return text != NULL;
}

static void
set_default(json_t *header, const char *key, const char *value)
{
    if (!json_is_string(json_object_get(header, key)))
        json_object_set_new(header, key, json_string(value));
}

json_t *
tap_header_read(const struct kernel_bytes *bytes, const char *own_session, struct kg_error *err)
{
    json_auto_t *header = bytes->len <= MAX_HEADER_BYTES
                              ? json_loadb(bytes->data, bytes->len, JSON_REJECT_DUPLICATES, NULL)
                              : NULL;
    if (!json_is_object(header)) {
        (void)kg_error_set(err, KG_INVALID, 0, "header: not a JSON object of at most %d bytes",
                           MAX_HEADER_BYTES);
        return NULL;
    }
    if (check_text(header, "msg_id", MAX_ID, err) < 0 ||
        check_text(header, "session", MAX_ID, err) < 0 ||
        check_text(header, "msg_type", MAX_TYPE, err) < 0)
        return NULL;
    // The gateway finds the answers to its own requests by its session.
    const char *session = json_string_value(json_object_get(header, "session"));
    if (strcmp(session, own_session) == 0) {
        (void)kg_error_set(err, KG_INVALID, 0, "header: session belongs to the gateway");
        return NULL;
    }
    char now[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), now);
    if (!is_date(json_string_value(json_object_get(header, "date"))))
        json_object_set_new(header, "date", json_string(now));
    set_default(header, "username", "");
    set_default(header, "version", "5.3");
    return KG_STEAL(header);
}

size_t
tap_message_bytes(const struct kernel_message *message)
{
    size_t bytes = message->header.len + message->parent_header.len + message->metadata.len +
                   message->content.len;
    for (size_t i = 0; i < message->n_buffers; i++)
        bytes += message->buffers[i].len;
    return bytes;
}

static struct jupyter_frame
frame_of(const struct kernel_bytes *bytes)
{
    return (struct jupyter_frame){bytes->data, bytes->len};
}

struct jupyter_raw *
tap_raw_new(const struct kernel_message *message, const json_t *header, struct kg_error *err)
{
    static const struct kernel_bytes empty = {"{}", 2};
    const struct kernel_bytes *parent = &message->parent_header, *metadata = &message->metadata;
    if (parent->len > MAX_PARENT_BYTES) {
        (void)kg_error_set(err, KG_INVALID, 0, "parent_header: more than %d bytes",
                           MAX_PARENT_BYTES);
        return NULL;
    }
    if (message->n_buffers > JUPYTER_MAX_BUFFERS) {
        (void)kg_error_set(err, KG_INVALID, 0, "buffers: more than %d", JUPYTER_MAX_BUFFERS);
        return NULL;
    }
    KG_AUTO_FREE char *text = json_dumps(header, JSON_COMPACT);
    const struct jupyter_frame parts[JUPYTER_N_PARTS] = {
        [JUPYTER_HEADER] = {text, strlen(text)},
        [JUPYTER_PARENT_HEADER] = frame_of(parent->len > 0 ? parent : &empty),
        [JUPYTER_METADATA] = frame_of(metadata->len > 0 ? metadata : &empty),
        [JUPYTER_CONTENT] = frame_of(&message->content),
    };
    struct jupyter_frame buffers[JUPYTER_MAX_BUFFERS];
    for (size_t i = 0; i < message->n_buffers; i++)
        buffers[i] = frame_of(&message->buffers[i]);
    return jupyter_raw_new(parts, buffers, message->n_buffers);
}

struct jupyter_raw *
tap_raw_answer(const char *type, const char *parent_header, json_t *content)
{
    enum { ID_LEN = 32 };
    char now[CLOCK_RFC3339_LEN], msg_id[ID_LEN + 1], session[ID_LEN + 1];
    clock_format_rfc3339(clock_wall_ms(), now);
    id_random_hex(msg_id, ID_LEN);
    id_random_hex(session, ID_LEN);
    json_auto_t *header =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", msg_id, "session", session,
                  "username", "kernelgate", "date", now, "msg_type", type, "version", "5.3");
    KG_AUTO_FREE char *header_text = json_dumps(header, JSON_COMPACT);
    KG_AUTO_FREE char *content_text = json_dumps(content, JSON_COMPACT);
    const struct jupyter_frame parts[JUPYTER_N_PARTS] = {
        [JUPYTER_HEADER] = {header_text, strlen(header_text)},
        [JUPYTER_PARENT_HEADER] = {parent_header, strlen(parent_header)},
        [JUPYTER_METADATA] = {"{}", 2},
        [JUPYTER_CONTENT] = {content_text, strlen(content_text)},
    };
    json_decref(content);
    return jupyter_raw_new(parts, NULL, 0);
}
