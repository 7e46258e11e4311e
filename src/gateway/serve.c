// SPDX-License-Identifier: Apache-2.0
// kernelgate serve: connects the modules, runs the loop, and shuts down in order.

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "api.h"
#include "auth.h"
#include "budget.h"
#include "console.h"
#include "core.h"
#include "e2b.h"
#include "envd.h"
#include "http.h"
#include "jupyter.h"
#include "login_limits.h"
#include "loop_lag.h"
#include "mcp.h"
#include "notebook.h"
#include "opensandbox.h"
#include "password.h"
#include "ports.h"
#include "provisioner_replicas.h"
#include "replicas.h"
#include "session_tokens.h"
#include "session_watch.h"
#include "split.h"
#include "terminals.h"

enum {
    MAX_HEADER_BYTES = 32 << 10,
    // Code may be escaped, and has variables beside it; bodies are read before anything is checked.
    BODY_FACTOR = 8,
    BODY_SLACK_BYTES = 1 << 20,
    CONNECTION_IDLE_S = 75,
    DRAIN_LOOK_MS = 20,
    LAST_LINES_MS = 1000,
    LAST_WAITS_MS = LAST_LINES_MS - 300, // then there is time for the answers
    LAST_REQUESTS_MS = 1000,
    HELD_BODIES_BYTES = 256 << 20,
    MMAP_THRESHOLD = 128 << 10,
};

// Everything of a running gateway, in the order in which it is made.
struct gateway {
    struct core core;
    struct api_keys *keys; // NULL: there are none
    struct http_quota alone, shared;
    struct accounts *accounts; // NULL: there are none
    struct passwords *passwords;
    struct login_limits *login_limits;
    int socket; // bound before root's rights are given up; -1: the server has it
    struct http_server *server;
    struct session_tokens *tokens;
    struct api_context api;
    struct e2b *e2b;
    struct envd *envd;
    struct console *console; // NULL: it is off
    struct mcp_face *mcp;
    struct notebook *notebook; // NULL: that face is off
    struct opensandbox *opensandbox;
    struct replicas *replicas; // NULL: this is the only gateway of its installation
    struct loop_signal *terminate;
    struct loop_signal *interrupt;
    struct loop_timer *drain;
    struct loop_lag *lag;
    struct loop_timer *idle;
    int64_t drain_deadline_ms;
    bool jupyter;          // its threads have been started
    int64_t idle_since_ms; // when nothing was left to wait for; 0: not yet
};

// ---- Start ----------------------------------------------------------------------------------

// By address only: a name such as 127.example.org may be anybody's.
static bool
is_loopback(const char *host)
{
    struct in_addr address;
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (inet_pton(AF_INET, host, &address) == 1 &&
            ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET);
}

// Of the sessions, an owner's share is known once the engine is: see share_sessions().
static int
load_keys(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->core.config;
    bool any = config->api_key || config->api_keys_file;
    if (!any && !config->accounts_file && !config->insecure && !is_loopback(config->host))
        return kg_error_set(
            err, KG_INVALID, 0,
            "setting host is %.60s, which other machines can reach, and there is no "
            "API key: put API_KEY=<a long random word> into .env or the environment, "
            "set api-keys-file or accounts-file, or let everybody in with --insecure",
            config->host);
    gateway->alone = (struct http_quota){
        .requests_per_second = config->max_requests_per_second,
        .max_sessions = config->max_sessions_per_owner,
    };
    gateway->shared = gateway->alone;
    gateway->shared.max_connections = (int)config->max_connections / 2;
    if (!any)
        return 0;
    const struct api_keys_settings settings = {
        .key = config->api_key,
        .path = config->api_keys_file,
        .alone = gateway->alone,
        .shared = gateway->shared,
    };
    gateway->keys = api_keys_new(&settings, err);
    if (!gateway->keys)
        return kg_error_set(err, err->code, 0, "setting %s: %s",
                            config->api_keys_file ? "api-keys-file" : "api-key", err->message);
    return 0;
}

// What one owner may have: while there are several, half at most of what they share, unless a
// setting says how much.
static void
share_sessions(struct gateway *gateway)
{
    if (gateway->shared.max_sessions == 0)
        gateway->shared.max_sessions = (gateway->core.max_sessions + 1) / 2;
    if (gateway->keys)
        api_keys_set_shared(gateway->keys, &gateway->shared);
}

// NULL: requests need no key.
static struct http_authenticator *
authenticator_of(const struct gateway *gateway)
{
    if (gateway->accounts)
        return accounts_authenticator(gateway->accounts);
    return gateway->keys ? api_keys_authenticator(gateway->keys) : NULL;
}

static int64_t
max_sessions_of(const char *owner, const void *arg)
{
    const struct http_authenticator *authenticator = authenticator_of(arg);
    return authenticator ? authenticator->ops->quota(authenticator, owner).max_sessions : 0;
}

static int64_t
max_memory_of(const char *owner, const void *arg)
{
    const struct http_authenticator *authenticator = authenticator_of(arg);
    return authenticator ? authenticator->ops->quota(authenticator, owner).max_memory_mb : 0;
}

static bool
is_operators(const char *owner, const void *arg)
{
    const struct gateway *gateway = arg;
    const struct config *config = gateway->core.config;
    if (gateway->keys) {
        const struct http_authenticator *keys = api_keys_authenticator(gateway->keys);
        return keys->ops->has_owner(keys, owner);
    }
    return !config->accounts_file && is_loopback(config->host) &&
           strcmp(owner, HTTP_ANONYMOUS) == 0;
}

static bool
have_several_owners(const struct gateway *gateway)
{
    if (gateway->accounts)
        return accounts_have_several_owners(gateway->accounts);
    return gateway->keys && api_keys_have_several_owners(gateway->keys);
}

static void
set_owners(struct gateway *gateway)
{
    struct core *core = &gateway->core;
    core->is_operators = is_operators;
    core->quota_arg = gateway;
    if (!gateway->keys && !core->config->accounts_file)
        return;
    core->several_owners = have_several_owners(gateway);
    core->max_sessions_of = max_sessions_of;
    core->max_memory_of = max_memory_of;
}

static void
on_owners_changed(void *arg)
{
    struct gateway *gateway = arg;
    if (gateway->core.sessions) // else see set_owners()
        sessions_set_several_owners(gateway->core.sessions, have_several_owners(gateway));
}

static void
count_fixed_owners(struct gateway *gateway)
{
    if (gateway->accounts && gateway->keys)
        accounts_set_fixed_owners(gateway->accounts,
                                  api_keys_have_several_owners(gateway->keys) ? 2 : 1);
}

static void
on_keys_changed(void *arg)
{
    struct gateway *gateway = arg;
    count_fixed_owners(gateway);
    on_owners_changed(gateway);
}

static void
on_keys_file(const struct helper_reply *reply, int fd, void *arg)
{
    struct gateway *gateway = arg;
    struct kg_error err = {0};
    (void)helper_reply_error(reply, &err);
    api_keys_take_file(gateway->keys, fd, &err);
}

static void
follow_keys(struct gateway *gateway)
{
    struct loop *loop = gateway->core.loop;
    if (!gateway->keys)
        return;
    if (!gateway->core.helper) {
        api_keys_watch(gateway->keys, loop, on_keys_changed, gateway);
        return;
    }
    api_keys_follow(gateway->keys, loop, on_keys_changed, gateway);
    helper_on(gateway->core.helper, HELPER_FILE, on_keys_file, gateway);
}

static bool
has_registered(const char *owner, const void *arg)
{
    return accounts_has_registered(arg, owner);
}

static void
open_accounts(struct gateway *gateway)
{
    const struct config *config = gateway->core.config;
    if (!config->accounts_file)
        return;
    const struct accounts_settings settings = {
        .loop = gateway->core.loop,
        .path = config->accounts_file,
        .fixed = gateway->keys ? api_keys_authenticator(gateway->keys) : NULL,
        .alone = gateway->alone,
        .shared = gateway->shared,
        .changes_per_minute = (int)config->account_changes_per_minute,
        .on_owners = on_owners_changed,
        .arg = gateway,
    };
    gateway->accounts = accounts_new(&settings);
    budget_set_registered(has_registered, gateway->accounts);
    gateway->passwords = passwords_new(gateway->core.loop);
    gateway->login_limits = login_limits_new(NULL);
    count_fixed_owners(gateway);
    on_owners_changed(gateway);
}

static int
admit(const char *owner, void *arg, struct kg_error *err)
{
    struct gateway *gateway = arg;
    return http_server_admit(gateway->server, owner, err);
}

static void
serve_opensandbox(struct gateway *gateway)
{
    const struct core *core = &gateway->core;
    const struct opensandbox_settings settings = {
        .loop = core->loop,
        .face = &core->face,
        .tokens = gateway->tokens,
        .port_header = E2B_TRAFFIC_HEADER,
        .network = strcmp(core->config->network, "egress") == 0,
        .memory_mb = core->config->memory_mb,
        .cpus = core->config->cpus,
    };
    gateway->opensandbox = opensandbox_new(&settings);
    opensandbox_serve_http(gateway->opensandbox, gateway->server);
}

static int
serve_faces(struct gateway *gateway, struct kg_error *err)
{
    struct core *core = &gateway->core;
    const struct config *config = core->config;
    gateway->api = (struct api_context){
        .face = &core->face,
        .loop = core->loop,
        .accounts = gateway->accounts,
        .passwords = gateway->passwords,
        .login_limits = gateway->login_limits,
        .tokens = gateway->tokens,
        .registration_is_open = strcmp(config->registration, "open") == 0,
        .max_registered_users = config->max_registered_users,
        .unused_accounts_ms = config->unused_accounts_days * 24 * 3600 * 1000,
        .max_sessions = core->max_sessions,
        .memory_mb = config->memory_mb,
        .disk_mb = config->disk_mb,
        .pids = config->pids,
        .cpus = config->cpus,
        .tool_call_timeout_s = config->tool_call_timeout_s,
        .max_tool_calls = config->max_tool_calls,
        .max_tool_result_bytes = config->max_tool_result_bytes,
        .provisioner = provisioner_name(core->provisioner),
        .started_ms = clock_mono_ms(),
    };
    api_register(gateway->server, &gateway->api);
    const struct e2b_settings e2b = {
        .loop = core->loop,
        .face = &core->face,
        .tokens = gateway->tokens,
        .cpus = config->cpus,
        .memory_mb = config->memory_mb,
        .disk_mb = config->disk_mb,
        .network = strcmp(config->network, "egress") == 0,
    };
    gateway->e2b = e2b_new(&e2b);
    e2b_serve_http(gateway->e2b, gateway->server);
    gateway->envd = envd_new(gateway->e2b);
    envd_serve_http(gateway->envd, gateway->server);
    ports_serve_http(core->ports, gateway->server, gateway->tokens);
    if (gateway->console)
        console_register(gateway->server, gateway->console);
    gateway->mcp = mcp_face_new(core, config->upload_root);
    mcp_set_admit(mcp_face_mcp(gateway->mcp), admit, gateway);
    mcp_face_serve_http(gateway->mcp, gateway->server);
    serve_opensandbox(gateway);
    if (!config->jupyter_api)
        return 0;
    const struct notebook_settings notebook = {
        .loop = core->loop,
        .face = &core->face,
        .state_dir = core->state.dir,
        .prefix = config->jupyter_api_prefix,
        .replay_ms = config->jupyter_replay_time_s * 1000,
        .hold_ms = config->jupyter_hold_time_s * 1000,
        .id_is_key = config->jupyter_id_as_key && authenticator_of(gateway),
    };
    log_mask_uuids(notebook.id_is_key);
    gateway->notebook = notebook_new(&notebook, err);
    if (!gateway->notebook)
        return -1;
    notebook_serve_http(gateway->notebook, gateway->server);
    return 0;
}

static int
make_server(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->core.config;
    KG_AUTO_FREE char **origins = config_split_list(config->allowed_origins);
    KG_AUTO_FREE char **hosts = config_split_list(config->allowed_hosts);
    KG_AUTO_FREE char **proxies = config_split_list(config->trusted_proxies);
    // Beyond loopback the names are up to the proxy: the key protects the gateway.
    static const char *const any_host[] = {"*", NULL};
    bool any = !*hosts && !is_loopback(config->host) && authenticator_of(gateway);
    const size_t small = BODY_FACTOR * (size_t)config->max_code_bytes + BODY_SLACK_BYTES;
    const size_t upload = (size_t)config->max_upload_bytes;
    const struct http_server_settings settings = {
        .host = config->host,
        .port = (int)config->port,
        .socket = KG_STEAL_FD(gateway->socket),
        .max_body_bytes = small > upload ? small : upload,
        .max_small_body_bytes = small,
        .max_held_bytes = HELD_BODIES_BYTES,
        .max_header_bytes = MAX_HEADER_BYTES,
        .max_connections = (int)config->max_connections,
        .idle_timeout_s = CONNECTION_IDLE_S,
        .trusted_proxies = (const char *const *)proxies,
        .allowed_origins = (const char *const *)origins,
        .allowed_hosts = any ? any_host : (const char *const *)hosts,
        .check_origin_and_host = true,
        .anonymous_quota.requests_per_second = config->max_requests_per_second,
    };
    gateway->server = http_server_new(gateway->core.loop, &settings, err);
    return gateway->server ? 0 : -1;
}

static void
start_replicas(struct gateway *gateway)
{
    struct core *core = &gateway->core;
    if (!provisioner_replica_id(core->provisioner))
        return;
    const struct replicas_settings settings = {
        .loop = core->loop,
        .provisioner = core->provisioner,
        .sessions = core->sessions,
        .client = core->client,
    };
    gateway->replicas = replicas_new(&settings, gateway->server);
    core_follow_replicas(core);
}

// What one replica has must be what another one can take over.
static int
check_replicas(const struct config *config, struct kg_error *err)
{
    if (!config->kubernetes_replica_address)
        return 0;
    if (strcmp(config->provisioner, "kubernetes") != 0 || !config->keep_sandboxes ||
        !config->link_key_file || !config->kubernetes_installation)
        return kg_error_set(
            err, KG_INVALID, 0,
            "setting kubernetes-replica-address: replicas need provisioner "
            "kubernetes, keep-sandboxes, link-key-file and kubernetes-installation");
    return 0;
}

static enum http_token_state
read_token(const char *credential, struct http_token *ret, char *ret_owner, void *arg)
{
    const struct gateway *gateway = arg;
    struct session_token_claim claim;
    enum session_token_state state = session_token_read(gateway->tokens, credential, &claim);
    *ret = (struct http_token){.scopes = http_scopes_parse(claim.scopes)};
    memcpy(ret->session_id, claim.session_id, sizeof ret->session_id);
    memcpy(ret_owner, claim.owner, sizeof claim.owner);
    if (!ret->scopes)
        return HTTP_TOKEN_NONE; // it names no scope that this version has
    switch (state) {
    case SESSION_TOKEN_NONE:
        break;
    case SESSION_TOKEN_ENDED:
        return HTTP_TOKEN_ENDED;
    case SESSION_TOKEN_ELSEWHERE:
        return HTTP_TOKEN_ELSEWHERE;
    case SESSION_TOKEN_VALID:
        return HTTP_TOKEN_VALID;
    }
    return HTTP_TOKEN_NONE;
}

static const char *
session_of_made(const char *id, const char *owner, const struct http_token *token, void *arg)
{
    const struct gateway *gateway = arg;
    return session_of_execution(gateway->tokens, gateway->core.executions, id, owner,
                                token->session_id);
}

static void
accept_tokens(struct gateway *gateway)
{
    _Static_assert(sizeof((struct session_token_claim *)NULL)->owner == HTTP_OWNER_MAX + 1,
                   "the name of an owner");
    _Static_assert((int)SESSION_TOKEN_SCOPES_MAX == (int)HTTP_SCOPES_TEXT_MAX,
                   "the names of scopes");
    gateway->tokens =
        session_tokens_new(gateway->core.sessions, gateway->core.links, HTTP_TOKEN_PREFIX);
    const struct http_tokens tokens = {
        .read = read_token, .session_of = session_of_made, .arg = gateway};
    http_server_set_tokens(gateway->server, &tokens);
}

static int
start_server(struct gateway *gateway, struct kg_error *err)
{
    open_accounts(gateway);
    if (make_server(gateway, err) < 0)
        return -1;
    if (authenticator_of(gateway))
        http_server_set_authenticator(gateway->server, authenticator_of(gateway));
    accept_tokens(gateway);
    return serve_faces(gateway, err);
}

// ---- End ------------------------------------------------------------------------------------

// What clients are sending at the end is still answered. Who connects later is refused, and can try
// another gateway.
static bool
has_last_requests(struct gateway *gateway)
{
    int64_t now_ms = clock_mono_ms();
    if (gateway->idle_since_ms == 0)
        gateway->idle_since_ms = now_ms;
    bool comes =
        !http_server_stop_listening(gateway->server) || http_server_is_receiving(gateway->server);
    return comes && now_ms < gateway->idle_since_ms + LAST_REQUESTS_MS;
}

// Waits until cancelled sandboxes are removed, and a moment longer so that clients can receive the
// last lines of their executions.
static void
on_idle_look(void *arg)
{
    struct gateway *gateway = arg;
    bool telling = http_server_open_requests(gateway->server) > 0 &&
                   clock_mono_ms() < gateway->drain_deadline_ms + LAST_LINES_MS;
    if (core_is_idle(&gateway->core) && !telling && !has_last_requests(gateway))
        loop_stop(gateway->core.loop);
    else
        loop_timer_start(gateway->idle, DRAIN_LOOK_MS);
}

static void
on_drain(void *arg)
{
    struct gateway *gateway = arg;
    core_hand_over(&gateway->core);
    bool busy =
        sessions_are_busy(gateway->core.sessions) || http_server_open_requests(gateway->server) > 0;
    if (busy && clock_mono_ms() < gateway->drain_deadline_ms) {
        loop_timer_start(gateway->drain, DRAIN_LOOK_MS);
        return;
    }
    if (gateway->notebook)
        notebook_disconnect(gateway->notebook);
    terminals_disconnect(gateway->core.terminals);
    core_stop_zygotes(&gateway->core);
    if (gateway->core.config->keep_sandboxes) {
        sessions_release(gateway->core.sessions);
        if (gateway->replicas)
            replicas_leave(gateway->replicas, gateway->drain_deadline_ms + LAST_WAITS_MS);
        core_leave_replicas(&gateway->core);
        on_idle_look(gateway);
        return;
    }
    sessions_end_all(gateway->core.sessions, "the gateway is shutting down", on_idle_look, gateway);
}

static void
on_terminate(int signum, void *arg)
{
    struct gateway *gateway = arg;
    if (http_server_is_draining(gateway->server)) {
        gateway->drain_deadline_ms = clock_mono_ms(); // a second signal: stop waiting
        return;
    }
    log_info("draining", LOG_INT("signal", signum),
             LOG_INT("sessions", (int64_t)sessions_count(gateway->core.sessions)));
    http_server_drain(gateway->server);
    sessions_drain_watches(gateway->core.sessions); // or the drain would wait for their clients
    mcp_drain(mcp_face_mcp(gateway->mcp));
    api_drain(&gateway->api);
    envd_drain(gateway->envd);
    core_retire(&gateway->core);
    gateway->drain_deadline_ms = clock_mono_ms() + gateway->core.config->drain_timeout_s * 1000;
    loop_timer_start(gateway->drain, 0);
}

static void
gateway_fini(struct gateway *gateway)
{
    if (gateway->core.helper)
        helper_off(gateway->core.helper, gateway);
    if (gateway->socket >= 0)
        close(gateway->socket);
    loop_hold_termination();
    loop_timer_free(gateway->drain);
    loop_lag_free(gateway->lag);
    loop_timer_free(gateway->idle);
    loop_signal_free(gateway->terminate);
    loop_signal_free(gateway->interrupt);
    http_server_free(gateway->server);
    envd_free(gateway->envd);
    e2b_free(gateway->e2b);
    session_tokens_free(gateway->tokens);
    console_free(gateway->console);
    replicas_free(gateway->replicas);
    mcp_face_free(gateway->mcp);
    notebook_free(gateway->notebook);
    opensandbox_free(gateway->opensandbox);
    passwords_free(gateway->passwords);
    login_limits_free(gateway->login_limits);
    budget_set_registered(NULL, NULL);
    accounts_free(gateway->accounts);
    api_keys_free(gateway->keys);
    core_fini(&gateway->core);
}

// ---- The command ----------------------------------------------------------------------------

static void
log_choice(const char *what, bool on, const char *detail, void *arg)
{
    (void)arg;
    log_info("what is on", LOG_STR("part", what), LOG_STR("state", on ? "on" : "off"),
             LOG_STR("detail", detail));
}

static void
log_choices(const struct core *core)
{
    const struct choices choices = {.config = core->config,
                                    .specs = core->specs,
                                    .default_spec = core->default_spec,
                                    .traits = core->traits};
    choices_say(&choices, log_choice, NULL);
}

static int
listen_at(const struct config *config, struct kg_error *err)
{
    int fd = http_listen(config->host, (int)config->port, err);
    if (fd >= 0)
        return fd;
    if (err->sys_errno == EADDRINUSE)
        return kg_error_set(
            err, err->code, 0,
            "setting port: %s; end the program that listens there (`ss -ltnp` names "
            "it), or choose another port: --port %d",
            err->message, config->port < 65535 ? (int)config->port + 1 : 16010);
    if (err->sys_errno == EACCES)
        return kg_error_set(err, err->code, 0,
                            "setting port: %s; only root may use this port: choose one above 1023, "
                            "such as --port 16010",
                            err->message);
    return kg_error_set(
        err, err->code, 0,
        "setting host: %s; it must be an address of this machine, such as 127.0.0.1, "
        "or 0.0.0.0 for all of them",
        err->message);
}

// What only root can do comes before. Nothing untrusted has been read until then.
static int
split(struct gateway *gateway, struct kg_error *err)
{
    const struct config *config = gateway->core.config;
    const char *const files[] = {config->api_keys_file};
    struct split_settings settings = {
        .core = &gateway->core,
        .user = config->user,
        .files = files,
        .n_files = KG_ARRAY_LEN(files),
    };
    struct privileges_user user;
    if (split_start(&settings, &user, err) < 0)
        return -1;
    if (config->console) // which may be below a folder of root's
        gateway->console = console_new(gateway->core.layout.console_dir);
    gateway->socket = listen_at(config, err);
    return gateway->socket < 0 ? -1 : split_drop(&settings, &user, err);
}

static int
serve_run(struct gateway *gateway, struct kg_error *err)
{
    struct core *core = &gateway->core;
    if (check_replicas(core->config, err) < 0 ||
        ports_check_domain(core->config->ports_domain, err) < 0 || load_keys(gateway, err) < 0)
        return -1;
    set_owners(gateway);
    if (state_open(&core->state, core->config->state_dir, err) < 0 || core_prepare(core, err) < 0 ||
        split(gateway, err) < 0)
        return -1;
    jupyter_init();
    gateway->jupyter = true;
    core_make_loop(core);
    follow_keys(gateway);
    if (core_start(core, err) < 0)
        return -1;
    share_sessions(gateway);
    core_open(core);
    if (start_server(gateway, err) < 0)
        return -1;
    start_replicas(gateway);
    gateway->drain = loop_timer_new(gateway->core.loop, on_drain, gateway);
    gateway->lag = loop_lag_new(gateway->core.loop);
    gateway->idle = loop_timer_new(gateway->core.loop, on_idle_look, gateway);
    gateway->terminate = loop_signal_new(gateway->core.loop, SIGTERM, on_terminate, gateway);
    gateway->interrupt = loop_signal_new(gateway->core.loop, SIGINT, on_terminate, gateway);
    log_choices(core);
    const char *host = gateway->core.config->host;
    bool v6 = strchr(host, ':') != NULL;
    printf("kernelgate listening on http://%s%s%s:%d\n", v6 ? "[" : "", host, v6 ? "]" : "",
           http_server_port(gateway->server));
    fflush(stdout);
    loop_run(gateway->core.loop);
    return 0;
}

int
command_serve(int argc, char **argv)
{
    if (config_asks_for_help(argc, argv)) {
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
    config_log_warnings(&config);
    signal(SIGPIPE, SIG_IGN);
    // Without a fixed threshold glibc would keep the memory of large lines instead of returning it.
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    struct gateway gateway = {
        .core = {.config = &config, .state = {.lock_fd = -1, .own_lock_fd = -1}}, .socket = -1};
    bool is_root = geteuid() == 0;
    int result = serve_run(&gateway, &err);
    if (result < 0)
        core_print_failure(&err, is_root);
    gateway_fini(&gateway);
    if (gateway.jupyter)
        jupyter_fini();
    config_fini(&config);
    return result < 0 ? 1 : 0;
}
