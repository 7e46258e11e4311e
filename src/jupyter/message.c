// SPDX-License-Identifier: Apache-2.0
// Parsing of a kernel's message.

#include <string.h>

#include "json_priv.h"
#include "jupyter.h"
#include "session_priv.h"

// Header and parent header hold a handful of short strings.
enum { MAX_HEADER_BYTES = 64 * 1024 };

enum { HEADER, PARENT_HEADER, METADATA, CONTENT, N_PARTS };
static const char *const part_names[N_PARTS] = {"header", "parent_header", "metadata", "content"};

void
jupyter_message_free(struct jupyter_message *message)
{
    if (message == NULL)
        return;
    free(message->msg_type);
    free(message->msg_id);
    free(message->parent_id);
    json_decref(message->header);
    json_decref(message->parent_header);
    json_decref(message->metadata);
    json_decref(message->content);
    free(message);
}

// The index of the frame after the delimiter, 0 where there is none.
static size_t
after_delimiter(const struct jupyter_frame *frames, size_t n_frames)
{
    for (size_t i = 0; i < n_frames; i++) {
        if (frames[i].len == strlen(SESSION_DELIMITER) &&
            memcmp(frames[i].data, SESSION_DELIMITER, frames[i].len) == 0)
            return i + 1;
    }
    return 0;
}

static char *
string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return kg_strdup(value != NULL ? value : "");
}

static int
load_parts(struct jupyter_message *message, const struct jupyter_frame *frames,
           struct kg_error *err)
{
    json_t **const parts[N_PARTS] = {&message->header, &message->parent_header, &message->metadata,
                                     &message->content};

    for (size_t i = 0; i < N_PARTS; i++) {
        if (i <= PARENT_HEADER && frames[i].len > MAX_HEADER_BYTES)
            return kg_error_set(err, KG_INVALID_CONTENT, 0, "%s of %zu bytes", part_names[i],
                                frames[i].len);
        *parts[i] = kernel_json_load(frames[i].data, frames[i].len, part_names[i], NULL, err);
        if (*parts[i] == NULL)
            return -1;
    }
    message->msg_type = string_of(message->header, "msg_type");
    message->msg_id = string_of(message->header, "msg_id");
    message->parent_id = string_of(message->parent_header, "msg_id");
    if (message->msg_type[0] == '\0')
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "header without msg_type");
    return 0;
}

struct jupyter_message *
jupyter_message_parse(struct jupyter_session *session, const struct jupyter_frame *frames,
                      size_t n_frames, struct kg_error *err)
{
    if (n_frames > JUPYTER_MAX_FRAMES) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "message of %zu frames", n_frames);
        return NULL;
    }
    size_t first = after_delimiter(frames, n_frames);
    if (first == 0 || n_frames - first < 1 + N_PARTS) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "message without %s",
                           first == 0 ? "delimiter" : "its five frames");
        return NULL;
    }
    const struct jupyter_frame *parts = &frames[first + 1];
    if (!session_verify(session, parts, &frames[first])) {
        (void)kg_error_set(err, KG_UNAUTHORIZED, 0, "message with a bad signature");
        return NULL;
    }
    KG_AUTO(jupyter_message) message = KG_NEW(struct jupyter_message);
    if (load_parts(message, parts, err) != 0)
        return NULL;
    return KG_STEAL(message);
}
