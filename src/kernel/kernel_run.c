// SPDX-License-Identifier: Apache-2.0
// Runs one execution on a ready kernel: what is set before, the code itself, its end.
// An execution has ended when both its execute_reply and the idle status for it have come.
// ipykernel can send idle and never a reply, so a second after idle it ends with what is known.

#include <assert.h>
#include <string.h>

#include "kernel_priv.h"
#include "metrics.h"

enum { SETTLE_MS = 1000, EXIT_MS = 2000, WARM_UP_MS = 30 * 1000 };
// Code or values above this are made into a request on a worker.
enum { LARGE_REQUEST = 64 * 1024 };

// The code of a silent request: the kernelspec's template with the values in place of "{json}", as
// a string literal that holds JSON. ASCII throughout, so that it is one in Python and JavaScript.
static char *
fill_template(const char *template, const char *json)
{
    json_auto_t *string = json_string(json);
    KG_AUTO_FREE char *literal = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    KG_AUTO_BUF code = {0};
    static const char mark[] = "{json}";
    for (const char *found; (found = strstr(template, mark)); template = found + strlen(mark)) {
        buf_append(&code, template, (size_t)(found - template));
        buf_append_str(&code, literal);
    }
    buf_append_str(&code, template);
    return buf_take(&code);
}

// "Execute" in the protocol.
static json_t *
execute_content(const char *code, bool silent)
{
    return json_pack("{s:s, s:b, s:b, s:{}, s:b, s:b}", "code", code, "silent", silent,
                     "store_history", !silent, "user_expressions", "allow_stdin", 0,
                     "stop_on_error", 0);
}

// A request's code: as it is (`template` NULL), or a template with the JSON in it.
struct request_code {
    char *template;
    char *text;
    bool silent;
};

static json_t *
request_code_make(void *arg)
{
    const struct request_code *request = arg;
    KG_AUTO_FREE char *filled =
        request->template ? fill_template(request->template, request->text) : NULL;
    return execute_content(filled ? filled : request->text, request->silent);
}

static void
request_code_free(void *arg)
{
    struct request_code *request = arg;
    free(request->template);
    free(request->text);
    free(request);
}

// Sends a request with `text` (taken), in `template` where that is not NULL.
static void
send_request(struct kernel *kernel, const char *template, char *text, bool silent)
{
    struct kg_error err = {0};
    int sent;
    struct request_code *request = KG_NEW(struct request_code);
    request->template = template ? kg_strdup(template) : NULL;
    request->text = text;
    request->silent = silent;
    if (strlen(text) > LARGE_REQUEST) {
        const struct jupyter_content content = {request_code_make, request_code_free, request};
        sent = jupyter_channels_send_large(kernel->channels, JUPYTER_SHELL, "execute_request",
                                           &content, kernel->run.msg_id, &err);
    } else {
        sent = jupyter_channels_send(kernel->channels, JUPYTER_SHELL, "execute_request",
                                     request_code_make(request), kernel->run.msg_id, &err);
        request_code_free(request);
    }
    if (sent < 0) {
        metric_add(METRIC_KERNEL_DEATHS, 1, "lost");
        kernel_fail(kernel, "KernelDied", err.message);
    }
}

static void
send_code(struct kernel *kernel, struct execution *execution)
{
    char *code = KG_STEAL(execution->code);
    execution_release_request(execution); // first: sending may fail, and end the execution
    send_request(kernel, NULL, code, false);
}

// Sends the request of the current step, or of the next one that there is something to do for.
static void
send_step(struct kernel *kernel)
{
    struct kernel_run *run = &kernel->run;
    struct execution *execution = run->execution;
    switch (run->step) {
    case RUN_STARTUP:
        if (kernel->spec->startup_code && !kernel->started_up) {
            send_request(kernel, NULL, kg_strdup(kernel->spec->startup_code), true);
            return;
        }
        break;
    case RUN_VARIABLES:
        if (execution->variables) {
            send_request(kernel, kernel->spec->variables_code, KG_STEAL(execution->variables),
                         true);
            return;
        }
        break;
    case RUN_ENV:
        if (execution->env) {
            send_request(kernel, kernel->spec->env_code, kg_strdup(execution->env), true);
            return;
        }
        break;
    case RUN_CODE:
        send_code(kernel, execution);
        return;
    }
    run->step++;
    send_step(kernel);
}

void
kernel_run_begin(struct kernel *kernel, struct execution *execution)
{
    struct kernel_run *run = &kernel->run;
    assert(!run->execution);
    run->execution = execution;
    run->step = RUN_STARTUP;
    run->replied = run->idle = run->exiting = false;
    run->status = EXECUTION_OK;
    execution->started_us = clock_mono_us();
    execution_set_state(execution, EXECUTION_RUNNING);
    kernel_set_state(kernel, KERNEL_BUSY);
    loop_timer_start(run->timeout, execution->timeout_ms);
    send_step(kernel);
}

// ---- Warming up -----------------------------------------------------------------------------

bool
kernel_warm_up(struct kernel *kernel)
{
    if (!kernel->spec->warmup_code)
        return false;
    struct kg_error err = {0};
    json_t *content = execute_content(kernel->spec->warmup_code, true);
    if (jupyter_channels_send(kernel->channels, JUPYTER_SHELL, "execute_request", content,
                              kernel->warmup_id, &err) < 0) {
        log_warning("a kernel was not warmed up", LOG_ERR(&err));
        return false;
    }
    loop_timer_start(kernel->warming, WARM_UP_MS);
    return true;
}

static void
on_warm_reply(struct kernel *kernel)
{
    kernel->warmup_id[0] = '\0';
    loop_timer_stop(kernel->warming);
    loop_timer_start(kernel->next, 0);
    if (kernel->events->on_warm)
        kernel->events->on_warm(kernel, kernel->arg);
}

// ---- What comes back ------------------------------------------------------------------------

static void
finish_normally(struct kernel *kernel)
{
    const struct kernel_run *run = &kernel->run;
    bool stopped = run->execution->state == EXECUTION_INTERRUPTING;
    kernel_run_finish(kernel, stopped ? run->execution->stop_status : run->status, KERNEL_STAYS);
}

static const char *
string_of(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}

// Whether the code asked the kernel to end.
static bool
asks_exit(const json_t *content)
{
    bool exits = false;
    size_t i;
    json_t *payload;
    json_array_foreach(json_object_get(content, "payload"), i, payload) {
        if (strcmp(string_of(payload, "source", ""), "ask_exit") == 0)
            exits = !json_is_true(json_object_get(payload, "keepkernel"));
    }
    return exits;
}

// A large message is counted as dropped, and shows a line that says so.
static void
take_lines(struct kernel_run *run, struct jupyter_message *message)
{
    if (message->cut_bytes > 0 && message->shaped) {
        metric_add(METRIC_OUTPUT_DROPPED_LINES, 1);
        metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)message->cut_bytes);
    }
    output_append_lines(&run->execution->log, KG_STEAL(message->shaped));
}

static void
on_code_reply(struct kernel *kernel, struct jupyter_message *message)
{
    struct kernel_run *run = &kernel->run;
    const json_t *content = message->content;
    json_int_t count = json_integer_value(json_object_get(content, "execution_count"));
    if (count > 0)
        run->execution->count = kernel->execution_count = count;
    // A reply that was too large says nothing; then an error line does.
    bool ok = strcmp(string_of(content, "status", "error"), "ok") == 0;
    if (message->cut_bytes == 0)
        run->status = ok ? EXECUTION_OK : EXECUTION_ERROR;
    run->exiting = asks_exit(content);
    take_lines(run, message);
    run->replied = true;
    if (!run->exiting)
        kernel_artifacts_ask(kernel, run->execution);
    if (run->exiting)
        loop_timer_start(run->settle, EXIT_MS);
    else if (run->idle)
        finish_normally(kernel);
}

static bool
is_idle(const struct jupyter_message *message)
{
    return strcmp(message->msg_type, "status") == 0 &&
           strcmp(string_of(message->content, "execution_state", ""), "idle") == 0;
}

static void
on_setup_reply(struct kernel *kernel, const json_t *content)
{
    struct kernel_run *run = &kernel->run;
    if (strcmp(string_of(content, "status", "error"), "ok") == 0) {
        if (run->execution->state == EXECUTION_INTERRUPTING) {
            finish_normally(kernel); // nothing would interrupt the code any more
            return;
        }
        loop_timer_stop(run->settle);
        kernel->started_up = true;
        run->step++;
        send_step(kernel);
        return;
    }
    output_append_error(&run->execution->log, string_of(content, "ename", "SetupError"),
                        string_of(content, "evalue", "what goes before the code has failed"),
                        json_object_get(content, "traceback"));
    run->status = EXECUTION_ERROR;
    finish_normally(kernel);
}

static void
on_output(struct kernel *kernel, struct jupyter_message *message)
{
    struct kernel_run *run = &kernel->run;
    if (!is_idle(message)) {
        if (strcmp(message->msg_type, "error") == 0 && !run->replied)
            run->status = EXECUTION_ERROR; // unless a reply says that all is well
        take_lines(run, message);
        return;
    }
    run->idle = true;
    if (run->exiting)
        return;
    kernel_artifacts_ask(kernel, run->execution);
    if (run->replied)
        finish_normally(kernel);
    else
        loop_timer_start(run->settle, SETTLE_MS);
}

void
kernel_run_on_message(struct kernel *kernel, enum jupyter_channel channel,
                      struct jupyter_message *message)
{
    struct kernel_run *run = &kernel->run;
    bool awaited = run->execution && strcmp(message->parent_id, run->msg_id) == 0;
    bool is_reply = channel == JUPYTER_SHELL && strcmp(message->msg_type, "execute_reply") == 0;
    if (!awaited) {
        bool warming = kernel->warmup_id[0] != '\0';
        if (warming && is_reply && strcmp(message->parent_id, kernel->warmup_id) == 0)
            on_warm_reply(kernel);
        else if (channel == JUPYTER_IOPUB && strcmp(message->msg_type, "status") != 0)
            metric_add(METRIC_KERNEL_LATE_MESSAGES, 1);
        return;
    }
    switch (run->step) {
    case RUN_STARTUP:
    case RUN_VARIABLES:
    case RUN_ENV:
        if (is_reply)
            on_setup_reply(kernel, message->content);
        else if (channel == JUPYTER_IOPUB && is_idle(message))
            loop_timer_start(run->settle, SETTLE_MS);
        return;
    case RUN_CODE:
        if (is_reply && !run->replied)
            on_code_reply(kernel, message);
        else if (channel == JUPYTER_IOPUB)
            on_output(kernel, message);
        return;
    }
}

// ---- Its end --------------------------------------------------------------------------------

static void
on_timeout(void *arg)
{
    struct kernel *kernel = arg;
    kernel_stop_execution(kernel, kernel->run.execution, EXECUTION_TIMEOUT);
}

static void
on_settle(void *arg)
{
    struct kernel *kernel = arg;
    if (jupyter_channels_is_receiving(kernel->channels, JUPYTER_SHELL))
        loop_timer_start(kernel->run.settle, SETTLE_MS); // a large reply is on its way
    else if (kernel->run.step == RUN_CODE)
        finish_normally(kernel);
    else
        on_setup_reply(kernel, NULL); // none has come
}

static void
restore_env(struct kernel *kernel, const struct execution *execution)
{
    if (!execution->env || !kernel->spec->env_restore_code)
        return;
    KG_AUTO_FREE char *code = fill_template(kernel->spec->env_restore_code, execution->env);
    struct kg_error err = {0};
    if (jupyter_channels_send(kernel->channels, JUPYTER_SHELL, "execute_request",
                              execute_content(code, true), NULL, &err) < 0)
        log_warning("the environment was not restored", LOG_ERR(&err));
}

void
kernel_run_finish(struct kernel *kernel, enum execution_status status, enum kernel_fate fate)
{
    struct kernel_run *run = &kernel->run;
    KG_AUTO(execution) execution = KG_STEAL(run->execution);
    loop_timer_stop(run->timeout);
    loop_timer_stop(run->settle);
    loop_timer_stop(kernel->grace);
    run->msg_id[0] = '\0';
    if (status == EXECUTION_TIMEOUT) {
        KG_AUTO_FREE char *limit = kg_asprintf("the execution took longer than %.15g s",
                                               (double)execution->timeout_ms / 1000);
        output_append_error(&execution->log, "TimeoutError", limit, NULL);
    }
    if (fate == KERNEL_STAYS) {
        restore_env(kernel, execution);
        kernel_set_state(kernel, KERNEL_READY);
        loop_timer_start(kernel->next, 0);
    }
    kernel_artifacts_finish(kernel, KG_STEAL(execution), status, fate);
}

void
kernel_run_init(struct kernel *kernel)
{
    kernel->run.timeout = loop_timer_new(kernel->context->loop, on_timeout, kernel);
    kernel->run.settle = loop_timer_new(kernel->context->loop, on_settle, kernel);
}

void
kernel_run_fini(struct kernel *kernel)
{
    loop_timer_free(kernel->run.timeout);
    loop_timer_free(kernel->run.settle);
}
