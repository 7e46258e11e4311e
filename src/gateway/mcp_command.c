// SPDX-License-Identifier: Apache-2.0
// kernelgate mcp: MCP on stdin and stdout, with the whole core inside, or as a bridge to a running
// gateway.

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "jupyter.h"
#include "mcp.h"
#include "mcp_bridge.h"
#include "split.h"

enum {
    // Many clients start a server only to list its tools. The pool starts after this delay, so that
    // they cost no sandbox.
    POOL_DELAY_MS = 1500,
    END_LOOK_MS = 10,
    END_MS = 5000, // for what is being removed
};

static const char owner[] = "stdio";

struct command {
    struct core core;
    struct mcp_face *face;
    struct mcp_stdio *stdio;
    struct loop_timer *pool;
    struct loop_timer *ending;
    int64_t end_by_ms;
    bool jupyter; // its threads have been started
    struct loop_signal *terminate;
    struct loop_signal *interrupt;
};

// ---- The end --------------------------------------------------------------------------------

static void
on_end_look(void *arg)
{
    struct command *command = arg;
    if (core_is_idle(&command->core) || clock_mono_ms() > command->end_by_ms)
        loop_stop(command->core.loop);
    else
        loop_timer_start(command->ending, END_LOOK_MS);
}

static void
on_input_end(void *arg)
{
    struct command *command = arg;
    if (command->end_by_ms)
        return;
    command->end_by_ms = clock_mono_ms() + END_MS;
    loop_timer_stop(command->pool);
    core_stop_zygotes(&command->core);
    core_retire(&command->core);
    sessions_end_all(command->core.sessions, "the client has gone", on_end_look, command);
}

static void
on_signal(int signum, void *arg)
{
    (void)signum;
    on_input_end(arg);
}

static void
command_fini(struct command *command)
{
    loop_hold_termination();
    loop_timer_free(command->pool);
    loop_timer_free(command->ending);
    loop_signal_free(command->terminate);
    loop_signal_free(command->interrupt);
    mcp_face_free(command->face);
    mcp_stdio_free(command->stdio);
    core_fini(&command->core);
}

// ---- The start ------------------------------------------------------------------------------

static void
on_pool(void *arg)
{
    struct command *command = arg;
    core_open(&command->core);
}

// It reads the files of the user who has started it, so it stays that user.
static int
split_mcp(struct core *core, struct kg_error *err)
{
    struct split_settings settings = {.core = core, .keeps_user = true};
    struct privileges_user user;
    return split_start(&settings, &user, err) < 0 ? -1 : split_drop(&settings, &user, err);
}

static int
mcp_command_run(struct command *command, struct kg_error *err)
{
    struct core *core = &command->core;
    const char *profile = core->config->profile ? core->config->profile : "";
    if (state_open_slot(&core->state, core->config->state_dir, err) < 0 ||
        core_prepare(core, err) < 0 || split_mcp(core, err) < 0)
        return -1;
    jupyter_init();
    command->jupyter = true;
    core_make_loop(core);
    if (core_start(core, err) < 0)
        return -1;
    // The user who starts this can read those files anyway.
    const char *upload_root = core->config->upload_root ? core->config->upload_root : "/";
    command->face = mcp_face_new(core, upload_root);
    struct mcp *mcp = mcp_face_mcp(command->face);
    if (!mcp_knows_profile(mcp, profile))
        return kg_error_set(err, KG_INVALID, 0,
                            "setting profile: unknown profile \"%s\"; docs/mcp.md lists them",
                            profile);
    command->pool = loop_timer_new(core->loop, on_pool, command);
    command->ending = loop_timer_new(core->loop, on_end_look, command);
    command->terminate = loop_signal_new(core->loop, SIGTERM, on_signal, command);
    command->interrupt = loop_signal_new(core->loop, SIGINT, on_signal, command);
    command->stdio =
        mcp_stdio_new(mcp, STDIN_FILENO, STDOUT_FILENO, owner, profile, on_input_end, command, err);
    if (!command->stdio)
        return -1;
    loop_timer_start(command->pool, POOL_DELAY_MS);
    loop_run(core->loop);
    return 0;
}

// ---- A gateway elsewhere --------------------------------------------------------------------

static void
on_bridge_end(void *arg)
{
    loop_stop(arg);
}

static void
on_bridge_signal(int signum, void *arg)
{
    (void)signum;
    loop_stop(arg);
}

static int
run_bridge(const struct config *config, struct kg_error *err)
{
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(http_client) client = http_client_new(loop);
    const struct mcp_bridge_settings settings = {
        .loop = loop,
        .client = client,
        .url = config->connect,
        .api_key = config->api_key,
        .profile = config->profile,
        .in = STDIN_FILENO,
        .out = STDOUT_FILENO,
    };
    KG_AUTO(mcp_bridge) bridge = mcp_bridge_new(&settings, on_bridge_end, loop, err);
    if (!bridge)
        return -1;
    KG_AUTO(loop_signal) terminate = loop_signal_new(loop, SIGTERM, on_bridge_signal, loop);
    KG_AUTO(loop_signal) interrupt = loop_signal_new(loop, SIGINT, on_bridge_signal, loop);
    loop_run(loop);
    loop_hold_termination();
    return 0;
}

// ---- The command ----------------------------------------------------------------------------

int
command_mcp(int argc, char **argv)
{
    if (config_asks_for_help(argc, argv)) {
        puts("usage: kernelgate mcp [FLAGS]\n\nSpeaks MCP on stdin and stdout, and ends when stdin "
             "does.\nWith --connect it forwards everything to a running gateway, and needs nothing "
             "else.\n");
        config_print_help(stdout, CONFIG_MCP);
        return 0;
    }
    struct kg_error err = {0};
    struct config config;
    if (config_load(&config, CONFIG_MCP, argc, argv, NULL, &err) < 0) {
        fprintf(stderr, "kernelgate: %s\n", err.message);
        config_fini(&config);
        return 2;
    }
    log_setup(config_log_level(&config), config_log_format(&config));
    config_log_warnings(&config);
    signal(SIGPIPE, SIG_IGN);
    if (config.connect) {
        int code = run_bridge(&config, &err);
        if (code < 0)
            fprintf(stderr, "kernelgate: %s\n", err.message);
        config_fini(&config);
        return code < 0 ? 1 : 0;
    }
    struct command command = {.core = {.config = &config,
                                       .forgetful = true,
                                       .state = {.lock_fd = -1, .own_lock_fd = -1}}};
    bool is_root = geteuid() == 0;
    int result = mcp_command_run(&command, &err);
    if (result < 0)
        core_print_failure(&err, is_root);
    command_fini(&command);
    if (command.jupyter)
        jupyter_fini();
    config_fini(&config);
    return result < 0 ? 1 : 0;
}
