// SPDX-License-Identifier: Apache-2.0
// Brings a kernel up: its process, its channels, and the proof that both directions work.
// Ready means that kernel_info_reply has come and iopub has been heard, so that no first output is
// lost: a SUB socket misses what is published before its subscription has arrived.

#include <string.h>

#include "kernel_priv.h"
#include "metrics.h"

enum { AGENT_TIMEOUT_MS = 10 * 1000, LINK_TIMEOUT_MS = 5 * 1000, RETRY_LINK_MS = 10 };
enum { RETRY_INFO_MS = 20, RETRY_INFO_LATER_MS = 1000, RETRY_SOON = 100, MAX_SAID = 160 };

static void connect_next(struct kernel *kernel);

static void
on_deadline(void *arg)
{
    struct kernel *kernel = arg;
    if (kernel->adopting) {
        bool reached = kernel->start.channel == JUPYTER_N_CHANNELS;
        kernel_start_fail(kernel, reached ? "the kernel did not end what it was doing in time"
                                          : "the kernel could not be reached");
        return;
    }
    KG_AUTO_FREE char *reason =
        kg_asprintf("the kernel %s did not get ready within %lld s", kernel->spec->name,
                    (long long)kernel->context->start_timeout_ms / 1000);
    kernel_start_fail(kernel, reason);
}

static void
ask_info(struct kernel *kernel)
{
    struct kg_error err = {0};
    if (jupyter_channels_send(kernel->channels, JUPYTER_SHELL, "kernel_info_request", json_object(),
                              NULL, &err) < 0)
        log_debug("kernel_info_request not sent", LOG_ERR(&err));
    // A kernel that is busy answers when it is done, however often it is asked.
    bool soon = kernel->start.n_asked++ < RETRY_SOON;
    loop_timer_start(kernel->start.retry, soon ? RETRY_INFO_MS : RETRY_INFO_LATER_MS);
}

static void
go_on(void *arg)
{
    struct kernel *kernel = arg;
    if (kernel->start.channel < JUPYTER_N_CHANNELS)
        connect_next(kernel);
    else
        ask_info(kernel);
}

static void
on_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct kernel *kernel = arg;
    kernel->start.call = NULL;
    struct kg_error err = {0};
    if (fd < 0) {
        log_debug("no link yet", LOG_STR("kernel", kernel->spec->name), LOG_ERR(link_err));
        loop_timer_start(kernel->start.retry, RETRY_LINK_MS);
        return;
    }
    if (jupyter_channels_attach(kernel->channels, kernel->start.channel, fd, &err) < 0) {
        kernel_start_fail(kernel, err.message);
        return;
    }
    kernel->start.channel++;
    if (kernel->adopting && kernel->start.channel == JUPYTER_N_CHANNELS)
        loop_timer_start(kernel->start.deadline, kernel->adopt_timeout_ms);
    go_on(kernel);
}

static void
connect_next(struct kernel *kernel)
{
    KG_AUTO_FREE char *target =
        kg_asprintf("%s/%s", kernel->spec->name, jupyter_channel_name(kernel->start.channel));
    struct kg_error err = {0};
    kernel->start.call =
        sandbox_open_link(kernel->sandbox, target, LINK_TIMEOUT_MS, on_link, kernel, &err);
    if (!kernel->start.call)
        kernel_start_fail(kernel, err.message);
}

static void
on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct kernel *kernel = arg;
    if (kernel->state == KERNEL_STARTING)
        kernel_start_on_message(kernel, channel, message);
    else
        kernel_run_on_message(kernel, channel, message);
}

static void
on_bad_message(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    metric_add(METRIC_KERNEL_BAD_MESSAGES, 1);
    // A tenant can send as many as it likes: the 1st, the 2nd, the 4th, … are logged.
    int64_t n = ++kernel->n_bad_messages;
    if ((n & (n - 1)) != 0)
        return;
    log_warning("dropped a message of a kernel", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
                LOG_STR("kernel", kernel->spec->name),
                LOG_STR("channel", jupyter_channel_name(channel)), LOG_INT("n", n), LOG_ERR(err));
}

static void
on_lost(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    log_info("a channel of a kernel was lost", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
             LOG_STR("kernel", kernel->spec->name),
             LOG_STR("channel", jupyter_channel_name(channel)), LOG_ERR(err));
    enum { EXIT_NEWS_MS = 1000 };
    loop_timer_start(kernel->lost, EXIT_NEWS_MS);
}

// Of what is shown nothing but the lines is looked at.
static void *
shape(enum jupyter_channel channel, struct jupyter_message *message)
{
    struct output_lines *lines = channel == JUPYTER_CONTROL ? NULL : output_lines_of(message);
    if (lines && channel == JUPYTER_IOPUB) {
        json_decref(KG_STEAL(message->structured));
        json_object_clear(message->content);
    }
    return lines;
}

static void
shaped_free(void *shaped)
{
    output_lines_free(shaped);
}

static const struct jupyter_channels_events channels_events = {
    .shape = shape,
    .shaped_free = shaped_free,
    .on_message = on_message,
    .on_bad_message = on_bad_message,
    .on_lost = on_lost,
};

static void
open_channels(struct kernel *kernel)
{
    const struct jupyter_channels_settings settings = {
        .dir = kernel->dir,
        .key = kernel->key,
        .max_message_bytes = executions_max_message_bytes(kernel->context->executions),
    };
    struct kg_error err = {0};
    if (dir_make(kernel->dir, 0700, &err) == 0)
        kernel->channels =
            jupyter_channels_new(kernel->context->loop, &settings, &channels_events, kernel, &err);
    if (kernel->channels)
        connect_next(kernel);
    else
        kernel_start_fail(kernel, err.message);
}

static void
on_process(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct kernel *kernel = arg;
    kernel->start.call = NULL;
    if (!body) {
        kernel_start_fail(kernel, agent_err->message);
        return;
    }
    kernel->pid = (int)json_integer_value(json_object_get(body, "pid"));
    open_channels(kernel);
}

// What every kernel has, then its kernelspec's, then its session's.
static json_t *
merged_env(const struct kernel *kernel)
{
    json_t *env = json_object();
    json_object_update(env, (json_t *)(uintptr_t)kernel->context->env);
    json_object_update(env, kernel->spec->env);
    json_object_update(env, kernel->env);
    return env;
}

static void
reset(struct kernel_start *start)
{
    start->channel = 0;
    start->n_asked = 0;
    start->info_replied = start->iopub_heard = false;
}

void
kernel_start_begin(struct kernel *kernel)
{
    struct kernel_start *start = &kernel->start;
    reset(start);
    kernel->started_up = false;
    kernel->pid = 0;
    id_random_hex(kernel->key, JUPYTER_KEY_LEN);
    loop_timer_start(start->deadline, kernel->context->start_timeout_ms);
    json_auto_t *body =
        json_pack("{s:s, s:O, s:o, s:s, s:s, s:s}", "name", kernel->spec->name, "argv",
                  kernel->spec->argv, "env", merged_env(kernel), "cwd", "/mnt/data", "key",
                  kernel->key, "transport", kernel->spec->transport);
    struct kg_error err = {0};
    start->call = sandbox_agent_call(kernel->sandbox, "POST", "/kernels", body, AGENT_TIMEOUT_MS,
                                     on_process, kernel, &err);
    if (!start->call)
        kernel_start_fail(kernel, err.message);
}

void
kernel_start_adopt(struct kernel *kernel)
{
    reset(&kernel->start);
    kernel->started_up = false; // for all that is known
    loop_timer_start(kernel->start.deadline, kernel->context->start_timeout_ms);
    open_channels(kernel);
}

void
kernel_start_cancel(struct kernel *kernel)
{
    struct kernel_start *start = &kernel->start;
    if (start->call)
        sandbox_call_cancel(KG_STEAL(start->call));
    loop_timer_stop(start->deadline);
    loop_timer_stop(start->retry);
    loop_timer_stop(start->give_up);
}

void
kernel_start_on_message(struct kernel *kernel, enum jupyter_channel channel,
                        const struct jupyter_message *message)
{
    struct kernel_start *start = &kernel->start;
    if (channel == JUPYTER_IOPUB)
        start->iopub_heard = true;
    else if (channel == JUPYTER_SHELL && strcmp(message->msg_type, "kernel_info_reply") == 0)
        start->info_replied = true;
    if (start->channel < JUPYTER_N_CHANNELS || !start->info_replied || !start->iopub_heard)
        return;
    kernel_start_cancel(kernel);
    kernel_on_ready(kernel);
}

// ---- Failure --------------------------------------------------------------------------------

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

static void
on_said(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    (void)agent_err; // then there is just nothing to add
    struct kernel *kernel = arg;
    kernel->start.call = NULL;
    KG_AUTO_FREE char *reason = KG_STEAL(kernel->start.failure);
    const char *said = json_string_value(json_object_get(body, "log_tail"));
    char line[MAX_SAID + 1] = "";
    if (said)
        last_line(said, line);
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "%s%s%s", reason, *line ? "; it said: " : "",
                 line);
    kernel_on_start_failed(kernel, &err);
}

static void
on_give_up(void *arg)
{
    on_said(NULL, NULL, arg);
}

void
kernel_start_fail(struct kernel *kernel, const char *reason)
{
    if (kernel->adopting) {
        log_warning("an adopted kernel is replaced",
                    LOG_STR("sandbox", sandbox_id(kernel->sandbox)), LOG_STR("reason", reason));
        kernel_replace(kernel);
        return;
    }
    kernel_start_cancel(kernel);
    free(kernel->start.failure);
    kernel->start.failure = kg_strdup(reason);
    KG_AUTO_FREE char *path = kg_asprintf("/kernels/%s", kernel->spec->name);
    kernel->start.call = sandbox_agent_call(kernel->sandbox, "GET", path, NULL, AGENT_TIMEOUT_MS,
                                            on_said, kernel, NULL);
    if (!kernel->start.call)
        loop_timer_start(kernel->start.give_up, 0);
}

void
kernel_start_init(struct kernel *kernel)
{
    struct loop *loop = kernel->context->loop;
    kernel->start.deadline = loop_timer_new(loop, on_deadline, kernel);
    kernel->start.retry = loop_timer_new(loop, go_on, kernel);
    kernel->start.give_up = loop_timer_new(loop, on_give_up, kernel);
}

void
kernel_start_fini(struct kernel *kernel)
{
    kernel_start_cancel(kernel);
    loop_timer_free(kernel->start.deadline);
    loop_timer_free(kernel->start.retry);
    loop_timer_free(kernel->start.give_up);
    free(kernel->start.failure);
}
