// SPDX-License-Identifier: Apache-2.0
// What comes from both sides of a port: names of hosts, targets and headers of requests, and the
// heads and bodies of answers. First byte: which of them.
#include <assert.h>
#include <event2/event.h>
#include <string.h>

#include "http_priv.h"
#include "ports_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_host(const char *text)
{
    static const char *const domains[] = {"localhost", "ports.example.org", ""};
    struct kg_error err = {0};
    (void)!ports_check_domain(text, &err);
    for (size_t i = 0; i < KG_ARRAY_LEN(domains); i++) {
        struct port_host host, again;
        if (port_host_parse(text, domains[i], &host) != PORT_HOST_OK)
            continue;
        assert(host.port >= 1 && host.port <= 65535 && strlen(host.id) >= 1);
        KG_AUTO_FREE char *name = kg_asprintf("%d-%s.%s", host.port, host.id, domains[i]);
        assert(port_host_parse(name, domains[i], &again) == PORT_HOST_OK);
        assert(again.port == host.port && strcmp(again.id, host.id) == 0);
        assert(strncasecmp(text, name, strlen(name)) == 0);
    }
}

static void
check_target(const char *text)
{
    KG_AUTO_FREE char *rest = NULL;
    KG_AUTO_FREE char *token = port_target_token(text, &rest);
    assert(strlen(rest) <= strlen(text));
    if (token) {
        KG_AUTO_FREE char *none = NULL;
        KG_AUTO_FREE char *second = port_target_token(rest, &none);
        assert(!second && strcmp(none, rest) == 0);
    }
}

// Nothing of ours is left, whatever the header is called.
static void
check_request_header(const char *text)
{
    KG_AUTO_BUF head = {0}, again = {0};
    port_request_header(&head, "Cookie", text, NULL);
    if (head.len > 0) {
        static const char name[] = "Cookie: ";
        KG_AUTO_FREE char *kept = kg_strndup(head.data + strlen(name), head.len - strlen(name) - 2);
        port_request_header(&again, "Cookie", kept, NULL);
        assert(again.len == head.len && memcmp(again.data, head.data, head.len) == 0);
    }
    port_request_header(&again, text, "value", NULL);
    port_request_header(&again, "Authorization", text, NULL);
}

static void
check_answer(const char *text, size_t len)
{
    struct kg_error err = {0};
    struct http_head head;
    size_t end = head_end(text, len, 0);
    if (end > 0 && head_parse_answer(text, end, &head, &err) == 0) {
        struct http_framing framing;
        struct evbuffer *input = evbuffer_new(), *body = evbuffer_new();
        assert(head.status >= 100 && head.status < 600 && head.n_framings <= 1);
        assert(!(head.is_1_0 && head.chunked) && !memchr(text, '\0', end));
        for (size_t i = 0; i < head.n_headers; i++)
            assert(!strpbrk(head.headers[i].value, "\r\n") && *head.headers[i].name);
        framing_init(&framing, head.chunked,
                     head.content_length > 0 ? (uint64_t)head.content_length : 0);
        framing.in_parts = true;
        evbuffer_add(input, text + end, len - end);
        (void)!framing_take(&framing, input, body);
        assert(evbuffer_get_length(input) + evbuffer_get_length(body) <= len - end);
        if (!head.chunked && head.content_length > 0)
            assert(evbuffer_get_length(body) <= (size_t)head.content_length);
        evbuffer_free(input);
        evbuffer_free(body);
    } else if (end > 0) {
        assert(err.code == KG_PORT_ANSWER && err.message[0]);
    }
    if (end > 0)
        head_fini(&head);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    KG_AUTO_FREE char *text = kg_memdup0(data + 1, size - 1);
    switch (data[0]) {
    case 'h':
        check_host(text);
        break;
    case 't':
        check_target(text);
        break;
    case 'c':
        check_request_header(text);
        break;
    default:
        check_answer(text, size - 1);
    }
    return 0;
}
