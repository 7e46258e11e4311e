// SPDX-License-Identifier: Apache-2.0

#include "process_priv.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "execution_priv.h"
#include "metrics.h"

enum { AGENT_TIMEOUT_MS = 10 * 1000 };
// After a channel was lost, the news of the exit are waited for; after the news, the end of the
// links. Each message that still comes starts the time again, until LAST_OUTPUT_MS.
enum { EXIT_NEWS_MS = 1000, LINKS_END_MS = 2000, LAST_OUTPUT_MS = 10 * 1000 };

static const char *const state_names[] = {
    [PROCESS_STARTING] = "starting",   [PROCESS_UP] = "up",     [PROCESS_ENDING] = "ending",
    [PROCESS_REPLACING] = "replacing", [PROCESS_DEAD] = "dead",
};

static bool
edge_is_legal(enum process_state from, enum process_state to)
{
    switch (from) {
    case PROCESS_STARTING:
        return to == PROCESS_UP || to == PROCESS_REPLACING || to == PROCESS_DEAD;
    case PROCESS_UP:
        return to == PROCESS_ENDING || to == PROCESS_REPLACING;
    case PROCESS_ENDING:
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
              LOG_STR("kernel", process->name), LOG_STR("from", state_names[process->state]),
              LOG_STR("to", state_names[state]));
    process->state = state;
}

// ---- The end ----------------------------------------------------------------------------------

static void
report_lost(struct kernel_process *process)
{
    static const char reason[] = "the gateway lost the kernel's channels";
    const struct process_end end = {-1, "KernelDied", reason};
    metric_add(METRIC_KERNEL_DEATHS, 1, "lost");
    if (process->state == PROCESS_STARTING)
        start_fail(&process->start, reason);
    else
        process->events->on_end(&end, process->arg);
}

static const char *
cause_of(const struct process_exit *exit)
{
    return exit->oom ? "oom" : exit->signal != 0 ? "signal" : "exit";
}

static void
report_exit(struct kernel_process *process)
{
    const struct process_exit *exit = &process->exit;
    int signal = exit->signal;
    KG_AUTO_FREE char *evalue =
        exit->oom ? kg_asprintf("the kernel used more memory than its sandbox may have (%lld MiB, "
                                "setting memory-mb)",
                                (long long)process->start.context->memory_mb)
        : signal != 0 ? kg_asprintf("the kernel's process was ended by signal %d (%s)", signal,
                                    sigabbrev_np(signal) ? sigabbrev_np(signal) : "?")
                      : kg_asprintf("the kernel's process ended with code %d", exit->code);
    const struct process_end end = {signal != 0 ? 128 + signal : exit->code & 0xff,
                                    exit->oom ? "OutOfMemory" : "KernelDied", evalue};
    metric_add(METRIC_KERNEL_DEATHS, 1, cause_of(exit));
    process->events->on_end(&end, process->arg);
}

static void
begin_to_end(struct kernel_process *process)
{
    process_set_state(process, PROCESS_ENDING);
    process->ending_ms = clock_mono_ms();
}

// What the process has said last comes by links of their own: its end is reported after theirs.
static void
end_if_over(struct kernel_process *process)
{
    if (process->exit.known && !jupyter_channels_is_linked(process->channels, JUPYTER_SHELL) &&
        !jupyter_channels_is_linked(process->channels, JUPYTER_IOPUB))
        loop_timer_start(process->ending, 0); // a caller may be inside an event of the channels
}

// The end of the process or of its links has come, or the time for it is over.
static void
process_on_ending(void *arg)
{
    struct kernel_process *process = arg;
    if (process->exit.known)
        report_exit(process);
    else
        report_lost(process);
}

// A process that someone else holds the sockets of could go on saying something.
static void
note_last_output(struct kernel_process *process)
{
    if (clock_mono_ms() - process->ending_ms < LAST_OUTPUT_MS)
        loop_timer_start(process->ending, process->exit.known ? LINKS_END_MS : EXIT_NEWS_MS);
}

// ---- Channels -------------------------------------------------------------------------------

static void
process_on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct kernel_process *process = arg;
    process->events->on_message(channel, message, process->arg);
    if (process->state == PROCESS_STARTING)
        start_on_message(&process->start, channel, message);
    else if (process->state == PROCESS_ENDING)
        note_last_output(process);
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
                LOG_STR("kernel", process->name), LOG_STR("channel", jupyter_channel_name(channel)),
                LOG_INT("n", n), LOG_ERR(err));
}

static void
process_on_channel_lost(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    log_info("a channel of a kernel was lost", LOG_STR("sandbox", sandbox_id(process->sandbox)),
             LOG_STR("kernel", process->name), LOG_STR("channel", jupyter_channel_name(channel)),
             LOG_ERR(err));
    if (channel == JUPYTER_STDIN) {
        stdin_link_lose(&process->stdin_link); // requests may wait for it
        return;
    }
    if (process->state == PROCESS_UP)
        begin_to_end(process);
    if (!process->exit.known)
        loop_timer_start(process->ending, EXIT_NEWS_MS);
    else
        end_if_over(process);
}

static void
process_on_stdin_settled(void *arg)
{
    struct kernel_process *process = arg;
    process->events->on_stdin_settled(process->arg);
    process->events->on_room(process->arg);
}

static void
process_on_begun(void *arg)
{
    struct kernel_process *process = arg;
    process->events->on_begun(process->arg);
}

static void
process_on_room(enum jupyter_channel channel, void *arg)
{
    struct kernel_process *process = arg;
    (void)channel;
    process->events->on_room(process->arg);
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
        .on_begun = process_on_begun,
    };
    struct kg_error err = {0};
    if (dir_make(process->dir, 0700, &err) == 0)
        process->channels =
            jupyter_channels_new(process->context->loop, &settings, &events, process, &err);
    if (!process->channels) {
        start_fail(&process->start, err.message);
        return;
    }
    jupyter_channels_keep_raw(process->channels, process->is_tapped);
    start_connect(&process->start, process->channels);
}

static void
close_channels(struct kernel_process *process)
{
    stdin_link_close(&process->stdin_link);
    jupyter_channels_free(KG_STEAL(process->channels));
    loop_timer_stop(process->ending);
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
process_probe(struct kernel_process *process, char *ret_msg_id)
{
    struct kg_error err = {0};
    if (process->state != PROCESS_UP)
        return -1;
    return process_send(process, "kernel_info_request", json_object(), ret_msg_id, &err);
}

int
process_send_large(struct kernel_process *process, const char *msg_type,
                   const struct jupyter_content *content, char *ret_msg_id, struct kg_error *err)
{
    return jupyter_channels_send_large(process->channels, JUPYTER_SHELL, msg_type, content,
                                       ret_msg_id, err);
}

// ---- Input ----------------------------------------------------------------------------------

bool
process_link_stdin(struct kernel_process *process)
{
    stdin_link_open(&process->stdin_link, process->channels);
    return stdin_link_is_pending(&process->stdin_link);
}

bool
process_has_stdin(const struct kernel_process *process)
{
    return process->stdin_link.state == STDIN_LINK_OPEN;
}

int
process_send_input(struct kernel_process *process, const char *value, struct kg_error *err)
{
    if (process->state != PROCESS_UP || !process_has_stdin(process))
        return kg_error_set(err, KG_NO_INPUT_REQUEST, 0, "the kernel that asked is gone");
    return jupyter_channels_send(process->channels, JUPYTER_STDIN, "input_reply",
                                 json_pack("{s:s}", "value", value), NULL, err);
}

// ---- Messages of taps -----------------------------------------------------------------------

void
process_set_tapped(struct kernel_process *process, bool is_tapped)
{
    process->is_tapped = is_tapped;
    if (process->channels)
        jupyter_channels_keep_raw(process->channels, is_tapped);
    if (is_tapped && process->state == PROCESS_UP)
        stdin_link_open(&process->stdin_link, process->channels);
}

bool
process_can_send(struct kernel_process *process, enum jupyter_channel channel)
{
    return process->state == PROCESS_UP && !stdin_link_is_pending(&process->stdin_link) &&
           jupyter_channels_has_room(process->channels, channel);
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
    json_auto_t *params = json_pack("{s:s, s:s}", "name", process->name, "signal", "INT");
    process->interrupting =
        sandbox_agent_call(process->sandbox, "kernels.signal", params, AGENT_TIMEOUT_MS,
                           process_on_interrupted, process, &err);
    if (!process->interrupting)
        log_warning("a kernel was not interrupted", LOG_ERR(&err));
}

// ---- Stopping and replacing -----------------------------------------------------------------

static void process_on_stopped(const json_t *body, const struct kg_error *err, void *arg);

// Asks the agent to kill the process and all that it left behind; ends in process_on_stopped().
static void
stop_process(struct kernel_process *process)
{
    if (process->stopping)
        return;
    json_auto_t *params = json_pack("{s:s}", "name", process->name);
    struct kg_error err = {0};
    process->stopping = sandbox_agent_call(process->sandbox, "kernels.stop", params,
                                           AGENT_TIMEOUT_MS, process_on_stopped, process, &err);
    if (!process->stopping)
        loop_timer_start(process->unasked, 0);
}

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
    process_set_state(process, PROCESS_REPLACING);
    stop_process(process);
    process->events->on_replacing(process->arg);
}

void
process_on_exit(struct kernel_process *process, int pid, int exit_code, int signal, bool oom)
{
    if (pid != process->pid)
        return;
    log_info("a kernel's process ended", LOG_STR("sandbox", sandbox_id(process->sandbox)),
             LOG_STR("kernel", process->name), LOG_INT("exit_code", exit_code),
             LOG_INT("signal", signal), LOG_INT("oom", oom));
    const struct process_exit exit = {.known = true, exit_code, signal, oom};
    switch (process->state) {
    case PROCESS_STARTING: {
        metric_add(METRIC_KERNEL_DEATHS, 1, cause_of(&exit));
        KG_AUTO_FREE char *reason =
            kg_asprintf("the kernel %s ended before it was ready (code %d, signal %d)",
                        process->name, exit_code, signal);
        start_fail(&process->start, reason);
        return;
    }
    case PROCESS_UP:
        begin_to_end(process);
        break;
    case PROCESS_ENDING:
        break;
    case PROCESS_REPLACING:
    case PROCESS_DEAD:
        return;
    }
    process->exit = exit;
    loop_timer_start(process->ending, LINKS_END_MS);
    end_if_over(process);
}

// ---- Starting -------------------------------------------------------------------------------

void
process_start(struct kernel_process *process)
{
    process->pid = 0;
    process->exit = (struct process_exit){0};
    id_random_hex(process->key, JUPYTER_KEY_LEN);
    start_new(&process->start, process->key);
}

void
process_adopt(struct kernel_process *process, int pid, const char *key, int64_t timeout_ms)
{
    memcpy(process->key, key, JUPYTER_KEY_LEN + 1);
    start_adopt(&process->start, pid, process->key, timeout_ms);
}

static void
process_on_started(int pid, void *arg)
{
    struct kernel_process *process = arg;
    process->pid = pid;
    open_channels(process);
}

static void
process_on_ready(void *arg)
{
    struct kernel_process *process = arg;
    process_set_state(process, PROCESS_UP);
    if (process->is_tapped)
        stdin_link_open(&process->stdin_link, process->channels);
    process->events->on_ready(process->arg);
}

static void
process_on_unusable(void *arg)
{
    process_replace(arg);
}

static void
process_on_failed(const struct kg_error *err, void *arg)
{
    struct kernel_process *process = arg;
    close_channels(process);
    process_set_state(process, PROCESS_DEAD);
    stop_process(process);
    process->events->on_failed(err, process->arg);
}

static const struct process_start_events start_events = {
    .on_started = process_on_started,
    .on_ready = process_on_ready,
    .on_unusable = process_on_unusable,
    .on_failed = process_on_failed,
};

// ---- Life -----------------------------------------------------------------------------------

void
process_init(struct kernel_process *process, const struct kernel_context *context,
             struct sandbox *sandbox, const struct kernel_settings *settings,
             const struct process_events *events, void *arg)
{
    struct loop *loop = context->loop;
    process->context = context;
    process->sandbox = sandbox;
    process->spec = settings->spec;
    process->name = kg_strdup(settings->name ? settings->name : settings->spec->name);
    process->events = events;
    process->arg = arg;
    process->state = PROCESS_STARTING;
    process->dir = kg_asprintf("%s/%s", sandbox_dir(sandbox), process->name);
    struct kernel_settings named = *settings;
    named.name = process->name;
    start_init(&process->start, context, sandbox, &named, &start_events, process);
    stdin_link_init(&process->stdin_link, loop, sandbox, process->name, process_on_stdin_settled,
                    process);
    process->unasked = loop_timer_new(loop, process_on_unasked, process);
    process->ending = loop_timer_new(loop, process_on_ending, process);
}

void
process_fini(struct kernel_process *process)
{
    start_fini(&process->start);
    close_channels(process);
    if (process->stopping)
        sandbox_call_cancel(process->stopping);
    stdin_link_fini(&process->stdin_link);
    loop_timer_free(process->unasked);
    loop_timer_free(process->ending);
    (void)rmdir(process->dir); // it may never have been made
    free(process->dir);
    free(process->name);
}
