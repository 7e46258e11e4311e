// SPDX-License-Identifier: Apache-2.0
// A process is ready when kernel_info_reply has come and iopub has been heard from, so that no
// first output is lost: a SUB socket misses what is published before its subscription has arrived.

#include "process_start_priv.h"

#include <errno.h>
#include <string.h>

#include "forks.h"
#include "metrics.h"
#include "savepoint_ask_priv.h"

enum { AGENT_TIMEOUT_MS = 10 * 1000, LINK_TIMEOUT_MS = 5 * 1000, RESTORE_TIMEOUT_MS = 120 * 1000 };
enum { RETRY_LINK_MS = 10, RETRY_LINK_OF_FORK_MS = 3 }; // a forked kernel listens much earlier
enum { MAX_INFO_BYTES = 64 << 10 };
enum { RETRY_INFO_MS = 20, RETRY_INFO_LATER_MS = 1000, RETRY_SOON = 100, MAX_SAID = 160 };

// shell, iopub and control: without these no process is ready. They are linked in this order.
static const enum jupyter_channel after_needed = JUPYTER_STDIN;

void
start_cancel(struct process_start *start)
{
    if (start->call)
        sandbox_call_cancel(KG_STEAL(start->call));
    kernel_fork_cancel(KG_STEAL(start->fork));
    savepoint_ask_cancel(KG_STEAL(start->ask));
    loop_timer_stop(start->deadline);
    loop_timer_stop(start->retry);
    loop_timer_stop(start->give_up);
    start->adopting = start->forking = false;
}

// ---- A start that fails ---------------------------------------------------------------------

// The last line that the process wrote, as far as it can be shown.
static void
last_line(const char *said, char ret[MAX_SAID + 1])
{
    size_t end = strlen(said);
    while (end > 0 && (unsigned char)said[end - 1] <= ' ')
        end--;
    size_t begin = end;
    while (begin > 0 && said[begin - 1] != '\n' && end - begin < MAX_SAID)
        begin--;
    utf8_printable(said + begin, end - begin, ret, MAX_SAID + 1);
}

static void
start_on_log_tail(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    (void)agent_err; // the reason is then reported without the tail
    struct process_start *start = arg;
    start->call = NULL;
    start_set_savepoint(start, NULL, false);
    KG_AUTO_FREE char *reason = KG_STEAL(start->failure);
    const char *said = json_string_value(json_object_get(body, "log_tail"));
    char line[MAX_SAID + 1] = "";
    if (said)
        last_line(said, line);
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "%s%s%s", reason, *line ? "; it said: " : "",
                 line);
    log_warning("a kernel did not start", LOG_STR("sandbox", sandbox_id(start->sandbox)),
                LOG_STR("kernel", start->name), LOG_ERR(&err));
    start->events->on_failed(&err, start->arg);
}

static void
start_on_give_up(void *arg)
{
    start_on_log_tail(NULL, NULL, arg);
}

void
start_fail(struct process_start *start, const char *reason)
{
    if (start->adopting || (start->forking && !start->savepoint)) {
        log_warning(start->adopting ? "an adopted kernel is replaced"
                                    : "a forked kernel is replaced by one by exec",
                    LOG_STR("sandbox", sandbox_id(start->sandbox)), LOG_STR("reason", reason));
        start->exec_only = start->forking;
        start->events->on_unusable(start->arg);
        return;
    }
    start_cancel(start);
    free(start->failure);
    start->failure = kg_strdup(reason);
    json_auto_t *params = json_pack("{s:s}", "name", start->name);
    start->call = sandbox_agent_call(start->sandbox, "kernels.describe", params, AGENT_TIMEOUT_MS,
                                     start_on_log_tail, start, NULL);
    if (!start->call)
        loop_timer_start(start->give_up, 0);
}

static void
start_on_deadline(void *arg)
{
    struct process_start *start = arg;
    if (start->adopting) {
        bool reached = start->channel == after_needed;
        start_fail(start, reached ? "the kernel did not end what it was doing in time"
                                  : "the kernel could not be reached");
        return;
    }
    KG_AUTO_FREE char *reason =
        kg_asprintf("the kernel %s did not get ready within %lld s (setting kernel-start-timeout)",
                    start->name, (long long)start->context->start_timeout_ms / 1000);
    start_fail(start, reason);
}

// ---- Links, until the process is ready ------------------------------------------------------

static void
ask_info(struct process_start *start)
{
    struct kg_error err = {0};
    if (jupyter_channels_send(start->channels, JUPYTER_SHELL, "kernel_info_request", json_object(),
                              NULL, &err) < 0)
        log_debug("kernel_info_request not sent", LOG_ERR(&err));
    // A kernel that is busy answers when it is done, however often it is asked.
    bool soon = start->n_asked++ < RETRY_SOON;
    loop_timer_start(start->retry, soon ? RETRY_INFO_MS : RETRY_INFO_LATER_MS);
}

static void connect_next(struct process_start *start);

static void
start_go_on(void *arg)
{
    struct process_start *start = arg;
    if (start->channel < after_needed)
        connect_next(start);
    else
        ask_info(start);
}

static void
start_on_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct process_start *start = arg;
    struct kg_error err = {0};
    start->call = NULL;
    if (fd < 0) {
        log_debug("no link yet", LOG_STR("kernel", start->name), LOG_ERR(link_err));
        loop_timer_start(start->retry, start->forking ? RETRY_LINK_OF_FORK_MS : RETRY_LINK_MS);
        return;
    }
    if (jupyter_channels_attach(start->channels, start->channel, fd, &err) < 0) {
        start_fail(start, err.message);
        return;
    }
    log_debug("kernel channel linked", LOG_STR("sandbox", sandbox_id(start->sandbox)),
              LOG_STR("channel", jupyter_channel_name(start->channel)));
    start->channel++;
    if (start->adopting && start->channel == after_needed)
        loop_timer_start(start->deadline, start->adopt_timeout_ms);
    start_go_on(start);
}

static void
connect_next(struct process_start *start)
{
    KG_AUTO_FREE char *target =
        kg_asprintf("%s/%s", start->name, jupyter_channel_name(start->channel));
    struct kg_error err = {0};
    start->call =
        sandbox_open_link(start->sandbox, target, LINK_TIMEOUT_MS, start_on_link, start, &err);
    if (!start->call)
        start_fail(start, err.message);
}

void
start_connect(struct process_start *start, struct jupyter_channels *channels)
{
    start->channels = channels;
    connect_next(start);
}

static void
keep_info(struct process_start *start, const struct jupyter_message *reply)
{
    size_t len = reply->cut_bytes == 0 ? json_dumpb(reply->content, NULL, 0, JSON_COMPACT) : 0;
    free(start->info);
    start->info =
        len > 0 && len <= MAX_INFO_BYTES ? json_dumps(reply->content, JSON_COMPACT) : NULL;
}

void
start_on_message(struct process_start *start, enum jupyter_channel channel,
                 const struct jupyter_message *message)
{
    if (channel == JUPYTER_IOPUB) {
        start->iopub_heard = true;
    } else if (channel == JUPYTER_SHELL && strcmp(message->msg_type, "kernel_info_reply") == 0) {
        start->info_replied = true;
        keep_info(start, message);
    }
    if (start->channel < after_needed || !start->info_replied || !start->iopub_heard)
        return;
    if (!start->adopting)
        metric_observe_since(METRIC_KERNEL_START_SECONDS, start->asked_us,
                             start->forking ? "fork" : "exec");
    start->exec_only = false;
    start_set_savepoint(start, NULL, false);
    start_cancel(start);
    start->events->on_ready(start->arg);
}

// ---- By exec --------------------------------------------------------------------------------

// A program that does not exist is one of an environment that was not made.
static void
refuse_start(struct process_start *start, const struct kg_error *err)
{
    bool missing = strstr(err->message, strerrordesc_np(ENOENT)) != NULL;
    KG_AUTO_FREE char *reason =
        kg_asprintf("%.120s%s", err->message,
                    missing ? "; script/setup installs the kernels, and `kernelgate doctor` lists "
                              "those that are missing"
                            : "");
    start_fail(start, reason);
}

static void
start_on_started(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct process_start *start = arg;
    start->call = NULL;
    if (!body) {
        refuse_start(start, agent_err);
        return;
    }
    int pid = (int)json_integer_value(json_object_get(body, "pid"));
    start->events->on_started(pid, start->arg);
}

// The environment of every kernel, then the kernelspec's, HOME, then the session's; the later one
// wins.
static json_t *
merged_env(const struct process_start *start)
{
    json_t *env = json_object();
    json_object_update(env, (json_t *)(uintptr_t)start->context->env);
    json_object_update(env, start->spec->env);
    if (start->home)
        json_object_set_new(env, "HOME", json_string(start->home));
    json_object_update(env, start->env);
    return env;
}

// Where the kernelspec has code for it, that brings the process to its folder, and makes one that
// is missing.
static const char *
first_folder(const struct process_start *start)
{
    return start->folder && !start->spec->folder_code ? start->folder : "/mnt/data";
}

static void
start_by_exec(struct process_start *start)
{
    start->forking = false;
    json_auto_t *params =
        json_pack("{s:s, s:O, s:o, s:s, s:s, s:s}", "name", start->name, "argv", start->spec->argv,
                  "env", merged_env(start), "cwd", first_folder(start), "key", start->key,
                  "transport", start->spec->transport);
    struct kg_error err = {0};
    start->call = sandbox_agent_call(start->sandbox, "kernels.start", params, AGENT_TIMEOUT_MS,
                                     start_on_started, start, &err);
    if (!start->call)
        start_fail(start, err.message);
}

// ---- By a fork ------------------------------------------------------------------------------

// Nothing has been started, or what was started never got to the agent.
static void
fork_failed(struct process_start *start, const struct kg_error *err)
{
    if (start->savepoint) {
        start_fail(start, err->message);
        return;
    }
    log_warning("a kernel was not forked; it is started by exec",
                LOG_STR("sandbox", sandbox_id(start->sandbox)), LOG_STR("kernel", start->name),
                LOG_ERR(err));
    metric_add(METRIC_KERNEL_FORKS_FAILED, 1);
    start_by_exec(start);
}

static void
start_on_admitted(const json_t *body, const struct kg_error *err, void *arg)
{
    struct process_start *start = arg;
    if (body) {
        start_on_started(body, NULL, start);
        return;
    }
    start->call = NULL;
    fork_failed(start, err);
}

static void
start_on_forked(int pid, const struct kg_error *fork_err, void *arg)
{
    struct process_start *start = arg;
    struct kg_error err = {0};
    start->fork = NULL;
    if (fork_err) {
        fork_failed(start, fork_err);
        return;
    }
    json_auto_t *params = json_pack("{s:s, s:i}", "name", start->name, "pid", pid);
    start->call = sandbox_agent_call(start->sandbox, "kernels.admit", params, AGENT_TIMEOUT_MS,
                                     start_on_admitted, start, &err);
    if (!start->call)
        fork_failed(start, &err);
}

static void
start_on_savepoint_answer(const json_t *answer, const struct kg_error *ask_err, void *arg)
{
    struct process_start *start = arg;
    struct kg_error err = {0};
    int pid = savepoint_answer_pid(answer);
    start->ask = NULL;
    if (answer && !pid)
        kg_error_set(&err, KG_SAVEPOINT_FAILED, 0, "the savepoint could not fork");
    start_on_forked(pid, !answer ? ask_err : pid ? NULL : &err, start);
}

static void
ask_savepoint(struct process_start *start, const json_t *expected)
{
    json_auto_t *request =
        json_pack("{s:O*}", "connection_file", json_object_get(expected, "connection_file"));
    start->ask = savepoint_ask_new(start->context->loop, start->sandbox, start->savepoint, request,
                                   AGENT_TIMEOUT_MS, start_on_savepoint_answer, start);
}

static void
start_on_expected(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct process_start *start = arg;
    struct kg_error err = {0};
    start->call = NULL;
    if (!body) {
        fork_failed(start, agent_err);
        return;
    }
    if (start->savepoint) {
        ask_savepoint(start, body);
        return;
    }
    start->fork = forks_ask(start->context->forks, start->spec->name, sandbox_id(start->sandbox),
                            start->id, start_on_forked, start, &err);
    if (!start->fork)
        fork_failed(start, &err);
}

static void
start_by_fork(struct process_start *start)
{
    struct kg_error err = {0};
    start->forking = true;
    id_random(start->id, sizeof start->id - 1);
    json_auto_t *params = json_pack("{s:s, s:s, s:s, s:s}", "name", start->name, "id", start->id,
                                    "key", start->key, "transport", start->spec->transport);
    // The helper names the kernel's folder after the kernelspec. Older agents refuse this member.
    if (strcmp(start->name, start->spec->name) != 0)
        json_object_set_new(params, "stem", json_string(start->spec->name));
    start->call = sandbox_agent_call(start->sandbox, "kernels.expect", params, AGENT_TIMEOUT_MS,
                                     start_on_expected, start, &err);
    if (!start->call)
        fork_failed(start, &err);
}

static void
start_on_files_restored(const json_t *body, const struct kg_error *err, void *arg)
{
    struct process_start *start = arg;
    start->call = NULL;
    if (!body) {
        start_fail(start, err->message);
        return;
    }
    loop_timer_start(start->deadline, start->context->start_timeout_ms);
    start_by_fork(start);
}

// Nothing of the kernel that was there writes any more.
static void
restore_files(struct process_start *start)
{
    struct kg_error err = {0};
    json_auto_t *params = json_pack("{s:s}", "name", start->savepoint);
    loop_timer_stop(start->deadline);
    start->call = sandbox_agent_call(start->sandbox, "data.restore", params, RESTORE_TIMEOUT_MS,
                                     start_on_files_restored, start, &err);
    if (!start->call)
        start_fail(start, err.message);
}

// A zygote has the environment of a session without one of its own: what a variable changes in an
// import would come too late in a fork.
static bool
can_fork(const struct process_start *start)
{
    const struct forks *forks = start->context->forks;
    struct kg_error err = {0};
    bool is_elsewhere = start->folder || start->home;
    if (start->exec_only || !forks_have(forks, start->spec->name) ||
        json_object_size(start->env) > 0 || (is_elsewhere && !start->spec->folder_code))
        return false;
    if (forks_ready(forks, start->spec->name, &err) == 0)
        return true;
    log_info("a kernel is started by exec", LOG_STR("sandbox", sandbox_id(start->sandbox)),
             LOG_STR("kernel", start->name), LOG_ERR(&err));
    return false;
}

// ---- Life -----------------------------------------------------------------------------------

static void
start_reset(struct process_start *start)
{
    start->channel = 0;
    start->n_asked = 0;
    start->info_replied = start->iopub_heard = false;
    start->asked_us = clock_mono_us();
    loop_timer_start(start->deadline, start->context->start_timeout_ms);
}

void
start_new(struct process_start *start, const char *key)
{
    start_reset(start);
    start->key = key;
    if (start->restores_files)
        restore_files(start);
    else if (start->savepoint || can_fork(start))
        start_by_fork(start);
    else
        start_by_exec(start);
}

void
start_adopt(struct process_start *start, int pid, const char *key, int64_t timeout_ms)
{
    start_reset(start);
    start->key = key;
    start->adopting = true;
    start->adopt_timeout_ms = timeout_ms;
    start->events->on_started(pid, start->arg);
}

static void
replace_string(char **string, const char *by)
{
    free(*string);
    *string = by ? kg_strdup(by) : NULL;
}

void
start_set_savepoint(struct process_start *start, const char *savepoint, bool files)
{
    replace_string(&start->savepoint, savepoint);
    start->restores_files = files;
}

void
start_set_folder(struct process_start *start, const char *folder, const char *home)
{
    replace_string(&start->folder, folder);
    replace_string(&start->home, home);
}

void
start_init(struct process_start *start, const struct kernel_context *context,
           struct sandbox *sandbox, const struct kernel_settings *settings,
           const struct process_start_events *events, void *arg)
{
    struct loop *loop = context->loop;
    start->context = context;
    start->sandbox = sandbox;
    start->spec = settings->spec;
    start->name = settings->name;
    start->env = settings->env ? json_deep_copy(settings->env) : json_object();
    start_set_folder(start, settings->folder, settings->home);
    start_set_savepoint(start, settings->savepoint, false);
    start->events = events;
    start->arg = arg;
    start->deadline = loop_timer_new(loop, start_on_deadline, start);
    start->retry = loop_timer_new(loop, start_go_on, start);
    start->give_up = loop_timer_new(loop, start_on_give_up, start);
}

void
start_fini(struct process_start *start)
{
    start_cancel(start);
    loop_timer_free(start->deadline);
    loop_timer_free(start->retry);
    loop_timer_free(start->give_up);
    free(start->failure);
    free(start->savepoint);
    free(start->info);
    free(start->folder);
    free(start->home);
    json_decref(start->env);
}
