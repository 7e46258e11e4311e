// SPDX-License-Identifier: Apache-2.0
// What models get to read of what tenants wrote. First byte: 'l', the rest is lines of an
// execution; 't', it is text, which comes in pieces; 'u', it is a URI; 'a', it is a tool's
// arguments; 'f', it is a file, after a byte that chooses its encoding.
#include <assert.h>
#include <string.h>

#include "charset.h"
#include "file_kind.h"
#include "tools_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 200, TAIL = 100, MARKER = 64, MAX_RESULT = 64 << 10 };

static struct mcp_tools *
no_tools(void)
{
    static const struct face_context face = {.max_timeout_ms = 1000, .max_code_bytes = 100};
    static struct mcp_tools tools = {.settings = {.face = &face}};
    return &tools;
}

static void
shape_text(const char *data, size_t size)
{
    struct text text;
    KG_AUTO_BUF shaped = {0};
    text_init(&text, HEAD, TAIL);
    for (size_t i = 0, n; i < size; i += n) {
        n = utf8_cut(data + i, size - i, 1 + (unsigned char)data[i] % 16);
        n = n ? n : 1;
        text_add(&text, data + i, n);
    }
    text_append_to(&text, &shaped);
    assert(shaped.len <= HEAD + TAIL + MARKER);
    assert(strlen(text_newest_line(&text)) <= HEAD);
    for (size_t i = 0; i < shaped.len; i++)
        assert((unsigned char)shaped.data[i] >= 0x20 || strchr("\n\t", shaped.data[i]));
    assert(text_whole(data, size) <= size && text_is_readable("", 0));
    assert(text_begin(data, size) <= text_whole(data, size));
    (void)text_is_readable(data, size);
    text_fini(&text);
}

static void
shape_lines(const char *data, size_t size)
{
    static const struct outcome_limits limits = {1000, 1000, 4000};
    struct job job = {.tools = no_tools(), .error_result = result_of_error, .session.id = "s"};
    outcome_init(&job.outcome, &limits);
    for (size_t i = 0; i < size;) {
        const char *end = memchr(data + i, '\n', size - i);
        size_t len = end ? (size_t)(end - data) - i : size - i;
        outcome_add_line(&job.outcome, data + i, len);
        i += len + 1;
    }
    // Only what was cut needs the execution, which there is none of here.
    if (job.outcome.out.n_cut == 0 && job.outcome.err.n_cut == 0 && size < 4000) {
        json_auto_t *result = result_of_run(&job);
        KG_AUTO_FREE char *text = json_dumps(result, 0);
        assert(text && strlen(text) < MAX_RESULT);
        assert(json_array_size(json_object_get(result, "content")) > 0);
    }
    outcome_fini(&job.outcome);
}

static void
parse_uri(const char *data, size_t size)
{
    KG_AUTO_FREE char *uri = kg_strndup(data, size);
    KG_AUTO_FREE char *session_id = NULL;
    KG_AUTO_FREE char *path = NULL;
    if (!file_uri_parse(uri, &session_id, &path))
        return;
    assert(*session_id && *path);
    // Made again, it names the same.
    KG_AUTO_FREE char *again = file_uri(session_id, path);
    KG_AUTO_FREE char *same_id = NULL;
    KG_AUTO_FREE char *same_path = NULL;
    assert(file_uri_parse(again, &same_id, &same_path) && strcmp(path, same_path) == 0);
    const char *inside;
    (void)!path_in_session(path, &inside, NULL);
}

static void
check_arguments(const char *data, size_t size)
{
    json_auto_t *args = json_loadb(data, size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(args))
        return;
    for (const struct tool *tool = kernelgate_tools; tool->name; tool++) {
        struct kg_error err = {0};
        assert(tool_check(no_tools(), tool, args, &err) == 0 || err.message[0]);
    }
}

// Appends what a part of a file says, and returns how much of the part it took.
static size_t
read_part(const struct charset *charset, const char *data, size_t len, bool last, struct buf *text)
{
    struct kg_error err = {0};
    int64_t n = charset_decode(charset, data, len, last, text, &err);
    assert(n < 0 ? *err.message != '\0' : (size_t)n <= len && (!last || (size_t)n == len));
    return n < 0 ? len : (size_t)n;
}

static void
read_file(const char *data, size_t size)
{
    static const char *const names[] = {"utf-8", "UTF-16", "utf-16be", "cp1252", "gbk",
                                        "big5",  "sjis",   "euc-jp",   "euc-kr", "cp1255"};
    const struct charset *charset = charset_find(names[(unsigned char)*data % KG_ARRAY_LEN(names)]);
    KG_AUTO_BUF whole = {0};
    KG_AUTO_BUF parts = {0};
    size_t mark_len;
    data++;
    size--;
    assert(charset && read_part(charset, data, size, true, &whole) == size);
    assert(text_is_readable(whole.data ? whole.data : "", whole.len) && whole.len <= 4 * size);
    // In parts, it is cut at whole characters.
    for (size_t i = 0, n; i < size; i += n) {
        n = size - i < 64 ? size - i : 64;
        n = read_part(charset, data + i, n, i + n == size, &parts);
        assert(n > 0);
    }
    assert(text_is_readable(parts.data ? parts.data : "", parts.len));
    (void)charset_of_mark(data, size, &mark_len);
    assert(mark_len <= size);
    (void)charset_may_be_windows_1252(data, size);
    KG_AUTO_FREE char *advice = file_kind_advice(file_kind_find("a.xlsx", data, size), "a", 1);
    assert(*advice);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data + 1;
    if (size < 1)
        return 0;
    if (*data == 'l')
        shape_lines(rest, size - 1);
    else if (*data == 't')
        shape_text(rest, size - 1);
    else if (*data == 'u')
        parse_uri(rest, size - 1);
    else if (*data == 'f' && size > 1)
        read_file(rest, size - 1);
    else
        check_arguments(rest, size - 1);
    return 0;
}
