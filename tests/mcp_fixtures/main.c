// SPDX-License-Identifier: Apache-2.0
// Serves the fixtures on the gateway's MCP core and HTTP server. Prints its address first; SIGTERM
// ends it.

#include <signal.h>
#include <sodium.h>
#include <stdio.h>

#include "mcp_fixtures.h"

enum { MAX_BODY_BYTES = 1 << 20, MAX_SESSIONS = 100, SESSION_IDLE_MS = 60 * 1000 };

static void
on_terminate(int signum, void *arg)
{
    (void)signum;
    loop_stop(arg);
}

static int
serve(struct loop *loop, struct mcp *mcp)
{
    const struct http_server_settings settings = {
        .host = "127.0.0.1",
        .max_body_bytes = MAX_BODY_BYTES,
        .max_header_bytes = 64 << 10,
        .max_connections = MAX_SESSIONS,
        .idle_timeout_s = 60,
        .check_origin_and_host = true,
    };
    struct kg_error err = {0};
    KG_AUTO(http_server) server = http_server_new(loop, &settings, &err);
    if (!server) {
        fprintf(stderr, "mcp-fixtures: %s\n", err.message);
        return 1;
    }
    mcp_serve_http(mcp, server);
    printf("http://127.0.0.1:%d\n", http_server_port(server));
    fflush(stdout);
    loop_run(loop);
    return 0;
}

int
main(void)
{
    if (sodium_init() < 0)
        return 1;
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    KG_AUTO(loop) loop = loop_new();
    const struct mcp_settings settings = {
        .loop = loop,
        .max_sessions = MAX_SESSIONS,
        .max_sessions_per_owner = MAX_SESSIONS,
        .session_idle_ms = SESSION_IDLE_MS,
        .max_replay_bytes = 1 << 20,
    };
    struct mcp *mcp = mcp_new(&settings);
    KG_AUTO(mcp_fixtures) fixtures = mcp_fixtures_new(mcp, loop);
    KG_AUTO(loop_signal) terminate = loop_signal_new(loop, SIGTERM, on_terminate, loop);
    int status = serve(loop, mcp);
    mcp_free(mcp);
    return status;
}
