// SPDX-License-Identifier: Apache-2.0
// Answers of a server that is not trusted: reads the head strictly, takes the body apart by its
// framing, and sends both as an answer of this server's own.

#include <string.h>
#include <strings.h>

#include "http_priv.h"
#include "pace.h"
#include "pump.h"

enum {
    ANSWER_HEAD_MAX = 64 << 10,
    INTERIM_MAX = 16,          // heads of status 1xx before the answer's
    ANSWER_MS = 5 * 60 * 1000, // until the answer's head
    SLOW_TICK_MS = 15 * 1000,
    SLOW_TICKS = 4,
};

struct http_relay {
    struct http_request *request;
    struct http_relay_settings settings;
    struct http_pump *pump;
    struct loop_timer *answer_timer;
    struct http_pace *pace;
    struct evbuffer *input; // bytes that are not taken yet
    struct evbuffer *body;
    size_t head_seen;
    int n_interim;
    enum { RELAY_HEAD, RELAY_FRAMED, RELAY_TO_END, RELAY_UPGRADED } state;
    struct http_framing framing;
};

void
http_relay_free(struct http_relay *relay)
{
    if (!relay)
        return;
    http_pump_free(relay->pump);
    http_pace_free(relay->pace);
    loop_timer_free(relay->answer_timer);
    evbuffer_free(relay->input);
    evbuffer_free(relay->body);
    free(relay);
}

// ---- The end --------------------------------------------------------------------------------
// Each of these ends the request, and with it the relay.

static void
relay_fail(struct http_relay *relay, const struct kg_error *err)
{
    if (relay->state == RELAY_HEAD)
        http_reply_error(relay->request, err);
    else if (relay->state == RELAY_UPGRADED)
        http_upgrade_end(relay->request);
    else
        http_stream_abort(relay->request);
}

static void
relay_refuse(struct http_relay *relay, const char *why)
{
    struct kg_error err;
    kg_error_set(&err, KG_PORT_ANSWER, 0, "%s", why);
    relay_fail(relay, &err);
}

void
http_relay_end(struct http_relay *relay, const struct kg_error *err)
{
    relay_fail(relay, err);
}

static void
relay_on_end(const char *why, void *arg)
{
    struct http_relay *relay = arg;
    if (relay->state == RELAY_TO_END && !why)
        http_stream_end(relay->request);
    else
        relay_refuse(relay, "the server closed the connection before its answer was complete");
}

static void
relay_on_late(void *arg)
{
    struct http_relay *relay = arg;
    struct kg_error err;
    kg_error_set(&err, KG_PORT_TIMEOUT, 0, "the server has not answered for %d seconds",
                 ANSWER_MS / 1000);
    relay_fail(relay, &err);
}

static void
relay_on_slow(void *arg)
{
    struct http_relay *relay = arg;
    http_stream_abort(relay->request);
}

// ---- The head -------------------------------------------------------------------------------

static void
add_headers(const struct http_relay *relay, const struct http_head *head, bool has_content)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *header = &head->headers[i];
        bool is_length = strcasecmp(header->name, "Content-Length") == 0;
        if (is_length && (has_content || head->status == 304))
            http_reply_header(relay->request, header->name, header->value);
        else if (!http_header_is_hop(header->name) && strcasecmp(header->name, "Date") != 0 &&
                 !head_has_token(head, "Connection", header->name))
            relay->settings.add(relay->request, header->name, header->value);
    }
}

// False: it is not what was asked for, and the relay is gone.
static bool
relay_upgrade(struct http_relay *relay, const struct http_head *head)
{
    const char *protocol = relay->settings.upgrade;
    if (!protocol || !head_has_token(head, "Upgrade", protocol) ||
        !head_has_token(head, "Connection", "upgrade")) {
        relay_refuse(relay, "the server changes to a protocol that was not asked for");
        return false;
    }
    add_headers(relay, head, false);
    relay->state = RELAY_UPGRADED;
    http_pump_upgrade(relay->pump, protocol);
    http_pace_start(relay->pace);
    return true;
}

// False: the answer is complete, and the relay is gone.
static bool
relay_begin(struct http_relay *relay, const struct http_head *head)
{
    struct http_request *request = relay->request;
    // RFC 9112, section 6.3.
    bool has_content = head->status != 204 && head->status != 304;
    bool has_body = has_content && request->method != HTTP_HEAD;
    add_headers(relay, head, has_content);
    relay->state = head->chunked || head->content_length >= 0 ? RELAY_FRAMED : RELAY_TO_END;
    framing_init(&relay->framing, head->chunked, (uint64_t)head->content_length);
    relay->framing.in_parts = true;
    stream_begin(request, head->status);
    if (!has_body || (relay->state == RELAY_FRAMED && relay->framing.state == FRAMING_END)) {
        http_stream_end(request);
        return false;
    }
    http_pump_stream(relay->pump);
    http_pace_start(relay->pace);
    return true;
}

// False: the relay is gone.
static bool
relay_take_head(struct http_relay *relay, const char *text, size_t len)
{
    struct http_head head;
    struct kg_error err;
    bool goes_on = true;
    if (head_parse_answer(text, len, &head, &err) < 0) {
        relay_fail(relay, &err);
        goes_on = false;
    } else if (head.status >= 200 || head.status == 101) {
        loop_timer_stop(relay->answer_timer);
        evbuffer_drain(relay->input, len);
        goes_on = head.status == 101 ? relay_upgrade(relay, &head) : relay_begin(relay, &head);
    } else if (++relay->n_interim > INTERIM_MAX) {
        relay_refuse(relay, "the server sends too many answers of status 1xx");
        goes_on = false;
    } else {
        evbuffer_drain(relay->input, len);
    }
    head_fini(&head);
    return goes_on;
}

// False: the relay is gone.
static bool
relay_read_head(struct http_relay *relay)
{
    while (relay->state == RELAY_HEAD) {
        size_t len = evbuffer_get_length(relay->input);
        size_t window = len < ANSWER_HEAD_MAX ? len : ANSWER_HEAD_MAX;
        const char *text =
            window ? (const char *)evbuffer_pullup(relay->input, (ev_ssize_t)window) : "";
        size_t end = head_end(text, window, relay->head_seen);
        relay->head_seen = end > 0 ? 0 : window;
        if (end > 0) {
            if (!relay_take_head(relay, text, end))
                return false;
        } else if (len >= ANSWER_HEAD_MAX) {
            relay_refuse(relay, "the head of the server's answer is too large");
            return false;
        } else {
            return true;
        }
    }
    return true;
}

// ---- The body -------------------------------------------------------------------------------

static void
relay_write(const struct http_relay *relay, struct evbuffer *from)
{
    static char piece[16 << 10];
    for (int n; (n = evbuffer_remove(from, piece, sizeof piece)) > 0;)
        http_stream_write(relay->request, piece, (size_t)n);
}

// False: the relay is gone.
static bool
relay_take_body(struct http_relay *relay)
{
    bool is_framed = relay->state == RELAY_FRAMED;
    if (is_framed && !framing_take(&relay->framing, relay->input, relay->body)) {
        http_stream_abort(relay->request);
        return false;
    }
    relay_write(relay, is_framed ? relay->body : relay->input);
    if (!is_framed || relay->framing.state != FRAMING_END)
        return true;
    http_stream_end(relay->request);
    return false;
}

static bool
relay_on_data(const char *data, size_t len, void *arg)
{
    struct http_relay *relay = arg;
    relay->settings.on_bytes(relay->settings.arg);
    evbuffer_add(relay->input, data, len);
    return relay_read_head(relay) && (relay->state == RELAY_HEAD || relay_take_body(relay));
}

struct http_relay *
http_relay_new(struct http_request *request, int fd, const char *head,
               const struct http_relay_settings *settings)
{
    static const struct http_pump_events events = {relay_on_data, relay_on_end};
    static const struct http_pace_rule rule = {
        .tick_ms = SLOW_TICK_MS, .max_ticks = SLOW_TICKS, .min_bytes = 1, .on_slow = relay_on_slow};
    struct http_relay *relay = KG_NEW(struct http_relay);
    relay->request = request;
    relay->settings = *settings;
    relay->input = evbuffer_new();
    relay->body = evbuffer_new();
    if (!relay->input || !relay->body)
        abort();
    relay->pace = http_pace_new(settings->loop, request, &rule, relay);
    relay->answer_timer = loop_timer_new(settings->loop, relay_on_late, relay);
    loop_timer_start(relay->answer_timer, ANSWER_MS);
    relay->pump = http_pump_new(settings->loop, request, fd, head, &events, relay);
    return relay;
}
