// SPDX-License-Identifier: Apache-2.0
// What an MCP server sends: the lines of a program, from the greeting on, with a call under way.
// The first byte chooses what comes before: nothing, the greeting, or the greeting and a list.

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "upstreams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz {
    struct loop *loop;
    int fd;
    struct loop_timer *started;
    struct loop_timer *end;
    void (*fn)(int fd, const struct kg_error *err, void *arg);
    void *fn_arg;
    int n_ended;
};

static void
on_started(void *arg)
{
    struct fuzz *fuzz = arg;
    int ends[2];
    if (fuzz->fd >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    fuzz->fd = ends[0];
    fuzz->fn(ends[1], NULL, fuzz->fn_arg);
}

static void *
start(size_t number, void (*fn)(int fd, const struct kg_error *err, void *arg), void *fn_arg,
      void *arg, struct kg_error *err)
{
    struct fuzz *fuzz = arg;
    (void)number;
    (void)err;
    fuzz->fn = fn;
    fuzz->fn_arg = fn_arg;
    loop_timer_start(fuzz->started, 0);
    return fuzz;
}

static void
stop(void *handle, void *arg)
{
    struct fuzz *fuzz = arg;
    (void)handle;
    loop_timer_stop(fuzz->started);
}

static bool
is_operators(const char *owner, const void *arg)
{
    (void)owner;
    (void)arg;
    return true;
}

static void
on_ended(const struct upstream_result *result, void *arg)
{
    struct fuzz *fuzz = arg;
    assert((result->value != NULL) != (result->error != NULL) && result->status);
    fuzz->n_ended++;
}

static void
on_end(void *arg)
{
    loop_stop(arg);
}

// Lets the loop work until what was sent has been read.
static void
turn(struct fuzz *fuzz)
{
    for (int i = 0; i < 4; i++) {
        loop_timer_start(fuzz->end, 0);
        loop_run(fuzz->loop);
    }
}

static void
say(struct fuzz *fuzz, const void *data, size_t len)
{
    if (fuzz->fd >= 0)
        assert(send(fuzz->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) != 0 || len == 0);
    turn(fuzz);
}

#define SAY(fuzz, text) say(fuzz, text "\n", sizeof(text))

static struct upstream_call *
begin(struct fuzz *fuzz, struct upstreams *upstreams, int stage)
{
    struct kg_error err;
    json_auto_t *arguments = json_object();
    const struct upstream_call_spec spec = {
        .owner = "a", .session = fuzz, .session_id = "s", .name = "s.read", .arguments = arguments};
    turn(fuzz);
    if (stage > 0)
        SAY(fuzz, "{\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{"
                  "\"tools\":{}}}}");
    if (stage < 2)
        return NULL;
    SAY(fuzz, "{\"id\":2,\"result\":{\"tools\":[{\"name\":\"read\",\"annotations\":{"
              "\"readOnlyHint\":true}}]}}");
    struct upstream_call *call = upstream_call_start(upstreams, &spec, on_ended, fuzz, &err);
    turn(fuzz);
    return call;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "{\"mcpServers\":{\"s\":{\"command\":\"x\"}}}";
    struct kg_error err;
    if (size == 0 || size > 60000)
        return 0;
    log_setup(LOG_LEVEL_ERROR + 1, LOG_FORMAT_CONSOLE);
    struct fuzz fuzz = {.loop = loop_new(), .fd = -1};
    fuzz.started = loop_timer_new(fuzz.loop, on_started, &fuzz);
    fuzz.end = loop_timer_new(fuzz.loop, on_end, fuzz.loop);
    struct servers_file *file = servers_file_parse(text, sizeof text - 1, NULL, &err);
    const struct upstreams_settings settings = {
        .loop = fuzz.loop,
        .file = file,
        .call_timeout_ms = 60000,
        .is_operators = is_operators,
        .start = start,
        .stop = stop,
        .start_arg = &fuzz,
    };
    struct upstreams *upstreams = upstreams_new(&settings);
    struct upstream_call *call = begin(&fuzz, upstreams, data[0] % 3);
    say(&fuzz, data + 1, size - 1);
    SAY(&fuzz, "");
    assert(fuzz.n_ended <= 1);
    json_decref(upstreams_list_tools(upstreams, "a", NULL));
    json_decref(upstreams_list_servers(upstreams, "a"));
    if (fuzz.n_ended == 0)
        upstream_call_cancel(call);
    upstreams_free(upstreams);
    servers_file_free(file);
    loop_timer_free(fuzz.started);
    loop_timer_free(fuzz.end);
    loop_free(fuzz.loop);
    if (fuzz.fd >= 0)
        close(fuzz.fd);
    return 0;
}
