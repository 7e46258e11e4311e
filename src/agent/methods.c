// SPDX-License-Identifier: Apache-2.0
// The methods that the gateway can call.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent_priv.h"
#include "cgroup.h"
#include "connection.h"

enum {
    ARGV_MAX = 64,
    ENV_MAX = 256,
    STRING_MAX = 32 * 1024,
    KEY_MAX = 256,
};

bool
is_plain_string(const json_t *value, size_t max)
{
    return json_is_string(value) && json_string_length(value) <= max &&
           strlen(json_string_value(value)) == json_string_length(value);
}

int
check_argv(const json_t *argv, size_t max, size_t max_len, const char **ret, struct kg_error *err)
{
    size_t n = json_array_size(argv);

    if (n < 1 || n > max)
        return kg_error_set(err, KG_INVALID, 0, "argv must be a list of 1 to %zu strings", max);
    for (size_t i = 0; i < n; i++) {
        if (!is_plain_string(json_array_get(argv, i), max_len))
            return kg_error_set(err, KG_INVALID, 0,
                                "argv: each item must be a string of at most %zu bytes", max_len);
        ret[i] = json_string_value(json_array_get(argv, i));
    }
    ret[n] = NULL;
    return 0;
}

int
check_env(json_t *env, struct kg_error *err)
{
    const char *name;
    json_t *value;

    if (!env)
        return 0;
    if (!json_is_object(env) || json_object_size(env) > ENV_MAX)
        return kg_error_set(err, KG_INVALID, 0, "env must be an object of at most %d strings",
                            ENV_MAX);
    json_object_foreach(env, name, value) {
        if (!env_name_valid(name) || !is_plain_string(value, STRING_MAX))
            return kg_error_set(
                err, KG_INVALID, 0,
                "env: each name must be that of a variable, and each value a string");
    }
    return 0;
}

// ---- Kernels --------------------------------------------------------------------------------

// `spec` borrows from `params`.
static int
parse_kernel_spec(json_t *params, const char *argv[ARGV_MAX + 1], struct kernel_spec *spec,
                  struct kg_error *err)
{
    json_error_t why;
    json_t *args;
    const char *transport = "ipc";

    if (json_unpack_ex(params, &why, 0, "{s:s, s:o, s?o, s?s, s:s, s?s !}", "name", &spec->name,
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
    if (check_env(spec->env, err) != 0)
        return -1;
    return check_argv(args, ARGV_MAX, STRING_MAX, argv, err);
}

// A start that goes on when what was expected in its place has been stopped.
struct waiting_start {
    struct agent *agent;
    struct request *request;
    void (*call)(struct request *request, void *arg);
};

static void
on_expected_stopped(bool stopped, void *arg)
{
    struct waiting_start waiting = *(struct waiting_start *)arg;
    struct kg_error err;

    free(arg);
    if (stopped) {
        waiting.call(waiting.request, waiting.agent);
        return;
    }
    (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "another call stops this kernel");
    request_fail(waiting.request, &err);
}

// Whether the call has to wait: it is then made again.
static bool
waits_for_expected(struct agent *agent, const char *name, struct request *request,
                   void (*call)(struct request *request, void *arg))
{
    struct kg_error err;

    if (!kernels_expects(agent->kernels, name))
        return false;
    struct waiting_start *waiting = KG_NEW(struct waiting_start);
    *waiting = (struct waiting_start){.agent = agent, .request = request, .call = call};
    if (kernels_stop(agent->kernels, name, on_expected_stopped, waiting, &err) != 0)
        on_expected_stopped(false, waiting);
    return true;
}

static void
kernels_start_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    const char *argv[ARGV_MAX + 1] = {0};
    struct kernel_spec spec = {.cwd = agent->settings.data_dir};
    struct kg_error err = {0};

    if (parse_kernel_spec(request_params(request), argv, &spec, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    if (waits_for_expected(agent, spec.name, request, kernels_start_call))
        return;
    if (kernels_start(agent->kernels, &spec, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    changes_begin(agent->changes, spec.name);
    request_reply(request, kernels_describe(agent->kernels, spec.name));
}

// Reads the parameters of kernels.expect; `spec` and `ret_id` borrow from `params`.
static int
parse_expected(json_t *params, struct kernel_spec *spec, const char **ret_id, struct kg_error *err)
{
    json_error_t why;
    const char *transport;

    if (json_unpack_ex(params, &why, 0, "{s:s, s:s, s:s, s:s, s?s !}", "name", &spec->name, "id",
                       ret_id, "key", &spec->key, "transport", &transport, "stem",
                       &spec->stem) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    if (!target_kernel_name_valid(spec->name) || strlen(spec->key) > KEY_MAX ||
        (spec->stem && !target_kernel_name_valid(spec->stem)))
        return kg_error_set(err, KG_INVALID, 0, "bad kernel name, or key is too long");
    if (strlen(*ret_id) != CONNECTION_ID_LEN ||
        strspn(*ret_id, "abcdefghijklmnopqrstuvwxyz234567") != CONNECTION_ID_LEN)
        return kg_error_set(err, KG_INVALID, 0, "id must be %d of a-z2-7", CONNECTION_ID_LEN);
    spec->tcp = strcmp(transport, "tcp") == 0;
    if (!spec->tcp && strcmp(transport, "ipc") != 0)
        return kg_error_set(err, KG_INVALID, 0, "transport must be ipc or tcp");
    return 0;
}

static void
kernels_expect_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kernel_spec spec = {0};
    struct kg_error err = {0};
    const char *id;

    if (parse_expected(request_params(request), &spec, &id, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    if (waits_for_expected(agent, spec.name, request, kernels_expect_call))
        return;
    if (kernels_expect(agent->kernels, &spec, id, &err) != 0)
        request_fail(request, &err);
    else
        request_reply(request, json_pack("{s:s}", "connection_file",
                                         kernels_connection_file(agent->kernels, spec.name)));
}

static void
kernels_admit_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    const char *name;
    int pid;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:i !}", "name", &name, "pid",
                       &pid) != 0 ||
        pid <= 1) {
        (void)kg_error_set(&err, KG_INVALID, 0, "name and pid are needed: %.150s", why.text);
        request_fail(request, &err);
        return;
    }
    if (kernels_admit(agent->kernels, name, pid, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    changes_begin(agent->changes, name);
    request_reply(request, kernels_describe(agent->kernels, name));
}

static void
kernels_list_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    request_reply(request, json_pack("{s:o}", "kernels", kernels_list(agent->kernels)));
}

// The kernel that the parameters name, and nothing else.
static const char *
kernel_name(const struct request *request, struct kg_error *err)
{
    json_error_t why;
    const char *name;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s !}", "name", &name) == 0)
        return name;
    (void)kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    return NULL;
}

static void
kernels_describe_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    const char *name = kernel_name(request, &err);
    json_t *kernel = name ? kernels_describe(agent->kernels, name) : NULL;

    if (name && !kernel)
        (void)kg_error_set(&err, KG_NOT_FOUND, 0, "no kernel %.40s", name);
    if (kernel)
        request_reply(request, kernel);
    else
        request_fail(request, &err);
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
signal_kernel(struct agent *agent, json_t *params, struct kg_error *err)
{
    json_error_t why;
    const char *name, *signal_name;

    if (json_unpack_ex(params, &why, 0, "{s:s, s:s !}", "name", &name, "signal", &signal_name) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    int signum = signal_number(signal_name);
    if (!signum)
        return kg_error_set(err, KG_INVALID, 0, "signal must be INT, TERM or KILL");
    return kernels_signal(agent->kernels, name, signum, err);
}

static void
kernels_signal_call(struct request *request, void *arg)
{
    struct kg_error err = {0};

    if (signal_kernel(arg, request_params(request), &err) != 0)
        request_fail(request, &err);
    else
        request_reply(request, json_object());
}

static void
on_stopped(bool stopped, void *arg)
{
    struct kg_error err;

    if (stopped) {
        request_reply(arg, json_object());
        return;
    }
    (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "another call stops this kernel");
    request_fail(arg, &err);
}

static void
kernels_stop_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    const char *name = kernel_name(request, &err);

    if (!name || kernels_stop(agent->kernels, name, on_stopped, request, &err) != 0)
        request_fail(request, &err);
}

static void
kernels_remove_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    const char *name = kernel_name(request, &err);

    if (!name || kernels_remove(agent->kernels, name, on_stopped, request, &err) != 0)
        request_fail(request, &err);
    else
        changes_end(agent->changes, name);
}

// As kernels.remove, and spares what others have left behind.
static void
kernels_end_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    const char *name = kernel_name(request, &err);

    if (!name || kernels_end(agent->kernels, name, on_stopped, request, &err) != 0)
        request_fail(request, &err);
    else
        changes_end(agent->changes, name);
}

// ---- The sandbox ----------------------------------------------------------------------------

static void
info_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;

    request_reply(request, json_pack("{s:s, s:i, s:I, s:o}", "version", KG_VERSION, "pid", getpid(),
                                     "uptime_ms", (json_int_t)(clock_mono_ms() - agent->started_ms),
                                     "kernels", kernels_list(agent->kernels)));
}

static json_t *
number_or_null(int64_t number)
{
    return number >= 0 ? json_integer(number) : json_null();
}

static void
stats_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct cgroup_usage usage;
    struct statvfs disk;
    int64_t disk_bytes = -1;

    cgroup_usage(agent->settings.cgroup_root, &usage);
    if (statvfs(agent->settings.data_dir, &disk) == 0)
        disk_bytes = (int64_t)((disk.f_blocks - disk.f_bfree) * disk.f_frsize);
    request_reply(request,
                  json_pack("{s:o, s:o, s:o, s:o}", "memory_bytes",
                            number_or_null(usage.memory_bytes), "cpu_seconds",
                            usage.cpu_us >= 0 ? json_real((double)usage.cpu_us / 1e6) : json_null(),
                            "pids", number_or_null(usage.pids), "disk_bytes",
                            number_or_null(disk_bytes)));
}

// {"memory": whether events of type `memory` are wanted, "commands": the same of `commands`,
// "kernels": of `kernel_memory`, "requests": of `request` and `request_end`}
static void
events_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    bool memory = json_is_true(json_object_get(request_params(request), "memory"));
    bool commands = json_is_true(json_object_get(request_params(request), "commands"));
    bool kernels = json_is_true(json_object_get(request_params(request), "kernels"));
    bool requests = json_is_true(json_object_get(request_params(request), "requests"));

    events_listen(agent->events, request);
    usage_report_begin(agent->usage_report, memory, commands, kernels);
    if (agent->tenant)
        tenant_set_gateway(agent->tenant, requests);
}

// {"id": of a request, "lines": objects, "last": whether no more follow}. `gone`: nobody
// waits for it any more.
static void
tenant_answer_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    json_t *lines;
    json_int_t id;
    int last;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:I, s:o, s:b !}", "id", &id, "lines",
                       &lines, "last", &last) != 0 ||
        !json_is_array(lines)) {
        (void)kg_error_set(&err, KG_INVALID, 0, "id, lines and last are needed: %.150s", why.text);
        request_fail(request, &err);
        return;
    }
    bool waits = agent->tenant && tenant_answer(agent->tenant, id, lines, last != 0);
    request_reply(request, json_pack("{s:b}", "gone", !waits));
}

static void
changes_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_t *changes = changes_since(agent->changes, request_params(request), &err);

    if (changes)
        request_reply(request, changes);
    else
        request_fail(request, &err);
}

const struct method agent_methods[] = {
    {"info", info_call, false},
    {"stats", stats_call, false},
    {"events", events_call, false},
    {"changes", changes_call, false},
    {"kernels.list", kernels_list_call, false},
    {"kernels.start", kernels_start_call, false},
    {"kernels.expect", kernels_expect_call, false},
    {"kernels.admit", kernels_admit_call, false},
    {"kernels.describe", kernels_describe_call, false},
    {"kernels.signal", kernels_signal_call, false},
    {"kernels.stop", kernels_stop_call, false},
    {"kernels.remove", kernels_remove_call, false},
    {"kernels.end", kernels_end_call, false},
    {"commands.run", commands_run_call, false},
    {"commands.join", commands_join_call, false},
    {"commands.list", commands_list_call, false},
    {"commands.input", commands_input_call, true},
    {"commands.close_input", commands_close_input_call, false},
    {"commands.resize", commands_resize_call, false},
    {"commands.signal", commands_signal_call, false},
    {"ports.list", ports_list_call, false},
    {"tenant.answer", tenant_answer_call, false},
    {"files.list", files_list_call, false},
    {"files.stat", files_stat_call, false},
    {"files.chmod", files_chmod_call, false},
    {"files.unused", files_unused_call, false},
    {"files.mkdir", files_mkdir_call, false},
    {"files.move", files_move_call, false},
    {"files.copy", files_copy_call, false},
    {"data.keep", data_keep_call, false},
    {"data.check", data_check_call, false},
    {"data.restore", data_restore_call, false},
    {"data.drop", data_drop_call, false},
    {"files.watch", files_watch_call, false},
    {"files.describe", files_describe_call, false},
    {"files.read", files_read_call, false},
    {"files.write", files_write_call, true},
    {"files.append", files_append_call, true},
    {"files.delete", files_delete_call, false},
    {NULL, NULL, false},
};
