// SPDX-License-Identifier: Apache-2.0
// What terminado, the library behind Jupyter's terminals, says and is told: arrays of JSON, of
// which the first item is the kind.

#include "terminado_priv.h"

#include <string.h>

#include "websocket.h"

enum { SIDE_MAX = SANDBOX_TERMINAL_SIDE_MAX };

// ---- From the client ------------------------------------------------------------------------

static int
clip(const json_t *number)
{
    double value = json_number_value(number);
    return value < 1 ? 0 : value > SIDE_MAX ? SIDE_MAX : (int)value;
}

// ["set_size", rows, cols, height, width]; a page that is hidden sends zeros, which mean nothing.
static void
read_size(const json_t *message, struct terminal_word *ret)
{
    ret->rows = clip(json_array_get(message, 1));
    ret->cols = clip(json_array_get(message, 2));
    if (ret->rows > 0 && ret->cols > 0)
        ret->kind = TERMINAL_RESIZE;
}

static int
terminado_read(bool is_text, const void *data, size_t len, struct terminal_word *ret,
               struct kg_error *err)
{
    const struct json_weight weight = json_weigh(data, len);
    (void)is_text;
    *ret = (struct terminal_word){.kind = TERMINAL_NOTHING};
    if (weight.depth <= 2 && weight.bytes <= TERMINADO_VALUES_MAX)
        ret->owner = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *kind = json_string_value(json_array_get(ret->owner, 0));
    const json_t *text = json_array_get(ret->owner, 1);
    if (!kind)
        return kg_error_set(err, KG_INVALID, 0,
                            "a message must be an array: [\"stdin\", text], say");
    if (strcmp(kind, "set_size") == 0)
        read_size(ret->owner, ret);
    if (strcmp(kind, "stdin") != 0)
        return 0; // others are for the future
    if (!json_is_string(text))
        return kg_error_set(err, KG_INVALID, 0, "stdin must have a text");
    ret->kind = TERMINAL_INPUT;
    ret->data = json_string_value(text);
    ret->len = json_string_length(text);
    return 0;
}

// ---- To the client --------------------------------------------------------------------------

// Takes `message`.
static void
write_message(struct websocket *ws, json_t *message)
{
    KG_AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    websocket_write_text(ws, text);
}

static void
terminado_write_start(struct websocket *ws, const struct sandbox_command_start *start)
{
    (void)start;
    write_message(ws, json_pack("[s, {}]", "setup"));
}

static void
terminado_write_output(struct websocket *ws, struct terminal_tail *tail, const char *data,
                       size_t len)
{
    KG_AUTO_BUF bytes = {0};
    KG_AUTO_BUF text = {0};
    buf_append(&bytes, tail->bytes, tail->len);
    buf_append(&bytes, data, len);
    tail->len = utf8_append(&text, bytes.data, bytes.len, false);
    memcpy(tail->bytes, bytes.data + bytes.len - tail->len, tail->len);
    if (text.len > 0)
        write_message(ws, json_pack("[s, o]", "stdout", json_stringn_nocheck(text.data, text.len)));
}

static void
terminado_write_missed(struct websocket *ws, int64_t bytes)
{
    KG_AUTO_FREE char *note =
        kg_asprintf("\r\n[kernelgate: %lld bytes were dropped: the page reads too slowly]\r\n",
                    (long long)bytes);
    write_message(ws, json_pack("[s, s]", "stdout", note));
}

static void
terminado_write_end(struct websocket *ws, const struct sandbox_command_result *result,
                    const struct kg_error *err)
{
    (void)result;
    (void)err;
    write_message(ws, json_pack("[s, i]", "disconnect", 1));
}

const struct terminal_dialect terminado_dialect = {
    .read = terminado_read,
    .write_start = terminado_write_start,
    .write_output = terminado_write_output,
    .write_missed = terminado_write_missed,
    .write_end = terminado_write_end,
};
