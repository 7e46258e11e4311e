// SPDX-License-Identifier: Apache-2.0
// Commands with ids, as a gateway uses them: starts, joins, input.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_agent.h"

void
stream_fini(struct stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    json_decref(stream->head);
    json_decref(stream->end);
    buf_fini(&stream->out);
    buf_fini(&stream->err);
}

static void
stream_take(struct stream *stream, const struct buf *frame)
{
    char kind = frame->data[0];

    assert_in_range(kind, 1, 4);
    stream->n_frames++;
    if (kind == 4) {
        stream->dropped += strtoll(frame->data + 1, NULL, 10);
        stream->after_drop = stream->out.len;
        return;
    }
    stream->streams |= 1U << kind;
    buf_append(kind == 2 ? &stream->err : &stream->out, frame->data + 1, frame->len - 1);
}

bool
stream_read(struct stream *stream)
{
    KG_AUTO_BUF frame = {0};

    enum frame_kind kind = read_frame(stream->fd, &frame);
    if (kind == FRAME_DATA) {
        stream_take(stream, &frame);
        return true;
    }
    if (kind != FRAME_HEAD && kind != FRAME_RESULT)
        fail_msg("%d %s", kind, frame.data ? frame.data : "");
    json_t *value = json_loadb(frame.data, frame.len, 0, NULL);
    assert_non_null(value);
    *(kind == FRAME_HEAD ? &stream->head : &stream->end) = value;
    return kind == FRAME_HEAD;
}

void
stream_until(struct stream *stream, const char *text)
{
    while (!stream->out.data || !memmem(stream->out.data, stream->out.len, text, strlen(text))) {
        if (!stream_read(stream))
            fail_msg("it has ended without %s: %s", text, stream->out.data);
    }
}

void
stream_finish(struct stream *stream)
{
    while (stream_read(stream))
        ;
    close(KG_STEAL_FD(stream->fd));
}

static char *
start_params(const char *script, json_t *more)
{
    json_auto_t *params =
        json_pack("{s:[s, s, s], s:i}", "argv", "sh", "-c", script, "timeout_ms", (int)PATIENCE_MS);
    json_object_update(params, more);
    json_decref(more);
    return json_dumps(params, 0);
}

struct stream
stream_start(struct fixture *f, const char *script, json_t *more)
{
    KG_AUTO_FREE char *params = start_params(script, more);
    struct stream stream = {.fd = send_request(f, "commands.run", params, 0)};

    assert_true(stream_read(&stream));
    assert_non_null(stream.head);
    return stream;
}

struct stream
stream_join(struct fixture *f, const char *id, bool hold)
{
    KG_AUTO_FREE char *params =
        kg_asprintf("{\"id\":\"%s\",\"hold\":%s}", id, hold ? "true" : "false");
    struct stream stream = {.fd = send_request(f, "commands.join", params, 0)};

    assert_true(stream_read(&stream));
    assert_non_null(stream.head);
    return stream;
}

pid_t
detach(struct fixture *f, const char *id, const char *script, json_t *more)
{
    json_t *members = json_pack("{s:s, s:b}", "id", id, "detach", 1);
    json_object_update(members, more);
    json_decref(more);
    KG_AUTO_FREE char *params = start_params(script, members);
    json_auto_t *result = call(f, "commands.run", params, KG_OK);
    assert_string_equal(text_of(result, "id"), id);
    assert_true(number_of(result, "pid") > 1);
    return number_of(result, "pid");
}

void
id_call(struct fixture *f, const char *method, const char *id, const char *more, enum kg_code code)
{
    KG_AUTO_FREE char *params = kg_asprintf("{\"id\":\"%s\"%s}", id, more);
    json_auto_t *result = call(f, method, params, code);
    if (code != KG_OK && !strstr(text_of(result, "error"), id) && code == KG_NOT_FOUND)
        fail_msg("%s does not name %s", text_of(result, "error"), id);
}

void
input_bytes(struct fixture *f, const char *id, const char *data, size_t len, enum kg_code code)
{
    enum { PART = 100000 };
    KG_AUTO_FREE char *params = kg_asprintf("{\"id\":\"%s\"}", id);
    KG_AUTO_FD fd = send_request(f, "commands.input", params, len);

    for (size_t at = 0; code == KG_OK && at < len; at += PART)
        send_frame(fd, FRAME_DATA, data + at, len - at < PART ? len - at : PART);
    json_decref(read_result(fd, code));
}

void
input(struct fixture *f, const char *id, const char *text)
{
    input_bytes(f, id, text, strlen(text), KG_OK);
}

json_t *
listed(struct fixture *f, const char *id)
{
    json_auto_t *result = call(f, "commands.list", "{}", KG_OK);
    json_t *command;
    size_t i;

    json_array_foreach(json_object_get(result, "commands"), i, command) {
        if (strcmp(text_of(command, "id"), id) == 0)
            return json_incref(command);
    }
    return NULL;
}

void
wait_until_ended(struct fixture *f, const char *id)
{
    struct stream stream = stream_join(f, id, false);

    stream_finish(&stream);
    stream_fini(&stream);
}
