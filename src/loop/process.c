// SPDX-License-Identifier: Apache-2.0
// Child processes. One has ended when its process has, and its output has been read to the end.

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

enum { DEFAULT_OUTPUT_MAX = 8 << 10, PIPE_GRACE_MS = 200 };

struct loop_process {
    pid_t pid;
    int pidfd;
    int pipe_fd; // -1 once it has ended, or where the output goes to a file
    struct loop_fd *pid_watch;
    struct loop_fd *pipe_watch;
    struct loop_timer *timeout;
    struct loop_timer *pipe_grace;
    struct buf output;
    size_t output_max;
    bool exited;
    struct loop_process_result result;
    loop_process_fn fn;
    void *arg;
};

static void
process_free(struct loop_process *process)
{
    loop_fd_free(process->pid_watch);
    loop_fd_free(process->pipe_watch);
    loop_timer_free(process->timeout);
    loop_timer_free(process->pipe_grace);
    if (process->pipe_fd >= 0)
        close(process->pipe_fd);
    if (process->pidfd >= 0)
        close(process->pidfd);
    buf_fini(&process->output);
    free(process);
}

static void
process_finish(struct loop_process *process)
{
    buf_append(&process->output, "", 0);
    process->result.output = process->output.data;
    process->result.output_len = process->output.len;
    process->fn(&process->result, process->arg);
    process_free(process);
}

static void
on_pipe_grace(void *arg)
{
    process_finish(arg);
}

static void
on_pipe(int fd, int events, void *arg)
{
    (void)events;
    struct loop_process *process = arg;
    char chunk[4096];
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        buf_append(&process->output, chunk, (size_t)n);
        if (process->output.len > process->output_max)
            buf_consume(&process->output, process->output.len - process->output_max);
        return;
    }
    loop_fd_free(process->pipe_watch);
    process->pipe_watch = NULL;
    close(process->pipe_fd);
    process->pipe_fd = -1;
    if (process->exited)
        process_finish(process);
}

static void
reap(struct loop_process *process)
{
    int status = 0;
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
        ;
    process->exited = true;
    process->result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    process->result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void
on_process_exit(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    struct loop_process *process = arg;
    loop_fd_set(process->pid_watch, 0);
    reap(process);
    if (process->pipe_fd < 0)
        process_finish(process);
    else
        loop_timer_start(process->pipe_grace, PIPE_GRACE_MS);
}

static void
process_on_timeout(void *arg)
{
    struct loop_process *process = arg;
    if (process->exited)
        return;
    process->result.timed_out = true;
    kill(process->pid, SIGKILL);
}

// What the child sets up before it becomes the program.
static int
add_actions(posix_spawn_file_actions_t *actions, const struct loop_process_spec *spec, int input_fd,
            int output_fd)
{
    int failed = posix_spawn_file_actions_adddup2(actions, input_fd, STDIN_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(actions, output_fd, STDOUT_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(actions, output_fd, STDERR_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
    if (!failed && spec->cwd)
        failed = posix_spawn_file_actions_addchdir_np(actions, spec->cwd);
    return failed;
}

// The child shares our memory until it becomes the program: fork() would copy the page tables of
// all that the gateway holds. Returns an errno, 0: none.
static int
spawn(const struct loop_process_spec *spec, int output_fd, pid_t *ret_pid)
{
    // A pipe without a writer, not /dev/null: runsc gives its standard streams to another user.
    int empty[2];
    if (pipe2(empty, O_CLOEXEC) < 0)
        return errno;
    close(empty[1]);
    KG_AUTO_FD input_fd = empty[0];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int failed = add_actions(&actions, spec, input_fd, output_fd);
    // posix_spawnp takes char *const[], yet never writes to the strings.
    if (!failed)
        failed = posix_spawnp(ret_pid, spec->argv[0], &actions, &attributes,
                              (char *const *)(uintptr_t)spec->argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

// Opens where the child's output goes; `ret_read_fd` is the reading end of a pipe, or -1.
static int
open_output(const struct loop_process_spec *spec, int *ret_read_fd, struct kg_error *err)
{
    *ret_read_fd = -1;
    if (spec->output_path) {
        int fd = open(spec->output_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", spec->output_path);
        return fd;
    }
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
    *ret_read_fd = fds[0];
    return fds[1];
}

struct loop_process *
loop_process_start(struct loop *loop, const struct loop_process_spec *spec, loop_process_fn fn,
                   void *arg, struct kg_error *err)
{
    KG_AUTO_FD read_fd = -1;
    KG_AUTO_FD output_fd = open_output(spec, &read_fd, err);
    if (output_fd < 0 || (read_fd >= 0 && fd_set_nonblocking(read_fd, err) < 0))
        return NULL;
    pid_t pid = -1;
    int failed = spawn(spec, output_fd, &pid);
    if (failed) {
        kg_error_set(err, KG_INTERNAL, failed, "cannot run %s", spec->argv[0]);
        return NULL;
    }
    struct loop_process *process = KG_NEW(struct loop_process);
    process->pid = pid;
    process->pidfd = pidfd_open(pid, 0);
    assert(process->pidfd >= 0); // it cannot be gone: nobody has waited for it
    process->pipe_fd = KG_STEAL_FD(read_fd);
    process->output_max = spec->output_max ? spec->output_max : DEFAULT_OUTPUT_MAX;
    process->fn = fn;
    process->arg = arg;
    process->pid_watch = loop_fd_new(loop, process->pidfd, LOOP_READ, on_process_exit, process);
    if (process->pipe_fd >= 0)
        process->pipe_watch = loop_fd_new(loop, process->pipe_fd, LOOP_READ, on_pipe, process);
    process->timeout = loop_timer_new(loop, process_on_timeout, process);
    process->pipe_grace = loop_timer_new(loop, on_pipe_grace, process);
    if (spec->timeout_ms > 0)
        loop_timer_start(process->timeout, spec->timeout_ms);
    return process;
}

void
loop_process_cancel(struct loop_process *process)
{
    if (!process)
        return;
    if (!process->exited) {
        kill(process->pid, SIGKILL);
        reap(process);
    }
    process_free(process);
}
