// SPDX-License-Identifier: Apache-2.0
// gzip of requests and answers.

#include <string.h>
#include <sys/socket.h>
#include <zlib.h>

#include "test_http_util.h"

#define WITH_KEY "Authorization: Bearer ka\r\n"

// ---- The handlers ---------------------------------------------------------------------------

static struct buf seen; // of an open body

static void
open_on_data(void *arg)
{
    char piece[37];
    struct http_request *request = arg;
    for (size_t n; (n = http_request_body_read(request, piece, sizeof piece)) > 0;)
        buf_append(&seen, piece, n);
    if (!http_request_body_ended(request))
        return;
    bench.held = NULL;
    http_reply(request, 200, "text/plain", seen.data, seen.len);
}

static void
open_on_end(void *arg)
{
    (void)arg;
    bench.held = NULL;
    bench.n_gone++;
}

static void
handle_open(struct http_request *request, void *arg)
{
    (void)arg;
    buf_fini(&seen);
    bench.held = request;
    http_request_own(request, request, open_on_end);
    http_request_on_body(request, open_on_data, request);
    open_on_data(request);
}

static void
handle_echo(struct http_request *request, void *arg)
{
    (void)arg;
    size_t len;
    const void *body = http_request_body(request, &len);
    bench.n_handled++;
    assert_int_equal(http_request_body_len(request), len);
    http_reply(request, 200, "text/plain", body, len);
}

// A file of `n` bytes of that type, or a part of it.
static void
handle_download(struct http_request *request, void *arg)
{
    (void)arg;
    const char *n = http_request_query(request, "n");
    const char *part = http_request_query(request, "part");
    size_t len = n ? (size_t)atoi(n) : 11;
    KG_AUTO_FREE char *text = n ? repeated('t', len) : kg_strdup("hello hello");
    KG_AUTO_FREE char *length = kg_asprintf("%zu", len);
    http_reply_header(request, "ETag", "\"e\"");
    http_reply_header(request, "Accept-Ranges", "bytes");
    http_reply_header(request, "Content-Length", length);
    if (part)
        http_reply_header(request, "Content-Range", "bytes 0-10/20");
    http_stream_start(request, part ? 206 : 200, http_request_query(request, "type"));
    for (size_t at = 0; at < len; at += 1000)
        http_stream_write(request, text + at, len - at < 1000 ? len - at : 1000);
    http_stream_end(request);
}

static int
coding_set_up(void **state)
{
    static const struct http_route routes[] = {
        {HTTP_POST, "/coded", handle_echo, HTTP_GZIP_BODY, NULL},
        {HTTP_POST, "/plain", handle_echo, 0, NULL},
        {HTTP_PUT, "/coded-file", handle_echo,
         HTTP_GZIP_BODY | HTTP_STREAMED_BODY | HTTP_LARGE_BODY, NULL},
        {HTTP_POST, "/coded-open", handle_open, HTTP_GZIP_BODY | HTTP_OPEN_BODY, NULL},
        {HTTP_GET, "/file", handle_download, HTTP_GZIP_ANSWER, NULL},
        {HTTP_GET, "/plain-file", handle_download, 0, NULL},
    };
    int failed = bench_set_up(state);
    bench_add_key("alice", "ka");
    http_server_add_routes(bench.server, routes, KG_ARRAY_LEN(routes), NULL);
    return failed;
}

static int
coding_tear_down(void **state)
{
    int failed = bench_tear_down(state);
    buf_fini(&seen);
    return failed;
}

// ---- gzip -----------------------------------------------------------------------------------

static void
compress_to(struct buf *to, const void *data, size_t len)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)data, .avail_in = (uInt)len};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t max = deflateBound(&z, len);
    z.next_out = (unsigned char *)buf_reserve(to, max);
    z.avail_out = (uInt)max;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    to->len += max - z.avail_out;
    deflateEnd(&z);
}

static void
decompress_to(struct buf *to, const void *data, size_t len)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)data, .avail_in = (uInt)len};
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    int result;
    do {
        z.next_out = (unsigned char *)buf_reserve(to, 65536);
        z.avail_out = 65536;
        result = inflate(&z, Z_NO_FLUSH);
        to->len += 65536 - z.avail_out;
    } while (result == Z_OK);
    assert_int_equal(result, Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    inflateEnd(&z);
}

static void
send_bytes(struct raw *raw, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(raw->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        bench_turn();
    }
}

// Sends a body; the answer is complete when `until` was found in it.
static void
exchange(struct raw *raw, const char *line, const char *headers, const struct buf *body,
         const char *until)
{
    KG_AUTO_FREE char *head =
        kg_asprintf("%s HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY "Content-Length: %zu\r\n%s\r\n",
                    line, body->len, headers);
    raw_ask(raw, head);
    send_bytes(raw, body->data, body->len);
    WAIT(raw_has(raw, until));
}

#define GZIP "Content-Encoding: gzip\r\n"

static void
test_a_body_in_gzip(void **state)
{
    (void)state;
    KG_AUTO_BUF body = {0};
    compress_to(&body, "what it says", 12);
    static const char *const codings[] = {
        GZIP, "Content-Encoding: GZIP\r\n", "Content-Encoding: x-gzip\r\n",
        "Content-Encoding: identity, , gzip\r\n", "Content-Encoding: identity\r\n" GZIP};
    static const char *const lines[] = {"POST /coded", "PUT /coded-file", "POST /coded-open"};
    for (size_t i = 0; i < KG_ARRAY_LEN(lines); i++)
        for (size_t j = 0; j < KG_ARRAY_LEN(codings); j++) {
            KG_AUTO_RAW raw;
            exchange(&raw, lines[i], codings[j], &body, "\r\n\r\nwhat it says");
            raw_send(&raw, HELLO); // the connection goes on
            WAIT(raw_has(&raw, "hello"));
        }
    // Without the flag, and without a coding, it stays what it is.
    KG_AUTO_RAW plain, uncoded, empty;
    exchange(&plain, "POST /plain", GZIP, &body, "\r\n\r\n\x1f\x8b");
    struct buf text = {.data = (char *)(uintptr_t) "text", .len = 4};
    exchange(&uncoded, "POST /coded", "Content-Encoding: identity\r\n", &text, "\r\n\r\ntext");
    text.len = 0;
    exchange(&empty, "POST /coded", GZIP, &text, "Content-Length: 0\r\n");
}

static void
test_several_members(void **state)
{
    (void)state;
    KG_AUTO_BUF body = {0};
    compress_to(&body, "one ", 4);
    compress_to(&body, "", 0);
    compress_to(&body, "two", 3);
    KG_AUTO_RAW whole, open;
    exchange(&whole, "POST /coded", GZIP, &body, "\r\n\r\none two");
    exchange(&open, "POST /coded-open", GZIP, &body, "\r\n\r\none two");
}

static void
test_what_is_not_gzip(void **state)
{
    (void)state;
    KG_AUTO_BUF body = {0};
    compress_to(&body, "what it says", 12);
    KG_AUTO_BUF cut = {0}, longer = {0}, broken = {0}, text = {0};
    buf_append(&cut, body.data, body.len - 1);
    buf_append(&longer, body.data, body.len);
    buf_append(&longer, "more", 4);
    buf_append(&broken, body.data, body.len);
    broken.data[body.len - 6] ^= 1; // of its check
    buf_append_str(&text, "what it says");
    static const char *const lines[] = {"POST /coded", "POST /coded-open"};
    const struct buf *const bad[] = {&cut, &longer, &broken, &text};
    for (size_t i = 0; i < KG_ARRAY_LEN(lines); i++)
        for (size_t j = 0; j < KG_ARRAY_LEN(bad); j++) {
            KG_AUTO_RAW raw;
            exchange(&raw, lines[i], GZIP, bad[j], "HTTP/1.1 400 ");
            WAIT(raw_has(&raw, bad[j] == &cut ? "in the middle of its gzip" : "is not gzip"));
        }
    assert_int_equal(bench.n_handled, 0);
    assert_int_equal(bench.n_gone, KG_ARRAY_LEN(bad));
    WAIT(http_server_open_requests(bench.server) == 0);
}

static void
test_other_codings(void **state)
{
    (void)state;
    struct buf text = {.data = (char *)(uintptr_t) "text", .len = 4};
    static const char *const codings[] = {"Content-Encoding: br\r\n",
                                          "Content-Encoding: gzip, br\r\n", GZIP GZIP,
                                          "Content-Encoding: gzipped\r\n"};
    for (size_t i = 0; i < KG_ARRAY_LEN(codings); i++) {
        KG_AUTO_RAW raw;
        exchange(&raw, "POST /coded", codings[i], &text, "\"unsupported_coding\"");
        assert_true(raw_has(&raw, "HTTP/1.1 415 Unsupported Media Type\r\n"));
        assert_true(raw_has(&raw, "Accept-Encoding: gzip\r\n"));
        assert_true(raw_has(&raw, "send the body in gzip"));
    }
    // Who has no key learns nothing.
    KG_AUTO_RAW raw;
    raw_ask(&raw, "POST /coded HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: br\r\n"
                  "Content-Length: 1\r\n\r\nx");
    WAIT(raw_has(&raw, "HTTP/1.1 401 "));
    assert_int_equal(bench.n_handled, 0);
}

// 64 KiB that become 64 MiB.
static void
test_a_bomb(void **state)
{
    (void)state;
    enum { LEN = 64 << 20 };
    KG_AUTO_FREE char *zeros = kg_calloc(LEN, 1);
    KG_AUTO_BUF body = {0};
    compress_to(&body, zeros, LEN);
    assert_true(body.len < 70000);
    KG_AUTO_RAW raw, file;
    exchange(&raw, "POST /coded", GZIP, &body, "HTTP/1.1 413 ");
    WAIT(raw_has(&raw, "at most 1048576 bytes are allowed here, after it is decoded"));
    exchange(&file, "PUT /coded-file", GZIP, &body, "HTTP/1.1 413 ");
    assert_int_equal(bench.n_handled, 0);
    round_trip();
}

static void
test_the_decoded_size_counts(void **state)
{
    (void)state;
    enum { MAX = 1 << 20 };
    KG_AUTO_FREE char *text = repeated('x', MAX + 1);
    KG_AUTO_BUF most = {0}, more = {0};
    compress_to(&most, text, MAX);
    compress_to(&more, text, MAX + 1);
    KG_AUTO_RAW good, bad;
    exchange(&good, "PUT /coded-file", GZIP, &most, "Content-Length: 1048576\r\n");
    exchange(&bad, "PUT /coded-file", GZIP, &more, "HTTP/1.1 413 ");
}

static void
test_a_client_that_leaves_while_its_body_is_decoded(void **state)
{
    (void)state;
    KG_AUTO_FREE char *text = repeated('x', 1000000);
    KG_AUTO_BUF body = {0};
    compress_to(&body, text, 1000000);
    struct raw raw;
    KG_AUTO_FREE char *head = kg_asprintf(
        "POST /coded HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY GZIP "Content-Length: %zu\r\n\r\n",
        body.len);
    raw_ask(&raw, head);
    assert_int_equal(send(raw.fd, body.data, body.len, MSG_NOSIGNAL), body.len);
    raw_close(&raw);
    round_trip();
    WAIT(http_server_open_requests(bench.server) == 0);
}

// What a piece becomes is there before the next piece comes.
static void
test_decoded_as_it_comes(void **state)
{
    (void)state;
    KG_AUTO_BUF first = {0}, second = {0};
    compress_to(&first, "one", 3);
    compress_to(&second, "two", 3);
    KG_AUTO_RAW raw;
    raw_ask(&raw, "POST /coded-open HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY GZIP
                  "Transfer-Encoding: chunked\r\n\r\n");
    WAIT(bench.held);
    KG_AUTO_FREE char *size = kg_asprintf("%zx\r\n", first.len);
    raw_send(&raw, size);
    send_bytes(&raw, first.data, first.len);
    WAIT(seen.len == 3);
    assert_false(http_request_body_ended(bench.held));
    KG_AUTO_FREE char *next = kg_asprintf("\r\n%zx\r\n", second.len);
    raw_send(&raw, next);
    send_bytes(&raw, second.data, second.len);
    raw_send(&raw, "\r\n0\r\n\r\n" HELLO);
    WAIT(raw_has(&raw, "\r\n\r\nonetwo") && raw_has(&raw, "hello"));
}

// ---- Answers --------------------------------------------------------------------------------

static void
download(struct raw *raw, const char *line, const char *headers)
{
    KG_AUTO_FREE char *text = kg_asprintf(
        "%s HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY "Connection: close\r\n%s\r\n", line, headers);
    raw_exchange(raw, text);
    assert_true(raw_has(raw, "HTTP/1.1 20"));
}

// The content of a chunked answer.
static void
content_of(const struct raw *raw, struct buf *ret)
{
    char *at = (char *)memmem(raw->in.data, raw->in.len, "\r\n\r\n", 4) + 4;
    for (size_t len; (len = strtoul(at, &at, 16)) > 0;) {
        buf_append(ret, at + 2, len);
        at += 2 + len + 2;
    }
    assert_string_equal(at, "\r\n\r\n");
}

static void
test_an_answer_in_gzip(void **state)
{
    (void)state;
    KG_AUTO_RAW raw, large, head;
    KG_AUTO_BUF coded = {0}, text = {0}, coded_large = {0}, text_large = {0};
    download(&raw, "GET /file?type=text/plain", "Accept-Encoding: gzip\r\n");
    assert_true(raw_has(&raw, "Content-Encoding: gzip\r\n"));
    assert_true(raw_has(&raw, "Vary: Accept-Encoding\r\n"));
    assert_true(raw_has(&raw, "ETag: W/\"e\"\r\n"));
    assert_false(raw_has(&raw, "Content-Length"));
    assert_false(raw_has(&raw, "Accept-Ranges"));
    content_of(&raw, &coded);
    decompress_to(&text, coded.data, coded.len);
    assert_int_equal(text.len, 11);
    assert_memory_equal(text.data, "hello hello", 11);
    download(&large, "GET /file?type=text/plain&n=5000000", "Accept-Encoding: gzip\r\n");
    content_of(&large, &coded_large);
    decompress_to(&text_large, coded_large.data, coded_large.len);
    assert_int_equal(text_large.len, 5000000);
    assert_true(coded_large.len < 50000);
    download(&head, "HEAD /file?type=text/plain", "Accept-Encoding: gzip\r\n");
    assert_true(raw_has(&head, "Content-Encoding: gzip\r\n"));
    assert_string_equal(strstr(head.in.data, "\r\n\r\n"), "\r\n\r\n");
}

static void
test_who_accepts_gzip(void **state)
{
    (void)state;
    static const struct {
        const char *headers;
        bool accepts;
    } cases[] = {
        {"", false},
        {"Accept-Encoding:\r\n", false},
        {"Accept-Encoding: gzip\r\n", true},
        {"Accept-Encoding: deflate , GZIP\r\n", true},
        {"Accept-Encoding: br;q=1.0, gzip;q=0.8\r\n", true},
        {"Accept-Encoding: x-gzip\r\n", true},
        {"Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n", true},
        {"Accept-Encoding: *\r\n", true},
        {"Accept-Encoding: identity;q=0, *;q=0.1\r\n", true},
        {"Accept-Encoding: gzip;q=0.001\r\n", true},
        {"Accept-Encoding: gzip ; Q=1\r\n", true},
        {"Accept-Encoding: *, gzip;q=0\r\n", false},
        {"Accept-Encoding: *;q=0\r\n", false},
        {"Accept-Encoding: gzip;q=0\r\n", false},
        {"Accept-Encoding: gzip; q=0.000, br\r\n", false},
        {"Accept-Encoding: gzip;q=\r\n", false},
        {"Accept-Encoding: gzip;q=x\r\n", false},
        {"Accept-Encoding: gzip;level=9\r\n", false},
        {"Accept-Encoding: gzipped, xgzip\r\n", false},
        {"Accept-Encoding: identity\r\n", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_RAW raw;
        download(&raw, "GET /file?type=text/plain", cases[i].headers);
        bool is_coded = raw_has(&raw, "Content-Encoding: gzip\r\n");
        if (is_coded != cases[i].accepts)
            fail_msg("%s", cases[i].headers);
        assert_true(raw_has(&raw, "Vary: Accept-Encoding\r\n"));
        assert_true(is_coded || raw_has(&raw, "Content-Length: 11\r\n"));
        assert_true(is_coded || raw_has(&raw, "ETag: \"e\"\r\n"));
    }
}

static void
test_what_is_sent_as_it_is(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "GET /plain-file?type=text/plain",  "GET /file?type=text/plain&part=1",
        "GET /file?type=image/png",         "GET /file?type=video/mp4",
        "GET /file?type=application/x-xz", "GET /file?type=application/zip",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(lines); i++) {
        KG_AUTO_RAW raw;
        download(&raw, lines[i], "Accept-Encoding: gzip\r\n");
        assert_false(raw_has(&raw, "Content-Encoding"));
        assert_true(raw_has(&raw, "Content-Length: 11\r\n") && raw_has(&raw, "hello hello"));
    }
    KG_AUTO_RAW svg;
    download(&svg, "GET /file?type=image/svg%2bxml", "Accept-Encoding: gzip\r\n");
    assert_true(raw_has(&svg, "Content-Encoding: gzip"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, coding_set_up, coding_tear_down)

const struct CMUnitTest http_coding_tests[] = {
    TEST(test_a_body_in_gzip),
    TEST(test_several_members),
    TEST(test_what_is_not_gzip),
    TEST(test_other_codings),
    TEST(test_a_bomb),
    TEST(test_the_decoded_size_counts),
    TEST(test_a_client_that_leaves_while_its_body_is_decoded),
    TEST(test_decoded_as_it_comes),
    TEST(test_an_answer_in_gzip),
    TEST(test_who_accepts_gzip),
    TEST(test_what_is_sent_as_it_is),
};
const size_t n_http_coding_tests = KG_ARRAY_LEN(http_coding_tests);
