// SPDX-License-Identifier: Apache-2.0
// Encoded messages, shared by connections and replay.

#include <assert.h>

#include "mcp_priv.h"

struct payload *
payload_take(char *text, size_t len)
{
    struct payload *payload = KG_NEW(struct payload);
    payload->refs = 1;
    payload->len = len;
    payload->text = text;
    return payload;
}

// Encodes the blocks of mcp_json_text(), which are values until now.
static void
make_texts(json_t *message)
{
    size_t i;
    json_t *block;
    const json_t *content = json_object_get(json_object_get(message, "result"), "content");
    json_array_foreach(content, i, block) {
        json_t *value = json_object_get(block, "text");
        if (!value || json_is_string(value))
            continue;
        KG_AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        json_object_set_new(block, "text", json_string_nocheck(text ? text : ""));
    }
}

struct payload *
payload_of(json_t *message)
{
    return payload_with(message, &(const struct attachments){0});
}

struct payload *
payload_with(json_t *message, const struct attachments *attachments)
{
    size_t len;
    make_texts(message);
    char *text = rpc_dump(message, &len);
    if (!text) {
        json_t *error = rpc_error(json_object_get(message, "id"), MCP_INTERNAL_ERROR,
                                  "the answer cannot be encoded", NULL);
        text = rpc_dump(error, &len);
        json_decref(error);
    }
    json_decref(message);
    if (attachments->n > 0) {
        struct buf whole = {0};
        attachments_write(attachments, text, len, &whole);
        free(text);
        len = whole.len;
        text = buf_take(&whole);
    }
    return payload_take(text, len);
}

struct payload *
payload_ref(struct payload *payload)
{
    payload->refs++;
    return payload;
}

void
payload_count(struct payload *payload, struct mcp *mcp, const char *owner)
{
    payload->mcp = mcp;
    budget_hold_start(&payload->held, &mcp->answers, owner);
    budget_hold_set(&payload->held, payload->len);
}

static void
payload_free(struct payload *payload)
{
    bool is_counted = budget_hold_counts(&payload->held);
    budget_hold_end(&payload->held);
    if (is_counted)
        mcp_room_freed(payload->mcp);
    free(payload->text);
    free(payload);
}

void
payload_unref(struct payload *payload)
{
    if (payload && --payload->refs == 0)
        payload_free(payload);
}

void
payload_release(void *payload)
{
    payload_unref(payload);
}

char *
payload_take_text(struct payload *payload, size_t *ret_len)
{
    assert(payload->refs == 1);
    char *text = KG_STEAL(payload->text);
    *ret_len = payload->len;
    payload_free(payload);
    return text;
}
