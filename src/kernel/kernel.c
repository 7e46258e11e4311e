// SPDX-License-Identifier: Apache-2.0
// A kernel for its session: joins the process and the runner, and reports what they do.

#include "kernel_priv.h"

#include <string.h>

bool
kernel_name_valid(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= KERNEL_MAX_NAME_LEN &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

enum kernel_state
kernel_state(const struct kernel *kernel)
{
    const struct execution *running = kernel->runner.run.execution;
    switch (kernel->process.state) {
    case PROCESS_STARTING:
        return KERNEL_STARTING;
    case PROCESS_UP:
        if (!running)
            return kernel->hub.n_executing > 0 ? KERNEL_BUSY : KERNEL_READY;
        return running->state == EXECUTION_INTERRUPTING ? KERNEL_INTERRUPTING : KERNEL_BUSY;
    case PROCESS_ENDING:
        return running ? KERNEL_BUSY : KERNEL_RESTARTING;
    case PROCESS_REPLACING:
        return KERNEL_RESTARTING;
    case PROCESS_DEAD:
        return KERNEL_DEAD;
    }
    return KERNEL_DEAD;
}

const char *
kernel_state_name(enum kernel_state state)
{
    static const char *const names[] = {
        [KERNEL_STARTING] = "starting",
        [KERNEL_READY] = "ready",
        [KERNEL_BUSY] = "busy",
        [KERNEL_INTERRUPTING] = "interrupting",
        [KERNEL_RESTARTING] = "restarting",
        [KERNEL_DEAD] = "dead",
    };
    return names[state];
}

// ---- Reports to the session -----------------------------------------------------------------

static void
report_restarted(struct kernel *kernel, const struct kg_error *err)
{
    kernel_restart_fn fn = kernel->on_restarted;
    kernel->on_restarted = NULL;
    if (fn)
        fn(err, kernel->on_restarted_arg);
}

static void
report_settled(struct kernel *kernel, const struct kg_error *err)
{
    report_restarted(kernel, err);
    if (!kernel->reported_started) {
        kernel->reported_started = true;
        kernel->events->on_started(kernel, err, kernel->arg);
    }
    if (kernel->events->on_settled)
        kernel->events->on_settled(kernel, kernel->arg);
}

static void
kernel_on_execution_done(struct execution *execution, void *arg)
{
    struct kernel *kernel = arg;
    kernel->events->on_execution_done(kernel, execution, kernel->arg);
}

static void
kernel_on_warm(void *arg)
{
    struct kernel *kernel = arg;
    if (kernel->events->on_warm)
        kernel->events->on_warm(kernel, kernel->arg);
}

// A question between two cells.
struct kernel_question {
    struct kernel *kernel;
    kernel_answer_fn fn; // NULL: nobody wants to know any more
    void *arg;
};

static void
question_end(struct kernel_question *question, const json_t *content, const struct kg_error *err)
{
    kernel_answer_fn fn = question->fn;
    void *arg = question->arg;
    question->kernel->question = NULL;
    free(question);
    if (fn)
        fn(content, err, arg);
}

static void
kernel_question_fail(struct kernel_question *question, const char *why)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_BUSY, 0, "%.200s", why);
    if (question)
        question_end(question, NULL, &err);
}

static void
kernel_question_on_answer(struct kernel_question *question, const json_t *content,
                          const char *failure)
{
    if (failure)
        kernel_question_fail(question, failure);
    else
        question_end(question, content, NULL);
}

static void
kernel_on_asked(const json_t *content, const char *failure, void *arg)
{
    struct kernel *kernel = arg;
    if (kernel->question)
        kernel_question_on_answer(kernel->question, content, failure);
    else if (kernel->making)
        savepoint_making_on_asked(kernel->making, content, failure);
}

static const struct runner_events runner_events = {
    .on_execution_done = kernel_on_execution_done,
    .on_warm = kernel_on_warm,
    .on_asked = kernel_on_asked,
};

// ---- What the hub reports -------------------------------------------------------------------

static void
kernel_on_own_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct kernel *kernel = arg;
    runner_on_message(&kernel->runner, channel, message);
}

static void
kernel_on_taps_idle(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_taps_idle(&kernel->runner);
}

static void
kernel_on_tap_held(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_tap_held(&kernel->runner);
}

static const struct hub_events hub_events = {
    .on_own_message = kernel_on_own_message,
    .on_idle = kernel_on_taps_idle,
    .on_held = kernel_on_tap_held,
};

// ---- What the process reports ---------------------------------------------------------------

static void
kernel_on_ready(void *arg)
{
    struct kernel *kernel = arg;
    kernel->has_started = true;
    runner_on_ready(&kernel->runner);
    hub_on_ready(&kernel->hub);
    report_settled(kernel, NULL);
}

static void
set_end_reason(struct kernel *kernel, char *reason)
{
    free(kernel->end_reason);
    kernel->end_reason = reason;
}

static void
kernel_on_failed(const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    set_end_reason(kernel, kg_strdup(err->message));
    runner_on_failed(&kernel->runner, err);
    hub_on_dead(&kernel->hub);
    report_settled(kernel, err);
}

static void
kernel_on_process_end(const struct process_end *end, void *arg)
{
    struct kernel *kernel = arg;
    kernel->end = end;
    runner_on_end(&kernel->runner, end);
    kernel->end = NULL;
}

static void
note_replaced(struct kernel *kernel, const struct process_end *end)
{
    if (!kernel->has_started)
        return;
    free(kernel->replaced_why);
    kernel->replaced_ms = clock_wall_ms();
    kernel->replaced_why = end ? kg_asprintf("%s: %s", end->ename, end->evalue)
                           : kernel->process.start.savepoint
                               ? kg_strdup("KernelRestarted: the kernel went back to a savepoint")
                               : kg_strdup("KernelRestarted: the kernel was restarted");
}

static void
kernel_on_replacing(void *arg)
{
    struct kernel *kernel = arg;
    const struct process_end *end = kernel->on_restarted ? NULL
                                    : kernel->end        ? kernel->end
                                                         : runner_end_of(&kernel->runner);
    note_replaced(kernel, end);
    set_end_reason(kernel, end ? kg_strdup(end->evalue) : NULL);
    hub_on_replacing(&kernel->hub, end);
    runner_on_replacing(&kernel->runner);
    if (kernel->events->on_replaced)
        kernel->events->on_replaced(kernel, kernel->arg);
}

static void
kernel_on_replaced(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_replaced(&kernel->runner);
}

static void
kernel_on_stuck(const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    set_end_reason(kernel, kg_strdup(err->message));
    runner_on_stuck(&kernel->runner, err);
    hub_on_dead(&kernel->hub);
    report_settled(kernel, err);
    kernel->events->on_broken(kernel, err, kernel->arg);
}

static void
kernel_on_interrupted(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_interrupted(&kernel->runner);
}

static void
kernel_on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct kernel *kernel = arg;
    hub_on_message(&kernel->hub, channel, message);
}

static void
kernel_on_begun(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_begun(&kernel->runner);
}

static void
kernel_on_room(void *arg)
{
    struct kernel *kernel = arg;
    hub_flush(&kernel->hub);
}

static void
kernel_on_stdin_settled(void *arg)
{
    struct kernel *kernel = arg;
    runner_on_stdin_settled(&kernel->runner);
}

static const struct process_events process_events = {
    .on_ready = kernel_on_ready,
    .on_failed = kernel_on_failed,
    .on_end = kernel_on_process_end,
    .on_replacing = kernel_on_replacing,
    .on_replaced = kernel_on_replaced,
    .on_stuck = kernel_on_stuck,
    .on_interrupted = kernel_on_interrupted,
    .on_message = kernel_on_message,
    .on_begun = kernel_on_begun,
    .on_room = kernel_on_room,
    .on_stdin_settled = kernel_on_stdin_settled,
    .shape = runner_shape,
    .shaped_free = runner_shaped_free,
};

// ---- Life -----------------------------------------------------------------------------------

static struct kernel *
kernel_make(const struct kernel_context *context, struct sandbox *sandbox,
            const struct kernel_settings *settings, const struct kernel_events *events, void *arg)
{
    struct kernel *kernel = KG_NEW(struct kernel);
    kernel->events = events;
    kernel->arg = arg;
    process_init(&kernel->process, context, sandbox, settings, &process_events, kernel);
    hub_init(&kernel->hub, context, &kernel->process, &hub_events, kernel);
    runner_init(&kernel->runner, context, &kernel->process, &kernel->hub, &runner_events, kernel);
    kernel_set_folder(kernel, settings->folder, settings->home);
    return kernel;
}

struct kernel *
kernel_new(const struct kernel_context *context, struct sandbox *sandbox,
           const struct kernel_settings *settings, const struct kernel_events *events, void *arg)
{
    struct kernel *kernel = kernel_make(context, sandbox, settings, events, arg);
    process_start(&kernel->process);
    return kernel;
}

struct kernel *
kernel_adopt(const struct kernel_context *context, struct sandbox *sandbox,
             const struct kernel_settings *settings, const json_t *process, int64_t timeout_ms,
             const struct kernel_events *events, void *arg)
{
    const char *key = json_string_value(json_object_get(process, "key"));
    const char *state = json_string_value(json_object_get(process, "state"));
    int pid = (int)json_integer_value(json_object_get(process, "pid"));
    if (!key || strlen(key) != JUPYTER_KEY_LEN || !state || strcmp(state, "running") != 0)
        return NULL;
    struct kernel *kernel = kernel_make(context, sandbox, settings, events, arg);
    kernel->has_started = true;
    process_adopt(&kernel->process, pid, key, timeout_ms);
    return kernel;
}

void
kernel_free(struct kernel *kernel, const char *reason)
{
    if (!kernel)
        return;
    const char *evalue = reason ? reason : "the session was ended";
    savepoint_making_fail(kernel->making, evalue);
    kernel_question_fail(kernel->question, evalue);
    runner_end(&kernel->runner, evalue);
    hub_fini(&kernel->hub, evalue);
    process_fini(&kernel->process);
    runner_fini(&kernel->runner);
    free(kernel->replaced_why);
    free(kernel->end_reason);
    free(kernel);
}

void
kernel_set_events(struct kernel *kernel, const struct kernel_events *events, void *arg)
{
    kernel->events = events;
    kernel->arg = arg;
}

// A HOME among the session's own variables wins.
void
kernel_set_folder(struct kernel *kernel, const char *folder, const char *home)
{
    struct process_start *start = &kernel->process.start;
    start_set_folder(start, folder, home);
    runner_set_folder(&kernel->runner, folder, json_object_get(start->env, "HOME") ? NULL : home);
}

const struct kernelspec *
kernel_spec(const struct kernel *kernel)
{
    return kernel->process.spec;
}

const char *
kernel_name(const struct kernel *kernel)
{
    return kernel->process.name;
}

const char *
kernel_folder(const struct kernel *kernel)
{
    return kernel->process.start.folder;
}

bool
kernel_is_starting(const struct kernel *kernel)
{
    switch (kernel->process.state) {
    case PROCESS_STARTING:
        return !kernel->process.start.adopting;
    case PROCESS_ENDING:
    case PROCESS_REPLACING:
        return true;
    case PROCESS_UP:
    case PROCESS_DEAD:
        return false;
    }
    return false;
}

bool
kernel_has_started(const struct kernel *kernel)
{
    return kernel->has_started;
}

int64_t
kernel_execution_count(const struct kernel *kernel)
{
    return kernel->runner.execution_count;
}

json_t *
kernel_describe(const struct kernel *kernel)
{
    json_t *description = json_pack("{s:s, s:I}", "state", kernel_state_name(kernel_state(kernel)),
                                    "execution_count", (json_int_t)kernel_execution_count(kernel));
    if (kernel->replaced_ms) {
        char at[CLOCK_RFC3339_LEN];
        clock_format_rfc3339(kernel->replaced_ms, at);
        json_object_set_new(description, "replaced",
                            json_pack("{s:s, s:s}", "at", at, "reason", kernel->replaced_why));
    }
    return description;
}

bool
kernel_is_busy(const struct kernel *kernel)
{
    return runner_is_busy(&kernel->runner) || hub_is_busy(&kernel->hub) ||
           kernel->process.start.adopting || kernel->making || kernel->question;
}

bool
kernel_is_running(const struct kernel *kernel)
{
    const struct run *run = &kernel->runner.run;
    return (run->execution && !run->cell.idle) || kernel->hub.n_executing > 0 ||
           kernel->process.start.adopting;
}

struct execution *
kernel_execution(const struct kernel *kernel)
{
    const struct run *run = &kernel->runner.run;
    return run->step == RUN_CODE ? run->execution : NULL;
}

bool
kernel_has_unread_output(const struct kernel *kernel)
{
    const struct jupyter_channels *channels = kernel->process.channels;
    return channels && jupyter_channels_is_receiving(channels, JUPYTER_IOPUB);
}

const char *
kernel_info(const struct kernel *kernel)
{
    return kernel->process.state == PROCESS_UP ? kernel->process.start.info : NULL;
}

const char *
kernel_end_reason(const struct kernel *kernel)
{
    return kernel->end_reason;
}

// ---- What the session asks for --------------------------------------------------------------

struct execution *
kernel_execute(struct kernel *kernel, const struct execution_request *request, struct kg_error *err)
{
    return runner_execute(&kernel->runner, request, err);
}

bool
kernel_warm_up(struct kernel *kernel)
{
    return runner_warm_up(&kernel->runner);
}

bool
kernel_interrupt(struct kernel *kernel)
{
    bool runs = kernel->runner.run.execution != NULL, any = runner_is_busy(&kernel->runner);
    bool reaches = kernel->process.start.adopting || hub_can_be_interrupted(&kernel->hub) ||
                   *kernel->runner.ask_id;
    runner_interrupt(&kernel->runner);
    if (!runs && reaches) {
        tap_runs_on_interrupt(&kernel->hub.runs);
        process_interrupt(&kernel->process);
    }
    return any || reaches;
}

int
kernel_restart(struct kernel *kernel, kernel_restart_fn on_done, void *arg, struct kg_error *err)
{
    if (kernel->on_restarted || kernel->process.state == PROCESS_REPLACING)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the kernel is being restarted already");
    kernel->on_restarted = on_done;
    kernel->on_restarted_arg = arg;
    runner_kill(&kernel->runner);
    process_replace(&kernel->process);
    return 0;
}

int
kernel_restore(struct kernel *kernel, const char *savepoint, int64_t execution_count, bool files,
               kernel_restart_fn on_done, void *arg, struct kg_error *err)
{
    if (!kernel->on_restarted && kernel->process.state != PROCESS_REPLACING)
        start_set_savepoint(&kernel->process.start, savepoint, files);
    if (kernel_restart(kernel, on_done, arg, err) < 0)
        return -1;
    kernel->runner.execution_count = execution_count;
    return 0;
}

struct kernel_question *
kernel_ask(struct kernel *kernel, const char *msg_type, json_t *content, int64_t timeout_ms,
           kernel_answer_fn fn, void *arg, struct kg_error *err)
{
    if (kernel->making || kernel->question || kernel_is_busy(kernel) ||
        kernel_state(kernel) != KERNEL_READY) {
        json_decref(content);
        kg_error_set(err, KG_KERNEL_BUSY, 0, "the kernel is %s: it answers between two cells",
                     kernel->making || kernel->question ? "busy with another question"
                                                        : kernel_state_name(kernel_state(kernel)));
        return NULL;
    }
    if (runner_ask(&kernel->runner, msg_type, content, timeout_ms, err) < 0)
        return NULL;
    struct kernel_question *question = KG_NEW(struct kernel_question);
    question->kernel = kernel;
    question->fn = fn;
    question->arg = arg;
    kernel->question = question;
    return question;
}

// The kernel still answers, and is asked nothing else until then.
void
kernel_question_cancel(struct kernel_question *question)
{
    if (question)
        question->fn = NULL;
}

struct kernel_tap *
kernel_tap_open(struct kernel *kernel, const struct kernel_tap_settings *settings, loop_fn on_ready,
                void *arg, struct kg_error *err)
{
    return hub_open_tap(&kernel->hub, settings, on_ready, arg, err);
}

void
kernel_on_exit(struct kernel *kernel, int pid, int exit_code, int signal, bool oom)
{
    process_on_exit(&kernel->process, pid, exit_code, signal, oom);
}
