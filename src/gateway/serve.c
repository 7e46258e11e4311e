// SPDX-License-Identifier: Apache-2.0
// kernelgate serve: puts the modules together, runs the loop, ends in good order.

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "address_policy.h"
#include "api.h"
#include "egress.h"
#include "gateway.h"
#include "http.h"
#include "http_client.h"
#include "jupyter.h"
#include "loop_lag.h"
#include "mcp.h"
#include "session.h"

enum {
    SANDBOX_START_TIMEOUT_MS = 30 * 1000,
    MAX_HEADER_BYTES = 32 << 10,
    // Code may be escaped, and has variables beside it; bodies are read before anything is checked.
    BODY_FACTOR = 8,
    BODY_SLACK_BYTES = 1 << 20,
    CONNECTION_IDLE_S = 75,
    REPLAY_BYTES = 32 << 20,
    DRAIN_LOOK_MS = 20,
    LAST_LINES_MS = 1000,
    MMAP_THRESHOLD = 128 << 10,
};

// Everything of a running gateway, in the order in which it is made.
struct gateway {
    const struct config *config;
    struct state state;
    struct layout layout;
    struct kernelspecs *specs;
    struct engine_settings engine;
    struct loop *loop;
    struct http_client *client;
    struct address_policy *policy;
    struct egress *egress;
    struct provisioner *provisioner;
    json_t *kernel_env;
    struct executions *executions;
    struct sandbox_context sandbox_context;
    struct kernel_context kernel_context;
    struct sessions *sessions;
    struct http_keys *keys;
    struct http_server *server;
    struct api_context api;
    struct mcp_face *mcp;
    struct loop_signal *terminate;
    struct loop_signal *interrupt;
    struct loop_timer *drain;
    struct loop_lag *lag;
    struct loop_timer *idle;
    int64_t drain_deadline_ms;
    struct kg_error recovery_error;
};

// ---- What kernels see -----------------------------------------------------------------------

// Libraries that would start a thread a processor are told how many there are.
static json_t *
make_kernel_env(const struct config *config)
{
    static const char *const thread_counts[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                                "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS",
                                                "POLARS_MAX_THREADS"};
    int threads = (int)config->cpus < 1 ? 1 : (int)config->cpus;
    KG_AUTO_FREE char *count = kg_asprintf("%d", threads);
    json_t *env = json_pack("{s:s, s:s}", "HOME", "/tmp", "LANG", "C.UTF-8");
    for (size_t i = 0; i < KG_ARRAY_LEN(thread_counts); i++)
        json_object_set_new(env, thread_counts[i], json_string(count));
    KG_AUTO_FREE char **names = config_split_list(config->pass_through_env);
    for (char **name = names; *name; name++) {
        const char *value = getenv(*name);
        if (value)
            json_object_set_new(env, *name, json_string(value));
    }
    return env;
}

// ---- Start ----------------------------------------------------------------------------------

static bool
is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

static int
load_keys(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->config;
    gateway->keys = http_keys_new();
    if (config->api_key && http_keys_add(gateway->keys, "default", config->api_key, err) < 0)
        return -1;
    if (config->api_keys_file && http_keys_load(gateway->keys, config->api_keys_file, err) < 0)
        return -1;
    bool any = config->api_key || config->api_keys_file;
    if (!any && !config->insecure && !is_loopback(config->host))
        return kg_error_set(err, KG_INVALID, 0,
                            "refusing to listen on %s without a key: give --api-key or "
                            "--api-keys-file, or --insecure to let anybody in",
                            config->host);
    return 0;
}

static void
on_removed(const struct kg_error *err, void *arg)
{
    (void)arg;
    if (err)
        log_warning("a sandbox of an earlier run stays", LOG_ERR(err));
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct gateway *gateway = arg;
    struct kg_error err = {0};
    if (sessions_adopt(gateway->sessions, id, meta, &err) == 0)
        return;
    log_info("removing a sandbox of an earlier run", LOG_STR("sandbox", id), LOG_ERR(&err));
    if (!provisioner_destroy(gateway->provisioner, id, on_removed, NULL, &err))
        on_removed(&err, NULL);
}

static void
on_recovered(const struct kg_error *err, void *arg)
{
    struct gateway *gateway = arg;
    if (err)
        gateway->recovery_error = *err;
    loop_stop(gateway->loop);
}

static void
on_adopted_exit(const char *id, void *arg)
{
    struct gateway *gateway = arg;
    sessions_on_sandbox_exit(gateway->sessions, id);
}

// Takes up what an earlier run has left, and removes what is of no use.
static int
recover(struct gateway *gateway, struct kg_error *err)
{
    if (!provisioner_recover(gateway->provisioner, on_found, on_recovered, on_adopted_exit, gateway,
                             err))
        return -1;
    loop_run(gateway->loop);
    if (gateway->recovery_error.code != KG_OK) {
        *err = gateway->recovery_error;
        return -1;
    }
    return 0;
}

static int
start_client(struct gateway *gateway, struct kg_error *err)
{
    KG_AUTO_FREE char **allow = config_split_list(gateway->config->fetch_allow);
    struct kg_error why = {0};
    gateway->policy = address_policy_new((const char *const *)allow, &why);
    if (!gateway->policy)
        return kg_error_set(err, KG_INVALID, 0, "setting fetch-allow: %s", why.message);
    gateway->client = http_client_new(gateway->loop);
    gateway->egress = egress_new(gateway->loop, gateway->client, gateway->policy);
    return 0;
}

static int
start_core(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->config;
    if (state_open(&gateway->state, config->state_dir, err) < 0)
        return -1;
    layout_find(&gateway->layout, config);
    gateway->specs = kernelspecs_load(gateway->layout.kernelspec_dir, err);
    if (!gateway->specs)
        return -1;
    gateway->api.default_spec = kernelspecs_find(gateway->specs, config->default_kernel, err);
    if (!gateway->api.default_spec)
        return -1;
    gateway->loop = loop_new();
    if (start_client(gateway, err) < 0)
        return -1;
    engine_settings_init(&gateway->engine, config, &gateway->layout, gateway->specs,
                         gateway->state.dir, gateway->state.id);
    gateway->provisioner = provisioner_new(gateway->loop, &gateway->engine.settings, err);
    if (!gateway->provisioner)
        return -1;
    const struct executions_settings logs = {
        .max_log_bytes = (size_t)config->max_output_bytes,
        .max_live_bytes = (size_t)config->max_buffered_bytes,
        .max_replay_bytes = REPLAY_BYTES,
    };
    gateway->executions = executions_new(gateway->loop, &logs);
    gateway->kernel_env = make_kernel_env(config);
    gateway->sandbox_context = (struct sandbox_context){
        .loop = gateway->loop,
        .provisioner = gateway->provisioner,
        .http = gateway->client,
        .egress = gateway->egress,
    };
    gateway->kernel_context = (struct kernel_context){
        .loop = gateway->loop,
        .executions = gateway->executions,
        .start_timeout_ms = config->kernel_start_timeout_s * 1000,
        .adopt_timeout_ms = config->max_timeout_s * 1000,
        .env = gateway->kernel_env,
    };
    const struct sessions_settings settings = {
        .sandboxes = &gateway->sandbox_context,
        .kernels = &gateway->kernel_context,
        .specs = gateway->specs,
        .pooled_spec = gateway->api.default_spec,
        .pool_size = config->pool_size,
        .max_sessions = config->max_sessions,
        .max_sessions_per_owner = config->max_sessions_per_owner,
        .evict_idle = strcmp(config->evict, "idle") == 0,
        .idle_timeout_s = config->idle_timeout_s,
        .network = strcmp(config->network, "egress") == 0,
        .sandbox_start_timeout_ms = SANDBOX_START_TIMEOUT_MS,
    };
    gateway->sessions = sessions_new(gateway->loop, &settings);
    if (recover(gateway, err) < 0)
        return -1;
    sessions_start(gateway->sessions);
    return 0;
}

static int
start_server(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->config;
    if (load_keys(gateway, err) < 0)
        return -1;
    KG_AUTO_FREE char **origins = config_split_list(config->allowed_origins);
    KG_AUTO_FREE char **hosts = config_split_list(config->allowed_hosts);
    // Beyond loopback, names are the proxy's matter; the key is what protects.
    static const char *const any_host[] = {"*", NULL};
    bool keyed = config->api_key || config->api_keys_file;
    bool any = !*hosts && !is_loopback(config->host) && keyed;
    const struct http_server_settings settings = {
        .host = config->host,
        .port = (int)config->port,
        .max_body_bytes = BODY_FACTOR * (size_t)config->max_code_bytes + BODY_SLACK_BYTES,
        .max_header_bytes = MAX_HEADER_BYTES,
        .max_connections = (int)config->max_connections,
        .idle_timeout_s = CONNECTION_IDLE_S,
        .allowed_origins = (const char *const *)origins,
        .allowed_hosts = any ? any_host : (const char *const *)hosts,
        .check_origin_and_host = true,
    };
    gateway->server = http_server_new(gateway->loop, &settings, err);
    if (!gateway->server)
        return -1;
    http_server_set_keys(gateway->server, gateway->keys);
    gateway->api.loop = gateway->loop;
    gateway->api.sessions = gateway->sessions;
    gateway->api.executions = gateway->executions;
    gateway->api.specs = gateway->specs;
    gateway->api.pool_size = config->pool_size;
    gateway->api.provisioner = provisioner_name(gateway->provisioner);
    gateway->api.default_timeout_ms = config->max_execution_time_s * 1000;
    gateway->api.max_timeout_ms = config->max_timeout_s * 1000;
    gateway->api.rate = rate_limiter_new(config->max_requests_per_second);
    gateway->api.max_code_bytes = (size_t)config->max_code_bytes;
    gateway->api.max_output_bytes = (size_t)config->max_output_bytes;
    gateway->api.started_ms = clock_mono_ms();
    api_register(gateway->server, &gateway->api);
    gateway->mcp = mcp_face_new(gateway->loop, config);
    mcp_serve_http(mcp_face_mcp(gateway->mcp), gateway->server);
    return 0;
}

// ---- End ------------------------------------------------------------------------------------

// Waits for what was cancelled and is still being removed, and a moment for clients to be told how
// their executions ended.
static void
on_idle_look(void *arg)
{
    struct gateway *gateway = arg;
    bool telling = http_server_open_requests(gateway->server) > 0 &&
                   clock_mono_ms() < gateway->drain_deadline_ms + LAST_LINES_MS;
    if (provisioner_is_idle(gateway->provisioner) && !telling)
        loop_stop(gateway->loop);
    else
        loop_timer_start(gateway->idle, DRAIN_LOOK_MS);
}

static void
on_drain(void *arg)
{
    struct gateway *gateway = arg;
    bool busy =
        sessions_are_busy(gateway->sessions) || http_server_open_requests(gateway->server) > 0;
    if (busy && clock_mono_ms() < gateway->drain_deadline_ms) {
        loop_timer_start(gateway->drain, DRAIN_LOOK_MS);
        return;
    }
    if (gateway->config->keep_sandboxes) {
        sessions_release(gateway->sessions);
        on_idle_look(gateway);
        return;
    }
    sessions_end_all(gateway->sessions, "the gateway is shutting down", on_idle_look, gateway);
}

static void
on_terminate(int signum, void *arg)
{
    struct gateway *gateway = arg;
    if (gateway->api.draining) {
        gateway->drain_deadline_ms = clock_mono_ms(); // asked twice: no more patience
        return;
    }
    log_info("draining", LOG_INT("signal", signum),
             LOG_INT("sessions", (int64_t)sessions_count(gateway->sessions)));
    gateway->api.draining = true;
    mcp_drain(mcp_face_mcp(gateway->mcp));
    gateway->drain_deadline_ms = clock_mono_ms() + gateway->config->drain_timeout_s * 1000;
    loop_timer_start(gateway->drain, 0);
}

static void
gateway_fini(struct gateway *gateway)
{
    loop_timer_free(gateway->drain);
    loop_lag_free(gateway->lag);
    loop_timer_free(gateway->idle);
    loop_signal_free(gateway->terminate);
    loop_signal_free(gateway->interrupt);
    http_server_free(gateway->server);
    mcp_face_free(gateway->mcp);
    http_keys_free(gateway->keys);
    rate_limiter_free(gateway->api.rate);
    if (gateway->sessions)
        sessions_release(gateway->sessions);
    sessions_free(gateway->sessions);
    executions_free(gateway->executions);
    json_decref(gateway->kernel_env);
    provisioner_free(gateway->provisioner);
    egress_free(gateway->egress);
    http_client_free(gateway->client);
    address_policy_free(gateway->policy);
    engine_settings_fini(&gateway->engine);
    loop_free(gateway->loop);
    kernelspecs_free(gateway->specs);
    layout_fini(&gateway->layout);
    state_close(&gateway->state);
}

// ---- The command ----------------------------------------------------------------------------

static int
run(struct gateway *gateway, struct kg_error *err)
{
    if (start_core(gateway, err) < 0 || start_server(gateway, err) < 0)
        return -1;
    gateway->drain = loop_timer_new(gateway->loop, on_drain, gateway);
    gateway->lag = loop_lag_new(gateway->loop);
    gateway->idle = loop_timer_new(gateway->loop, on_idle_look, gateway);
    gateway->terminate = loop_signal_new(gateway->loop, SIGTERM, on_terminate, gateway);
    gateway->interrupt = loop_signal_new(gateway->loop, SIGINT, on_terminate, gateway);
    const char *host = gateway->config->host;
    bool v6 = strchr(host, ':') != NULL;
    printf("kernelgate listening on http://%s%s%s:%d\n", v6 ? "[" : "", host, v6 ? "]" : "",
           http_server_port(gateway->server));
    fflush(stdout);
    loop_run(gateway->loop);
    return 0;
}

int
command_serve(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        puts("usage: kernelgate serve [FLAGS]\n\nListens for requests; SIGTERM ends it.\n");
        config_print_help(stdout, CONFIG_SERVE);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--help=markdown") == 0) {
        config_print_markdown(stdout);
        return 0;
    }
    struct kg_error err = {0};
    struct config config;
    if (config_load(&config, CONFIG_SERVE, argc, argv, ".env", &err) < 0) {
        fprintf(stderr, "kernelgate: %s\n", err.message);
        config_fini(&config);
        return 2;
    }
    log_setup(config_log_level(&config), config_log_format(&config));
    signal(SIGPIPE, SIG_IGN);
    // Large lines come and go; glibc would learn to keep their memory instead of returning it.
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    jupyter_init();
    struct gateway gateway = {.config = &config, .state.lock_fd = -1};
    int result = run(&gateway, &err);
    if (result < 0)
        fprintf(stderr, "kernelgate: %s\n", err.message);
    gateway_fini(&gateway);
    jupyter_fini();
    config_fini(&config);
    return result < 0 ? 1 : 0;
}
