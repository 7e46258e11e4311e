// SPDX-License-Identifier: Apache-2.0
// The process of a kernel: how it starts, how it is interrupted, and how it is replaced.
//
// A process is up when kernel_info_reply has come and iopub has been heard from, so that no first
// output is lost: a SUB socket misses what is published before its subscription has arrived.

#include "process_priv.h"

#include <assert.h>
#include <string.h>

#include "execution_priv.h"
#include "metrics.h"

enum { AGENT_TIMEOUT_MS = 10 * 1000, LINK_TIMEOUT_MS = 5 * 1000, RETRY_LINK_MS = 10 };
enum { RETRY_INFO_MS = 20, RETRY_INFO_LATER_MS = 1000, RETRY_SOON = 100, MAX_SAID = 160 };
enum { INPUT_TRIES = 200, RETRY_INPUT_MS = 10 };
enum { EXIT_NEWS_MS = 1000 }; // an exit's event knows more than a lost channel

// shell, iopub and control: without these no process is up. They are linked in this order.
static const enum jupyter_channel after_needed = JUPYTER_STDIN;

static const char *const state_names[] = {
    [PROCESS_STARTING] = "starting",
    [PROCESS_UP] = "up",
    [PROCESS_REPLACING] = "replacing",
    [PROCESS_DEAD] = "dead",
};

static void start_fail(struct kernel_process *process, const char *reason);
static void input_link(struct kernel_process *process);
static void input_end(struct kernel_process *process, enum input_state state);
static void input_settle(struct kernel_process *process, enum input_state state);

static bool
edge_is_legal(enum process_state from, enum process_state to)
{
    switch (from) {
    case PROCESS_STARTING:
        return to == PROCESS_UP || to == PROCESS_REPLACING || to == PROCESS_DEAD;
    case PROCESS_UP:
        return to == PROCESS_REPLACING;
    case PROCESS_REPLACING:
        return to == PROCESS_STARTING || to == PROCESS_DEAD;
    case PROCESS_DEAD:
        return to == PROCESS_REPLACING;
    }
    return false;
}

static void
process_set_state(struct kernel_process *process, enum process_state state)
{
    assert(edge_is_legal(process->state, state));
    log_debug("kernel process state", LOG_STR("sandbox", sandbox_id(process->sandbox)),
              LOG_STR("kernel", process->spec->name), LOG_STR("from", state_names[process->state]),
              LOG_STR("to", state_names[state]));
    process->state = state;
}

// ---- Channels -------------------------------------------------------------------------------

static void
start_cancel(struct process_start *start)
{
    if (start->call)
        sandbox_call_cancel(KG_STEAL(start->call));
    loop_timer_stop(start->deadline);
    loop_timer_stop(start->retry);
    loop_timer_stop(start->give_up);
}

static void
process_on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct kernel_process *process = arg;
    struct process_start *start = &process->start;
    process->events->on_message(channel, message, process->arg);
    if (process->state != PROCESS_STARTING)
        return;
    if (channel == JUPYTER_IOPUB)
        start->iopub_heard = true;
    else if (channel == JUPYTER_SHELL && strcmp(message->msg_type, "kernel_info_reply") == 0)
        start->info_replied = true;
    if (start->channel < after_needed || !start->info_replied || !start->iopub_heard)
        return;
    start_cancel(start);
    process_set_state(process, PROCESS_UP);
    process->adopting = false;
    if (process->is_tapped)
        input_link(process);
    process->events->on_ready(process->arg);
}

static void
process_on_bad_message(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    metric_add(METRIC_KERNEL_BAD_MESSAGES, 1);
    // A tenant can send any number of them: the 1st, the 2nd, the 4th, … are logged.
    int64_t n = ++process->n_bad_messages;
    if ((n & (n - 1)) != 0)
        return;
    log_warning("dropped a message of a kernel", LOG_STR("sandbox", sandbox_id(process->sandbox)),
                LOG_STR("kernel", process->spec->name),
                LOG_STR("channel", jupyter_channel_name(channel)), LOG_INT("n", n), LOG_ERR(err));
}

static void
process_on_channel_lost(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    log_info("a channel of a kernel was lost", LOG_STR("sandbox", sandbox_id(process->sandbox)),
             LOG_STR("kernel", process->spec->name),
             LOG_STR("channel", jupyter_channel_name(channel)), LOG_ERR(err));
    if (channel == JUPYTER_STDIN)
        input_settle(process, INPUT_MISSING); // requests may wait for it
    else
        loop_timer_start(process->lost, EXIT_NEWS_MS);
}

static void
process_on_room(enum jupyter_channel channel, void *arg)
{
    struct kernel_process *process = arg;
    (void)channel;
    process->events->on_room(process->arg);
}

static void
ask_info(struct kernel_process *process)
{
    struct kg_error err = {0};
    if (jupyter_channels_send(process->channels, JUPYTER_SHELL, "kernel_info_request",
                              json_object(), NULL, &err) < 0)
        log_debug("kernel_info_request not sent", LOG_ERR(&err));
    // A kernel that is busy answers when it is done, however often it is asked.
    bool soon = process->start.n_asked++ < RETRY_SOON;
    loop_timer_start(process->start.retry, soon ? RETRY_INFO_MS : RETRY_INFO_LATER_MS);
}

static void connect_next(struct kernel_process *process);

static void
go_on(void *arg)
{
    struct kernel_process *process = arg;
    if (process->start.channel < after_needed)
        connect_next(process);
    else
        ask_info(process);
}

static void
process_on_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct kernel_process *process = arg;
    struct process_start *start = &process->start;
    struct kg_error err = {0};
    start->call = NULL;
    if (fd < 0) {
        log_debug("no link yet", LOG_STR("kernel", process->spec->name), LOG_ERR(link_err));
        loop_timer_start(start->retry, RETRY_LINK_MS);
        return;
    }
    if (jupyter_channels_attach(process->channels, start->channel, fd, &err) < 0) {
        start_fail(process, err.message);
        return;
    }
    log_debug("kernel channel linked", LOG_STR("sandbox", sandbox_id(process->sandbox)),
              LOG_STR("channel", jupyter_channel_name(start->channel)));
    start->channel++;
    if (process->adopting && start->channel == after_needed)
        loop_timer_start(start->deadline, process->adopt_timeout_ms);
    go_on(process);
}

static void
connect_next(struct kernel_process *process)
{
    KG_AUTO_FREE char *target =
        kg_asprintf("%s/%s", process->spec->name, jupyter_channel_name(process->start.channel));
    struct kg_error err = {0};
    process->start.call = sandbox_open_link(process->sandbox, target, LINK_TIMEOUT_MS,
                                            process_on_link, process, &err);
    if (!process->start.call)
        start_fail(process, err.message);
}

static void
open_channels(struct kernel_process *process)
{
    const struct jupyter_channels_settings settings = {
        .dir = process->dir,
        .key = process->key,
        .max_message_bytes = executions_max_message_bytes(process->context->executions),
    };
    const struct jupyter_channels_events events = {
        .shape = process->events->shape,
        .shaped_free = process->events->shaped_free,
        .on_message = process_on_message,
        .on_bad_message = process_on_bad_message,
        .on_lost = process_on_channel_lost,
        .on_room = process_on_room,
    };
    struct kg_error err = {0};
    if (dir_make(process->dir, 0700, &err) == 0)
        process->channels =
            jupyter_channels_new(process->context->loop, &settings, &events, process, &err);
    if (!process->channels) {
        start_fail(process, err.message);
        return;
    }
    jupyter_channels_keep_raw(process->channels, process->is_tapped);
    connect_next(process);
}

static void
close_channels(struct kernel_process *process)
{
    input_end(process, INPUT_NONE);
    jupyter_channels_free(KG_STEAL(process->channels));
    loop_timer_stop(process->lost);
    if (process->interrupting)
        sandbox_call_cancel(KG_STEAL(process->interrupting));
}

int
process_send(struct kernel_process *process, const char *msg_type, json_t *content,
             char *ret_msg_id, struct kg_error *err)
{
    return jupyter_channels_send(process->channels, JUPYTER_SHELL, msg_type, content, ret_msg_id,
                                 err);
}

int
process_send_large(struct kernel_process *process, const char *msg_type,
                   const struct jupyter_content *content, char *ret_msg_id, struct kg_error *err)
{
    return jupyter_channels_send_large(process->channels, JUPYTER_SHELL, msg_type, content,
                                       ret_msg_id, err);
}

// ---- The stdin channel ----------------------------------------------------------------------

static void
input_end(struct kernel_process *process, enum input_state state)
{
    struct process_input *input = &process->input;
    input->state = state;
    loop_timer_stop(input->retry);
    if (input->call)
        sandbox_call_cancel(KG_STEAL(input->call));
}

static void
input_settle(struct kernel_process *process, enum input_state state)
{
    if (state == INPUT_MISSING)
        log_info("a kernel has no stdin channel", LOG_STR("sandbox", sandbox_id(process->sandbox)),
                 LOG_STR("kernel", process->spec->name));
    input_end(process, state);
    process->events->on_room(process->arg);
}

static void
process_on_input_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct kernel_process *process = arg;
    struct process_input *input = &process->input;
    struct kg_error err = {0};
    (void)link_err;
    input->call = NULL;
    if (fd >= 0 && jupyter_channels_attach(process->channels, JUPYTER_STDIN, fd, &err) == 0)
        input->state = INPUT_CONNECTING;
    loop_timer_start(input->retry, fd >= 0 ? 0 : RETRY_INPUT_MS);
}

// Requests that may ask for input wait for this: a kernel's ROUTER drops what it sends to a peer
// that is not there yet.
static void
input_go_on(void *arg)
{
    struct kernel_process *process = arg;
    struct process_input *input = &process->input;
    if (input->n_tries++ == INPUT_TRIES) {
        input_settle(process, INPUT_MISSING);
    } else if (input->state == INPUT_LINKING) {
        KG_AUTO_FREE char *target =
            kg_asprintf("%s/%s", process->spec->name, jupyter_channel_name(JUPYTER_STDIN));
        struct kg_error err = {0};
        input->call = sandbox_open_link(process->sandbox, target, LINK_TIMEOUT_MS,
                                        process_on_input_link, process, &err);
        if (!input->call)
            loop_timer_start(input->retry, RETRY_INPUT_MS);
    } else if (jupyter_channels_is_connected(process->channels, JUPYTER_STDIN)) {
        input_settle(process, INPUT_OPEN);
    } else {
        loop_timer_start(input->retry, RETRY_INPUT_MS);
    }
}

static void
input_link(struct kernel_process *process)
{
    if (process->input.state != INPUT_NONE)
        return;
    process->input.state = INPUT_LINKING;
    process->input.n_tries = 0;
    loop_timer_start(process->input.retry, 0);
}

// ---- Messages of taps -----------------------------------------------------------------------

void
process_set_tapped(struct kernel_process *process, bool is_tapped)
{
    process->is_tapped = is_tapped;
    if (process->channels)
        jupyter_channels_keep_raw(process->channels, is_tapped);
    if (is_tapped && process->state == PROCESS_UP)
        input_link(process);
}

bool
process_can_send(struct kernel_process *process, enum jupyter_channel channel)
{
    enum input_state input = process->input.state;
    if (process->state != PROCESS_UP || input == INPUT_LINKING || input == INPUT_CONNECTING)
        return false;
    return jupyter_channels_has_room(process->channels, channel);
}

int
process_send_raw(struct kernel_process *process, enum jupyter_channel channel,
                 struct jupyter_raw *raw, struct kg_error *err)
{
    return jupyter_channels_send_raw(process->channels, channel, raw, err);
}

const char *
process_session(const struct kernel_process *process)
{
    return process->channels ? jupyter_channels_session(process->channels) : "";
}

// ---- Starting -------------------------------------------------------------------------------

static void
process_on_started(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct kernel_process *process = arg;
    process->start.call = NULL;
    if (!body) {
        start_fail(process, agent_err->message);
        return;
    }
    process->pid = (int)json_integer_value(json_object_get(body, "pid"));
    open_channels(process);
}

// The environment of every kernel, then the kernelspec's, then the session's; the later one wins.
static json_t *
merged_env(const struct kernel_process *process)
{
    json_t *env = json_object();
    json_object_update(env, (json_t *)(uintptr_t)process->context->env);
    json_object_update(env, process->spec->env);
    json_object_update(env, process->env);
    return env;
}

static void
start_reset(struct kernel_process *process)
{
    struct process_start *start = &process->start;
    start->channel = 0;
    start->n_asked = 0;
    start->info_replied = start->iopub_heard = false;
    loop_timer_start(start->deadline, process->context->start_timeout_ms);
}

void
process_start(struct kernel_process *process)
{
    start_reset(process);
    process->pid = 0;
    id_random_hex(process->key, JUPYTER_KEY_LEN);
    json_auto_t *params =
        json_pack("{s:s, s:O, s:o, s:s, s:s, s:s}", "name", process->spec->name, "argv",
                  process->spec->argv, "env", merged_env(process), "cwd", "/mnt/data", "key",
                  process->key, "transport", process->spec->transport);
    struct kg_error err = {0};
    process->start.call = sandbox_agent_call(process->sandbox, "kernels.start", params,
                                             AGENT_TIMEOUT_MS, process_on_started, process, &err);
    if (!process->start.call)
        start_fail(process, err.message);
}

void
process_adopt(struct kernel_process *process, int pid, const char *key, int64_t timeout_ms)
{
    start_reset(process);
    memcpy(process->key, key, JUPYTER_KEY_LEN + 1);
    process->pid = pid;
    process->adopting = true;
    process->adopt_timeout_ms = timeout_ms;
    open_channels(process);
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
    size_t len = 0;
    for (size_t i = begin; i < end; i++)
        ret[len++] = said[i] >= ' ' && said[i] < 127 ? said[i] : '?';
    ret[len] = '\0';
}

static void process_on_stopped(const json_t *body, const struct kg_error *err, void *arg);

// Asks the agent to kill the process and all that it left behind; ends in process_on_stopped().
static void
stop_process(struct kernel_process *process)
{
    if (process->stopping)
        return;
    json_auto_t *params = json_pack("{s:s}", "name", process->spec->name);
    struct kg_error err = {0};
    process->stopping = sandbox_agent_call(process->sandbox, "kernels.stop", params,
                                           AGENT_TIMEOUT_MS, process_on_stopped, process, &err);
    if (!process->stopping)
        loop_timer_start(process->unasked, 0);
}

static void
process_on_log_tail(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    (void)agent_err; // the reason is then reported without the tail
    struct kernel_process *process = arg;
    process->start.call = NULL;
    KG_AUTO_FREE char *reason = KG_STEAL(process->start.failure);
    const char *said = json_string_value(json_object_get(body, "log_tail"));
    char line[MAX_SAID + 1] = "";
    if (said)
        last_line(said, line);
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "%s%s%s", reason, *line ? "; it said: " : "",
                 line);
    log_warning("a kernel did not start", LOG_STR("sandbox", sandbox_id(process->sandbox)),
                LOG_STR("kernel", process->spec->name), LOG_ERR(&err));
    close_channels(process);
    process_set_state(process, PROCESS_DEAD);
    stop_process(process);
    process->events->on_failed(&err, process->arg);
}

static void
process_on_give_up(void *arg)
{
    process_on_log_tail(NULL, NULL, arg);
}

// Fails the start, after the agent was asked for the last line of the process. An adopted process
// is replaced instead: executions that wait run in the new one.
static void
start_fail(struct kernel_process *process, const char *reason)
{
    struct process_start *start = &process->start;
    if (process->adopting) {
        log_warning("an adopted kernel is replaced",
                    LOG_STR("sandbox", sandbox_id(process->sandbox)), LOG_STR("reason", reason));
        process_replace(process);
        return;
    }
    start_cancel(start);
    free(start->failure);
    start->failure = kg_strdup(reason);
    json_auto_t *params = json_pack("{s:s}", "name", process->spec->name);
    start->call = sandbox_agent_call(process->sandbox, "kernels.describe", params, AGENT_TIMEOUT_MS,
                                     process_on_log_tail, process, NULL);
    if (!start->call)
        loop_timer_start(start->give_up, 0);
}

static void
process_on_deadline(void *arg)
{
    struct kernel_process *process = arg;
    if (process->adopting) {
        bool reached = process->start.channel == after_needed;
        start_fail(process, reached ? "the kernel did not end what it was doing in time"
                                    : "the kernel could not be reached");
        return;
    }
    KG_AUTO_FREE char *reason =
        kg_asprintf("the kernel %s did not get ready within %lld s", process->spec->name,
                    (long long)process->context->start_timeout_ms / 1000);
    start_fail(process, reason);
}

// ---- Interrupting ---------------------------------------------------------------------------

static void
process_on_interrupted(const json_t *body, const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    process->interrupting = NULL;
    if (!body)
        log_warning("a kernel was not interrupted", LOG_ERR(err));
    process->events->on_interrupted(process->arg);
}

void
process_interrupt(struct kernel_process *process)
{
    struct kg_error err = {0};
    if (process->spec->interrupt_by_message) {
        if (!process->channels || // adopted, and not linked yet
            jupyter_channels_send(process->channels, JUPYTER_CONTROL, "interrupt_request",
                                  json_object(), NULL, &err) < 0)
            log_warning("a kernel was not interrupted", LOG_ERR(&err));
        return;
    }
    if (process->interrupting)
        return;
    json_auto_t *params = json_pack("{s:s, s:s}", "name", process->spec->name, "signal", "INT");
    process->interrupting =
        sandbox_agent_call(process->sandbox, "kernels.signal", params, AGENT_TIMEOUT_MS,
                           process_on_interrupted, process, &err);
    if (!process->interrupting)
        log_warning("a kernel was not interrupted", LOG_ERR(&err));
}

// ---- Replacing ------------------------------------------------------------------------------

static void
process_on_stopped(const json_t *body, const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    process->stopping = NULL;
    if (!body)
        log_warning("a kernel's processes were not stopped",
                    LOG_STR("sandbox", sandbox_id(process->sandbox)), LOG_ERR(err));
    if (process->state != PROCESS_REPLACING)
        return;
    if (!body) {
        process_set_state(process, PROCESS_DEAD);
        process->events->on_stuck(err, process->arg);
        return;
    }
    process_set_state(process, PROCESS_STARTING);
    process_start(process);
    process->events->on_replaced(process->arg);
}

static void
process_on_unasked(void *arg)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's agent cannot be asked");
    process_on_stopped(NULL, &err, arg);
}

void
process_replace(struct kernel_process *process)
{
    start_cancel(&process->start);
    close_channels(process);
    process->adopting = false;
    process_set_state(process, PROCESS_REPLACING);
    stop_process(process);
    process->events->on_replacing(process->arg);
}

static void
process_on_lost(void *arg)
{
    struct kernel_process *process = arg;
    static const char reason[] = "the gateway lost the kernel's channels";
    const struct process_end end = {.ename = "KernelDied", .evalue = reason};
    metric_add(METRIC_KERNEL_DEATHS, 1, "lost");
    if (process->state == PROCESS_STARTING)
        start_fail(process, reason);
    else
        process->events->on_end(&end, process->arg);
}

static void
report_exit(struct kernel_process *process, int exit_code, int signal, bool oom)
{
    KG_AUTO_FREE char *evalue =
        oom           ? kg_strdup("the kernel used more memory than its sandbox may have")
        : signal != 0 ? kg_asprintf("the kernel's process was ended by signal %d (%s)", signal,
                                    sigabbrev_np(signal) ? sigabbrev_np(signal) : "?")
                      : kg_asprintf("the kernel's process ended with code %d", exit_code);
    const struct process_end end = {
        .exited = true, .ename = oom ? "OutOfMemory" : "KernelDied", .evalue = evalue};
    process->events->on_end(&end, process->arg);
}

void
process_on_exit(struct kernel_process *process, int pid, int exit_code, int signal, bool oom)
{
    if (pid != process->pid)
        return;
    log_info("a kernel's process ended", LOG_STR("sandbox", sandbox_id(process->sandbox)),
             LOG_STR("kernel", process->spec->name), LOG_INT("exit_code", exit_code),
             LOG_INT("signal", signal), LOG_INT("oom", oom));
    const char *cause = oom ? "oom" : signal != 0 ? "signal" : "exit";
    switch (process->state) {
    case PROCESS_STARTING: {
        metric_add(METRIC_KERNEL_DEATHS, 1, cause);
        KG_AUTO_FREE char *reason =
            kg_asprintf("the kernel %s ended before it was ready (code %d, signal %d)",
                        process->spec->name, exit_code, signal);
        start_fail(process, reason);
        return;
    }
    case PROCESS_UP:
        metric_add(METRIC_KERNEL_DEATHS, 1, cause);
        report_exit(process, exit_code, signal, oom);
        return;
    case PROCESS_REPLACING:
    case PROCESS_DEAD:
        return;
    }
}

// ---- Life -----------------------------------------------------------------------------------

void
process_init(struct kernel_process *process, const struct kernel_context *context,
             struct sandbox *sandbox, const struct kernelspec *spec, const json_t *env,
             const struct process_events *events, void *arg)
{
    struct loop *loop = context->loop;
    process->context = context;
    process->sandbox = sandbox;
    process->spec = spec;
    process->env = env ? json_deep_copy(env) : json_object();
    process->events = events;
    process->arg = arg;
    process->state = PROCESS_STARTING;
    process->dir = kg_asprintf("%s/%s", sandbox_dir(sandbox), spec->name);
    process->start.deadline = loop_timer_new(loop, process_on_deadline, process);
    process->start.retry = loop_timer_new(loop, go_on, process);
    process->start.give_up = loop_timer_new(loop, process_on_give_up, process);
    process->input.retry = loop_timer_new(loop, input_go_on, process);
    process->unasked = loop_timer_new(loop, process_on_unasked, process);
    process->lost = loop_timer_new(loop, process_on_lost, process);
}

void
process_fini(struct kernel_process *process)
{
    start_cancel(&process->start);
    close_channels(process);
    if (process->stopping)
        sandbox_call_cancel(process->stopping);
    loop_timer_free(process->start.deadline);
    loop_timer_free(process->start.retry);
    loop_timer_free(process->start.give_up);
    loop_timer_free(process->input.retry);
    loop_timer_free(process->unasked);
    loop_timer_free(process->lost);
    free(process->start.failure);
    json_decref(process->env);
    free(process->dir);
}
