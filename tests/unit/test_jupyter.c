// SPDX-License-Identifier: Apache-2.0
// Messages and their signatures, their JSON, the ZMTP follower.

#include "test_jupyter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "json_priv.h"
#include "jupyter.h"
#include "signer_priv.h"
#include "zmtp_priv.h"

#define KEY "a0436f6c-1916-498b-8eb9-e81ab9368e84"
#define HEADER "{\"msg_id\":\"m1\",\"msg_type\":\"status\"}"
#define PARENT "{\"msg_id\":\"p1\"}"
#define CONTENT "{\"execution_state\":\"idle\"}"
// From Python: hmac.new(KEY, HEADER + PARENT + "{}" + CONTENT, "sha256").hexdigest()
#define SIGNATURE "e31d340b0e6faf8d1fe08eca32264db16c95531b5a4f472406ec4716807555d8"

#define FRAME(s) ((struct jupyter_frame){(s), strlen(s)})

// ---- Messages -------------------------------------------------------------------------------

static struct jupyter_message *
parse(const char *key, const struct jupyter_frame *frames, size_t n, struct kg_error *err)
{
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new(key);
    return jupyter_message_parse(signer, frames, n, err);
}

static void
test_signature_vector(void **state)
{
    (void)state;
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new(KEY);
    struct jupyter_frame frames[] = {FRAME(HEADER), FRAME(PARENT), FRAME("{}"), FRAME(CONTENT)};
    struct jupyter_frame good = FRAME(SIGNATURE), cut = {SIGNATURE, 63};
    char signature[SIGNER_SIGNATURE_LEN + 1];

    signer_sign(signer, frames, signature);
    assert_string_equal(signature, SIGNATURE);
    assert_true(signer_verify(signer, frames, &good));
    assert_false(signer_verify(signer, frames, &cut));
    signature[63] ^= 1;
    struct jupyter_frame bad = FRAME(signature);
    assert_false(signer_verify(signer, frames, &bad));
}

static void
test_parse(void **state)
{
    (void)state;
    struct kg_error err;
    struct jupyter_frame frames[] = {
        FRAME("kernel.1.status"),
        FRAME("<IDS|MSG>"),
        FRAME(SIGNATURE),
        FRAME(HEADER),
        FRAME(PARENT),
        FRAME("{}"),
        FRAME(CONTENT),
        {"a\0b", 3},
        {NULL, 0},
    };
    KG_AUTO(jupyter_message) message = parse(KEY, frames, KG_ARRAY_LEN(frames), &err);

    assert_non_null(message);
    assert_string_equal(message->msg_type, "status");
    assert_string_equal(message->msg_id, "m1");
    assert_string_equal(message->parent_id, "p1");
    assert_string_equal(json_string_value(json_object_get(message->content, "execution_state")),
                        "idle");
}

static void
test_parse_refuses(void **state)
{
    (void)state;
    static char huge[100 * 1024];
    memset(huge, ' ', sizeof(huge) - 1);
    huge[0] = '{';
    huge[sizeof(huge) - 2] = '}';
    const struct {
        struct jupyter_frame frames[6];
        size_t n;
        const char *message;
    } cases[] = {
        {{FRAME("x")}, 1, "message without delimiter"},
        {{FRAME("x")}, 0, "message without delimiter"},
        {{FRAME("<IDS|MSG>"), FRAME(""), FRAME(HEADER), FRAME("{}"), FRAME("{}")},
         5,
         "message without its five frames"},
        {{FRAME("<IDS|MSG>"), FRAME(""), FRAME("{\"msg_id\":\"\"}"), FRAME("{}"), FRAME("{}"),
          FRAME("{}")},
         6,
         "header without msg_type"},
        {{FRAME("<IDS|MSG>"), FRAME(""), FRAME(HEADER), FRAME("{}"), FRAME("{}"), FRAME("[]")},
         6,
         "content is not a JSON object"},
        {{FRAME("<IDS|MSG>"), FRAME(""), FRAME(huge), FRAME("{}"), FRAME("{}"), FRAME("{}")},
         6,
         "header of 102399 bytes"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err;
        KG_AUTO(jupyter_message) message = parse("", cases[i].frames, cases[i].n, &err);
        assert_null(message);
        assert_int_equal(err.code, KG_INVALID_CONTENT);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void
test_parse_refuses_bad_signature_and_too_many_frames(void **state)
{
    (void)state;
    struct kg_error err;
    struct jupyter_frame frames[JUPYTER_MAX_FRAMES + 1] = {FRAME("<IDS|MSG>"), FRAME(SIGNATURE),
                                                           FRAME(HEADER),      FRAME(PARENT),
                                                           FRAME("{ }"),       FRAME(CONTENT)};
    for (size_t i = 6; i < KG_ARRAY_LEN(frames); i++)
        frames[i] = FRAME("");

    KG_AUTO(jupyter_message) tampered = parse(KEY, frames, 6, &err);
    assert_null(tampered);
    assert_int_equal(err.code, KG_UNAUTHORIZED);
    frames[4] = FRAME("{}");
    KG_AUTO(jupyter_message) most = parse(KEY, frames, JUPYTER_MAX_FRAMES, &err);
    assert_non_null(most);
    KG_AUTO(jupyter_message) more = parse(KEY, frames, JUPYTER_MAX_FRAMES + 1, &err);
    assert_null(more);
    assert_int_equal(err.code, KG_INVALID_CONTENT);
}

// A million empty objects in 3 MB would cost jansson hundreds of megabytes; a long text is fine.
static void
test_parse_bounds_the_number_of_values(void **state)
{
    (void)state;
    struct kg_error err;
    KG_AUTO_BUF values = {0}, text = {0};
    buf_append_str(&values, "{\"a\":[0");
    buf_append_str(&text, "{\"a\":\"");
    for (size_t i = 0; i < 1000 * 1000; i++) {
        buf_append_str(&values, ",{}");
        buf_append_str(&text, ",{}\\\"");
    }
    buf_append_str(&values, "]}");
    buf_append_str(&text, "\\\\\"}");
    struct jupyter_frame frames[] = {FRAME("<IDS|MSG>"), FRAME(""),   FRAME(HEADER),
                                     FRAME("{}"),        FRAME("{}"), {values.data, values.len}};

    KG_AUTO(jupyter_message) many = parse("", frames, KG_ARRAY_LEN(frames), &err);
    assert_non_null(many);
    assert_int_equal(many->cut_bytes, values.len + 2); // with the metadata
    assert_int_equal(json_object_size(many->content), 0);
    frames[5] = (struct jupyter_frame){text.data, text.len};
    KG_AUTO(jupyter_message) one = parse("", frames, KG_ARRAY_LEN(frames), &err);
    assert_non_null(one);
    assert_int_equal(json_string_length(json_object_get(one->content, "a")), 4000001);
}

// What the guard replaced cannot be verified, and is attributed all the same.
static void
test_parse_of_what_was_too_large(void **state)
{
    (void)state;
    struct kg_error err;
    struct jupyter_frame frames[] = {FRAME("<IDS|MSG>"), FRAME("any signature"),
                                     FRAME(HEADER),      FRAME("{\"msg_id\":\"p1\"}"),
                                     FRAME("{}"),        FRAME("12345678")};
    KG_AUTO(jupyter_message) content = parse("key", frames, KG_ARRAY_LEN(frames), &err);
    assert_non_null(content);
    assert_int_equal(content->cut_bytes, 12345678);
    assert_string_equal(content->parent_id, "p1");
    assert_int_equal(json_object_size(content->content), 0);

    frames[5] = (struct jupyter_frame)FRAME("{}");
    frames[3] = (struct jupyter_frame)FRAME("12345678"); // nobody could be told
    KG_AUTO(jupyter_message) parent = parse("", frames, KG_ARRAY_LEN(frames), &err);
    assert_null(parent);
    assert_int_equal(err.code, KG_INVALID_CONTENT);
}

// The arrays and objects of a MIME bundle stay text, repaired as values are.
static void
test_parse_keeps_structured_data_as_text(void **state)
{
    (void)state;
    struct kg_error err;
    struct jupyter_frame frames[] = {
        FRAME("<IDS|MSG>"),
        FRAME(""),
        FRAME(HEADER),
        FRAME("{}"),
        FRAME("{}"),
        FRAME("{\"data\":{\"text/plain\":\"a\",\"application/json\":"
              "{\"x\" : [1, -2.50 ,NaN,\"\\ud800\\u0000\xff\",true],\"y\":{}},\"n\":7},"
              "\"other\":{\"data\":{\"a\":[1]}}}")};
    KG_AUTO(jupyter_message) message = parse("", frames, KG_ARRAY_LEN(frames), &err);
    assert_non_null(message);
    assert_string_equal(json_string_value(json_object_get(message->structured, "application/json")),
                        "{\"x\":[1,-2.5,null,\"\xef\xbf\xbd\\u0000\xef\xbf\xbd\",true],\"y\":{}}");
    const json_t *data = json_object_get(message->content, "data");
    assert_int_equal(json_object_size(data), 2);
    assert_int_equal(json_integer_value(json_object_get(data, "n")), 7);
    const json_t *other = json_object_get(json_object_get(message->content, "other"), "data");
    assert_true(json_is_array(json_object_get(other, "a")));
}

static void
test_parse_repairs(void **state)
{
    (void)state;
    struct kg_error err;
    struct jupyter_frame frames[] = {
        FRAME("<IDS|MSG>"), FRAME(""),   FRAME(HEADER),
        FRAME("{}"),        FRAME("{}"), FRAME("{\"text\":\"a\\ud800\\u0000b\",\"n\":NaN}")};
    KG_AUTO(jupyter_message) message = parse("", frames, KG_ARRAY_LEN(frames), &err);

    assert_non_null(message);
    const json_t *text = json_object_get(message->content, "text");
    assert_int_equal(json_string_length(text), 6);
    assert_memory_equal(json_string_value(text), "a\xef\xbf\xbd\0b", 6);
    assert_true(json_is_null(json_object_get(message->content, "n")));
}

static void
test_outgoing_parses(void **state)
{
    (void)state;
    struct kg_error err;
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new(KEY);
    KG_AUTO(jupyter_outgoing)
    first = jupyter_outgoing_new(signer, "execute_request",
                                 json_pack("{s:s%}", "code", "a\0\xe2\x82\xac", (size_t)5));
    KG_AUTO(jupyter_outgoing) second = jupyter_outgoing_new(signer, "x", json_object());
    assert_string_not_equal(first->msg_id, second->msg_id);

    KG_AUTO(jupyter_message)
    message = jupyter_message_parse(signer, first->frames, KG_ARRAY_LEN(first->frames), &err);
    assert_non_null(message);
    assert_string_equal(message->msg_type, "execute_request");
    assert_string_equal(message->msg_id, first->msg_id);
    assert_string_equal(message->parent_id, "");
    assert_int_equal(json_string_length(json_object_get(message->content, "code")), 5);
    static const char *const fields[] = {"session", "username", "date"};
    json_auto_t *header = json_loadb(first->frames[2].data, first->frames[2].len, 0, NULL);
    for (size_t i = 0; i < KG_ARRAY_LEN(fields); i++)
        assert_true(json_string_length(json_object_get(header, fields[i])) > 0);
    assert_string_equal(json_string_value(json_object_get(header, "version")), "5.3");
}

// A message with a buffer, kept as it was sent.
static struct jupyter_message *
parse_raw(const char *content, const char *buffer)
{
    struct kg_error err;
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new("");
    const struct jupyter_frame frames[] = {FRAME("topic"), FRAME("<IDS|MSG>"), FRAME(""),
                                           FRAME(HEADER),  FRAME(PARENT),      FRAME(" {} "),
                                           FRAME(content), FRAME(buffer)};
    struct jupyter_message *message =
        jupyter_message_parse(signer, frames, KG_ARRAY_LEN(frames), &err);
    assert_non_null(message);
    message_keep_raw(message, frames, KG_ARRAY_LEN(frames), 10000);
    return message;
}

static void
assert_frame(const struct jupyter_frame *frame, const char *text)
{
    assert_int_equal(frame->len, strlen(text));
    assert_memory_equal(frame->data, text, frame->len);
}

static void
test_raw_is_what_was_sent(void **state)
{
    (void)state;
    KG_AUTO(jupyter_message) message = parse_raw("{\"n\" : 1.50}", "8000");
    assert_frame(&message->raw->parts[JUPYTER_HEADER], HEADER);
    assert_frame(&message->raw->parts[JUPYTER_PARENT_HEADER], PARENT);
    assert_frame(&message->raw->parts[JUPYTER_METADATA], " {} ");
    assert_frame(&message->raw->parts[JUPYTER_CONTENT], "{\"n\" : 1.50}");
    assert_int_equal(message->raw->n_buffers, 1);
    assert_frame(&message->raw->buffers[0], "8000");
}

static void
test_raw_is_legal_json(void **state)
{
    (void)state;
    KG_AUTO(jupyter_message)
    message = parse_raw("{\"data\":{\"m\":[NaN]},\"t\":\"\\ud800\"}", "b");
    assert_frame(&message->raw->parts[JUPYTER_CONTENT],
                 "{\"data\":{\"m\":[null]},\"t\":\"\xef\xbf\xbd\"}");
    assert_frame(&message->raw->buffers[0], "b");
    assert_non_null(message->structured); // the lines of the message are made of it as before
}

// The guard has put the size of a buffer in its place.
static void
test_raw_is_left_out_where_a_buffer_is(void **state)
{
    (void)state;
    KG_AUTO(jupyter_message) message = parse_raw("{}", "10001");
    assert_null(message->raw);
    assert_string_equal(message->msg_type, "status");
}

static void
test_raw_is_signed(void **state)
{
    (void)state;
    struct kg_error err;
    const struct jupyter_frame parts[] = {FRAME(HEADER), FRAME(PARENT), FRAME("{}"),
                                          FRAME(CONTENT)};
    const struct jupyter_frame buffer = FRAME("buffer");
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new(KEY);
    KG_AUTO(jupyter_outgoing)
    outgoing = jupyter_outgoing_new_raw(signer, jupyter_raw_new(parts, &buffer, 1));
    assert_frame(&outgoing->frames[1], SIGNATURE);
    KG_AUTO(jupyter_message)
    message = jupyter_message_parse(signer, outgoing->frames, KG_ARRAY_LEN(outgoing->frames), &err);
    assert_non_null(message);
    assert_string_equal(message->parent_id, "p1");
    assert_frame(&outgoing->raw->buffers[0], "buffer");
}

// ---- JSON -----------------------------------------------------------------------------------

// Reads {"a": text} and returns the value of "a" as jansson writes it, or NULL.
static char *
read_back(const char *text, bool *repaired)
{
    struct kg_error err;
    KG_AUTO_FREE char *object = kg_asprintf("{\"a\":%s}", text);
    json_auto_t *json = kernel_json_load(object, strlen(object), "text", NULL, repaired, &err);

    return json != NULL ? json_dumps(json_object_get(json, "a"), JSON_ENCODE_ANY | JSON_COMPACT)
                        : NULL;
}

static void
test_json_legal(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "[1,-2.5,true,false,null,\"\xc3\xa9\\n\\\"\\\\\",[],{}]",
        "{\"b\":{\"c\":[[1]]},\"\":0}",
        "\"\xf0\x9f\x98\x80 \\\\ud800\"", // a backslash before plain text
        "[9223372036854775807,-9223372036854775808,0,-0.0]",
        "\"\\u0000\\u0001\"",
        "[0.10000000000000001,1e22]",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        bool repaired = false;
        KG_AUTO_FREE char *out = read_back(cases[i], &repaired);
        assert_non_null(out);
        assert_string_equal(out, cases[i]);
        assert_false(repaired);
    }
    bool repaired = false;
    KG_AUTO_FREE char *out =
        read_back(" [ \"\\ud83d\\uDE00\\/\\b\\f\\t\\r\\u20aC\" ,\r\n\t1E2 ] ", &repaired);
    assert_string_equal(out, "[\"\xf0\x9f\x98\x80/\\b\\f\\t\\r\xe2\x82\xac\",100.0]");
    assert_false(repaired);
}

#define FFFD "\xef\xbf\xbd"

static void
test_json_repaired(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\"\\ud83d\"", "\"" FFFD "\""},
        {"\"\\ude00\\ud83d\"", "\"" FFFD FFFD "\""},
        {"\"\\uD83D\\uD83D\\uDE00\"", "\"" FFFD "\xf0\x9f\x98\x80\""},
        {"\"\\ud83d\\n\"", "\"" FFFD "\\n\""},
        {"\"\xff\xc3\xa9\xc3\"", "\"" FFFD "\xc3\xa9" FFFD "\""},
        {"\"\xe2\x82x\"", "\"" FFFD "x\""},
        {"\"\xed\xa0\x80\"", "\"" FFFD FFFD FFFD "\""}, // as Python decodes it
        {"\"\xf4\x90\xc0\xaf\"", "\"" FFFD FFFD FFFD FFFD "\""},
        {"[NaN,Infinity,-Infinity,\"NaN\"]", "[null,null,null,\"NaN\"]"},
        {"9223372036854775808", "9.2233720368547758e18"},
        {"[1e999,-1e999]", "[1.7976931348623157e308,-1.7976931348623157e308]"},
        {"{\"a\\u0000\\\\u0000\" :\"\\u0000\"}", "{\"a" FFFD "\\\\u0000\":\"\\u0000\"}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        bool repaired = false;
        KG_AUTO_FREE char *out = read_back(cases[i].in, &repaired);
        assert_non_null(out);
        assert_string_equal(out, cases[i].out);
        assert_true(repaired);
    }
}

static void
test_json_strings(void **state)
{
    (void)state;
    static const char text[] =
        " {\"a\":\"1\", \"skipped\": [1, {\"b\": \"no\"}], \"b\":\"\\ud800\","
        "\"a\" : \"2\", \"c\":\"3\", \"c\":4} ";
    struct kernel_json_string strings[] = {{"a", NULL}, {"b", NULL}, {"c", NULL}, {"d", NULL}};
    static const char *const values[] = {"2", FFFD, NULL, NULL};
    struct kg_error err;
    bool repaired = false;
    assert_int_equal(
        kernel_json_strings(text, sizeof(text) - 1, "text", strings, 4, &repaired, &err), 0);
    assert_true(repaired);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(strings[i].value == NULL, values[i] == NULL);
        if (values[i] != NULL)
            assert_string_equal(strings[i].value, values[i]);
        free(strings[i].value);
    }
    static const char *const bad[] = {"",          "[]",   "{\"b\":nul}", "{\"b\":[}",
                                      "{\"a\":\"", "{}{}", "{1:2}"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kernel_json_string string = {"a", NULL};
        assert_int_equal(
            kernel_json_strings(bad[i], strlen(bad[i]), "text", &string, 1, NULL, &err), -1);
        assert_int_equal(err.code, KG_INVALID_CONTENT);
        free(string.value);
    }
}

static void
test_json_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",     "[",      "[1,]",    "[1 2]",   "{",        "{\"a\"}", "{\"a\":1,}", "{a:1}",
        "\"",   "\"\\\"", "\"\\x\"", "\"\\u12", "\"\\u12g", "\"\n\"",  "01",         "1.",
        "1e",   "-",      "+1",      ".5",      "1-2",      "nul",     "truefalse",  "'a'",
        "1} {", "--1",    "NaNs",    "]",       "\"\\",     "\x80",    "1e+",        "Nan",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        bool repaired = false;
        KG_AUTO_FREE char *out = read_back(cases[i], &repaired);
        assert_null(out);
    }
}

static void
test_json_of_any_depth_and_size(void **state)
{
    (void)state;
    KG_AUTO_BUF deep = {0}, digits = {0};
    for (size_t i = 0; i < 2046; i++)
        buf_append_str(&deep, "[");
    for (size_t i = 0; i < 2046; i++)
        buf_append_str(&deep, "]");
    bool repaired = false;
    KG_AUTO_FREE char *fits = read_back(deep.data, &repaired);
    assert_non_null(fits);
    KG_AUTO_FREE char *deeper = kg_asprintf("[[%s]]", deep.data);
    KG_AUTO_FREE char *too_deep = read_back(deeper, &repaired);
    assert_null(too_deep);

    buf_append_str(&digits, "-");
    for (size_t i = 0; i < 5000; i++)
        buf_append_str(&digits, "7");
    KG_AUTO_FREE char *huge = read_back(digits.data, &repaired);
    assert_string_equal(huge, "-1.7976931348623157e308");
}

// ---- The ZMTP follower ----------------------------------------------------------------------

static const unsigned char greeting[ZMTP_GREETING_LEN] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                                          1,    0x7f, 3, 1, 'N', 'U', 'L', 'L'};
#define READY "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"

enum { MAX_BYTES = 2000, MAX_FRAMES = 4 };

static void
begin_stream(struct buf *stream)
{
    buf_append(stream, greeting, sizeof(greeting));
    buf_append(stream, READY, sizeof(READY) - 1);
}

// Follows a stream in two pieces; `ret_passed` is what a reader sees of it.
static int
follow(const struct buf *stream, size_t split, uint64_t *cost, struct buf *ret_passed,
       struct kg_error *err)
{
    struct zmtp_follower follower;
    uint64_t more = 0;

    zmtp_init(&follower, MAX_BYTES, MAX_FRAMES);
    int result = zmtp_follow(&follower, stream->data, split, ret_passed, cost, err);
    if (result == 0)
        result = zmtp_follow(&follower, stream->data + split, stream->len - split, ret_passed,
                             &more, err);
    *cost += more;
    return result;
}

static void
test_follower_split_at_every_byte(void **state)
{
    (void)state;
    KG_AUTO_BUF stream = {0};
    static const char body[300];
    begin_stream(&stream);
    buf_append(&stream,
               "\x01\x03"
               "abc",
               5);
    buf_append(&stream, "\x04\x07\x04PING\0\0", 9); // commands may come between the frames
    buf_append(&stream, "\x01\x00", 2);
    buf_append(&stream, "\x02\0\0\0\0\0\0\x01\x2c", 9);
    buf_append(&stream, body, sizeof(body));
    buf_append(&stream, "\x00\x00", 2);

    for (size_t split = 0; split <= stream.len; split++) {
        struct kg_error err;
        uint64_t cost;
        KG_AUTO_BUF passed = {0};
        assert_int_equal(follow(&stream, split, &cost, &passed, &err), 0);
        assert_int_equal(passed.len, stream.len);
        assert_memory_equal(passed.data, stream.data, stream.len);
        assert_int_equal(cost, zmtp_frame_cost(3) + 2 * zmtp_frame_cost(0) + zmtp_frame_cost(300));
    }
}

static void
assert_cut(const char *bytes, size_t len, const char *message)
{
    KG_AUTO_BUF stream = {0};
    begin_stream(&stream);
    size_t fine = stream.len;
    buf_append(&stream, bytes, len);
    for (size_t split = 0; split <= stream.len; split++) {
        struct kg_error err;
        uint64_t cost;
        KG_AUTO_BUF passed = {0};
        assert_int_equal(follow(&stream, split, &cost, &passed, &err), -1);
        assert_int_equal(err.code, KG_INVALID_CONTENT);
        assert_string_equal(err.message, message);
        assert_true(passed.len >= fine && passed.len < stream.len);
        assert_memory_equal(passed.data, stream.data, passed.len);
        assert_int_equal(cost, 0);
    }
}

#define ASSERT_CUT(bytes, message) assert_cut(bytes, sizeof(bytes) - 1, message)

static void
test_follower_cuts(void **state)
{
    (void)state;
    ASSERT_CUT("\x08", "frame with bad flags 0x08");
    ASSERT_CUT("\x05", "frame with bad flags 0x05");
    ASSERT_CUT("\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00", "message of more than 4 frames");
    ASSERT_CUT("\x02\xff\xff\xff\xff\xff\xff\xff\xff", "frame of 18446744073709551615 bytes");
    ASSERT_CUT("\x02\0\0\0\0\x40\0\0\x01", "frame of 1073741825 bytes");
    ASSERT_CUT("\x04\x00", "command of 0 bytes");
    ASSERT_CUT("\x06\0\0\0\0\0\0\x10\x01", "command of 4097 bytes");
    ASSERT_CUT("\x04\x0a\x09SUBSCRIBE", "unexpected command");
    ASSERT_CUT("\x04\x02\x05R", "unexpected command");
}

// Of a message that is too large the frames that made it so are replaced by their size, however the
// stream comes in pieces, and what comes after it is seen as it is.
static void
test_follower_replaces_what_is_too_large(void **state)
{
    (void)state;
    static const char body[3000], half[1000];
    static const char large_head[] = "\x03\0\0\0\0\0\0\x0b\xb8",
                      half_head[] = "\x03\0\0\0\0\0\0\x03\xe8";
    KG_AUTO_BUF stream = {0}, seen = {0};
    begin_stream(&stream);
    buf_append(&stream, "\x01\x02hd", 4);
    buf_append(&stream, large_head, 9);
    buf_append(&stream, body, sizeof(body)); // too large by itself
    buf_append(&stream, half_head, 9);
    buf_append(&stream, half, sizeof(half)); // still fits
    buf_append(&stream, "\x02\0\0\0\0\0\0\x03\xe8", 9);
    buf_append(&stream, half, sizeof(half)); // too large together with the others
    buf_append(&stream, "\x00\x04next", 6);
    begin_stream(&seen);
    buf_append(&seen,
               "\x01\x02hd\x01\x04"
               "3000",
               10);
    buf_append(&seen, half_head, 9);
    buf_append(&seen, half, sizeof(half));
    buf_append(&seen,
               "\x00\x04"
               "1000\x00\x04next",
               12);

    for (size_t split = 0; split <= stream.len; split++) {
        struct kg_error err;
        uint64_t cost;
        KG_AUTO_BUF passed = {0};
        assert_int_equal(follow(&stream, split, &cost, &passed, &err), 0);
        assert_int_equal(passed.len, seen.len);
        assert_memory_equal(passed.data, seen.data, seen.len);
        assert_int_equal(cost, zmtp_frame_cost(2) + 3 * zmtp_frame_cost(4) + zmtp_frame_cost(1000));
    }
    assert_int_equal(zmtp_replaced_size("3000", 4), 3000);
    assert_int_equal(zmtp_replaced_size("{}", 2), 0);
    assert_int_equal(zmtp_replaced_size("", 0), 0);
}

// A reader takes such a message before the body of its last frame has come: it counts by then.
static void
test_follower_counts_what_it_replaced_at_once(void **state)
{
    (void)state;
    KG_AUTO_BUF stream = {0}, passed = {0};
    begin_stream(&stream);
    buf_append(&stream, "\x01\x02hd\x02\0\0\0\0\0\0\x0b\xb8", 13);
    size_t head_len = stream.len;
    static const char body[3000];
    buf_append(&stream, body, sizeof(body));

    struct zmtp_follower follower;
    struct kg_error err;
    uint64_t cost;
    zmtp_init(&follower, MAX_BYTES, MAX_FRAMES);
    assert_int_equal(zmtp_follow(&follower, stream.data, head_len, &passed, &cost, &err), 0);
    assert_int_equal(cost, zmtp_frame_cost(2) + zmtp_frame_cost(4));
    assert_int_equal(
        zmtp_follow(&follower, stream.data + head_len, sizeof(body), &passed, &cost, &err), 0);
    assert_int_equal(cost, 0);
}

// Wherever a message is abandoned, the bytes that pass are whole messages with the same cost, and
// the one behind it passes as it is.
static void
test_follower_abandons(void **state)
{
    (void)state;
    static const char body[300];
    KG_AUTO_BUF stream = {0};
    begin_stream(&stream);
    size_t start = stream.len;
    buf_append(&stream, "\x01\x02hd\x03\0\0\0\0\0\0\x01\x2c", 13);
    buf_append(&stream, body, sizeof(body));
    buf_append(&stream, "\x03\0\0\0\0\0\0\x0b\xb8", 9); // is replaced
    for (int i = 0; i < 10; i++)
        buf_append(&stream, body, sizeof(body));
    buf_append(&stream,
               "\x00\x03"
               "end",
               5);
    size_t end = stream.len;
    buf_append(&stream, "\x00\x04next", 6);

    for (size_t at = start; at <= end; at++) {
        struct zmtp_follower follower;
        struct kg_error err;
        uint64_t cost, rest_cost, abandoned_cost = 0, nuls = 0;
        KG_AUTO_BUF passed = {0};
        zmtp_init(&follower, MAX_BYTES, MAX_FRAMES);
        assert_int_equal(zmtp_follow(&follower, stream.data, at, &passed, &cost, &err), 0);
        bool inside = at >= start + 2 && at < end; // the head of the first frame has passed
        assert_int_equal(zmtp_is_inside_message(&follower), inside);
        if (inside)
            assert_int_equal(zmtp_abandon(&follower, &nuls, &abandoned_cost, &err), 0);
        assert_true(nuls <= sizeof(body) + 2);
        buf_append(&passed, body, nuls < sizeof(body) ? (size_t)nuls : sizeof(body));
        buf_append(&passed, body, nuls < sizeof(body) ? 0 : (size_t)nuls - sizeof(body));
        assert_false(zmtp_is_inside_message(&follower));
        assert_int_equal(
            zmtp_follow(&follower, stream.data + at, stream.len - at, &passed, &rest_cost, &err),
            0);
        assert_memory_equal(passed.data + passed.len - 6, "\x00\x04next", 6);
        cost += abandoned_cost + rest_cost;

        struct zmtp_follower reader;
        KG_AUTO_BUF read = {0};
        zmtp_init(&reader, MAX_BYTES, MAX_FRAMES);
        assert_int_equal(zmtp_follow(&reader, passed.data, passed.len, &read, &rest_cost, &err), 0);
        assert_int_equal(rest_cost, cost);
        assert_false(zmtp_is_inside_message(&reader));
    }
    assert_int_equal(zmtp_replaced_size("{\"a\"\0\0", 6), 6);
}

static void
test_follower_does_not_abandon_a_command(void **state)
{
    (void)state;
    KG_AUTO_BUF stream = {0}, passed = {0};
    struct zmtp_follower follower;
    struct kg_error err;
    uint64_t cost, nuls;
    begin_stream(&stream);
    buf_append(&stream, "\x01\x02hd\x04\x07\x04PING", 11);
    zmtp_init(&follower, MAX_BYTES, MAX_FRAMES);
    assert_int_equal(zmtp_follow(&follower, stream.data, stream.len, &passed, &cost, &err), 0);
    assert_int_equal(zmtp_abandon(&follower, &nuls, &cost, &err), -1);
    assert_string_equal(err.message, "unfinished command in a message");
}

static void
test_follower_checks_the_greeting(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        char byte;
        const char *message;
    } cases[] = {
        {0, 1, "the peer does not speak ZMTP 3"},
        {9, 0, "the peer does not speak ZMTP 3"},
        {10, 1, "the peer does not speak ZMTP 3"},
        {12, 'C', "the peer wants a security mechanism"},
        {31, 'X', "the peer wants a security mechanism"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err;
        uint64_t cost;
        KG_AUTO_BUF passed = {0};
        KG_AUTO_BUF stream = {0};
        begin_stream(&stream);
        stream.data[cases[i].offset] = cases[i].byte;
        assert_int_equal(follow(&stream, 7, &cost, &passed, &err), -1);
        assert_string_equal(err.message, cases[i].message);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature_vector),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_parse_refuses_bad_signature_and_too_many_frames),
        cmocka_unit_test(test_parse_bounds_the_number_of_values),
        cmocka_unit_test(test_parse_of_what_was_too_large),
        cmocka_unit_test(test_parse_keeps_structured_data_as_text),
        cmocka_unit_test(test_parse_repairs),
        cmocka_unit_test(test_outgoing_parses),
        cmocka_unit_test(test_raw_is_what_was_sent),
        cmocka_unit_test(test_raw_is_legal_json),
        cmocka_unit_test(test_raw_is_left_out_where_a_buffer_is),
        cmocka_unit_test(test_raw_is_signed),
        cmocka_unit_test(test_json_legal),
        cmocka_unit_test(test_json_repaired),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_json_of_any_depth_and_size),
        cmocka_unit_test(test_follower_split_at_every_byte),
        cmocka_unit_test(test_follower_cuts),
        cmocka_unit_test(test_follower_replaces_what_is_too_large),
        cmocka_unit_test(test_follower_counts_what_it_replaced_at_once),
        cmocka_unit_test(test_follower_abandons),
        cmocka_unit_test(test_follower_does_not_abandon_a_command),
        cmocka_unit_test(test_follower_checks_the_greeting),
    };
    int failed = cmocka_run_group_tests_name("jupyter", tests, NULL, NULL);
    jupyter_init();
    failed += test_jupyter_channels() + test_jupyter_guard();
    jupyter_fini();
    return failed;
}
