// SPDX-License-Identifier: Apache-2.0
// Names of hosts, tokens, and what is left out of heads.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http_priv.h"
#include "ports_priv.h"
#include "virtual_clock.h"

static void
test_hosts(void **state)
{
    static const struct {
        const char *host;
        enum port_host_kind kind;
    } cases[] = {
        {"8501-abc234.localhost", PORT_HOST_OK},
        {"8501-abc234.localhost:16010", PORT_HOST_OK},
        {"8501-ABC234.LocalHost:1", PORT_HOST_OK},
        {"localhost", PORT_HOST_OTHER},
        {"localhost:16010", PORT_HOST_OTHER},
        {".localhost", PORT_HOST_OTHER},
        {"abc.localhost", PORT_HOST_OTHER},
        {"8501.localhost", PORT_HOST_OTHER},
        {"-abc.localhost", PORT_HOST_OTHER},
        {"8501-abc234.localhost.example", PORT_HOST_OTHER},
        {"8501-abc234localhost", PORT_HOST_OTHER},
        {"8501-abc234.other", PORT_HOST_OTHER},
        {"[::1]:80", PORT_HOST_OTHER},
        {"", PORT_HOST_OTHER},
        {"8501-abc234.localhost.", PORT_HOST_BAD},
        {"8501-abc234.localhost:", PORT_HOST_BAD},
        {"8501-abc234.localhost:x", PORT_HOST_BAD},
        {"8501-abc234.localhost:1:2", PORT_HOST_BAD},
        {"a.8501-abc234.localhost", PORT_HOST_BAD},
        {"0-abc.localhost", PORT_HOST_BAD},
        {"08501-abc.localhost", PORT_HOST_BAD},
        {"65536-abc.localhost", PORT_HOST_BAD},
        {"123456-abc.localhost", PORT_HOST_BAD},
        {"8501-.localhost", PORT_HOST_BAD},
        {"8501-a_b.localhost", PORT_HOST_BAD},
        {"8501-a-b.localhost", PORT_HOST_BAD},
        {"8501-a\xc3\xa4.localhost", PORT_HOST_BAD},
        {"8501-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.localhost", PORT_HOST_BAD},
    };
    struct port_host host;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        if (port_host_parse(cases[i].host, "localhost", &host) != cases[i].kind)
            fail_msg("%s", cases[i].host);
    }
    assert_int_equal(port_host_parse("65535-Q1.a.example:1", "a.example", &host), PORT_HOST_OK);
    assert_int_equal(host.port, 65535);
    assert_string_equal(host.id, "q1");
    assert_int_equal(port_host_parse("1-a.localhost", "", &host), PORT_HOST_OTHER);
}

static void
test_domains(void **state)
{
    static const char *const good[] = {"", "localhost", "a.b-c.example", "x1"};
    static const char *const bad[] = {".",   ".a", "a.", "a..b", "-a",  "a-",
                                      "a_b", "A",  "*",  "a:1",  "a/b", "a b"};
    struct kg_error err;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++)
        assert_int_equal(ports_check_domain(good[i], &err), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(ports_check_domain(bad[i], &err), -1);
}

static void
test_targets(void **state)
{
    static const struct {
        const char *target, *token, *rest;
    } cases[] = {
        {"/", NULL, "/"},
        {"/a?b=c&d", NULL, "/a?b=c&d"},
        {"/?kernelgate_token=t", "t", "/"},
        {"/a?kernelgate_token=t&b=c", "t", "/a?b=c"},
        {"/a?b=c&kernelgate_token=t", "t", "/a?b=c"},
        {"/a?b&kernelgate_token=t&d?kernelgate_token=u", "t", "/a?b&d?kernelgate_token=u"},
        {"/?kernelgate_token=t&kernelgate_token=u", "t", "/"},
        {"/?kernelgate_token=", "", "/"},
        {"/?kernelgate_tokens=t", NULL, "/?kernelgate_tokens=t"},
        {"//evil.example/?kernelgate_token=t", "t", "//evil.example/"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FREE char *rest = NULL;
        KG_AUTO_FREE char *token = port_target_token(cases[i].target, &rest);
        assert_string_equal(rest, cases[i].rest);
        assert_int_equal(token != NULL, cases[i].token != NULL);
        if (token)
            assert_string_equal(token, cases[i].token);
    }
}

static void
test_tokens(void **state)
{
    enum { MOST = 32 };
    const struct port_host host = {80, "a"}, other_port = {81, "a"}, other = {80, "b"};
    struct port_tokens tokens = TAILQ_HEAD_INITIALIZER(tokens);
    char text[MOST + 1][PORT_TOKEN_LEN + 1];
    int64_t ends_ms;
    (void)state;
    strcpy(text[0], port_token_make(&tokens, &host, &ends_ms));
    assert_false(port_token_take(&tokens, &other_port, text[0]));
    assert_false(port_token_take(&tokens, &other, text[0]));
    assert_false(port_token_take(&tokens, &host, ""));
    assert_true(port_token_take(&tokens, &host, text[0]));
    assert_false(port_token_take(&tokens, &host, text[0])); // once
    // The oldest of a sandbox makes room; those of others stay.
    char others[PORT_TOKEN_LEN + 1];
    strcpy(others, port_token_make(&tokens, &other, &ends_ms));
    for (int i = 0; i <= MOST; i++)
        strcpy(text[i], port_token_make(&tokens, i % 2 ? &host : &other_port, &ends_ms));
    assert_false(port_token_take(&tokens, &other_port, text[0]));
    assert_true(port_token_take(&tokens, &host, text[1]));
    assert_true(port_token_take(&tokens, &other, others));
    // It ends.
    virtual_clock_move(5 * 60 * 1000);
    assert_false(port_token_take(&tokens, &other_port, text[2]));
    assert_true(TAILQ_EMPTY(&tokens));
    (void)port_token_make(&tokens, &host, &ends_ms);
    port_tokens_fini(&tokens);
}

static void
test_request_headers(void **state)
{
    static const struct {
        const char *name, *value, *expected; // "": it is left out
    } cases[] = {
        {"Accept", "x", "Accept: x\r\n"},
        {"x-api-key", "x", ""},
        {"X-Forwarded-Anything", "x", ""},
        {"X-Forwardedx", "x", "X-Forwardedx: x\r\n"},
        {"X-KERNELGATE-Forwarded", "x", ""},
        {"Forwarded", "x", ""},
        {"Authorization", "bearer x", ""},
        {"Authorization", "TOKEN x", ""},
        {"Authorization", "Basic x", "Authorization: Basic x\r\n"},
        {"Cookie", "a=1", "Cookie: a=1\r\n"},
        {"Cookie", "kernelgate_port=1", ""},
        {"cookie", "a=1;kernelgate_port=1 ;b", "Cookie: a=1; b\r\n"},
        {"Cookie", " ; ;; a = 1", "Cookie: a = 1\r\n"},
        {"Cookie", "__Secure-Kernelgate_x=1; =kernelgate_login=2; kernelgate=3",
         "Cookie: kernelgate=3\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF head = {0};
        port_request_header(&head, cases[i].name, cases[i].value, NULL);
        assert_string_equal(head.data ? head.data : "", cases[i].expected);
    }
}

static void
test_answer_heads(void **state)
{
    static const char *const good[] = {
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 404 \r\nA: \r\n\r\n",
        "HTTP/1.0 599 x y z\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 \xc3\xa4\r\nTransfer-Encoding: Chunked\r\nA: \xff\r\n\r\n",
    };
    static const char *const bad[] = {
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
        " HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 101 x\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    struct http_head head;
    struct kg_error err;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        if (head_parse_answer(good[i], strlen(good[i]), &head, &err) < 0)
            fail_msg("%s: %s", good[i], err.message);
        head_fini(&head);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        if (head_parse_answer(bad[i], strlen(bad[i]), &head, &err) == 0)
            fail_msg("%s", bad[i]);
        assert_int_equal(err.code, KG_PORT_ANSWER);
        head_fini(&head);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),           cmocka_unit_test(test_domains),
        cmocka_unit_test(test_targets),         cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_request_headers), cmocka_unit_test(test_answer_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
