// SPDX-License-Identifier: Apache-2.0
// Starting, watching and ending kernels.
#include "kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "connection.h"
#include "environment.h"
#include "processes.h"

enum {
    LOG_TAIL_MAX = 4096,
    STOP_STEP_MS = 2,
    STOP_ALL_AFTER_MS = 2000, // what outruns single kills for so long costs the other kernels too
    ENTER_MS = 5000,          // as long as a stop waits for a kernel that is coming in
    MAX_KERNELS = 96,         // with savepoints; the gateway has smaller bounds for each
    KILL_TRIES = 200,
    MEASURE_MS = 10,
    MEMORY_CHANGE_MIN = 1 << 20,
};

// Runs while `pid` is not 0. Its folder is there until it is stopped or started again.
struct kernel {
    TAILQ_ENTRY(kernel) entry;
    struct kernels *kernels;
    char *name;
    char *key;
    struct connection connection;
    pid_t pid;
    pid_t last_pid;
    int exit_code; // -1 where a signal ended it
    int signal;
    bool oom;
    int64_t oom_kills_before;
    int output_fd;
    struct loop_fd *output_watch;
    struct buf log_tail;
    bool expected; // kernels_expect() was called, kernels_admit() not yet
    int64_t expected_ms;
    bool stopping;
    bool removing; // it is forgotten when it has stopped
    bool alone;    // nothing but it and what is its own ends
    int64_t stop_started_ms;
    struct loop_timer *stop_timer;
    kernel_stopped_fn on_stopped;
    void *on_stopped_arg;
    pid_t measured_pid;   // with `memory_bytes`; 0: none
    int64_t memory_bytes; // its own, as reported
    unsigned measured_in; // struct kernels, `round`
};

struct kernels {
    struct kernels_settings settings;
    TAILQ_HEAD(, kernel) list;
    int n;
    unsigned round; // of measuring their memory
    uint64_t round_ticks;
};

static struct kernel *
kernels_find(struct kernels *kernels, const char *name)
{
    struct kernel *kernel;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        if (strcmp(kernel->name, name) == 0)
            return kernel;
    }
    return NULL;
}

static void
close_output(struct kernel *kernel)
{
    loop_fd_free(KG_STEAL(kernel->output_watch));
    if (kernel->output_fd >= 0)
        close(KG_STEAL_FD(kernel->output_fd));
}

static void
stop_answer(struct kernel *kernel, bool stopped)
{
    if (kernel->on_stopped)
        KG_STEAL(kernel->on_stopped)(stopped, kernel->on_stopped_arg);
}

static void
kernel_free(struct kernel *kernel)
{
    struct kernels *kernels = kernel->kernels;

    TAILQ_REMOVE(&kernels->list, kernel, entry);
    kernels->n--;
    if (kernel->pid) {
        children_forget(kernels->settings.children, kernel->pid);
        kill(-kernel->pid, SIGKILL);
    }
    stop_answer(kernel, false);
    close_output(kernel);
    connection_fini(&kernel->connection);
    loop_timer_free(kernel->stop_timer);
    buf_fini(&kernel->log_tail);
    free(kernel->name);
    free(kernel->key);
    free(kernel);
}

struct kernels *
kernels_new(const struct kernels_settings *settings)
{
    struct kernels *kernels = KG_NEW(struct kernels);
    kernels->settings = *settings;
    TAILQ_INIT(&kernels->list);
    return kernels;
}

void
kernels_free(struct kernels *kernels)
{
    struct kernel *kernel;

    if (!kernels)
        return;
    while ((kernel = TAILQ_FIRST(&kernels->list)))
        kernel_free(kernel);
    // What they left behind as well: on a host it would outlive the agent.
    for (int i = 0; i < KILL_TRIES && processes_kill(NULL, 0) > 0; i++)
        poll(NULL, 0, 1);
    free(kernels);
}

// ---- Start ----------------------------------------------------------------------------------

static char *
expand(const char *arg, const char *connection_file)
{
    static const char placeholder[] = "{connection_file}";
    KG_AUTO_BUF text = {0};
    const char *hit;

    while ((hit = strstr(arg, placeholder))) {
        buf_append(&text, arg, (size_t)(hit - arg));
        buf_append_str(&text, connection_file);
        arg = hit + sizeof placeholder - 1;
    }
    buf_append_str(&text, arg);
    return text.len ? buf_take(&text) : kg_strdup("");
}

static char **
make_argv(const struct kernel_spec *spec, const char *connection_file)
{
    size_t n = 0;
    while (spec->argv[n])
        n++;
    char **argv = kg_calloc(n + 1, sizeof *argv);
    for (size_t i = 0; i < n; i++)
        argv[i] = expand(spec->argv[i], connection_file);
    return argv;
}

static void
kernels_on_output(int fd, int events, void *arg)
{
    static char chunk[64 * 1024];
    struct kernel *kernel = arg;
    (void)events;

    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_output(kernel);
        return;
    }
    size_t keep = (size_t)n < LOG_TAIL_MAX ? (size_t)n : LOG_TAIL_MAX;
    if (kernel->log_tail.len + keep > LOG_TAIL_MAX)
        buf_consume(&kernel->log_tail, kernel->log_tail.len + keep - LOG_TAIL_MAX);
    buf_append(&kernel->log_tail, chunk + (size_t)n - keep, keep);
}

static void
on_exit_status(pid_t pid, int status, void *arg)
{
    struct kernel *kernel = arg;
    const struct kernels_settings *settings = &kernel->kernels->settings;

    kernel->pid = 0;
    kernel->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    kernel->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    kernel->oom = kernel->signal == SIGKILL && !kernel->stopping &&
                  cgroup_oom_kills(settings->cgroup_root) > kernel->oom_kills_before;
    log_info("kernel ended", LOG_STR("kernel", kernel->name), LOG_INT("pid", pid),
             LOG_INT("exit_code", kernel->exit_code), LOG_INT("signal", kernel->signal));
    settings->finish_links(kernel->name, settings->arg);
    // The caller of kernels.stop learns it from the answer.
    if (kernel->stopping)
        return;
    events_add(settings->events,
               json_pack("{s:s, s:s, s:i, s:i, s:i, s:b}", "type", "kernel_exit", "name",
                         kernel->name, "pid", pid, "exit_code", kernel->exit_code, "signal",
                         kernel->signal, "oom", kernel->oom));
}

static void on_stop_step(void *arg);

static int
spawn(struct kernel *kernel, const struct kernel_spec *spec, struct kg_error *err)
{
    const struct kernels_settings *settings = &kernel->kernels->settings;
    int pipe_fds[2];

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
    KG_AUTO_FD write_end = pipe_fds[1];
    kernel->output_fd = pipe_fds[0];
    if (fd_set_nonblocking(kernel->output_fd, err) != 0)
        return -1;
    kernel->output_watch =
        loop_fd_new(settings->loop, kernel->output_fd, LOOP_READ, kernels_on_output, kernel);

    char **argv = make_argv(spec, kernel->connection.file);
    char **envp = environment_make(spec->env);
    const struct child_spec child = {
        .argv = argv,
        .envp = envp,
        .cwd = spec->cwd,
        .stdin_fd = -1,
        .stdout_fd = write_end,
        .stderr_fd = write_end,
    };
    kernel->oom_kills_before = cgroup_oom_kills(settings->cgroup_root);
    pid_t pid = children_start(settings->children, &child, on_exit_status, kernel, err);
    strings_free(argv);
    strings_free(envp);
    if (pid < 0)
        return -1;
    kernel->pid = kernel->last_pid = pid;
    return 0;
}

// Replaces a kernel that has ended, and keeps its endpoints.
static struct kernel *
kernel_make(struct kernels *kernels, const struct kernel_spec *spec, const char *id,
            struct kg_error *err)
{
    struct kernel *old = kernels_find(kernels, spec->name);

    if (old && (old->pid || old->stopping || old->expected)) {
        (void)kg_error_set(err, KG_FILE_EXISTS, 0, "kernel %s runs already", spec->name);
        return NULL;
    }
    if (old)
        kernel_free(old);
    if (kernels->n >= MAX_KERNELS) {
        (void)kg_error_set(err, KG_INVALID, 0, "too many kernels");
        return NULL;
    }
    struct kernel *kernel = KG_NEW(struct kernel);
    kernel->kernels = kernels;
    kernel->name = kg_strdup(spec->name);
    kernel->key = kg_strdup(spec->key);
    kernel->output_fd = -1;
    kernel->stop_timer = loop_timer_new(kernels->settings.loop, on_stop_step, kernel);
    TAILQ_INSERT_TAIL(&kernels->list, kernel, entry);
    kernels->n++;
    if (connection_make(kernels->settings.tmp_dir, spec->stem ? spec->stem : spec->name, id,
                        spec->tcp, spec->key, &kernel->connection, err) == 0)
        return kernel;
    kernel_free(kernel);
    return NULL;
}

int
kernels_start(struct kernels *kernels, const struct kernel_spec *spec, struct kg_error *err)
{
    char id[CONNECTION_ID_LEN + 1];

    id_random(id, CONNECTION_ID_LEN);
    struct kernel *kernel = kernel_make(kernels, spec, id, err);
    if (!kernel)
        return -1;
    if (spawn(kernel, spec, err) != 0) {
        kernel_free(kernel);
        return -1;
    }
    log_info("kernel started", LOG_STR("kernel", spec->name), LOG_INT("pid", kernel->pid));
    return 0;
}

// ---- Start, by a fork outside ----------------------------------------------------------------

bool
kernels_expects(struct kernels *kernels, const char *name)
{
    const struct kernel *kernel = kernels_find(kernels, name);
    return kernel && kernel->expected;
}

int
kernels_expect(struct kernels *kernels, const struct kernel_spec *spec, const char *id,
               struct kg_error *err)
{
    struct kernel *kernel = kernel_make(kernels, spec, id, err);

    if (!kernel)
        return -1;
    kernel->expected = true;
    kernel->expected_ms = clock_mono_ms();
    kernel->oom_kills_before = cgroup_oom_kills(kernels->settings.cgroup_root);
    kernel->output_fd = connection_make_output(&kernel->connection, err);
    if (kernel->output_fd >= 0)
        return 0;
    kernel_free(kernel);
    return -1;
}

const char *
kernels_connection_file(struct kernels *kernels, const char *name)
{
    const struct kernel *kernel = kernels_find(kernels, name);
    return kernel ? kernel->connection.file : NULL;
}

int
kernels_admit(struct kernels *kernels, const char *name, pid_t pid, struct kg_error *err)
{
    const struct kernels_settings *settings = &kernels->settings;
    struct kernel *kernel = kernels_find(kernels, name);

    if (!kernel || !kernel->expected)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no kernel %s is expected", name);
    if (children_adopt(settings->children, pid, on_exit_status, kernel, err) != 0)
        return -1;
    kernel->expected = false;
    kernel->pid = kernel->last_pid = pid;
    // Not earlier: a FIFO that no process has opened yet looks like one that was closed.
    kernel->output_watch =
        loop_fd_new(settings->loop, kernel->output_fd, LOOP_READ, kernels_on_output, kernel);
    log_info("kernel came in", LOG_STR("kernel", name), LOG_INT("pid", pid));
    return 0;
}

// ---- Signal and stop ------------------------------------------------------------------------

int
kernels_signal(struct kernels *kernels, const char *name, int signum, struct kg_error *err)
{
    const struct kernel *kernel = kernels_find(kernels, name);

    if (!kernel || !kernel->pid)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no kernel %s runs", name);
    if (kill(-kernel->pid, signum) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot signal kernel %s", name);
    return 0;
}

// Kills the processes that belong neither to a command nor to a kernel that continues. Returns how
// many were alive.
static int
kill_unowned(struct kernels *kernels)
{
    const struct kernel *kernel;
    pid_t spared[COMMANDS_MAX + MAX_KERNELS];
    size_t n_spared = commands_keepers(kernels->settings.commands, spared);

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        if (kernel->pid && !kernel->stopping)
            spared[n_spared++] = kernel->pid;
    }
    return processes_kill(spared, n_spared);
}

// Whether a kernel is coming in: its process may be here, and cannot be told yet from what another
// kernel left behind.
static bool
is_one_coming_in(const struct kernels *kernels)
{
    const struct kernel *kernel;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        if (kernel->expected && clock_mono_ms() - kernel->expected_ms < ENTER_MS)
            return true;
    }
    return false;
}

static void
on_stop_step(void *arg)
{
    struct kernel *kernel = arg;
    struct kernels *kernels = kernel->kernels;
    bool all = clock_mono_ms() - kernel->stop_started_ms >= STOP_ALL_AFTER_MS;

    if (kernel->pid && kernel->alone)
        processes_signal(kernel->pid, SIGKILL);
    if (kernel->pid)
        (void)kill(-kernel->pid, SIGKILL);
    if (kernel->pid && kernel->alone) {
        loop_timer_start(kernel->stop_timer, STOP_STEP_MS);
        return;
    }
    if (!kernel->alone && is_one_coming_in(kernels)) {
        kernel->stop_started_ms = clock_mono_ms(); // nothing else was killed yet
        loop_timer_start(kernel->stop_timer, STOP_STEP_MS);
        return;
    }
    if (!kernel->alone &&
        ((all ? processes_kill(NULL, 0) : kill_unowned(kernels)) > 0 || kernel->pid)) {
        loop_timer_start(kernel->stop_timer, STOP_STEP_MS);
        return;
    }
    close_output(kernel);
    connection_fini(&kernel->connection);
    kernels->settings.close_links(kernel->name, kernels->settings.arg);
    kernel->stopping = false;
    if (!kernel->removing) {
        stop_answer(kernel, true);
        return;
    }
    kernel_stopped_fn fn = KG_STEAL(kernel->on_stopped);
    void *fn_arg = kernel->on_stopped_arg;
    kernel_free(kernel);
    fn(true, fn_arg);
}

int
kernels_stop(struct kernels *kernels, const char *name, kernel_stopped_fn fn, void *arg,
             struct kg_error *err)
{
    struct kernel *kernel = kernels_find(kernels, name);

    if (!kernel)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no kernel %s", name);
    stop_answer(kernel, false);
    kernel->on_stopped = fn;
    kernel->on_stopped_arg = arg;
    kernel->expected = false;
    if (!kernel->stopping) {
        kernel->stopping = true;
        kernel->stop_started_ms = clock_mono_ms();
        loop_timer_start(kernel->stop_timer, 0);
    }
    return 0;
}

int
kernels_remove(struct kernels *kernels, const char *name, kernel_stopped_fn fn, void *arg,
               struct kg_error *err)
{
    if (kernels_stop(kernels, name, fn, arg, err) != 0)
        return -1;
    struct kernel *kernel = kernels_find(kernels, name);
    if (kernel)
        kernel->removing = true;
    return 0;
}

int
kernels_end(struct kernels *kernels, const char *name, kernel_stopped_fn fn, void *arg,
            struct kg_error *err)
{
    if (kernels_remove(kernels, name, fn, arg, err) != 0)
        return -1;
    struct kernel *kernel = kernels_find(kernels, name);
    if (kernel)
        kernel->alone = true;
    return 0;
}

// ---- Questions ------------------------------------------------------------------------------

int
kernels_connect(struct kernels *kernels, const struct target *target, struct kg_error *err)
{
    const struct kernel *kernel = kernels_find(kernels, target->kernel);

    if (!kernel)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no kernel %s", target->kernel);
    // A savepoint says which process it is before it is admitted.
    bool waits = target->channel == TARGET_SAVEPOINT && kernel->expected;
    if ((!kernel->pid && !waits) || kernel->stopping)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "kernel %s has ended",
                            target->kernel);
    return connection_dial(&kernel->connection, target->channel, err);
}

// What a kernel wrote need not be UTF-8, and the kept part may begin inside a character.
static json_t *
text_of_bytes(const struct buf *bytes)
{
    KG_AUTO_BUF text = {0};

    (void)utf8_append(&text, bytes->data ? bytes->data : "", bytes->len, true);
    return json_stringn(text.data ? text.data : "", text.len);
}

static json_t *
describe(const struct kernel *kernel)
{
    return json_pack("{s:s, s:i, s:s, s:i, s:i, s:b, s:s, s:s, s:o}", "name", kernel->name, "pid",
                     kernel->last_pid, "state", kernel->pid ? "running" : "exited", "exit_code",
                     kernel->exit_code, "signal", kernel->signal, "oom", kernel->oom, "key",
                     kernel->key, "transport", kernel->connection.tcp ? "tcp" : "ipc", "log_tail",
                     text_of_bytes(&kernel->log_tail));
}

json_t *
kernels_describe(struct kernels *kernels, const char *name)
{
    const struct kernel *kernel = kernels_find(kernels, name);
    return kernel ? describe(kernel) : NULL;
}

// ---- Memory ---------------------------------------------------------------------------------

static bool
kernel_measure(struct kernel *kernel)
{
    int64_t bytes = process_own_memory(kernel->pid);
    bool is_known = kernel->measured_pid == kernel->pid;

    if (bytes < 0 || (is_known && llabs(bytes - kernel->memory_bytes) < MEMORY_CHANGE_MIN))
        return true;
    if (!events_send(kernel->kernels->settings.events,
                     json_pack("{s:s, s:s, s:I}", "type", "kernel_memory", "name", kernel->name,
                               "bytes", (json_int_t)bytes)))
        return false;
    kernel->measured_pid = kernel->pid;
    kernel->memory_bytes = bytes;
    return true;
}

// A savepoint's memory grows while others run.
static void
begin_round(struct kernels *kernels)
{
    const struct kernel *kernel;
    uint64_t ticks = 0;
    bool is_new = false;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        ticks += kernel->pid ? process_ticks(kernel->pid) : 0;
        is_new |= kernel->pid && kernel->measured_pid != kernel->pid;
    }
    kernels->round += is_new || ticks != kernels->round_ticks;
    kernels->round_ticks = ticks;
}

static struct kernel *
next_to_measure(const struct kernels *kernels)
{
    struct kernel *kernel;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        if (kernel->pid && !kernel->stopping && kernel->measured_in != kernels->round)
            return kernel;
    }
    return NULL;
}

bool
kernels_report_memory(struct kernels *kernels, bool anew)
{
    struct kernel *kernel;
    int64_t began_ms = clock_mono_ms();

    TAILQ_FOREACH(kernel, &kernels->list, entry)
        kernel->measured_pid = anew ? 0 : kernel->measured_pid;
    if (kernels->n < 2)
        return false;
    if (!next_to_measure(kernels))
        begin_round(kernels);
    while (clock_mono_ms() - began_ms < MEASURE_MS && (kernel = next_to_measure(kernels)) &&
           kernel_measure(kernel))
        kernel->measured_in = kernels->round;
    return next_to_measure(kernels);
}

json_t *
kernels_list(struct kernels *kernels)
{
    json_t *list = json_array();
    const struct kernel *kernel;

    TAILQ_FOREACH(kernel, &kernels->list, entry)
        json_array_append_new(list, describe(kernel));
    return list;
}

const char *
kernels_of_process(const struct kernels *kernels, pid_t pid)
{
    const struct kernel *kernel, *running[MAX_KERNELS];
    pid_t roots[MAX_KERNELS];
    size_t n = 0;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        if (kernel->pid == 0 || n == MAX_KERNELS)
            continue;
        running[n] = kernel;
        roots[n++] = kernel->pid;
    }
    int found = pid > 0 ? processes_root_of(pid, roots, n) : -1;
    return found < 0 ? NULL : running[found]->name;
}

bool
kernels_have_port(const struct kernels *kernels, int port)
{
    const struct kernel *kernel;

    TAILQ_FOREACH(kernel, &kernels->list, entry) {
        for (int c = TARGET_SHELL; kernel->connection.tcp && c < TARGET_N_CHANNELS; c++) {
            if (kernel->connection.ports[c] == port)
                return true;
        }
    }
    return false;
}
