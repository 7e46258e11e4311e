// SPDX-License-Identifier: Apache-2.0
// Parsing of a kernel's message.

#include <string.h>

#include "json_priv.h"
#include "jupyter.h"
#include "signer_priv.h"
#include "zmtp_priv.h"

// Header and parent header hold a handful of short strings.
enum { MAX_HEADER_BYTES = 64 * 1024 };

enum {
    HEADER = JUPYTER_HEADER,
    PARENT_HEADER = JUPYTER_PARENT_HEADER,
    METADATA = JUPYTER_METADATA,
    CONTENT = JUPYTER_CONTENT,
    N_PARTS = JUPYTER_N_PARTS
};
static const char *const part_names[N_PARTS] = {"header", "parent_header", "metadata", "content"};

void
jupyter_message_free(struct jupyter_message *message)
{
    if (message == NULL)
        return;
    free(message->msg_type);
    free(message->msg_id);
    free(message->parent_id);
    free(message->parent_session);
    free(message->parent_type);
    jupyter_raw_free(message->raw);
    json_decref(message->content);
    json_decref(message->structured);
    free(message);
}

// The index of the frame after the delimiter; 0 if there is none.
static size_t
after_delimiter(const struct jupyter_frame *frames, size_t n_frames)
{
    for (size_t i = 0; i < n_frames; i++) {
        if (frames[i].len == strlen(SIGNER_DELIMITER) &&
            memcmp(frames[i].data, SIGNER_DELIMITER, frames[i].len) == 0)
            return i + 1;
    }
    return 0;
}

// The bytes that the guard removed from metadata and content.
static uint64_t
replaced_bytes(const struct jupyter_frame *frames)
{
    uint64_t bytes = 0;
    for (size_t i = METADATA; i < N_PARTS; i++)
        bytes += zmtp_replaced_size(frames[i].data, frames[i].len);
    return bytes;
}

static void
cut(struct jupyter_message *message, uint64_t bytes)
{
    message->cut_bytes = bytes;
    json_decref(message->content);
    json_decref(KG_STEAL(message->structured));
    message->content = json_object();
}

// Missing strings are "".
static int
load_header(const struct jupyter_frame *frames, size_t part, struct kernel_json_string *strings,
            size_t n_strings, bool *repaired, struct kg_error *err)
{
    if (frames[part].len > MAX_HEADER_BYTES)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "%s of %zu bytes", part_names[part],
                            frames[part].len);
    int result = kernel_json_strings(frames[part].data, frames[part].len, part_names[part], strings,
                                     n_strings, repaired, err);
    for (size_t i = 0; i < n_strings; i++)
        if (strings[i].value == NULL)
            strings[i].value = kg_strdup("");
    return result;
}

static int
load_headers(struct jupyter_message *message, const struct jupyter_frame *frames,
             struct kg_error *err)
{
    struct kernel_json_string header[] = {{"msg_type", NULL}, {"msg_id", NULL}},
                              parent[] = {{"msg_id", NULL}, {"session", NULL}, {"msg_type", NULL}};
    int result = load_header(frames, HEADER, header, 2, &message->repaired, err);
    if (result == 0)
        result = load_header(frames, PARENT_HEADER, parent, 3, &message->repaired, err);
    message->msg_type = header[0].value;
    message->msg_id = header[1].value;
    message->parent_id = parent[0].value;
    message->parent_session = parent[1].value;
    message->parent_type = parent[2].value;
    if (result == 0 && message->msg_type[0] == '\0')
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "header without msg_type");
    return result;
}

// A body with too many values counts as too large. Nothing uses the values of the metadata.
static int
load_body(struct jupyter_message *message, const struct jupyter_frame *frames, struct kg_error *err)
{
    const struct jupyter_frame *metadata = &frames[METADATA], *content = &frames[CONTENT];

    if (kernel_json_strings(metadata->data, metadata->len, part_names[METADATA], NULL, 0,
                            &message->repaired, err) == 0)
        message->content = kernel_json_load(content->data, content->len, part_names[CONTENT],
                                            &message->structured, &message->repaired, err);
    if (message->content != NULL)
        return 0;
    if (err->code != KG_ARTIFACT_TOO_LARGE)
        return -1;
    cut(message, metadata->len + content->len);
    return 0;
}

struct jupyter_message *
jupyter_message_parse(const struct jupyter_signer *signer, const struct jupyter_frame *frames,
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
    uint64_t replaced = replaced_bytes(parts);
    if (replaced == 0 && !signer_verify(signer, parts, &frames[first])) {
        (void)kg_error_set(err, KG_UNAUTHORIZED, 0, "message with a bad signature");
        return NULL;
    }
    KG_AUTO(jupyter_message) message = KG_NEW(struct jupyter_message);
    if (load_headers(message, parts, err) != 0)
        return NULL;
    if (replaced > 0)
        cut(message, replaced);
    else if (load_body(message, parts, err) != 0)
        return NULL;
    return KG_STEAL(message);
}

// The guard replaces a buffer by its size in digits. A kernel's own buffer of digits looks the
// same, and counts as replaced if a buffer of that size would have been too large.
static bool
has_cut_buffer(const struct jupyter_frame *frames, size_t n_frames, size_t max_message_bytes)
{
    uint64_t bytes = 0, cut = 0;
    size_t first = after_delimiter(frames, n_frames) + 1 + N_PARTS;
    for (size_t i = 0; i < n_frames; i++) {
        bytes += zmtp_frame_cost(frames[i].len);
        if (i >= first)
            cut += zmtp_replaced_size(frames[i].data, frames[i].len);
    }
    return bytes + cut > max_message_bytes;
}

void
message_keep_raw(struct jupyter_message *message, const struct jupyter_frame *frames,
                 size_t n_frames, size_t max_message_bytes)
{
    const struct jupyter_frame *parts = &frames[after_delimiter(frames, n_frames) + 1];
    size_t n_buffers = n_frames - (size_t)(parts + N_PARTS - frames);
    if (message->cut_bytes > 0 || has_cut_buffer(frames, n_frames, max_message_bytes))
        return;
    message->raw = jupyter_raw_new(parts, parts + N_PARTS, n_buffers);
    struct kg_error err;
    if (message->repaired && jupyter_raw_repair(message->raw, &err) != 0)
        jupyter_raw_free(KG_STEAL(message->raw));
}
