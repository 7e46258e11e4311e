// SPDX-License-Identifier: Apache-2.0
// Sandboxes, their agents' answers, the journal of what they were asked.

#include "fake_sandbox.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

enum { MAX_PROCESSES = 10 };

struct process {
    struct sandbox *sandbox;
    char name[40];
    int pid;
    char *key;
    json_t *env;
    struct fake_kernel *kernel; // NULL: it has ended
};

struct sandbox_call {
    TAILQ_ENTRY(sandbox_call) link;
    struct sandbox *sandbox;
    char *what; // "POST /kernels", or a link's target
    json_t *body;
    sandbox_agent_fn on_answer; // or
    sandbox_link_fn on_link;    // or
    struct sandbox_stream_events stream;
    bool begun; // of a stream
    void *arg;
    struct loop_timer *timer;
};

struct sandbox_question {
    TAILQ_ENTRY(sandbox_question) link;
    struct sandbox *sandbox;
    sandbox_changes_fn fn;
    void *arg;
    struct loop_timer *timer;
};

struct sandbox {
    TAILQ_ENTRY(sandbox) link;
    char id[17];
    char *dir;
    enum sandbox_state state;
    bool claimed; // already, where it was adopted
    const struct sandbox_events *events;
    void *arg;
    struct process processes[MAX_PROCESSES];
    size_t n_processes;
    TAILQ_HEAD(, sandbox_call) calls;
    TAILQ_HEAD(, sandbox_question) questions;
    struct loop_timer *timer; // to get ready, to be claimed, then to be destroyed
    sandbox_claim_fn on_claimed;
    void *on_claimed_arg;
    sandbox_done_fn on_destroyed;
    void *on_destroyed_arg;
};

struct fake_script fake_script;

static struct {
    struct loop *loop;
    char dir[32];
    TAILQ_HEAD(sandbox_list, sandbox) sandboxes;
    int last_pid;
    struct buf journal;
} fakes;

// ---- All of them ----------------------------------------------------------------------------

void
fake_sandboxes_init(struct loop *loop)
{
    fake_script = (struct fake_script){0};
    fakes.loop = loop;
    TAILQ_INIT(&fakes.sandboxes);
    strcpy(fakes.dir, "/tmp/kg-fake-XXXXXX");
    char *made = mkdtemp(fakes.dir);
    assert(made);
}

void
fake_sandboxes_fini(void)
{
    struct kg_error err = {0};
    assert(TAILQ_EMPTY(&fakes.sandboxes));
    buf_fini(&fakes.journal);
    int removed = path_remove_tree(fakes.dir, &err);
    assert(removed == 0);
}

size_t
fake_sandboxes_count(void)
{
    size_t n = 0;
    struct sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &fakes.sandboxes, link)
        n++;
    return n;
}

struct sandbox *
fake_sandboxes_last(void)
{
    return TAILQ_LAST(&fakes.sandboxes, sandbox_list);
}

struct sandbox *
fake_sandboxes_unready(void)
{
    struct sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &fakes.sandboxes, link) {
        if (sandbox->state == SANDBOX_CREATING)
            return sandbox;
    }
    return NULL;
}

void
fake_sandboxes_release(void)
{
    fake_script.hold_signal = fake_script.hold_stop = fake_script.hold_changes = false;
    fake_script.hold_claims = false;
    struct sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &fakes.sandboxes, link) {
        if (sandbox->state == SANDBOX_CLAIMING)
            loop_timer_start(sandbox->timer, 0);
        struct sandbox_call *call;
        TAILQ_FOREACH(call, &sandbox->calls, link)
            loop_timer_start(call->timer, 0);
        struct sandbox_question *question;
        TAILQ_FOREACH(question, &sandbox->questions, link)
            loop_timer_start(question->timer, 0);
    }
}

static void
note(const char *what, const char *name)
{
    buf_printf(&fakes.journal, "%s%s%s\n", what, *name ? " " : "", name);
}

const char *
fake_journal(void)
{
    return fakes.journal.data ? fakes.journal.data : "";
}

void
fake_journal_clear(void)
{
    buf_fini(&fakes.journal);
}

size_t
fake_journal_count(const char *line)
{
    size_t n = 0;
    size_t len = strlen(line);
    for (const char *at = fake_journal(); *at; at = strchr(at, '\n') + 1)
        n += strncmp(at, line, len) == 0 && at[len] == '\n';
    return n;
}

// ---- Processes ------------------------------------------------------------------------------

static struct process *
find_process(const struct sandbox *sandbox, const char *name, size_t name_len)
{
    for (size_t i = sandbox->n_processes; i-- > 0;) {
        const struct process *process = &sandbox->processes[i];
        if (strlen(process->name) == name_len && strncmp(process->name, name, name_len) == 0)
            return (struct process *)(uintptr_t)process;
    }
    return NULL;
}

static void
on_kernel_request(const char *what, void *arg)
{
    (void)arg;
    note(what, "");
}

static void
on_kernel_exit(int signal, bool oom, void *arg)
{
    const struct process *process = arg;
    fake_sandbox_kill(process->sandbox, process->name);
    fake_sandbox_tell_exit(process->sandbox, process->name, process->pid, -1, signal, oom);
}

static const struct fake_kernel_events kernel_events = {on_kernel_request, on_kernel_exit};

static struct process *
start_process(struct sandbox *sandbox, const json_t *body)
{
    assert(sandbox->n_processes < MAX_PROCESSES);
    struct process *process = &sandbox->processes[sandbox->n_processes++];
    process->sandbox = sandbox;
    process->pid = ++fakes.last_pid;
    process->env = json_incref(json_object_get(body, "env"));
    snprintf(process->name, sizeof process->name, "%s",
             json_string_value(json_object_get(body, "name")));
    process->key = kg_strdup(json_string_value(json_object_get(body, "key")));
    process->kernel = fake_kernel_new(fakes.loop, fakes.dir, process->pid, process->key,
                                      fake_script.mute, &kernel_events, process);
    return process;
}

void
fake_sandbox_run(struct sandbox *sandbox, const char *name)
{
    char key[JUPYTER_KEY_LEN + 1];
    id_random_hex(key, JUPYTER_KEY_LEN);
    json_auto_t *body = json_pack("{s:s, s:s, s:{}}", "name", name, "key", key, "env");
    start_process(sandbox, body);
}

static json_t *
describe_process(const struct process *process)
{
    return json_pack("{s:i, s:s, s:s, s:s*}", "pid", process->pid, "key", process->key, "state",
                     process->kernel ? "running" : "exited", "log_tail", fake_script.log_tail);
}

struct fake_kernel *
fake_sandbox_kernel(const struct sandbox *sandbox, const char *name)
{
    const struct process *process = find_process(sandbox, name, strlen(name));
    return process ? process->kernel : NULL;
}

const json_t *
fake_sandbox_env(const struct sandbox *sandbox, const char *name)
{
    return find_process(sandbox, name, strlen(name))->env;
}

int
fake_sandbox_pid(const struct sandbox *sandbox, const char *name)
{
    return find_process(sandbox, name, strlen(name))->pid;
}

void
fake_sandbox_kill(struct sandbox *sandbox, const char *name)
{
    fake_kernel_free(KG_STEAL(find_process(sandbox, name, strlen(name))->kernel));
}

void
fake_sandbox_mute(const struct sandbox *sandbox, const char *name)
{
    fake_kernel_mute(fake_sandbox_kernel(sandbox, name));
}

void
fake_sandbox_tell_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code,
                       int signal, bool oom)
{
    sandbox->events->on_kernel_exit(sandbox, name, pid, exit_code, signal, oom, sandbox->arg);
}

// ---- The agent ------------------------------------------------------------------------------

static void
call_free(struct sandbox_call *call)
{
    TAILQ_REMOVE(&call->sandbox->calls, call, link);
    loop_timer_free(call->timer);
    json_decref(call->body);
    free(call->what);
    free(call);
}

void
sandbox_call_cancel(struct sandbox_call *call)
{
    if (call)
        call_free(call);
}

static void
open_link(const struct sandbox_call *call, sandbox_link_fn fn, void *arg)
{
    struct kg_error err = {0};
    size_t name_len = strcspn(call->what, "/");
    const struct process *process = find_process(call->sandbox, call->what, name_len);
    if (fake_script.refuse_links || !process || !process->kernel) {
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "no such target yet");
        fn(-1, &err, arg);
        return;
    }
    enum jupyter_channel channel = JUPYTER_SHELL;
    while (strcmp(jupyter_channel_name(channel), call->what + name_len + 1) != 0)
        channel++;
    fn(fake_kernel_connect(process->kernel, channel), NULL, arg);
}

// Answers POST /kernels, GET /kernels/NAME, POST /kernels/NAME/signal and …/stop.
static json_t *
answer(struct sandbox_call *call, struct kg_error *err)
{
    if (strcmp(call->what, "POST /kernels") == 0) {
        if (fake_script.refuse_start) {
            kg_error_set(err, KG_INTERNAL, 0, "the agent has no program for it");
            return NULL;
        }
        return json_pack("{s:i}", "pid", start_process(call->sandbox, call->body)->pid);
    }
    if (strcmp(call->what, "GET /kernels") == 0)
        return json_pack("{s:[]}", "kernels"); // those of an adopted sandbox: none
    const char *name = strstr(call->what, "/kernels/") + strlen("/kernels/");
    size_t name_len = strcspn(name, "/");
    struct process *process = find_process(call->sandbox, name, name_len);
    if (strncmp(call->what, "GET ", 4) == 0)
        return process ? describe_process(process)
                       : json_pack("{s:s*}", "log_tail", fake_script.log_tail);
    if (process && process->kernel && strstr(call->what, "/signal"))
        fake_kernel_interrupt(process->kernel);
    else if (process && strstr(call->what, "/stop"))
        fake_kernel_free(KG_STEAL(process->kernel));
    return json_object();
}

// A file of 1500 bytes, it says; whoever listens has to end it.
static void
flood(struct sandbox_call *call)
{
    static const char data[1024] = "{";
    loop_timer_start(call->timer, 0);
    if (call->begun) {
        call->stream.on_data(data, sizeof data, call->arg);
        return;
    }
    call->begun = true;
    if (call->stream.on_head)
        call->stream.on_head(200, call->arg);
}

const char *
sandbox_stream_header(struct sandbox_call *call, const char *name)
{
    (void)call;
    if (strcmp(name, "X-Kg-Size") == 0 || strcmp(name, "X-Kg-Length") == 0)
        return "1500";
    return strcmp(name, "ETag") == 0 ? "\"a\"" : "0";
}

void
sandbox_stream_pause(struct sandbox_call *call, bool paused)
{
    (void)call;
    assert(!paused);
}

static void
on_call(void *arg)
{
    struct sandbox_call *call = arg;
    if (call->stream.on_end) {
        flood(call);
        return;
    }
    bool stop = strstr(call->what, "/stop");
    if ((fake_script.hold_stop && stop) || (fake_script.hold_signal && strstr(call->what, "/sig")))
        return;
    sandbox_link_fn on_link = call->on_link;
    if (on_link) {
        struct sandbox_call taken = *call;
        taken.what = kg_strdup(call->what);
        call_free(call);
        open_link(&taken, on_link, taken.arg);
        free(taken.what);
        return;
    }
    struct kg_error err = {0};
    sandbox_agent_fn on_answer = call->on_answer;
    void *on_answer_arg = call->arg;
    json_auto_t *body = answer(call, &err);
    call_free(call);
    on_answer(body, body ? NULL : &err, on_answer_arg);
}

static struct sandbox_call *
call_new(struct sandbox *sandbox, char *what, void *arg, struct kg_error *err)
{
    assert(sandbox->state == SANDBOX_CLAIMED || sandbox->state == SANDBOX_CLAIMING ||
           sandbox->state == SANDBOX_READY);
    if (fake_script.refuse_calls) {
        free(what);
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent cannot be asked");
        return NULL;
    }
    struct sandbox_call *call = KG_NEW(struct sandbox_call);
    call->sandbox = sandbox;
    call->what = what;
    call->arg = arg;
    call->timer = loop_timer_new(fakes.loop, on_call, call);
    loop_timer_start(call->timer, 0);
    TAILQ_INSERT_TAIL(&sandbox->calls, call, link);
    return call;
}

struct sandbox_call *
sandbox_open_link(struct sandbox *sandbox, const char *target, int64_t timeout_ms,
                  sandbox_link_fn fn, void *arg, struct kg_error *err)
{
    assert(timeout_ms > 0);
    struct sandbox_call *call = call_new(sandbox, kg_strdup(target), arg, err);
    if (call)
        call->on_link = fn;
    return call;
}

struct sandbox_call *
sandbox_agent_call(struct sandbox *sandbox, const char *method, const char *path,
                   const json_t *body, int64_t timeout_ms, sandbox_agent_fn fn, void *arg,
                   struct kg_error *err)
{
    assert(timeout_ms > 0);
    KG_AUTO_FREE char *name = kg_strdup(strncmp(path, "/kernels/", 9) == 0 ? path + 9 : "");
    char *verb = strchr(name, '/');
    if (verb) {
        *verb++ = '\0';
        note(verb, name);
    } else if (body && *name == '\0') {
        note("start", json_string_value(json_object_get(body, "name")));
    }
    struct sandbox_call *call = call_new(sandbox, kg_asprintf("%s %s", method, path), arg, err);
    if (!call)
        return NULL;
    call->on_answer = fn;
    call->body = body ? json_deep_copy(body) : NULL;
    return call;
}

// ---- Its life -------------------------------------------------------------------------------

void
fake_sandbox_ready(struct sandbox *sandbox)
{
    sandbox->state = sandbox->claimed ? SANDBOX_CLAIMED : SANDBOX_READY;
    sandbox->events->on_ready(sandbox, sandbox->arg);
}

void
fake_sandbox_gone(struct sandbox *sandbox)
{
    struct kg_error reason = {0};
    kg_error_set(&reason, KG_INTERNAL, 0, "the container has ended");
    sandbox->state = SANDBOX_GONE;
    sandbox->events->on_gone(sandbox, &reason, sandbox->arg);
}

static void
end_claim(struct sandbox *sandbox)
{
    struct kg_error err = {0};
    if (fake_script.refuse_claim)
        kg_error_set(&err, KG_DISK_FULL, 0, "the claim cannot be written");
    if (fake_script.lose_claims > 0) {
        fake_script.lose_claims--;
        kg_error_set(&err, KG_NOT_FOUND, 0, "another gateway has the sandbox");
    }
    sandbox->state = err.code == KG_OK          ? SANDBOX_CLAIMED
                     : err.code == KG_NOT_FOUND ? SANDBOX_GONE
                                                : SANDBOX_READY;
    sandbox->on_claimed(sandbox, err.code == KG_OK ? NULL : &err, sandbox->on_claimed_arg);
}

static void
on_timer(void *arg)
{
    struct sandbox *sandbox = arg;
    if (sandbox->state == SANDBOX_CLAIMING) {
        end_claim(sandbox);
        return;
    }
    if (sandbox->state != SANDBOX_DESTROYING) {
        fake_sandbox_ready(sandbox);
        return;
    }
    sandbox_done_fn fn = sandbox->on_destroyed;
    void *fn_arg = sandbox->on_destroyed_arg;
    sandbox_free(sandbox);
    if (fn)
        fn(NULL, fn_arg);
}

static struct sandbox *
make(const char *id, bool claimed, const struct sandbox_events *events, void *arg)
{
    struct sandbox *sandbox = KG_NEW(struct sandbox);
    snprintf(sandbox->id, sizeof sandbox->id, "%s", id);
    sandbox->dir = kg_asprintf("%s/%.6s", fakes.dir, sandbox->id);
    int made = dir_make(sandbox->dir, 0700, NULL);
    assert(made == 0);
    sandbox->claimed = claimed;
    sandbox->events = events;
    sandbox->arg = arg;
    TAILQ_INIT(&sandbox->calls);
    TAILQ_INIT(&sandbox->questions);
    sandbox->timer = loop_timer_new(fakes.loop, on_timer, sandbox);
    if (!fake_script.hold_ready)
        loop_timer_start(sandbox->timer, 0);
    TAILQ_INSERT_TAIL(&fakes.sandboxes, sandbox, link);
    return sandbox;
}

struct sandbox *
sandbox_create(const struct sandbox_context *context, const struct sandbox_spec *spec,
               const struct sandbox_events *events, void *arg, struct kg_error *err)
{
    (void)context;
    assert(spec->ready_timeout_ms > 0);
    if (fake_script.refuse_create) {
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no engine");
        return NULL;
    }
    char id[17];
    id_random(id, sizeof id - 1);
    return make(id, false, events, arg);
}

struct sandbox *
sandbox_adopt(const struct sandbox_context *context, const char *id, bool claimed,
              const struct sandbox_spec *spec, const struct sandbox_events *events, void *arg,
              struct kg_error *err)
{
    (void)context;
    (void)spec;
    (void)err;
    return make(id, claimed, events, arg);
}

void
sandbox_on_exit(struct sandbox *sandbox)
{
    fake_sandbox_gone(sandbox);
}

// As the real one does: what is under way fails.
static void
fail_call(struct sandbox_call *call)
{
    struct kg_error err = {0};
    struct sandbox_call ended = *call;
    call_free(call);
    kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "the sandbox was ended meanwhile");
    if (ended.stream.on_end)
        ended.stream.on_end(&err, ended.arg);
    else if (ended.on_link)
        ended.on_link(-1, &err, ended.arg);
    else
        ended.on_answer(NULL, &err, ended.arg);
}

static void
end_all(struct sandbox *sandbox)
{
    for (struct sandbox_call *call; (call = TAILQ_FIRST(&sandbox->calls));)
        fail_call(call);
    for (; sandbox->n_processes > 0; sandbox->n_processes--) {
        struct process *process = &sandbox->processes[sandbox->n_processes - 1];
        fake_kernel_free(process->kernel);
        json_decref(process->env);
        free(process->key);
    }
}

void
sandbox_free(struct sandbox *sandbox)
{
    if (!sandbox)
        return;
    end_all(sandbox);
    loop_timer_free(sandbox->timer);
    TAILQ_REMOVE(&fakes.sandboxes, sandbox, link);
    free(sandbox->dir);
    free(sandbox);
}

void
sandbox_destroy(struct sandbox *sandbox, sandbox_done_fn on_done, void *arg)
{
    note("destroy", "");
    sandbox->state = SANDBOX_DESTROYING;
    end_all(sandbox);
    sandbox->on_destroyed = on_done;
    sandbox->on_destroyed_arg = arg;
    loop_timer_start(sandbox->timer, 0);
}

int
sandbox_claim(struct sandbox *sandbox, const json_t *meta, sandbox_claim_fn fn, void *arg,
              struct kg_error *err)
{
    (void)err;
    assert(sandbox->state == SANDBOX_READY && json_is_object(meta));
    note("claim", "");
    sandbox->state = SANDBOX_CLAIMING;
    sandbox->on_claimed = fn;
    sandbox->on_claimed_arg = arg;
    if (!fake_script.hold_claims)
        loop_timer_start(sandbox->timer, 0);
    return 0;
}

void
sandbox_set_events(struct sandbox *sandbox, const struct sandbox_events *events, void *arg)
{
    sandbox->events = events;
    sandbox->arg = arg;
}

const char *
sandbox_id(const struct sandbox *sandbox)
{
    return sandbox->id;
}

enum sandbox_state
sandbox_state(const struct sandbox *sandbox)
{
    return sandbox->state;
}

const char *
sandbox_dir(const struct sandbox *sandbox)
{
    return sandbox->dir;
}

// ---- What has changed -----------------------------------------------------------------------

void
sandbox_question_cancel(struct sandbox_question *question)
{
    if (!question)
        return;
    TAILQ_REMOVE(&question->sandbox->questions, question, link);
    loop_timer_free(question->timer);
    free(question);
}

static void
on_question(void *arg)
{
    const struct sandbox_question *question = arg;
    sandbox_changes_fn fn = question->fn;
    void *fn_arg = question->arg;
    struct kg_error err = {0};
    json_auto_t *changes = json_loads(
        fake_script.changes ? fake_script.changes : "{\"files\":[],\"more\":0}", 0, NULL);
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "refused");
    sandbox_question_cancel(arg);
    fn(fake_script.refuse_changes ? NULL : changes, fake_script.refuse_changes ? &err : NULL,
       fn_arg);
}

struct sandbox_question *
sandbox_ask_changes(struct sandbox *sandbox, const char *cursor, int64_t within_us,
                    int64_t timeout_ms, sandbox_changes_fn fn, void *arg, struct kg_error *err)
{
    (void)cursor;
    (void)timeout_ms;
    (void)err;
    assert(within_us >= 0);
    struct sandbox_question *question = KG_NEW(struct sandbox_question);
    question->sandbox = sandbox;
    question->fn = fn;
    question->arg = arg;
    question->timer = loop_timer_new(fakes.loop, on_question, question);
    TAILQ_INSERT_TAIL(&sandbox->questions, question, link);
    if (!fake_script.hold_changes)
        loop_timer_start(question->timer, 0);
    return question;
}

// Nothing sensible is streamed out of a sandbox that is none.
struct sandbox_call *
sandbox_agent_stream(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
                     const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    if (!fake_script.flood) {
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "a fake sandbox streams nothing");
        return NULL;
    }
    struct sandbox_call *call =
        call_new(sandbox, kg_asprintf("%s %s", spec->method, spec->path), arg, err);
    if (call)
        call->stream = *events;
    return call;
}
