// SPDX-License-Identifier: Apache-2.0
// Errors, buffers, files, ids, clocks, the log.

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base.h"
#include "budget.h"

static void
test_every_code_has_a_row(void **state)
{
    (void)state;
    for (int code = 0; code < KG_N_CODES; code++) {
        const struct kg_code_info *info = kg_code_info((enum kg_code)code);
        assert_in_range(info->http_status, 200, 599);
        for (int other = 0; other < code; other++)
            assert_string_not_equal(info->name, kg_code_info((enum kg_code)other)->name);
    }
    assert_int_equal(kg_code_info(KG_DISK_FULL)->http_status, 507);
}

static void
test_error_carries_errno_and_may_quote_itself(void **state)
{
    (void)state;
    struct kg_error err = {0};
    assert_int_equal(kg_error_set(&err, KG_INTERNAL, ENOENT, "cannot open %s", "x"), -1);
    assert_string_equal(err.message, "cannot open x: No such file or directory");
    kg_error_set(&err, KG_INVALID, 0, "settings: %s", err.message);
    assert_string_equal(err.message, "settings: cannot open x: No such file or directory");
    assert_int_equal(kg_error_set(NULL, KG_INVALID, 0, "ignored"), -1);
    char long_text[300];
    memset(long_text, 'a', sizeof long_text);
    memcpy(long_text + 237, "\xe2\x82\xac", 4); // does not fit whole
    kg_error_set(&err, KG_INVALID, 0, "%s", long_text);
    assert_int_equal(strlen(err.message), 237);
    long_text[237] = '\0';
    assert_string_equal(err.message, long_text);
    // A character that a precision has cut in two, and bytes that never were text.
    kg_error_set(&err, KG_INVALID, 0, "%.2s|%s|", "a\xc3\xa4", "\xff\xfe\xed\xa0\x80 b\xc3\xa4");
    assert_string_equal(err.message, "a| b\xc3\xa4|");
}

static void
test_buf_grows_and_consumes(void **state)
{
    (void)state;
    KG_AUTO_BUF buf = {0};
    for (int i = 0; i < 1000; i++)
        buf_printf(&buf, "%d,", i % 10);
    assert_int_equal(buf.len, 2000);
    buf_consume(&buf, 1996);
    assert_string_equal(buf.data, "8,9,");
    KG_AUTO_FREE char *taken = buf_take(&buf);
    assert_string_equal(taken, "8,9,");
    assert_null(buf.data);
    KG_AUTO_FREE char *nothing = buf_take(&buf);
    assert_string_equal(nothing, "");
}

static void
test_files(void **state)
{
    (void)state;
    char dir[] = "/tmp/kg-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    KG_AUTO_FREE char *path = kg_asprintf("%s/sub/file", dir);
    KG_AUTO_FREE char *sub = kg_asprintf("%s/sub", dir);
    struct kg_error err = {0};
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, &err), -1);
    assert_int_equal(dir_make(sub, 0700, &err), 0);
    assert_int_equal(dir_make(sub, 0700, &err), 0);
    assert_int_equal(file_write_atomic(path, "hello", 5, 0600, &err), 0);
    KG_AUTO_BUF content = {0};
    assert_int_equal(file_read(path, 5, &content, &err), 0);
    assert_string_equal(content.data, "hello");
    assert_int_equal(file_read(path, 4, &content, &err), -1);
    assert_int_equal(err.code, KG_INVALID);

    // A symlink below the tree must go, and what it points to must stay.
    char outside[] = "/tmp/kg-base-outside-XXXXXX";
    int fd = mkstemp(outside);
    assert_true(fd >= 0);
    close(fd);
    KG_AUTO_FREE char *link = kg_asprintf("%s/sub/link", dir);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(path_remove_tree(dir, &err), 0);
    assert_int_equal(access(dir, F_OK), -1);
    assert_int_equal(access(outside, F_OK), 0);
    unlink(outside);
    assert_int_equal(path_remove_tree(dir, &err), 0);
}

static void
test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
        size_t left; // of a character that is not complete
    } cases[] = {
        {"", "", 0},
        {"a\xc3\xa4z", "a\xc3\xa4z", 0},
        {"a\xff\xfez", "a\xef\xbf\xbd\xef\xbf\xbdz", 0},
        {"a\xc3", "a", 1},
        {"\xf0\x9f\x98", "", 3},
        {"\xe2\x82z", "\xef\xbf\xbdz", 0},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd", 0},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 0}, // a surrogate
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF text = {0};
        size_t len = strlen(cases[i].bytes);
        assert_int_equal(utf8_append(&text, cases[i].bytes, len, false), cases[i].left);
        assert_string_equal(text.data ? text.data : "", cases[i].text);
        KG_AUTO_BUF last = {0};
        assert_int_equal(utf8_append(&last, cases[i].bytes, len, true), 0);
        assert_int_equal(last.len, text.len + (cases[i].left ? 3 : 0));
    }
}

static void
test_printable(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printable;
    } cases[] = {
        {"", ""},
        {"nix\xc3\xa9.txt", "nix\xc3\xa9.txt"},
        {"\xe6\x97\xa5 \xf0\x9f\x98\x80", "\xe6\x97\xa5 \xf0\x9f\x98\x80"},
        {"a\x1b[2J\n\x7f", "a?[2J??"},
        {"\xc2\x85|\xc2\xa0|", "?|\xc2\xa0|"},                      // U+0085, U+00A0
        {"\xe2\x80\xaex\xe2\x81\xa6|\xe2\x80\xa8", "?x?|?"},        // U+202E, U+2066, U+2028
        {"\xe2\x80\x8b\xef\xbb\xbf\xe2\x80\x94", "??\xe2\x80\x94"}, // U+200B, U+FEFF, U+2014
        {"\xff\xc3", "??"},
        {"0123456789abcdef", "0123456789a"},
        {"0123456789\xc3\xa9", "0123456789"}, // no half characters
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        char text[12];
        utf8_printable(cases[i].text, strlen(cases[i].text), text, sizeof text);
        assert_string_equal(text, cases[i].printable);
    }
}

static void
test_cut_and_escapes(void **state)
{
    (void)state;
    static const char euro[] = "a\xe2\x82\xac";
    static const size_t cuts[] = {0, 1, 1, 1, 4, 4};
    for (size_t max = 0; max < KG_ARRAY_LEN(cuts); max++)
        assert_int_equal(utf8_cut(euro, strlen(euro), max), cuts[max]);

    static const char digits[] = "0123456789abcdefABCDEF";
    for (int c = -128; c < 128; c++) {
        const char *found = c ? strchr(digits, c) : NULL;
        int value = found ? (int)(found - digits) : -1;
        assert_int_equal(hex_value((char)c), value > 15 ? value - 6 : value);
    }

    KG_AUTO_BUF url = {0};
    percent_append(&url, "aZ0-._~/%\xe2 ", "/");
    percent_append(&url, "/", "");
    assert_string_equal(url.data, "aZ0-._~/%25%E2%20%2F");
}

static void
test_percent_decoding(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *decoded[3]; // by mode; NULL: it fails
    } cases[] = {
        {"", {"", "", ""}},
        {"a%20b+c", {"a b+c", "a b c", "a b+c"}},
        {"%2B%25%2f", {"+%/", "+%/", "+%/"}},
        {"%C3%a9", {"\xc3\xa9", "\xc3\xa9", "\xc3\xa9"}},
        {"%2541", {"%41", "%41", "%41"}}, // once only
        {"a%", {NULL, NULL, "a%"}},
        {"%4", {NULL, NULL, "%4"}},
        {"%4g+", {NULL, NULL, "%4g+"}},
        {"%%41", {NULL, NULL, "%A"}},
        {"%00", {NULL, NULL, ""}}, // a NUL
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        for (int mode = PERCENT_PATH; mode <= PERCENT_LENIENT; mode++) {
            const char *expected = cases[i].decoded[mode];
            KG_AUTO_FREE char *text = kg_strdup(cases[i].text);
            size_t len = strlen(text);
            assert_int_equal(percent_decode(text, &len, (enum percent_mode)mode),
                             expected ? 0 : -1);
            if (!expected)
                continue;
            text[len] = '\0';
            assert_string_equal(text, expected);
            assert_int_equal(len, strcmp(cases[i].text, "%00") == 0 ? 1 : strlen(expected));
        }
    }
}

static void
test_names_of_variables(void **state)
{
    (void)state;
    static const char *const good[] = {"A", "_", "a1", "A.b-c", ".x"};
    static const char *const bad[] = {"", "1", "A=B", "A B", "\xc3\xa4", "A\n"};
    char longest[257];
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++)
        assert_true(env_name_valid(good[i]));
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_false(env_name_valid(bad[i]));
    memset(longest, 'A', sizeof longest);
    longest[256] = '\0';
    assert_false(env_name_valid(longest));
    longest[255] = '\0';
    assert_true(env_name_valid(longest));
}

static void
test_ids_and_clock(void **state)
{
    (void)state;
    char a[17], b[17], hex[65];
    id_random(a, 16);
    id_random(b, 16);
    id_random_hex(hex, 64);
    assert_int_equal(strspn(a, "abcdefghijklmnopqrstuvwxyz234567"), 16);
    assert_string_not_equal(a, b);
    assert_int_equal(strspn(hex, "0123456789abcdef"), 64);
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(1767225599007, text);
    assert_string_equal(text, "2025-12-31T23:59:59.007Z");
    int64_t before = clock_mono_us();
    assert_true(clock_mono_us() >= before);
}

// Runs log_write() with stderr in a pipe and returns what came out.
static void
capture_log(char *ret, size_t size, const char *value)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    int saved = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    log_info("hello there", LOG_STR("who", value), LOG_INT("n", -7));
    log_debug("hidden");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fds[1]);
    ssize_t n = read(fds[0], ret, size - 1);
    assert_true(n > 0);
    ret[n] = '\0';
    close(fds[0]);
}

static void
test_log_keeps_a_value_on_its_line(void **state)
{
    (void)state;
    char line[256];
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_CONSOLE);
    capture_log(line, sizeof line, "bell\a");
    assert_non_null(strstr(line, " who=\"bell\\x07\" "));
    capture_log(line, sizeof line, "a b\nlevel=\"x\"\x1b[2J");
    assert_non_null(
        strstr(line, " info    hello there who=\"a b\\x0alevel=\\\"x\\\"\\x1b[2J\" n=-7\n"));
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    capture_log(line, sizeof line, "a\nb");
    assert_non_null(strstr(line, "\"event\":\"hello there\",\"who\":\"a\\nb\",\"n\":-7}\n"));
    capture_log(line, sizeof line, "\xff");
    assert_non_null(strstr(line, "(not UTF-8)"));
}

static void
test_log_masks_uuids(void **state)
{
    (void)state;
    char line[256];
    const char *text =
        "/a/01234567-89ab-4cde-8f01-23456789ABCD/b 01234567-89ab-4cde-8f01-23456789ABC";
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_CONSOLE);
    capture_log(line, sizeof line, text);
    assert_non_null(strstr(line, text));
    log_mask_uuids(true);
    capture_log(line, sizeof line, text);
    log_mask_uuids(false);
    assert_non_null(strstr(line, "\"/a/01234567-xxxx-xxxx-xxxx-xxxxxxxxxxxx/b "
                                 "01234567-89ab-4cde-8f01-23456789ABC\""));
}

static void
log_often(int n, const char *value)
{
    for (int i = 0; i < n; i++)
        log_info("flood", LOG_STR("v", value));
}

// Reads what is in the pipe now.
static void
drain(int fd, struct buf *ret)
{
    char chunk[4096];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0)
        buf_append(ret, chunk, (size_t)n);
}

static void
test_log_does_not_wait_for_its_reader(void **state)
{
    (void)state;
    int fds[2];
    char value[300], longest[10000];
    KG_AUTO_BUF first = {0};
    KG_AUTO_BUF then = {0};
    memset(value, 'v', sizeof value - 1);
    memset(longest, 'l', sizeof longest - 1);
    value[sizeof value - 1] = longest[sizeof longest - 1] = '\0';
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fd_set_nonblocking(fds[0], NULL), 0);
    int capacity = fcntl(fds[1], F_SETPIPE_SZ, 8192);
    assert_true(capacity >= 8192);
    int saved = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_CONSOLE);
    alarm(30); // where it waits, this ends the test
    log_often(1, longest);
    log_often(1000, value);
    drain(fds[0], &first);
    log_info("after");
    log_info("again");
    alarm(0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fds[1]);
    drain(fds[0], &then);
    close(fds[0]);
    assert_in_range(first.len, 4096, capacity);
    assert_non_null(strstr(first.data, "flood v=llll"));
    assert_null(strstr(first.data, "flood v=vvvv"));
    const char *note = strstr(then.data, "warning log lines were lost lines=1001\n");
    assert_non_null(note);
    assert_int_equal(then.data[0], '\n'); // the torn line ends here
    assert_ptr_equal(strstr(then.data, "log lines were"), strstr(note, "log lines were"));
    assert_non_null(strstr(note, " info    after\n"));
    assert_non_null(strstr(note, " info    again\n"));
}

static void
test_log_limit(void **state)
{
    (void)state;
    char path[] = "/tmp/kg-log-XXXXXX";
    char value[300];
    KG_AUTO_BUF text = {0};
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    int fd = mkstemp(path);
    int saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    log_limit(64 << 10);
    log_often(1000, value);
    log_limit(0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    assert_in_range(text.len, 64 << 10, (64 << 10) + 1024);
    const char *last = strstr(text.data, "warning the log is full and ends here\n");
    assert_non_null(last);
    assert_string_equal(strchr(last, '\n'), "\n");
    unlink(path);
}

static void
test_paths(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b", "...", "a b", ".hidden", "\xe2\x98\x83/x", "-"};
    static const char *const bad[] = {"",   "/",   "/a",   "a/",     "a//b",         ".",
                                      "..", "a/.", "../a", "a/../b", ".kg-upload-1", "a/.kg-x"};
    struct kg_error err = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++)
        assert_int_equal(file_path_check(good[i], true, &err), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(file_path_check(bad[i], false, &err), -1);
        assert_int_equal(err.code, KG_INVALID_PATH);
    }
    char longest[FILE_PATH_MAX + 2] = {0};
    memset(longest, 'n', 256);
    assert_int_equal(file_path_check(longest, false, &err), -1);
    longest[255] = '\0';
    assert_int_equal(file_path_check(longest, false, &err), 0);
    for (size_t i = 0; i <= FILE_PATH_MAX; i++)
        longest[i] = i % 2 ? '/' : 'a';
    assert_int_equal(file_path_check(longest, false, &err), -1);
    longest[FILE_PATH_MAX - 1] = '\0';
    assert_int_equal(file_path_check(longest, false, &err), 0);
    static const char *const controls[] = {"a\nb", "\x7f", "\t", "\xc2\x80"};
    for (size_t i = 0; i < KG_ARRAY_LEN(controls); i++) {
        assert_int_equal(file_path_check(controls[i], true, &err), -1);
        assert_int_equal(file_path_check(controls[i], false, &err), 0);
    }
}

static void
test_paths_anywhere(void **state)
{
    (void)state;
    static const char *const good[] = {"a/b",        "/",        "/a",     "/tmp/x",
                                       "/proceed/1", "/run/kgx", "proc/x", "/mnt/data/proc/x"};
    static const char *const bad[] = {
        "",          "//",    "//a",          "/a/",  "/../a",   "/a/./b",       "/.kg-x",
        "/tmp/.kg-", "/proc", "/proc/1/fd",   "/sys", "/run/kg", "/run/kg/door", "/sys/x",
        "/a\nb",     "../a",  "/run/kg-agent"};
    struct kg_error err = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++)
        assert_int_equal(file_any_path_check(good[i], true, &err), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        err = (struct kg_error){0};
        assert_int_equal(file_any_path_check(bad[i], true, &err), -1);
        assert_int_equal(err.code, KG_INVALID_PATH);
    }
}

static void
assert_member(const char *text, const char *name, const char *expected)
{
    size_t len = 99;
    const char *found = json_member(text, strlen(text), name, &len);
    assert_int_equal(found != NULL, expected != NULL);
    assert_int_equal(len, expected ? strlen(expected) : 0);
    if (expected)
        assert_memory_equal(found, expected, len);
}

static void
test_members_of_json_text(void **state)
{
    (void)state;
    static const char text[] = " { \"a\\\"\" : {\"b\":[1,\"}\"]} ,\n\"b\": 2.50 , \"c\":\"x\\\\\","
                               "\"d\":[[],{\"e\":\"]\"}],\"e\":null}";
    assert_member(text, "b", "2.50");
    assert_member(text, "c", "\"x\\\\\"");
    assert_member(text, "d", "[[],{\"e\":\"]\"}]");
    assert_member(text, "e", "null");
    assert_member(text, "a", NULL);
    assert_member(text, "x", NULL);
    assert_member("{}", "a", NULL);
    assert_member("[{\"a\":1}]", "a", NULL);
    static const char *const broken[] = {"",       "{",       "{\"",      "{\"a",
                                         "{\"a\"", "{\"a\":", "{\"b\":[", "{\"b\":\"\\"};
    for (size_t i = 0; i < KG_ARRAY_LEN(broken); i++)
        assert_member(broken[i], "a", NULL);
}

static void
test_weight_of_json_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t depth;
    } cases[] = {{"", 0}, {"1", 0}, {"[]", 1}, {"[[],{\"[[\":[]}]", 3}, {"]]}[", 1}, {"\"[[", 0}};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++)
        assert_int_equal(json_weigh(cases[i].text, strlen(cases[i].text)).depth, cases[i].depth);
    assert_true(json_weigh("[{},{}]", 7).bytes > 2 * 200);
    assert_true(json_weigh("[1,2,3]", 7).bytes < 400);
    assert_int_equal(json_weigh("\"{},{},{}\"", 10).bytes, json_weigh("\"\"", 2).bytes);
}

static void
test_weight_of_json_values(void **state)
{
    (void)state;
    static const char text[] = "[{\"a\":[1,2,\"x\"],\"b\":{}},[],null]";
    json_auto_t *value = json_loads(text, 0, NULL);
    size_t as_text = json_weigh(text, sizeof text - 1).bytes, weight = json_value_weight(value);
    assert_true(weight > as_text / 2 && weight < as_text * 2);
    json_array_append_new(value, json_string("0123456789"));
    assert_true(json_value_weight(value) >= weight + 10);
}

// Every byte at every place among plain ones, since eight are looked at together.
static void
test_json_plain_text(void **state)
{
    (void)state;
    for (size_t at = 0; at < 20; at++) {
        for (int byte = 0; byte < 256; byte++) {
            char text[20];
            memset(text, ' ', sizeof text);
            text[at] = (char)byte;
            bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
            assert_int_equal(json_plain_len(text, sizeof text), plain ? sizeof text : at);
            assert_int_equal(json_plain_len(text, at), at);
        }
    }
}

static void
test_json_string(void **state)
{
    (void)state;
    static const char text[] = "eight bytes, \"quoted\", \\, \n\0\x7f, "
                               "\xc3\xa4\xc2\x84\xc2\x85 \xe2\x82\xac\xe2\x80\xa8\xe2\x80\xa9 end";
    KG_AUTO_BUF json = {0};
    json_append_string(&json, text, sizeof text - 1);
    buf_append(&json, "", 1);
    assert_string_equal(json.data, "\"eight bytes, \\\"quoted\\\", \\\\, \\n\\u0000\x7f, "
                                   "\xc3\xa4\xc2\x84\\u0085 \xe2\x82\xac\\u2028\\u2029 end\"");
    for (int c = 0; c < 0x20; c++) {
        KG_AUTO_BUF one = {0};
        const char control[] = {(char)c};
        json_append_string(&one, control, 1);
        json_auto_t *value = json_loadb(one.data, one.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_int_equal(json_string_length(value), 1);
        assert_int_equal(json_string_value(value)[0], c);
    }
}

static void
test_json_string_within(void **state)
{
    (void)state;
    static const char text[] = "plain \n\x01 \xe2\x80\xa8 end";
    KG_AUTO_BUF whole = {0};
    json_append_string(&whole, text, sizeof text - 1);
    for (size_t max = 0; max < whole.len + 2; max++) {
        KG_AUTO_BUF json = {0};
        buf_append_str(&json, "before");
        bool fits = json_append_string_within(&json, text, sizeof text - 1, max);
        assert_int_equal(fits, max >= whole.len);
        assert_int_equal(json.len, 6 + (fits ? whole.len : 0));
    }
}

static void
test_json_as_ascii(void **state)
{
    (void)state;
    static const char text[] = "{\"\xc3\xa9\": \"a\\n\xe2\x82\xac\xf0\x9f\x98\x80\"}";
    KG_AUTO_FREE char *ascii = json_ascii(text, strlen(text));
    assert_string_equal(ascii, "{\"\\u00e9\": \"a\\n\\u20ac\\ud83d\\ude00\"}");
}

static void
test_mime_types(void **state)
{
    (void)state;
    assert_string_equal(mime_of_path("a/chart.png"), "image/png");
    assert_string_equal(mime_of_path("A.PNG"), "image/png");
    assert_string_equal(mime_of_path("x.tar.gz"), "application/gzip");
    assert_string_equal(mime_of_path("x.7z"), "application/x-7z-compressed");
    assert_string_equal(mime_of_path("x.zst"), "application/zstd");
    assert_string_equal(mime_of_path("page.html"), "text/html; charset=utf-8");
    static const char *const unknown[] = {"png", "a.png/b", ".png", "a.", "", "x.unknown"};
    for (size_t i = 0; i < KG_ARRAY_LEN(unknown); i++)
        assert_string_equal(mime_of_path(unknown[i]), "application/octet-stream");
}

static bool
is_stranger(const char *owner, const void *arg)
{
    return strncmp(owner, arg, strlen(arg)) == 0;
}

static void
test_users_who_registered_share(void **state)
{
    (void)state;
    assert_string_equal(budget_name("eve-1"), "eve-1");
    budget_set_registered(is_stranger, "eve-");
    assert_string_equal(budget_name("eve-1"), BUDGET_REGISTERED);
    assert_string_equal(budget_name("ann"), "ann");
    assert_true(budget_is_common("eve-1", "eve-2"));
    assert_true(budget_is_common("ann", "ann"));
    assert_false(budget_is_common("ann", "eve-1"));
    assert_false(budget_is_common("ann", "bob"));
    budget_set_registered(NULL, NULL);
}

// ---- Budgets --------------------------------------------------------------------------------

static void
test_owners_have_shares_of_a_budget(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_hold ann = {0}, bob = {0}, again = {0};
    budget_init(&budget, "bytes", 100, 60);
    budget_hold_start(&ann, &budget, "ann");
    budget_hold_start(&bob, &budget, "bob");
    budget_hold_start(&again, &budget, "bob");
    assert_ptr_equal(again.share, bob.share);
    assert_true(budget_hold_has_room(&ann, 60));
    assert_false(budget_hold_has_room(&ann, 61));
    assert_ptr_equal(TAILQ_FIRST(&bob.share->holds), &bob); // the oldest
    budget_hold_set(&bob, 30);
    budget_hold_set(&again, 25);
    assert_int_equal(budget_held_by(&budget, "bob"), 55);
    assert_true(budget_hold_has_room(&again, 5));
    assert_false(budget_hold_has_room(&again, 6));
    assert_true(budget_hold_has_room(&ann, 45));
    assert_false(budget_hold_has_room(&ann, 46)); // in all
    budget_hold_set(&bob, 10);
    assert_int_equal(budget.held, 35);
    budget_hold_end(&again);
    assert_int_equal(budget.held, 10);
    budget_hold_set(&ann, 500); // whether or not there is room
    assert_int_equal(budget.held, 510);
    assert_false(budget_hold_has_room(&bob, 0));
    budget_hold_end(&ann);
    budget_hold_end(&ann); // of no budget
    budget_hold_end(&bob);
    assert_int_equal(budget.held, 0);
    assert_true(LIST_EMPTY(&budget.shares));
    budget_fini(&budget);
}

static void
test_a_budget_is_asked_without_a_hold(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_hold ann = {0}, bob = {0};
    budget_init(&budget, "places", 4, 2);
    assert_null(budget_largest(&budget));
    assert_true(budget_has_room(&budget, "ann", 2));
    assert_false(budget_has_room(&budget, "ann", 3));
    assert_int_equal(budget_held_by(&budget, "ann"), 0);
    assert_true(LIST_EMPTY(&budget.shares));
    budget_hold_start(&ann, &budget, "ann");
    budget_hold_start(&bob, &budget, "bob");
    budget_hold_set(&ann, 2);
    budget_hold_set(&bob, 1);
    assert_false(budget_has_room(&budget, "ann", 1));
    assert_true(budget_has_room(&budget, "bob", 1));
    assert_string_equal(budget_largest(&budget)->name, "ann");
    budget_hold_set(&ann, 0);
    assert_string_equal(budget_largest(&budget)->name, "bob");
    budget_set_several_owners(&budget, false);
    assert_true(budget_has_room(&budget, "ann", 3));
    budget_set_several_owners(&budget, true);
    assert_true(budget_has_room(&budget, "ann", 2));
    assert_false(budget_has_room(&budget, "ann", 3));
    assert_false(budget_has_room(&budget, "bob", 2));
    budget_hold_end(&ann);
    budget_hold_end(&bob);
    budget_fini(&budget);
}

static void
test_users_who_registered_have_one_share(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_hold one = {0}, other = {0}, later = {0};
    budget_init(&budget, "bytes", 100, 50);
    budget_set_registered(is_stranger, "eve-");
    budget_hold_start(&one, &budget, "eve-1");
    budget_hold_start(&other, &budget, "eve-2");
    assert_ptr_equal(one.share, other.share);
    assert_string_equal(one.share->name, BUDGET_REGISTERED);
    budget_hold_set(&one, 50);
    assert_false(budget_hold_has_room(&other, 1));
    assert_false(budget_has_room(&budget, "eve-3", 1));
    assert_true(budget_has_room(&budget, "ann", 50));

    // Who does not count as registered any more has a share of their own; earlier holds stay.
    budget_set_registered(NULL, NULL);
    budget_hold_start(&later, &budget, "eve-2");
    assert_ptr_not_equal(later.share, one.share);
    assert_true(budget_hold_has_room(&later, 50));
    assert_false(budget_hold_has_room(&other, 1));
    budget_hold_end(&one);
    budget_hold_end(&other);
    budget_hold_end(&later);
    budget_fini(&budget);
}

static void
test_a_hold_outlives_its_budget(void **state)
{
    (void)state;
    struct budget budget, other;
    struct budget_hold hold = {0};
    budget_init(&budget, "one", 100, 50);
    budget_init(&other, "other", 100, 50);
    budget_hold_start(&hold, &budget, "ann");
    budget_hold_set(&hold, 40);
    assert_true(budget_hold_counts(&hold));
    assert_ptr_equal(budget_next(NULL), &other);
    assert_ptr_equal(budget_next(&other), &budget);
    budget_fini(&budget);
    assert_null(budget_next(&other));
    assert_false(budget_hold_counts(&hold));
    assert_true(budget_hold_has_room(&hold, 1000));
    budget_hold_set(&hold, 1000);
    budget_hold_end(&hold);
    assert_false(budget_hold_counts(&hold));
    budget_fini(&other);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_a_row),
        cmocka_unit_test(test_error_carries_errno_and_may_quote_itself),
        cmocka_unit_test(test_buf_grows_and_consumes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_paths_anywhere),
        cmocka_unit_test(test_mime_types),
        cmocka_unit_test(test_members_of_json_text),
        cmocka_unit_test(test_weight_of_json_text),
        cmocka_unit_test(test_weight_of_json_values),
        cmocka_unit_test(test_json_plain_text),
        cmocka_unit_test(test_json_string),
        cmocka_unit_test(test_json_string_within),
        cmocka_unit_test(test_json_as_ascii),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_cut_and_escapes),
        cmocka_unit_test(test_percent_decoding),
        cmocka_unit_test(test_names_of_variables),
        cmocka_unit_test(test_ids_and_clock),
        cmocka_unit_test(test_log_keeps_a_value_on_its_line),
        cmocka_unit_test(test_log_masks_uuids),
        cmocka_unit_test(test_log_does_not_wait_for_its_reader),
        cmocka_unit_test(test_log_limit),
        cmocka_unit_test(test_users_who_registered_share),
        cmocka_unit_test(test_owners_have_shares_of_a_budget),
        cmocka_unit_test(test_a_budget_is_asked_without_a_hold),
        cmocka_unit_test(test_users_who_registered_have_one_share),
        cmocka_unit_test(test_a_hold_outlives_its_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
