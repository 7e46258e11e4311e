// SPDX-License-Identifier: Apache-2.0
// Carries bytes between a client and another server. It reads from one side only while the other
// side takes what was read, so what it keeps is bounded.

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_priv.h"
#include "pump.h"

enum {
    PIECE_BYTES = 64 << 10,
    HIGH_WATERMARK = 256 << 10,
    LOW_WATERMARK = 64 << 10,
};

struct http_pump {
    struct http_request *request;
    int fd;
    struct loop_fd *watch;
    struct http_pump_events events;
    void *arg;
    struct buf out; // for the other server
    size_t sent;    // of that
    bool started;   // the answer
    bool upgrades;  // the client goes on to speak
    bool full;      // the client does not read
    bool chunked;   // the body, whose last chunk was not sent yet
};

// Shared by all: what is read is written or copied before the next read.
static char scratch[PIECE_BYTES];

void
http_pump_free(struct http_pump *pump)
{
    if (!pump)
        return;
    loop_fd_free(pump->watch);
    close(pump->fd);
    buf_fini(&pump->out);
    free(pump);
}

static void
update_watch(struct http_pump *pump)
{
    bool writes = pump->out.len > pump->sent;
    loop_fd_set(pump->watch, (pump->full ? 0 : LOOP_READ) | (writes ? LOOP_WRITE : 0));
}

// ---- To the other server --------------------------------------------------------------------

static void
append_chunk(struct http_pump *pump, size_t len)
{
    if (len > 0)
        buf_printf(&pump->out, "%zx\r\n", len);
    buf_append(&pump->out, scratch, len);
    if (len > 0)
        buf_append_str(&pump->out, "\r\n");
    pump->chunked = len > 0 || !http_request_body_ended(pump->request);
    if (!pump->chunked)
        buf_append_str(&pump->out, "0\r\n\r\n");
}

static void
refill(struct http_pump *pump)
{
    size_t n = http_request_body_read(pump->request, scratch, sizeof scratch);
    pump->out.len = pump->sent = 0;
    if (pump->chunked) {
        append_chunk(pump, n);
        return;
    }
    if (n == 0 && pump->started && pump->upgrades)
        n = http_upgrade_read(pump->request, scratch, sizeof scratch);
    buf_append(&pump->out, scratch, n);
}

// False: it has failed.
static bool
send_more(struct http_pump *pump)
{
    for (;;) {
        if (pump->out.len == pump->sent)
            refill(pump);
        if (pump->out.len == 0)
            return true;
        ssize_t n = send(pump->fd, pump->out.data + pump->sent, pump->out.len - pump->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        pump->sent += (size_t)n;
    }
}

// More of the client's body has arrived. If it cannot be sent, the pump goes on: the other server
// may have refused the request, and then its answer can still be read.
static void
pump_on_client_body(void *arg)
{
    struct http_pump *pump = arg;
    if (pump->out.len > pump->sent)
        return;
    if (!send_more(pump))
        pump->out.len = pump->sent = 0;
    update_watch(pump);
}

// The client has sent more of the body, or bytes of an upgraded connection, or another request,
// which this connection does not answer.
static void
pump_on_client_data(void *arg)
{
    struct http_pump *pump = arg;
    if (pump->chunked || !http_request_body_ended(pump->request)) {
        pump_on_client_body(pump);
        return;
    }
    if (!pump->upgrades) {
        while (http_upgrade_read(pump->request, scratch, sizeof scratch) > 0)
            ;
        return;
    }
    if (pump->out.len > pump->sent) // at most 64 KiB wait in the connection
        return;
    if (send_more(pump))
        update_watch(pump);
    else
        pump->events.on_end(strerror(errno), pump->arg);
}

// ---- From the other server ------------------------------------------------------------------

static void
pump_on_drained(void *arg)
{
    struct http_pump *pump = arg;
    pump->full = false;
    update_watch(pump);
}

static void
follow_drain(struct http_pump *pump)
{
    pump->started = true;
    http_stream_on_drain(pump->request, LOW_WATERMARK, pump_on_drained, pump);
}

void
http_pump_stream(struct http_pump *pump)
{
    follow_drain(pump);
}

void
http_pump_tunnel(struct http_pump *pump, int status, bool upgrades)
{
    pump->upgrades = upgrades;
    http_tunnel_start(pump->request, status, pump_on_client_data, pump);
    follow_drain(pump);
}

void
http_pump_upgrade(struct http_pump *pump, const char *protocol)
{
    pump->upgrades = true;
    http_upgrade_start(pump->request, protocol, pump_on_client_data, pump);
    follow_drain(pump);
}

static void
pump_on_socket(int fd, int events, void *arg)
{
    struct http_pump *pump = arg;
    if (events & LOOP_READ) {
        ssize_t n = recv(fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            pump->events.on_end(n == 0 ? NULL : strerror(errno), pump->arg);
            return;
        }
        if (n > 0 && !pump->events.on_data(scratch, (size_t)n, pump->arg))
            return;
        pump->full = pump->started && http_stream_backlog(pump->request) > HIGH_WATERMARK;
    }
    // The same as in pump_on_client_body().
    if (!send_more(pump))
        pump->out.len = pump->sent = 0;
    update_watch(pump);
}

struct http_pump *
http_pump_new(struct loop *loop, struct http_request *request, int fd, const char *head,
              const struct http_pump_events *events, void *arg)
{
    struct http_pump *pump = KG_NEW(struct http_pump);
    pump->request = request;
    pump->fd = fd;
    pump->events = *events;
    pump->arg = arg;
    buf_append_str(&pump->out, head);
    pump->chunked = body_pass_on(request);
    http_request_on_body(request, pump_on_client_body, pump);
    pump->watch = loop_fd_new(loop, fd, LOOP_READ | LOOP_WRITE, pump_on_socket, pump);
    return pump;
}
