// SPDX-License-Identifier: Apache-2.0
// The agent's HTTP API, reached as target `agent`.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent_priv.h"
#include "cgroup.h"
#include "files_api.h"

enum {
    ARGV_MAX = 64,
    ENV_MAX = 256,
    STRING_MAX = 32 * 1024,
    KEY_MAX = 256,
};

void
api_reply_error(struct http_request *request, const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);

    http_reply_json(request, info->http_status,
                    json_pack("{s:s, s:s}", "error", err->message, "code", info->name));
}

bool
api_is_plain_string(const json_t *value, size_t max)
{
    return json_is_string(value) && json_string_length(value) <= max &&
           strlen(json_string_value(value)) == json_string_length(value);
}

int
api_check_argv(const json_t *argv, size_t max, size_t max_len, const char **ret,
               struct kg_error *err)
{
    size_t n = json_array_size(argv);

    if (n < 1 || n > max)
        return kg_error_set(err, KG_INVALID, 0, "argv must be a list of 1 to %zu strings", max);
    for (size_t i = 0; i < n; i++) {
        if (!api_is_plain_string(json_array_get(argv, i), max_len))
            return kg_error_set(err, KG_INVALID, 0,
                                "argv holds what is no string, or longer than %zu bytes", max_len);
        ret[i] = json_string_value(json_array_get(argv, i));
    }
    ret[n] = NULL;
    return 0;
}

int
api_check_env(json_t *env, struct kg_error *err)
{
    const char *name;
    json_t *value;

    if (!env)
        return 0;
    if (!json_is_object(env) || json_object_size(env) > ENV_MAX)
        return kg_error_set(err, KG_INVALID, 0, "env must be an object of at most %d strings",
                            ENV_MAX);
    json_object_foreach(env, name, value) {
        if (!env_name_valid(name) || !api_is_plain_string(value, STRING_MAX))
            return kg_error_set(err, KG_INVALID, 0, "env holds what is no variable");
    }
    return 0;
}

// ---- Kernels --------------------------------------------------------------------------------

// `spec` borrows from `body`.
static int
parse_kernel_spec(json_t *body, const char *argv[ARGV_MAX + 1], struct kernel_spec *spec,
                  struct kg_error *err)
{
    json_error_t why;
    json_t *args;
    const char *transport = "ipc";

    if (json_unpack_ex(body, &why, 0, "{s:s, s:o, s?o, s?s, s:s, s?s !}", "name", &spec->name,
                       "argv", &args, "env", &spec->env, "cwd", &spec->cwd, "key", &spec->key,
                       "transport", &transport) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    spec->tcp = strcmp(transport, "tcp") == 0;
    spec->argv = argv;
    if (!target_kernel_name_valid(spec->name))
        return kg_error_set(err, KG_INVALID, 0, "bad kernel name");
    if (!spec->tcp && strcmp(transport, "ipc") != 0)
        return kg_error_set(err, KG_INVALID, 0, "transport must be ipc or tcp");
    if (spec->cwd[0] != '/' || strlen(spec->cwd) > STRING_MAX)
        return kg_error_set(err, KG_INVALID, 0, "cwd must be an absolute path");
    if (strlen(spec->key) > KEY_MAX)
        return kg_error_set(err, KG_INVALID, 0, "key is too long");
    if (api_check_env(spec->env, err) != 0)
        return -1;
    return api_check_argv(args, ARGV_MAX, STRING_MAX, argv, err);
}

static void
post_kernels(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    const char *argv[ARGV_MAX + 1] = {0};
    struct kernel_spec spec = {.cwd = agent->settings.data_dir};
    struct kg_error err = {0};

    json_auto_t *body = http_request_json(request, &err);
    if (!body || parse_kernel_spec(body, argv, &spec, &err) != 0 ||
        kernels_start(agent->kernels, &spec, &err) != 0)
        api_reply_error(request, &err);
    else {
        changes_begin(agent->changes, spec.name);
        http_reply_json(request, 201, kernels_describe(agent->kernels, spec.name));
    }
}

static void
get_kernels(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    http_reply_json(request, 200, json_pack("{s:o}", "kernels", kernels_list(agent->kernels)));
}

static void
get_kernel(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    const char *name = http_request_param(request, "name");
    json_t *kernel = kernels_describe(agent->kernels, name);

    if (kernel)
        http_reply_json(request, 200, kernel);
    else
        http_reply_json(request, 404, json_pack("{s:s}", "error", "no such kernel"));
}

static int
signal_number(const char *name)
{
    if (strcmp(name, "INT") == 0)
        return SIGINT;
    if (strcmp(name, "TERM") == 0)
        return SIGTERM;
    return strcmp(name, "KILL") == 0 ? SIGKILL : 0;
}

static int
signal_kernel(struct agent *agent, struct http_request *request, struct kg_error *err)
{
    json_error_t why;
    const char *name;

    json_auto_t *body = http_request_json(request, err);
    if (!body)
        return -1;
    if (json_unpack_ex(body, &why, 0, "{s:s !}", "signal", &name) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    int signum = signal_number(name);
    if (!signum)
        return kg_error_set(err, KG_INVALID, 0, "signal must be INT, TERM or KILL");
    return kernels_signal(agent->kernels, http_request_param(request, "name"), signum, err);
}

static void
post_signal(struct http_request *request, void *arg)
{
    struct kg_error err = {0};

    if (signal_kernel(arg, request, &err) != 0)
        api_reply_error(request, &err);
    else
        http_reply_json(request, 200, json_object());
}

static void
on_stopped(bool stopped, void *arg)
{
    struct http_request *request = arg;

    if (stopped)
        http_reply_json(request, 200, json_object());
    else
        http_reply_json(request, 409, json_pack("{s:s}", "error", "stopped by another call"));
}

static void
post_stop(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};

    if (kernels_stop(agent->kernels, http_request_param(request, "name"), on_stopped, request,
                     &err) != 0)
        api_reply_error(request, &err);
}

// ---- The sandbox ----------------------------------------------------------------------------

static void
get_info(struct http_request *request, void *arg)
{
    struct agent *agent = arg;

    http_reply_json(request, 200,
                    json_pack("{s:s, s:i, s:I, s:o}", "version", KG_VERSION, "pid", getpid(),
                              "uptime_ms", (json_int_t)(clock_mono_ms() - agent->started_ms),
                              "kernels", kernels_list(agent->kernels)));
}

static json_t *
number_or_null(int64_t number)
{
    return number >= 0 ? json_integer(number) : json_null();
}

static void
get_stats(struct http_request *request, void *arg)
{
    const struct agent *agent = arg;
    struct cgroup_usage usage;
    struct statvfs disk;
    int64_t disk_bytes = -1;

    cgroup_usage(agent->settings.cgroup_root, &usage);
    if (statvfs(agent->settings.data_dir, &disk) == 0)
        disk_bytes = (int64_t)((disk.f_blocks - disk.f_bfree) * disk.f_frsize);
    http_reply_json(
        request, 200,
        json_pack("{s:o, s:o, s:o, s:o}", "memory_bytes", number_or_null(usage.memory_bytes),
                  "cpu_seconds",
                  usage.cpu_us >= 0 ? json_real((double)usage.cpu_us / 1e6) : json_null(), "pids",
                  number_or_null(usage.pids), "disk_bytes", number_or_null(disk_bytes)));
}

static void
get_events(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    events_listen(agent->events, request);
}

void
api_add_routes(struct agent *agent)
{
    static const struct http_route routes[] = {
        {HTTP_GET, "/info", get_info, HTTP_PUBLIC},
        {HTTP_GET, "/kernels", get_kernels, HTTP_PUBLIC},
        {HTTP_POST, "/kernels", post_kernels, HTTP_PUBLIC},
        {HTTP_GET, "/kernels/{name}", get_kernel, HTTP_PUBLIC},
        {HTTP_POST, "/kernels/{name}/signal", post_signal, HTTP_PUBLIC},
        {HTTP_POST, "/kernels/{name}/stop", post_stop, HTTP_PUBLIC},
        {HTTP_POST, "/exec", post_exec, HTTP_PUBLIC},
        {HTTP_GET, "/stats", get_stats, HTTP_PUBLIC},
        {HTTP_GET, "/events", get_events, HTTP_PUBLIC},
    };
    http_server_add_routes(agent->api, routes, KG_ARRAY_LEN(routes), agent);
    files_api_add_routes(agent);
}
