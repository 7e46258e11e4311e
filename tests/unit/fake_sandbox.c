// SPDX-License-Identifier: Apache-2.0
// Sandboxes, their agents' answers, the journal of what they were asked.

#include "fake_sandbox.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

enum { MAX_PROCESSES = 40 };

struct process {
    struct sandbox *sandbox;
    char name[40];
    int pid;
    char *key;
    json_t *env;
    char cwd[64];
    struct fake_kernel *kernel; // NULL: it has ended
};

struct sandbox_call {
    TAILQ_ENTRY(sandbox_call) link;
    struct sandbox *sandbox;
    char *what; // a method, or a link's target
    json_t *params;
    sandbox_agent_fn on_answer; // or
    sandbox_link_fn on_link;    // or
    struct sandbox_stream_events stream;
    struct sandbox_body body;
    bool begun; // of a stream
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
    fake_script.hold_claims = fake_script.hold_writes = fake_script.hold_answers = false;
    struct sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &fakes.sandboxes, link) {
        if (sandbox->state == SANDBOX_CLAIMING)
            loop_timer_start(sandbox->timer, 0);
        struct sandbox_call *call;
        TAILQ_FOREACH(call, &sandbox->calls, link)
            loop_timer_start(call->timer, 0);
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
    const char *cwd = json_string_value(json_object_get(body, "cwd"));
    snprintf(process->cwd, sizeof process->cwd, "%s", cwd ? cwd : "");
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
    return json_pack("{s:s, s:i, s:s, s:s, s:s*}", "name", process->name, "pid", process->pid,
                     "key", process->key, "state", process->kernel ? "running" : "exited",
                     "log_tail", fake_script.log_tail);
}

static json_t *
list_processes(const struct sandbox *sandbox)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sandbox->n_processes; i++)
        json_array_append_new(list, describe_process(&sandbox->processes[i]));
    return json_pack("{s:o}", "kernels", list);
}

static json_t *
stat_path(const char *path, struct kg_error *err)
{
    if (!strstr(path, "missing"))
        return json_pack("{s:s, s:s, s:i, s:i}", "path", path, "type",
                         strstr(path, "file") ? "file" : "dir", "size", 1, "mtime_ms", 1);
    kg_error_set(err, KG_NOT_FOUND, 0, "there is nothing");
    return NULL;
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

const char *
fake_sandbox_cwd(const struct sandbox *sandbox, const char *name)
{
    return find_process(sandbox, name, strlen(name))->cwd;
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
    json_decref(call->params);
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

static json_t *
answer_changes(struct kg_error *err)
{
    if (!fake_script.refuse_changes)
        return json_loads(fake_script.changes ? fake_script.changes : "{\"files\":[],\"more\":0}",
                          0, NULL);
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "refused");
    return NULL;
}

// Answers `changes` and what is about kernels.
static json_t *
answer(struct sandbox_call *call, struct kg_error *err)
{
    if (strcmp(call->what, "changes") == 0)
        return answer_changes(err);
    if (strcmp(call->what, "kernels.start") == 0) {
        if (fake_script.refuse_start) {
            kg_error_set(err, KG_INTERNAL, 0, "the agent has no program for it");
            return NULL;
        }
        return json_pack("{s:i}", "pid", start_process(call->sandbox, call->params)->pid);
    }
    if (strcmp(call->what, "kernels.list") == 0)
        return list_processes(call->sandbox);
    if (strcmp(call->what, "files.stat") == 0)
        return stat_path(json_string_value(json_object_get(call->params, "path")), err);
    if (strcmp(call->what, "kernels.remove") == 0 && fake_script.is_old) {
        kg_error_set(err, KG_INVALID, 0, "unknown method");
        return NULL;
    }
    if (strcmp(call->what, "files.delete") == 0) {
        note("delete", json_string_value(json_object_get(call->params, "path")));
        return json_object();
    }
    if (strcmp(call->what, "tenant.answer") == 0) {
        KG_AUTO_FREE char *text = json_dumps(call->params, JSON_COMPACT | JSON_SORT_KEYS);
        note("answer", text);
        return json_pack("{s:b}", "gone", fake_script.code_gone);
    }
    const char *name = json_string_value(json_object_get(call->params, "name"));
    struct process *process = find_process(call->sandbox, name, strlen(name));
    if (strcmp(call->what, "kernels.describe") == 0)
        return process ? describe_process(process)
                       : json_pack("{s:s*}", "log_tail", fake_script.log_tail);
    if (process && process->kernel && strcmp(call->what, "kernels.signal") == 0)
        fake_kernel_interrupt(process->kernel);
    else if (process &&
             (strcmp(call->what, "kernels.stop") == 0 || strcmp(call->what, "kernels.remove") == 0))
        fake_kernel_free(KG_STEAL(process->kernel));
    return json_object();
}

// A file of 1500 bytes, it says; whoever listens has to end it.
static void
flood(struct sandbox_call *call)
{
    static const char data[1024] = "{";
    if (!call->stream.on_data) { // a result that says nothing
        json_auto_t *result = json_object();
        sandbox_agent_fn on_end = call->stream.on_end;
        void *arg = call->arg;
        call_free(call);
        on_end(result, NULL, arg);
        return;
    }
    loop_timer_start(call->timer, 0);
    if (call->begun) {
        call->stream.on_data(data, sizeof data, call->arg);
        return;
    }
    call->begun = true;
    json_auto_t *head = json_pack("{s:i, s:i, s:i, s:b, s:s}", "size", 1500, "length", 1500,
                                  "offset", 0, "part", 0, "etag", "\"a\"");
    if (call->stream.on_head)
        call->stream.on_head(head, call->arg);
}

// In small parts, as a link takes a large file.
static void
write_file(struct sandbox_call *call)
{
    struct kg_error err = {0};
    KG_AUTO_BUF line = {0};
    sandbox_agent_fn on_end = call->stream.on_end;
    void *arg = call->arg;
    buf_printf(&line, "%s ", json_string_value(json_object_get(call->params, "path")));
    if (call->body.len > fake_script.disk_bytes)
        kg_error_set(&err, KG_DISK_FULL, 0, "the disk is full");
    if (call->body.data && !err.code)
        buf_append(&line, call->body.data, call->body.len);
    for (size_t left = err.code || call->body.data ? 0 : call->body.len; left > 0;) {
        size_t len = left < 2 ? left : 2;
        call->body.read(buf_reserve(&line, len), len, call->body.arg);
        line.len += len;
        left -= len;
    }
    buf_append(&line, "", 1);
    if (!err.code)
        note("write", line.data);
    json_auto_t *result =
        err.code ? NULL
                 : json_pack("{s:I, s:s}", "size", (json_int_t)call->body.len, "etag", "\"0-0\"");
    call_free(call);
    on_end(result, err.code ? &err : NULL, arg);
}

// Its calls take no bodies.
void
sandbox_body_is_ready(struct sandbox_call *call)
{
    (void)call;
    abort();
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
    if (call->stream.on_end && fake_script.hold_writes)
        return;
    if (call->stream.on_end) {
        if (fake_script.disk_bytes > 0)
            write_file(call);
        else
            flood(call);
        return;
    }
    if ((fake_script.hold_stop && strcmp(call->what, "kernels.stop") == 0) ||
        (fake_script.hold_stop && strcmp(call->what, "kernels.remove") == 0) ||
        (fake_script.hold_signal && strcmp(call->what, "kernels.signal") == 0) ||
        (fake_script.hold_answers && strcmp(call->what, "tenant.answer") == 0) ||
        (fake_script.hold_changes && strcmp(call->what, "changes") == 0))
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
    json_auto_t *result = answer(call, &err);
    call_free(call);
    on_answer(result, result ? NULL : &err, on_answer_arg);
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
sandbox_agent_call(struct sandbox *sandbox, const char *method, const json_t *params,
                   int64_t timeout_ms, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    assert(timeout_ms > 0);
    static const char *const noted[] = {"start", "signal", "stop", "remove"};
    for (size_t i = 0; i < KG_ARRAY_LEN(noted); i++) {
        if (strncmp(method, "kernels.", 8) == 0 && strcmp(method + 8, noted[i]) == 0)
            note(noted[i], json_string_value(json_object_get(params, "name")));
    }
    struct sandbox_call *call = call_new(sandbox, kg_strdup(method), arg, err);
    if (!call)
        return NULL;
    call->on_answer = fn;
    call->params = json_deep_copy(params);
    return call;
}

struct sandbox_call *
sandbox_answer(struct sandbox *sandbox, int64_t id, const json_t *lines, bool last,
               sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:I, s:O, s:b}", "id", (json_int_t)id, "lines",
                                    (json_t *)(uintptr_t)lines, "last", (int)last);
    return sandbox_agent_call(sandbox, "tenant.answer", params, 1, fn, arg, err);
}

bool
fake_sandbox_ask(struct sandbox *sandbox, int64_t id, const char *method, const char *params)
{
    json_auto_t *value = params ? json_loads(params, 0, NULL) : NULL;
    const struct sandbox_request request = {.id = id, .method = method, .params = value};
    assert((params == NULL) == (value == NULL));
    return sandbox->events->on_request(sandbox, &request, sandbox->arg);
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
    if (fake_script.refuse_name)
        kg_error_set(&err, KG_SESSION_BUSY, 0, "another gateway has the name");
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

struct sandbox *
sandbox_take(const struct sandbox_context *context, const struct sandbox_spec *spec,
             const struct sandbox_events *events, void *arg, struct kg_error *err)
{
    (void)context;
    (void)spec;
    if (!fake_script.n_free) {
        kg_error_set(err, KG_NOT_FOUND, 0, "there is none");
        return NULL;
    }
    fake_script.n_free--;
    note("take", "");
    return make("taken", false, events, arg);
}

bool
sandbox_is_lost(const struct sandbox *sandbox)
{
    (void)sandbox;
    return fake_script.lost;
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
        ended.stream.on_end(NULL, &err, ended.arg);
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
sandbox_hand_over(struct sandbox *sandbox)
{
    note("hand over", "");
    sandbox_free(sandbox);
}

int
sandbox_check(const struct sandbox_context *context, struct kg_error *err)
{
    (void)context;
    if (!fake_script.is_open)
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "sandboxes reach the API server");
}

void
sandbox_offer(struct sandbox *sandbox)
{
    (void)sandbox;
    fake_script.n_offered++;
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
sandbox_claim(struct sandbox *sandbox, const json_t *meta, int64_t memory_mb, sandbox_claim_fn fn,
              void *arg, struct kg_error *err)
{
    (void)err;
    (void)memory_mb;
    assert(sandbox->state == SANDBOX_READY && json_is_object(meta));
    note("claim", "");
    sandbox->state = SANDBOX_CLAIMING;
    sandbox->on_claimed = fn;
    sandbox->on_claimed_arg = arg;
    if (!fake_script.hold_claims)
        loop_timer_start(sandbox->timer, 0);
    return 0;
}

struct provisioner_op {
    struct loop_timer *timer;
    void (*fn)(const struct kg_error *err, void *arg);
    void *arg;
};

static void
on_recorded(void *arg)
{
    struct provisioner_op *op = arg;
    loop_timer_free(op->timer);
    op->fn(NULL, op->arg);
    free(op);
}

struct provisioner_op *
sandbox_record(struct sandbox *sandbox, const json_t *meta,
               void (*fn)(const struct kg_error *err, void *arg), void *arg, struct kg_error *err)
{
    assert(sandbox->state == SANDBOX_CLAIMED);
    if (fake_script.refuse_record) {
        kg_error_set(err, KG_INTERNAL, 0, "the record cannot be written");
        return NULL;
    }
    KG_AUTO_FREE char *text = json_dumps(meta, JSON_COMPACT | JSON_SORT_KEYS);
    note("record", text);
    struct provisioner_op *op = KG_NEW(struct provisioner_op);
    op->timer = loop_timer_new(fakes.loop, on_recorded, op);
    op->fn = fn;
    op->arg = arg;
    loop_timer_start(op->timer, 0);
    return op;
}

void
sandbox_record_cancel(struct provisioner_op *op)
{
    loop_timer_free(op->timer);
    free(op);
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

void
sandbox_note_look(struct sandbox *sandbox, const char *cursor)
{
    (void)sandbox;
    (void)cursor;
}

int64_t
sandbox_looked_us(const struct sandbox *sandbox, const char *cursor)
{
    (void)sandbox;
    (void)cursor;
    return INT64_MAX;
}

const struct sandbox_activity *
sandbox_activity(const struct sandbox *sandbox)
{
    (void)sandbox;
    return &fake_script.activity;
}

int64_t
sandbox_memory(const struct sandbox *sandbox)
{
    return sandbox->state == SANDBOX_CREATING ? -1 : FAKE_SANDBOX_MEMORY;
}

const char *
sandbox_dir(const struct sandbox *sandbox)
{
    return sandbox->dir;
}

// ---- Streams ------------------------------------------------------------------------------

// Nothing sensible is streamed out of a sandbox that is none.
struct sandbox_call *
sandbox_agent_stream(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
                     const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    if (!fake_script.flood && fake_script.disk_bytes == 0) {
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "a fake sandbox streams nothing");
        return NULL;
    }
    struct sandbox_call *call = call_new(sandbox, kg_strdup(spec->method), arg, err);
    if (!call)
        return NULL;
    call->stream = *events;
    call->params = spec->params ? json_deep_copy(spec->params) : NULL;
    call->body = spec->body;
    return call;
}
