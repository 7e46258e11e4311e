// SPDX-License-Identifier: Apache-2.0
// Messages of iopub that are recognized in their bytes.

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "link_iopub.h"

static void
add_frame(struct buf *bytes, const char *text, size_t len, bool more)
{
    const char head[9] = {
        (char)((more ? 1 : 0) | (len > 255 ? 2 : 0)), [7] = (char)(len >> 8), [8] = (char)len};
    buf_append(bytes, head, 1);
    buf_append(bytes, len > 255 ? head + 1 : head + 8, len > 255 ? 8 : 1);
    buf_append(bytes, text, len);
}

static void
add_message(struct buf *bytes, const char *topic, const char *content)
{
    add_frame(bytes, topic, strlen(topic), true);
    add_frame(bytes, "<IDS|MSG>", 9, true);
    add_frame(bytes, content, strlen(content), false);
}

static const char busy[] = "{\"execution_state\": \"busy\"}",
                  idle[] = "{\"execution_state\": \"idle\"}";

static void
test_kinds(void **state)
{
    static const struct {
        const char *topic, *content;
        enum iopub_kind kind;
    } cases[] = {
        {"kernel.1.status", busy, IOPUB_NEEDLESS},
        {"kernel.1.status", idle, IOPUB_OTHER},
        {"kernel.1.status", "{\"execution_state\": \"starting\"}", IOPUB_OTHER},
        {"kernel.1.execute_input", "{\"code\": \"1\", \"execution_count\": 1}", IOPUB_NEEDLESS},
        {"kernel.1.execute_result", busy, IOPUB_LAST},
        {"kernel.1.error", "{}", IOPUB_LAST},
        {"display_data", busy, IOPUB_OTHER},
        {"stream.stdout", busy, IOPUB_OTHER},
        {"", busy, IOPUB_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF bytes = {0};
        enum iopub_kind kind;
        add_message(&bytes, cases[i].topic, cases[i].content);
        assert_int_equal(iopub_message(bytes.data, bytes.len, &kind), bytes.len);
        assert_int_equal(kind, cases[i].kind);
        assert_int_equal(iopub_can_linger(bytes.data, bytes.len), kind != IOPUB_OTHER);
        for (size_t len = 0; len < bytes.len; len++) // a part of it
            assert_int_equal(iopub_message(bytes.data, len, &kind), 0);
    }
}

static void
test_needless_messages_are_sifted(void **state)
{
    KG_AUTO_BUF bytes = {0}, left = {0};
    char code[1000];
    (void)state;
    memset(code, 'x', sizeof code - 1);
    code[sizeof code - 1] = '\0';
    add_message(&bytes, "kernel.1.status", busy);
    add_message(&bytes, "stream.stdout", "{}");
    add_message(&bytes, "kernel.1.execute_input", code);
    add_message(&bytes, "kernel.1.status", idle);
    add_message(&left, "stream.stdout", "{}");
    add_message(&left, "kernel.1.status", idle);
    assert_false(iopub_can_linger(bytes.data, bytes.len));
    // Before all of them are whole nothing is touched: their reader counts on where messages end.
    KG_AUTO_FREE char *part = kg_calloc(bytes.len, 1);
    memcpy(part, bytes.data, bytes.len);
    assert_int_equal(iopub_sift(part, bytes.len - 1), bytes.len - 1);
    assert_memory_equal(part, bytes.data, bytes.len);
    assert_int_equal(iopub_sift(bytes.data, bytes.len), left.len);
    assert_memory_equal(bytes.data, left.data, left.len);
}

// A greeting, a command, flags that no message has, a frame longer than memory.
static void
test_other_bytes_are_no_messages(void **state)
{
    static const char *const texts[] = {"\xff\0\0\0\0\0\0\0\1\x7f", "\4\5READY", "\x08\1a",
                                        "\2\xff\xff\xff\xff\xff\xff\xff\xff"};
    static const size_t lens[] = {10, 7, 3, 9};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(texts); i++) {
        enum iopub_kind kind;
        char bytes[16];
        memcpy(bytes, texts[i], lens[i]);
        assert_int_equal(iopub_message(bytes, lens[i], &kind), 0);
        assert_false(iopub_can_linger(bytes, lens[i]));
        assert_int_equal(iopub_sift(bytes, lens[i]), lens[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_needless_messages_are_sifted),
        cmocka_unit_test(test_other_bytes_are_no_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
