// SPDX-License-Identifier: Apache-2.0
// Process.Start and Process.Connect: commands and terminals that go on without their clients.
#include "envd_priv.h"

#include <string.h>

#include "message.h"

enum {
    ARGS_MAX = 254,                    // an agent takes 256 words
    TIMEOUT_MAX_MS = 24 * 3600 * 1000, // that an agent takes: a longer one is none
};

// What a message StartRequest says; borrowed from it, but for `cwd` and `env`.
struct start {
    const char *argv[ARGS_MAX + 2];
    size_t n; // words
    struct envd_path cwd;
    json_t *env;
    struct sandbox_command_spec spec;
};

static void
start_fini(struct start *start)
{
    envd_path_fini(&start->cwd);
    json_decref(start->env);
}
#define AUTO_START __attribute__((cleanup(start_fini))) struct start

static int
take_words(const json_t *process, struct start *ret, struct kg_error *err)
{
    const json_t *args = message_field(process, "args"), *arg;
    size_t i;
    if (message_string(process, "cmd", &ret->argv[0], err) < 0)
        return -1;
    if (!ret->argv[0] || !*ret->argv[0])
        return kg_error_set(err, KG_INVALID, 0, "process.cmd is missing");
    if (args && (!json_is_array(args) || json_array_size(args) > ARGS_MAX))
        return kg_error_set(err, KG_INVALID, 0,
                            "process.args must be an array of at most %d strings", ARGS_MAX);
    ret->n = 1;
    json_array_foreach(args, i, arg) {
        const char *text = json_string_value(arg);
        if (!text || strlen(text) != json_string_length(arg))
            return kg_error_set(err, KG_INVALID, 0,
                                "process.args[%zu] must be a string without NUL", i);
        ret->argv[ret->n++] = text;
    }
    for (i = 0; i < ret->n; i++)
        if (strlen(ret->argv[i]) > SANDBOX_COMMAND_MAX)
            return kg_error_set(err, KG_INVALID, 0, "a word of process has more than %d bytes",
                                SANDBOX_COMMAND_MAX);
    return 0;
}

static int
take_env(const json_t *process, struct start *ret, struct kg_error *err)
{
    const json_t *envs;
    if (message_object(process, "envs", &envs, err) < 0 ||
        (envs && session_env_check(envs, err) < 0))
        return -1;
    ret->env = json_pack("{s:s, s:s, s:s}", "HOME", E2B_HOME, "USER", "user", "LOGNAME", "user");
    json_object_update(ret->env, (json_t *)(uintptr_t)envs);
    ret->spec.env = ret->env;
    return 0;
}

static int
take_cwd(const json_t *process, struct start *ret, struct kg_error *err)
{
    const char *text;
    if (message_string(process, "cwd", &text, err) < 0 ||
        envd_path_parse(text ? text : "", &ret->cwd, err) < 0)
        return -1;
    ret->spec.cwd = ret->cwd.client;
    return 0;
}

static bool
is_words(const struct start *start, const char *const *words)
{
    size_t i = 0;
    for (; words[i]; i++)
        if (i + 1 >= start->n || strcmp(start->argv[i + 1], words[i]) != 0)
            return false;
    return strcmp(start->argv[0], "/bin/bash") == 0;
}

// What the SDKs start is a shell, for a command or in a terminal. It is the sandbox's own, which
// has the kernels' PATH in front of what login shells read, and which is sh in an image without
// bash.
static void
choose_program(struct start *start)
{
    static const char *const command[] = {"-l", "-c", NULL};
    static const char *const terminal[] = {"-i", "-l", NULL};
    if (start->n == 4 && is_words(start, command)) {
        start->spec.command = start->argv[3];
        start->spec.login = true;
    } else if (start->n != 3 || !start->spec.cols || !is_words(start, terminal)) {
        start->spec.argv = start->argv;
    }
}

static int
start_parse(const json_t *message, struct start *ret, struct kg_error *err)
{
    const json_t *process;
    int64_t cols, rows;
    bool with_stdin = true; // where a client does not say
    if (message_object(message, "process", &process, err) < 0 ||
        take_words(process, ret, err) < 0 || take_env(process, ret, err) < 0 ||
        take_cwd(process, ret, err) < 0 || process_size_parse(message, &cols, &rows, err) < 0 ||
        message_bool(message, "stdin", &with_stdin, err) < 0 ||
        process_tag_parse(message, &ret->spec.note, err) < 0)
        return -1;
    ret->spec.keep = true;
    ret->spec.cols = (int)cols;
    ret->spec.rows = (int)rows;
    ret->spec.with_stdin = with_stdin && cols == 0;
    choose_program(ret);
    return 0;
}

static int
start(struct http_request *request, struct envd *envd, const json_t *message, struct kg_error *err)
{
    AUTO_START start = {0};
    int64_t timeout_ms;
    struct session *session = envd_sandbox(request, envd, err);
    if (!session || start_parse(message, &start, err) < 0 ||
        connect_timeout_ms(request, &timeout_ms, err) < 0)
        return -1;
    start.spec.timeout_ms = timeout_ms <= TIMEOUT_MAX_MS ? timeout_ms : 0;
    struct process_stream *stream = process_stream_new(request, envd, timeout_ms);
    return process_stream_start(stream, session, &start.spec, err);
}

void
handle_process_start(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_stream_message(request);
    if (message && start(request, arg, message, &err) < 0)
        connect_refuse_stream_error(request, &err);
}

static int
join(struct http_request *request, struct envd *envd, const json_t *message, struct kg_error *err)
{
    struct process_selector selector;
    int64_t timeout_ms;
    struct session *session = envd_sandbox(request, envd, err);
    if (!session || process_selector_parse(message, &selector, err) < 0 ||
        connect_timeout_ms(request, &timeout_ms, err) < 0)
        return -1;
    struct process_stream *stream = process_stream_new(request, envd, timeout_ms);
    return process_stream_find(stream, session, &selector, err);
}

void
handle_process_connect(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_stream_message(request);
    if (message && join(request, arg, message, &err) < 0)
        connect_refuse_stream_error(request, &err);
}
