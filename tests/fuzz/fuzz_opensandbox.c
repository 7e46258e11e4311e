// SPDX-License-Identifier: Apache-2.0
// What OpenSandbox's clients and code in sandboxes say: bodies that make a sandbox, paths,
// patterns, lines of an execution, output of a command. The first byte says which of them follows.
#include <assert.h>
#include <string.h>

#include "opensandbox_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_body(const char *text, size_t len)
{
    static const struct face_context face = {.max_lifetime_s = 86400};
    const struct opensandbox self = {.settings = {.face = &face, .network = len % 2 != 0}};
    struct create_body body;
    struct kg_error err = {0};
    json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root))
        return;
    if (create_body_parse(&self, root, &body, &err) < 0) {
        assert(err.code != KG_OK && err.message[0]);
        return;
    }
    assert(strstr(body.image, "python") || strstr(body.image, "code-interpreter"));
    assert(body.timeout_s >= 0 && body.timeout_s <= 86400);
}

static void
check_path(const char *text)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = sandbox_path(text, true, &err);
    if (!path) {
        assert(err.code == KG_INVALID_PATH && err.message[0]);
        return;
    }
    assert(!*path || file_any_path_check(path, true, &err) == 0);
    KG_AUTO_FREE char *shown = client_path(path);
    KG_AUTO_FREE char *again = sandbox_path(shown, true, &err);
    assert(*shown == '/' && again && strcmp(path, again) == 0);
}

// The pattern ends at the first newline.
static void
check_glob(char *text)
{
    char *path = strchr(text, '\n');
    if (!path)
        return;
    *path++ = '\0';
    if (glob_check(text, NULL) < 0)
        return;
    int64_t steps = 1 << 20;
    (void)glob_matches(text, path, &steps);
    steps = 1 << 20;
    assert(glob_matches("**", path, &steps));
    if (!strpbrk(path, "*?[\\") && strchr(path, '/'))
        assert(glob_matches(path, path, &steps));
}

// Each event is one `data:` of valid JSON.
static void
check_events(const struct buf *events)
{
    for (const char *at = events->data, *end; at && *at; at = end + 2) {
        static const char start[] = "data: ";
        end = strstr(at, "\n\n");
        assert(end && strncmp(at, start, strlen(start)) == 0);
        at += strlen(start);
        assert(!memchr(at, '\n', (size_t)(end - at)));
        json_auto_t *event = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
        assert(json_is_string(json_object_get(event, "type")));
        assert(json_is_integer(json_object_get(event, "timestamp")));
    }
}

static void
check_line(const char *text, size_t len)
{
    KG_AUTO_BUF events = {0};
    json_auto_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *data = json_object_get(line, "data");
    const json_t *count = json_object_get(line, "execution_count");
    // The gateway has made the line itself, as one text.
    if (!json_is_object(line) || memchr(text, '\n', len) || memchr(text, '\r', len) ||
        memchr(text, '\0', len) || // which jansson overlooks behind a number
        (data && !json_is_object(data)) || (count && !json_is_integer(count)))
        return;
    code_events_append(&events, text, len);
    check_events(&events);
}

// Every byte but the ends of lines is there, in whatever pieces the text comes.
static void
check_output(const char *text, size_t len)
{
    size_t first = len / 2, n_plain = 0, n_said = 0;
    struct command_lines lines = {0};
    KG_AUTO_BUF events = {0};
    if (utf8_valid_prefix(text, len) != len)
        return;
    first = utf8_cut(text, len, first);
    command_lines_append(&lines, &events, "stdout", text, first);
    command_lines_append(&lines, &events, "stdout", text + first, len - first);
    command_lines_end(&lines, &events, "stdout");
    buf_fini(&lines.partial);
    check_events(&events);
    for (size_t i = 0; i < len; i++)
        n_plain += text[i] != '\n' && text[i] != '\r';
    for (const char *at = events.data; at && *at; at = strstr(at, "\n\n") + 2) {
        size_t event_len = (size_t)(strstr(at, "\n\n") - at) - strlen("data: ");
        json_auto_t *event = json_loadb(at + strlen("data: "), event_len, JSON_ALLOW_NUL, NULL);
        const json_t *said = json_object_get(event, "text");
        if (strcmp(json_string_value(said), "\n") != 0)
            n_said += json_string_length(said);
    }
    assert(n_said == n_plain);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    KG_AUTO_FREE char *text = kg_memdup0(data + 1, size - 1);
    switch (data[0] % 5) {
    case 0:
        check_body(text, size - 1);
        break;
    case 1:
        check_path(text);
        break;
    case 2:
        check_glob(text);
        break;
    case 3:
        check_line(text, size - 1);
        break;
    default:
        check_output(text, size - 1);
    }
    return 0;
}
