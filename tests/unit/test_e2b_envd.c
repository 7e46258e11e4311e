// SPDX-License-Identifier: Apache-2.0
// envd's codec: envelopes, the fields of messages, paths, error codes.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "connect.h"
#include "envd_path.h"
#include "message.h"

// ---- Envelopes ------------------------------------------------------------------------------

static void
test_envelopes(void **state)
{
    (void)state;
    KG_AUTO_BUF stream = {0};
    struct envelope envelope;
    envelope_write(&stream, 0, "{\"a\":1}", 7);
    envelope_write(&stream, 0, "", 0);
    assert_memory_equal(stream.data, "\0\0\0\0\7{\"a\":1}\0\0\0\0\0", 17);
    for (size_t len = 0; len < 12; len++)
        assert_int_equal(envelope_read(stream.data, len, 7, &envelope), ENVELOPE_CUT);
    assert_int_equal(envelope_read(stream.data, stream.len, 7, &envelope), ENVELOPE_WHOLE);
    assert_int_equal(envelope.len, 7);
    assert_int_equal(envelope.taken, 12);
    assert_ptr_equal(envelope.data, stream.data + ENVELOPE_HEAD_BYTES);
    assert_int_equal(envelope_read(stream.data + 12, 5, 7, &envelope), ENVELOPE_WHOLE);
    assert_int_equal(envelope.len, 0);
}

// What is wrong is known from the head alone, before any of the message has come.
static void
test_bad_heads(void **state)
{
    (void)state;
    static const struct {
        unsigned char head[ENVELOPE_HEAD_BYTES];
        enum envelope_state state;
    } bad[] = {
        {{0, 0, 0, 0, 9}, ENVELOPE_TOO_LARGE},
        {{0, 0xff, 0xff, 0xff, 0xff}, ENVELOPE_TOO_LARGE},
        {{1, 0, 0, 0, 1}, ENVELOPE_IS_COMPRESSED},
        {{2, 0, 0, 0, 0}, ENVELOPE_BAD_FLAGS},
        {{0x80, 0, 0, 0, 0}, ENVELOPE_BAD_FLAGS},
    };
    struct envelope envelope;
    const char *why;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(
            envelope_read((const char *)bad[i].head, ENVELOPE_HEAD_BYTES, 8, &envelope),
            bad[i].state);
        assert_int_not_equal(connect_envelope_error(bad[i].state, &why), CONNECT_OK);
        assert_true(strlen(why) > 0);
    }
    assert_int_equal(connect_envelope_error(ENVELOPE_IS_COMPRESSED, &why), CONNECT_UNIMPLEMENTED);
    assert_int_equal(connect_envelope_error(ENVELOPE_TOO_LARGE, &why), CONNECT_RESOURCE_EXHAUSTED);
}

// ---- Fields ---------------------------------------------------------------------------------

static json_t *
parse(const char *text)
{
    json_t *message = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(message);
    return message;
}

static void
test_names(void **state)
{
    (void)state;
    json_auto_t *camel = parse("{\"watcherId\":\"x\"}");
    json_auto_t *snake = parse("{\"watcher_id\":\"x\",\"gone\":null}");
    const char *text;
    assert_int_equal(message_string(camel, "watcherId", &text, NULL), 0);
    assert_string_equal(text, "x");
    assert_int_equal(message_string(snake, "watcherId", &text, NULL), 0);
    assert_string_equal(text, "x");
    assert_null(message_field(snake, "gone"));
    assert_null(message_field(NULL, "gone"));
}

static void
test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t number; // -1: it is refused
    } rows[] = {
        {"{\"n\":0}", 0},
        {"{\"n\":7}", 7},
        {"{\"n\":\"7\"}", 7},
        {"{\"n\":7.0}", 7},
        {"{}", 5},
        {"{\"n\":null}", 5},
        {"{\"n\":8}", -1},
        {"{\"n\":-1}", -1},
        {"{\"n\":\"-1\"}", -1},
        {"{\"n\":6.5}", -1},
        {"{\"n\":\"\"}", -1},
        {"{\"n\":\"1e0\"}", -1},
        {"{\"n\":true}", -1},
        {"{\"n\":[]}", -1},
        {"{\"n\":\"99999999999999999999\"}", -1},
        {"{\"n\":1e300}", -1},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        json_auto_t *message = parse(rows[i].text);
        int64_t number = 5;
        struct kg_error err = {0};
        int result = message_uint(message, "n", 7, &number, &err);
        assert_int_equal(result, rows[i].number < 0 ? -1 : 0);
        if (result == 0)
            assert_int_equal(number, rows[i].number);
        else
            assert_string_equal(err.message, "n must be a number from 0 to 7");
    }
}

static void
test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *base64;
        const char *bytes; // NULL: it is refused
    } rows[] = {{"", ""},
                {"aGk=", "hi"},
                {"aGk", "hi"},
                {"_-8=", "\xff\xef"},
                {"/+8=", "\xff\xef"},
                {"aGVsbG8=", "hello"},
                {"a", NULL},
                {"aGk==", "hi"},
                {"aG k", NULL},
                {"====", NULL},
                {"aGl", NULL},
                {"*", NULL}};
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        KG_AUTO_BUF bytes = {0};
        json_auto_t *message = json_pack("{s:s}", "stdin", rows[i].base64);
        bool has = false;
        int result = message_bytes(message, "stdin", &bytes, &has, NULL);
        assert_int_equal(result, rows[i].bytes ? 0 : -1);
        assert_true(has);
        if (rows[i].bytes) {
            assert_int_equal(bytes.len, strlen(rows[i].bytes));
            assert_memory_equal(bytes.data, rows[i].bytes, bytes.len);
        }
    }
    json_auto_t *made = message_of_bytes("\xff\xef", 2);
    assert_string_equal(json_string_value(made), "/+8=");
}

static void
test_kinds(void **state)
{
    (void)state;
    json_auto_t *message = parse("{\"s\":1,\"nul\":\"a\\u0000b\",\"b\":\"true\",\"o\":[]}");
    const json_t *object;
    const char *text;
    bool flag = true;
    assert_int_equal(message_string(message, "s", &text, NULL), -1);
    assert_int_equal(message_string(message, "nul", &text, NULL), -1);
    assert_int_equal(message_bool(message, "b", &flag, NULL), -1);
    assert_int_equal(message_object(message, "o", &object, NULL), -1);
    assert_int_equal(message_bool(message, "absent", &flag, NULL), 0);
    assert_true(flag);
}

// ---- Paths ----------------------------------------------------------------------------------

static void
test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *client, *session; // NULL: it is refused
    } rows[] = {
        {"", "/home/user", ""},
        {"~", "/home/user", ""},
        {"~/a", "/home/user/a", "a"},
        {"a/b", "/home/user/a/b", "a/b"},
        {"./a//b/", "/home/user/a/b", "a/b"},
        {"/home/user/a", "/home/user/a", "a"},
        {"/mnt/data/a", "/mnt/data/a", "a"},
        {"/mnt/data", "/mnt/data", ""},
        {"/mnt/database", "/mnt/database", "/mnt/database"},
        {"../x", "/home/x", "/home/x"},
        {"../../../../../x", "/x", "/x"},
        {"/", "/", "/"},
        {"/..", "/", "/"},
        {"/tmp/../etc/passwd", "/etc/passwd", "/etc/passwd"},
        {"/tmp/~", "/tmp/~", "/tmp/~"},
        {"~x/a", NULL, NULL},
        {"/proc/self/mem", NULL, NULL},
        {"/tmp/../proc/1", NULL, NULL},
        {".kg-upload", NULL, NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        ENVD_AUTO_PATH path = {0};
        struct kg_error err = {0};
        int result = envd_path_parse(rows[i].text, &path, &err);
        assert_int_equal(result, rows[i].client ? 0 : -1);
        if (result < 0) {
            assert_int_equal(err.code, KG_INVALID_PATH);
            continue;
        }
        assert_string_equal(path.client, rows[i].client);
        assert_string_equal(path.session, rows[i].session);
    }
    assert_string_equal(envd_path_name("/"), "/");
    assert_string_equal(envd_path_name("/a/b"), "b");
}

// ---- Codes ----------------------------------------------------------------------------------

static void
test_codes(void **state)
{
    (void)state;
    assert_string_equal(connect_code_name(connect_code_of(KG_NOT_FOUND)), "not_found");
    assert_string_equal(connect_code_name(connect_code_of(KG_FILE_EXISTS)), "already_exists");
    assert_string_equal(connect_code_name(connect_code_of(KG_INVALID_PATH)), "invalid_argument");
    assert_string_equal(connect_code_name(connect_code_of(KG_DISK_FULL)), "resource_exhausted");
    assert_string_equal(connect_code_name(connect_code_of(KG_SESSION_NOT_FOUND)), "unavailable");
    for (int code = KG_INVALID; code < KG_N_CODES; code++)
        assert_true(connect_code_status(connect_code_of((enum kg_code)code)) >= 400);
    for (int code = CONNECT_OK; code < CONNECT_N_CODES; code++)
        assert_non_null(connect_code_name((enum connect_code)code));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_envelopes), cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_paths),     cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
