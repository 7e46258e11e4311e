// SPDX-License-Identifier: Apache-2.0
// The framings of WebSocket messages.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "framing_priv.h"

static struct kernel_bytes
bytes(const char *text)
{
    return (struct kernel_bytes){text, strlen(text)};
}

static const struct kernel_bytes sample_buffers[] = {{"a\0b", 3}, {"", 0}, {"\xff", 1}};

static struct kernel_message
sample(size_t n_buffers)
{
    return (struct kernel_message){
        .channel = KERNEL_IOPUB,
        .header = bytes("{\"msg_id\":\"m\",\"msg_type\":\"status\"}"),
        .parent_header = bytes("{}"),
        .metadata = bytes("{\"a\":1}"),
        .content = bytes("{\"text\":\"\xc3\xa9\"}"),
        .n_buffers = n_buffers,
        .buffers = sample_buffers,
    };
}

static void
join(const struct framed_out *out, struct buf *ret)
{
    if (out->head.len > 0)
        buf_append(ret, out->head.data, out->head.len);
    for (size_t i = 0; i < out->n_parts; i++)
        buf_append(ret, out->parts[i].data, out->parts[i].len);
    assert_int_equal(ret->len, out->len);
}

static void
assert_bytes_equal(struct kernel_bytes one, struct kernel_bytes other)
{
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.data, other.data, one.len);
}

static void
assert_same(const struct kernel_message *one, const struct kernel_message *other)
{
    assert_int_equal(one->channel, other->channel);
    assert_bytes_equal(one->header, other->header);
    assert_bytes_equal(one->parent_header, other->parent_header);
    assert_bytes_equal(one->metadata, other->metadata);
    assert_bytes_equal(one->content, other->content);
    assert_int_equal(one->n_buffers, other->n_buffers);
    for (size_t i = 0; i < one->n_buffers; i++)
        assert_bytes_equal(one->buffers[i], other->buffers[i]);
}

static void
test_v1_comes_back(void **state)
{
    (void)state;
    for (size_t n = 0; n <= KG_ARRAY_LEN(sample_buffers); n++) {
        KG_AUTO_FRAMED out;
        KG_AUTO_BUF whole = {0};
        struct framed framed;
        struct kg_error err;
        const struct kernel_message message = sample(n);
        framing_write_v1(&message, &out);
        assert_false(out.is_text);
        join(&out, &whole);
        assert_int_equal(framing_read_v1(whole.data, whole.len, &framed, &err), 0);
        assert_same(&framed.message, &message);
        // Each shorter one is refused, or has a shorter last part.
        for (size_t len = 0; len < whole.len; len++)
            assert_int_equal(framing_read_v1(whole.data, len, &framed, &err), -1);
    }
}

// As written down by hand from the protocol.
static void
test_v1_on_the_wire(void **state)
{
    (void)state;
    static const char expected[] = "\6\0\0\0\0\0\0\0"
                                   "\70\0\0\0\0\0\0\0"
                                   "\75\0\0\0\0\0\0\0"
                                   "\77\0\0\0\0\0\0\0"
                                   "\101\0\0\0\0\0\0\0"
                                   "\103\0\0\0\0\0\0\0"
                                   "\105\0\0\0\0\0\0\0"
                                   "iopub{}[][]{}";
    const struct kernel_message message = {
        .channel = KERNEL_IOPUB,
        .header = bytes("{}"),
        .parent_header = bytes("[]"),
        .metadata = bytes("[]"),
        .content = bytes("{}"),
    };
    KG_AUTO_FRAMED out;
    KG_AUTO_BUF whole = {0};
    framing_write_v1(&message, &out);
    join(&out, &whole);
    assert_int_equal(whole.len, sizeof expected - 1);
    assert_memory_equal(whole.data, expected, whole.len);
}

static void
test_legacy(void **state)
{
    (void)state;
    KG_AUTO_FRAMED out;
    KG_AUTO_BUF whole = {0};
    const struct kernel_message message = sample(0);
    framing_write_legacy(&message, &out);
    assert_true(out.is_text);
    join(&out, &whole);
    assert_string_equal(
        whole.data, "{\"header\":{\"msg_id\":\"m\",\"msg_type\":\"status\"},\"msg_id\":\"m\","
                    "\"msg_type\":\"status\",\"parent_header\":{},\"metadata\":{\"a\":1},"
                    "\"content\":{\"text\":\"\xc3\xa9\"},\"buffers\":[],\"channel\":\"iopub\"}");
    struct framed framed;
    struct kg_error err;
    assert_int_equal(framing_read_text(whole.data, whole.len, &framed, &err), 0);
    assert_same(&framed.message, &message);
}

static void
test_legacy_with_buffers(void **state)
{
    (void)state;
    for (size_t n = 1; n <= KG_ARRAY_LEN(sample_buffers); n++) {
        KG_AUTO_FRAMED out;
        KG_AUTO_BUF whole = {0};
        struct framed framed;
        struct kg_error err;
        const struct kernel_message message = sample(n);
        framing_write_legacy(&message, &out);
        assert_false(out.is_text);
        join(&out, &whole);
        assert_memory_equal(whole.data + 4 * (n + 2), "{\"header\":", 10);
        assert_int_equal(framing_read_binary(whole.data, whole.len, &framed, &err), 0);
        assert_same(&framed.message, &message);
    }
}

static void
test_what_clients_leave_out(void **state)
{
    (void)state;
    static const char text[] = " {\"metadata\":null,\"channel\":null,\"header\":{\"a\":\"}\"}}";
    struct framed framed;
    struct kg_error err;
    assert_int_equal(framing_read_text(text, sizeof text - 1, &framed, &err), 0);
    assert_int_equal(framed.message.channel, KERNEL_SHELL);
    assert_bytes_equal(framed.message.header, bytes("{\"a\":\"}\"}"));
    assert_bytes_equal(framed.message.content, bytes("{}"));
    assert_int_equal(framed.message.metadata.len, 0);
    assert_int_equal(framed.message.parent_header.len, 0);
}

static void
test_too_many_buffers(void **state)
{
    (void)state;
    struct kernel_bytes none[JUPYTER_MAX_BUFFERS + 1] = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(none); i++)
        none[i].data = "";
    for (size_t n = JUPYTER_MAX_BUFFERS; n <= JUPYTER_MAX_BUFFERS + 1; n++) {
        KG_AUTO_BUF whole = {0};
        struct framed framed;
        struct kg_error err;
        // A header of n + 6 offsets, all buffers empty.
        uint64_t at = 8 * (n + 7);
        const uint64_t count = n + 6;
        buf_append(&whole, &count, sizeof count);
        buf_append(&whole, &at, sizeof at);
        at += 5;
        for (size_t i = 1; i < count; i++)
            buf_append(&whole, &at, sizeof at);
        buf_append_str(&whole, "shell");
        int result = framing_read_v1(whole.data, whole.len, &framed, &err);
        assert_int_equal(result, n == JUPYTER_MAX_BUFFERS ? 0 : -1);
        if (result == 0)
            assert_int_equal(framed.message.n_buffers, JUPYTER_MAX_BUFFERS);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1_comes_back),
        cmocka_unit_test(test_v1_on_the_wire),
        cmocka_unit_test(test_legacy),
        cmocka_unit_test(test_legacy_with_buffers),
        cmocka_unit_test(test_what_clients_leave_out),
        cmocka_unit_test(test_too_many_buffers),
    };
    return cmocka_run_group_tests_name("notebook", tests, NULL, NULL);
}
