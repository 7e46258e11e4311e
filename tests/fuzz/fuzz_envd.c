// SPDX-License-Identifier: Apache-2.0
// What a client sends to envd as a stream: envelopes, the fields of their messages, and paths.
#include <assert.h>
#include <string.h>

#include "envd_path.h"
#include "envelope.h"
#include "message.h"

enum { MESSAGE_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
try_path(const char *text)
{
    ENVD_AUTO_PATH path = {0};
    struct kg_error err = {0};
    if (envd_path_parse(text, &path, &err) < 0) {
        assert(err.code == KG_INVALID_PATH && err.message[0]);
        return;
    }
    assert(path.client[0] == '/' && !strstr(path.client, "//"));
    assert(!strstr(path.client, "/../") && !strstr(path.client, "/./"));
    assert(!*path.session || strcmp(path.session, "/") == 0 ||
           file_any_path_check(path.session, false, NULL) == 0);
}

static void
try_message(const json_t *message)
{
    struct kg_error err = {0};
    const json_t *object;
    const char *text = NULL;
    bool flag = false;
    int64_t number = 0;
    KG_AUTO_BUF bytes = {0};
    if (message_string(message, "path", &text, &err) == 0 && text)
        try_path(text);
    if (message_bool(message, "recursive", &flag, &err) < 0 ||
        message_uint(message, "pid", UINT32_MAX, &number, &err) < 0 ||
        message_bytes(message, "stdin", &bytes, NULL, &err) < 0)
        assert(err.code == KG_INVALID && err.message[0]);
    assert(number >= 0 && number <= UINT32_MAX);
    if (message_object(message, "process", &object, &err) == 0 && object)
        try_message(object);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    // A copy of its own: a byte beyond it is noticed.
    KG_AUTO_FREE char *copy = kg_calloc(size + (size == 0), 1);
    memcpy(copy, data, size);
    for (size_t at = 0;;) {
        struct envelope envelope;
        if (envelope_read(copy + at, size - at, MESSAGE_MAX, &envelope) != ENVELOPE_WHOLE)
            return 0;
        assert(envelope.len <= MESSAGE_MAX && envelope.taken <= size - at);
        assert(envelope.data + envelope.len == copy + at + envelope.taken);
        json_auto_t *message = json_loadb(envelope.data, envelope.len, 0, NULL);
        if (json_is_object(message))
            try_message(message);
        at += envelope.taken;
    }
}
