// SPDX-License-Identifier: Apache-2.0
// MCP servers whose tools code may call: how their programs are started, by the helper if there is
// one, and what doctor says of them.

#include <string.h>

#include "core.h"
#include "offer.h"
#include "server_process.h"
#include "upstreams.h"

enum { TRY_MS = 30 * 1000, TRY_LOOK_MS = 50 };

// The start of a program, under way.
struct program_start {
    struct core *core;
    size_t number;
    struct helper_call *call; // NULL: this process starts it
    struct loop_timer *turn;
    struct kg_error err; // why it cannot be asked for
    void (*fn)(int fd, const struct kg_error *err, void *arg);
    void *arg;
};

static void
program_stop(void *handle, void *arg)
{
    struct program_start *start = handle;
    (void)arg;
    helper_call_cancel(start->call);
    loop_timer_free(start->turn);
    free(start);
}

static void
program_done(struct program_start *start, int fd, const struct kg_error *err)
{
    void (*fn)(int fd, const struct kg_error *err, void *arg) = start->fn;
    void *arg = start->arg;
    const struct kg_error why = *err;
    start->call = NULL;
    program_stop(start, NULL);
    fn(fd, fd < 0 ? &why : NULL, arg);
}

static void
program_on_reply(const struct helper_reply *reply, int fd, void *arg)
{
    struct kg_error err = {.code = KG_INTERNAL, .message = "the helper has sent no connection"};
    if (reply->event != HELPER_DONE)
        return;
    (void)helper_reply_error(reply, &err);
    program_done(arg, fd, &err);
}

static void
program_on_turn(void *arg)
{
    struct program_start *start = arg;
    const struct core *core = start->core;
    int fd = -1;
    if (!start->err.code)
        fd = server_process_start(core->processes, &core->servers->servers[start->number],
                                  start->number, &start->err);
    program_done(start, fd, &start->err);
}

static void *
program_start(size_t number, void (*fn)(int fd, const struct kg_error *err, void *arg),
              void *fn_arg, void *arg, struct kg_error *err)
{
    const struct helper_request request = {.verb = HELPER_SERVER, .number = (int64_t)number};
    struct core *core = arg;
    struct program_start *start = KG_NEW(struct program_start);
    (void)err;
    start->core = core;
    start->number = number;
    start->fn = fn;
    start->arg = fn_arg;
    start->turn = loop_timer_new(core->loop, program_on_turn, start);
    if (core->helper)
        start->call = helper_ask(core->helper, &request, program_on_reply, start, &start->err);
    if (!start->call)
        loop_timer_start(start->turn, 0);
    return start;
}

// ---- Of a gateway ---------------------------------------------------------------------------

int
core_load_servers(struct core *core, struct kg_error *err)
{
    if (!core->config->mcp_servers)
        return 0;
    core->servers = servers_file_load(core->config->mcp_servers, err);
    return core->servers ? 0 : -1;
}

static bool
is_anybodys(const char *owner, const void *arg)
{
    (void)owner;
    (void)arg;
    return true;
}

void
core_start_servers(struct core *core)
{
    static const struct servers_file none;
    const struct upstreams_settings settings = {
        .loop = core->loop,
        .client = core->client,
        .file = core->servers ? core->servers : &none,
        .call_timeout_ms = core->config->tool_call_timeout_s * 1000,
        .is_operators = core->is_operators ? core->is_operators : is_anybodys,
        .operators_arg = core->quota_arg,
        .start = program_start,
        .stop = program_stop,
        .start_arg = core,
    };
    if (core->servers && !core->helper)
        core->processes = server_processes_new(core->loop, -1, false);
    core->upstreams = upstreams_new(&settings);
}

void
core_free_servers(struct core *core)
{
    upstreams_free(KG_STEAL(core->upstreams));
    server_processes_free(KG_STEAL(core->processes));
    servers_file_free(KG_STEAL(core->servers));
}

// ---- Of doctor ------------------------------------------------------------------------------

struct trial {
    struct core core; // only what the functions above use
    struct loop_timer *look;
    int64_t until_ms;
};

static void
trial_on_look(void *arg)
{
    struct trial *trial = arg;
    const struct upstreams *upstreams = trial->core.upstreams;
    bool settled = true;
    for (size_t i = 0; i < upstreams_count(upstreams); i++) {
        struct upstream_state state = upstreams_state(upstreams, i);
        settled &= state.listed || state.has_failed;
    }
    if (settled || clock_mono_ms() > trial->until_ms)
        loop_stop(trial->core.loop);
    else
        loop_timer_start(trial->look, TRY_LOOK_MS);
}

static bool
trial_say(const struct upstream_state *state, tool_server_fn fn, void *arg)
{
    KG_AUTO_FREE char *what = kg_asprintf("MCP server %s", state->name);
    KG_AUTO_FREE char *detail = NULL;
    if (!state->listed)
        detail = kg_strdup(state->error ? state->error : "it does not list its tools");
    else if (state->n_left_out > 0)
        detail = kg_asprintf("offers %zu of %zu tools; %zu do not fit (%d tools, %d KiB of "
                             "descriptions), or are not described properly",
                             state->n_offered, state->n_listed, state->n_left_out, OFFER_TOOLS_MAX,
                             OFFER_BYTES_MAX >> 10);
    else if (state->n_offered < state->n_listed)
        detail = kg_asprintf("offers %zu of %zu tools: those that only read, and those that "
                             "\"allow\" names",
                             state->n_offered, state->n_listed);
    else
        detail = kg_asprintf("offers all of its %zu tools", state->n_listed);
    fn(what, state->listed, detail, arg);
    return state->listed;
}

static void
trial_run(struct trial *trial)
{
    struct core *core = &trial->core;
    core->loop = loop_new();
    core->client = http_client_new(core->loop);
    core_start_servers(core);
    server_processes_free(core->processes);
    core->processes = server_processes_new(core->loop, -1, true); // which says what goes wrong
    trial->until_ms = clock_mono_ms() + TRY_MS;
    trial->look = loop_timer_new(core->loop, trial_on_look, trial);
    loop_timer_start(trial->look, 0);
    loop_run(core->loop);
}

bool
tool_servers_try(const struct config *config, tool_server_fn fn, void *arg)
{
    struct trial trial = {.core = {.config = config}};
    struct core *core = &trial.core;
    struct kg_error err = {0};
    bool works = true;
    if (core_load_servers(core, &err) < 0) {
        fn("MCP servers", false, err.message, arg);
        return false;
    }
    if (!core->servers)
        return true;
    trial_run(&trial);
    for (size_t i = 0; i < upstreams_count(core->upstreams); i++) {
        struct upstream_state state = upstreams_state(core->upstreams, i);
        works &= trial_say(&state, fn, arg);
    }
    loop_timer_free(trial.look);
    core_free_servers(core);
    http_client_free(core->client);
    loop_free(core->loop);
    return works;
}
