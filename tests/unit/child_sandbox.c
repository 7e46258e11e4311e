// SPDX-License-Identifier: Apache-2.0
// The functions of sandbox.h that kernels use, for kernels that are children of the test.

#include "child_sandbox.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 16, MAX_KERNELS = 4 };

struct child {
    char name[40];
    pid_t pid;  // 0: it does not run
    int number; // of its endpoints
};

struct sandbox {
    struct loop *loop;
    char dir[32];
    struct child children[MAX_KERNELS];
    int n_children;
    int n_started;
};

// A call or a link: answered in a turn of its own.
struct sandbox_call {
    struct sandbox *sandbox;
    struct loop_timer *timer;
    char *path; // a target, or a method
    json_t *body;
    sandbox_agent_fn on_answer;
    sandbox_link_fn on_link;
    void *arg;
};

struct sandbox *
child_sandbox_new(struct loop *loop)
{
    struct sandbox *sandbox = KG_NEW(struct sandbox);
    sandbox->loop = loop;
    strcpy(sandbox->dir, "/tmp/kg-child-XXXXXX");
    char *made = mkdtemp(sandbox->dir);
    assert(made);
    return sandbox;
}

// Finds or makes it.
static struct child *
child_of(struct sandbox *sandbox, const char *name, size_t len)
{
    for (int i = 0; i < sandbox->n_children; i++) {
        if (strlen(sandbox->children[i].name) == len &&
            strncmp(sandbox->children[i].name, name, len) == 0)
            return &sandbox->children[i];
    }
    assert(sandbox->n_children < MAX_KERNELS);
    struct child *child = &sandbox->children[sandbox->n_children++];
    snprintf(child->name, sizeof child->name, "%.*s", (int)len, name);
    return child;
}

static void
end_kernel(struct child *child)
{
    if (child->pid == 0)
        return;
    kill(-child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    child->pid = 0;
}

void
child_sandbox_free(struct sandbox *sandbox)
{
    if (!sandbox)
        return;
    for (int i = 0; i < sandbox->n_children; i++)
        end_kernel(&sandbox->children[i]);
    int removed = path_remove_tree(sandbox->dir, NULL);
    assert(removed == 0);
    free(sandbox);
}

const char *
sandbox_id(const struct sandbox *sandbox)
{
    (void)sandbox;
    return "child";
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

const char *
sandbox_dir(const struct sandbox *sandbox)
{
    return sandbox->dir;
}

// ---- The kernel -----------------------------------------------------------------------------

static const char *const channels[] = {"shell", "iopub", "stdin", "control", "hb"};

static char *
endpoint(const struct sandbox *sandbox, const struct child *child)
{
    return kg_asprintf("%s/k%d", sandbox->dir, child->number);
}

static char *
write_connection_file(const struct sandbox *sandbox, const struct child *child, const char *key)
{
    KG_AUTO_FREE char *ip = endpoint(sandbox, child);
    json_auto_t *file = json_pack("{s:s, s:s, s:s, s:s}", "transport", "ipc", "ip", ip, "key", key,
                                  "signature_scheme", "hmac-sha256");
    for (size_t i = 0; i < KG_ARRAY_LEN(channels); i++) {
        KG_AUTO_FREE char *name = kg_asprintf("%s_port", channels[i]);
        json_object_set_new(file, name, json_integer((json_int_t)i + 1));
    }
    char *path = kg_asprintf("%s/connection-%d.json", sandbox->dir, child->number);
    int written = json_dump_file(file, path, 0);
    assert(written == 0);
    return path;
}

static void
set_environment(const struct sandbox *sandbox, json_t *env)
{
    const char *name;
    json_t *value;
    setenv("IPYTHONDIR", sandbox->dir, 1);
    json_object_foreach(env, name, value)
        setenv(name, json_string_value(value), 1);
}

static void
start_kernel(struct sandbox *sandbox, struct child *child, const json_t *body)
{
    child->number = ++sandbox->n_started;
    const json_t *argv = json_object_get(body, "argv");
    KG_AUTO_FREE char *file =
        write_connection_file(sandbox, child, json_string_value(json_object_get(body, "key")));
    const char *args[MAX_ARGS + 1] = {0};
    for (size_t i = 0; i < json_array_size(argv) && i < MAX_ARGS; i++) {
        const char *arg = json_string_value(json_array_get(argv, i));
        args[i] = strcmp(arg, "{connection_file}") == 0 ? file : arg;
    }
    pid_t parent = getpid();
    child->pid = fork();
    assert(child->pid >= 0);
    if (child->pid > 0)
        return;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(sandbox->dir) != 0)
        _exit(1);
    int said = open("kernel.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(said, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    set_environment(sandbox, json_object_get(body, "env"));
    execv(args[0], (char **)(uintptr_t)args);
    _exit(127);
}

static int
connect_channel(struct sandbox *sandbox, const char *target)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *slash = strchr(target, '/');
    const char *name = slash + 1;
    KG_AUTO_FREE char *ip = endpoint(sandbox, child_of(sandbox, target, (size_t)(slash - target)));
    size_t port = 0;
    while (strcmp(channels[port], name) != 0)
        port++;
    snprintf(address.sun_path, sizeof address.sun_path, "%s-%zu", ip, port + 1);
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    return KG_STEAL_FD(fd);
}

// ---- Calls ----------------------------------------------------------------------------------

void
sandbox_call_cancel(struct sandbox_call *call)
{
    if (!call)
        return;
    loop_timer_free(call->timer);
    json_decref(call->body);
    free(call->path);
    free(call);
}

static void
answer_link(struct sandbox_call *call)
{
    struct kg_error err = {0};
    sandbox_link_fn fn = call->on_link;
    void *arg = call->arg;
    int fd = connect_channel(call->sandbox, call->path);
    if (fd < 0)
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "nothing listens yet");
    sandbox_call_cancel(call);
    fn(fd, fd < 0 ? &err : NULL, arg);
}

static void
on_call(void *arg)
{
    struct sandbox_call *call = arg;
    if (call->on_link) {
        answer_link(call);
        return;
    }
    const char *name = json_string_value(json_object_get(call->body, "name"));
    struct child *child = name ? child_of(call->sandbox, name, strlen(name)) : NULL;
    if (strcmp(call->path, "kernels.start") == 0)
        start_kernel(call->sandbox, child, call->body);
    else if (strcmp(call->path, "kernels.stop") == 0)
        end_kernel(child);
    else if (strcmp(call->path, "kernels.signal") == 0)
        kill(-child->pid, SIGINT);
    sandbox_agent_fn fn = call->on_answer;
    void *fn_arg = call->arg;
    json_auto_t *body = json_pack("{s:i}", "pid", child ? (int)child->pid : 0);
    sandbox_call_cancel(call);
    fn(body, NULL, fn_arg);
}

static struct sandbox_call *
call_new(struct sandbox *sandbox, const char *path, void *arg)
{
    struct sandbox_call *call = KG_NEW(struct sandbox_call);
    call->sandbox = sandbox;
    call->path = kg_strdup(path);
    call->arg = arg;
    call->timer = loop_timer_new(sandbox->loop, on_call, call);
    loop_timer_start(call->timer, 0);
    return call;
}

struct sandbox_call *
sandbox_open_link(struct sandbox *sandbox, const char *target, int64_t timeout_ms,
                  sandbox_link_fn fn, void *arg, struct kg_error *err)
{
    (void)timeout_ms;
    (void)err;
    struct sandbox_call *call = call_new(sandbox, target, arg);
    call->on_link = fn;
    return call;
}

struct sandbox_call *
sandbox_agent_call(struct sandbox *sandbox, const char *method, const json_t *params,
                   int64_t timeout_ms, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    (void)timeout_ms;
    (void)err;
    struct sandbox_call *call = call_new(sandbox, method, arg);
    call->on_answer = fn;
    call->body = params ? json_deep_copy(params) : NULL;
    return call;
}
