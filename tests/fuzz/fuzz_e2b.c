// SPDX-License-Identifier: Apache-2.0
// What E2B's clients and code in sandboxes say: bodies that make a sandbox, times, lines of an
// execution. The first byte says which of them follows.
#include <assert.h>
#include <string.h>

#include "e2b_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_body(const char *text, size_t len)
{
    static const struct face_context face = {.max_lifetime_s = 86400};
    const struct e2b e2b = {.settings = {.face = &face, .network = len % 2 != 0}};
    struct creation_body body;
    struct kg_error err = {0};
    json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return;
    if (creation_body_parse(&e2b, root, E2B_TIMEOUT_S, &body, &err) < 0) {
        assert(err.code != KG_OK && err.message[0]);
        return;
    }
    assert(body.timeout_s > 0 && body.timeout_s <= 86400 && body.template_id);
    assert(!body.metadata || session_metadata_check(body.metadata, &err) == 0);
    assert(!body.env || session_env_check(body.env, &err) == 0);
}

static void
check_time(const char *text)
{
    char again[CLOCK_RFC3339_LEN];
    int64_t wall_ms, same_ms;
    enum { YEAR_10000_S = 253402300 };
    if (clock_parse_rfc3339(text, &wall_ms) < 0 || wall_ms < 0 ||
        wall_ms >= (int64_t)YEAR_10000_S * 1000000)
        return;
    clock_format_rfc3339(wall_ms, again);
    assert(clock_parse_rfc3339(again, &same_ms) == 0 && same_ms == wall_ms);
}

// Each line is a JSON object with a type.
static void
check_line(const char *text, size_t len)
{
    KG_AUTO_BUF lines = {0};
    json_auto_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *data = json_object_get(line, "data");
    static const char *const texts[] = {"text", "image", "format"};
    // The gateway has made the line itself, as one text.
    if (!json_is_object(line) || memchr(text, '\n', len) || memchr(text, '\r', len) ||
        memchr(text, '\0', len) || // which jansson overlooks behind a number
        (data && !json_is_object(data)))
        return;
    for (size_t i = 0; i < KG_ARRAY_LEN(texts); i++) {
        const json_t *value = json_object_get(line, texts[i]);
        if (value && !json_is_string(value))
            return;
    }
    const json_t *count = json_object_get(line, "execution_count");
    const json_t *bytes = json_object_get(line, "bytes");
    const char *format = json_string_value(json_object_get(line, "format"));
    if ((count && !json_is_integer(count)) || (bytes && !json_is_integer(bytes)) ||
        (format && (strpbrk(format, "\\\"") || !json_is_string(json_object_get(line, "image")))))
        return;
    execute_append_line(&lines, text, len, 1);
    for (const char *at = lines.data, *end; at && *at; at = end + 1) {
        end = strchr(at, '\n');
        assert(end);
        json_auto_t *theirs = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
        assert(json_is_string(json_object_get(theirs, "type")));
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    KG_AUTO_FREE char *text = kg_memdup0(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0:
        check_body(text, size - 1);
        break;
    case 1:
        check_time(text);
        break;
    default:
        check_line(text, size - 1);
    }
    return 0;
}
