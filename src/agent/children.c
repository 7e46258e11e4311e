// SPDX-License-Identifier: Apache-2.0
// Fork, exec and the reaping of zombies: as PID 1 the agent inherits every orphan.
#include "children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "processes.h"

// Out of memory, a kernel goes before the agent does.
static const char oom_score_adj[] = "900";

struct child {
    TAILQ_ENTRY(child) entry;
    pid_t pid;
    child_exit_fn fn;
    void *arg;
};

struct children {
    TAILQ_HEAD(, child) list;
    struct loop_signal *sigchld;
};

static struct child *
children_find(struct children *children, pid_t pid)
{
    struct child *child;

    TAILQ_FOREACH(child, &children->list, entry) {
        if (child->pid == pid)
            return child;
    }
    return NULL;
}

void
children_forget(struct children *children, pid_t pid)
{
    struct child *child = children_find(children, pid);

    if (child) {
        TAILQ_REMOVE(&children->list, child, entry);
        free(child);
    }
}

static void
on_sigchld(int signum, void *arg)
{
    struct children *children = arg;
    int status;
    pid_t pid;
    (void)signum;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *child = children_find(children, pid);
        if (!child)
            continue;
        TAILQ_REMOVE(&children->list, child, entry);
        child->fn(pid, status, child->arg);
        free(child);
    }
}

struct children *
children_new(struct loop *loop)
{
    struct children *children = KG_NEW(struct children);

    TAILQ_INIT(&children->list);
    children->sigchld = loop_signal_new(loop, SIGCHLD, on_sigchld, children);
    return children;
}

void
children_free(struct children *children)
{
    struct child *child;

    if (!children)
        return;
    while ((child = TAILQ_FIRST(&children->list)))
        children_forget(children, child->pid);
    loop_signal_free(children->sigchld);
    free(children);
}

// ---- In the child, between fork and exec ----------------------------------------------------

static void
reset_signals(void)
{
    sigset_t none;

    for (int signum = 1; signum < NSIG; signum++)
        signal(signum, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void
close_from(int first)
{
    // A seccomp filter that does not know close_range may refuse it.
    if (close_range((unsigned)first, ~0U, 0) == 0)
        return;
    for (int fd = first; fd < 4096; fd++)
        close(fd);
}

// /proc/self belongs to root while the process is not dumpable, which the agent is not. exec would
// make it dumpable anyway; nothing of the agent's but memory without secrets is left by now.
static void
raise_oom_score(void)
{
    prctl(PR_SET_DUMPABLE, 1);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, oom_score_adj, sizeof oom_score_adj - 1);
        close(fd);
    }
}

// Where the descriptors of a child lie between fork and exec.
enum { STDIN_AT = 3, STDOUT_AT, STDERR_AT, ERROR_AT, STATUS_AT, N_MOVED = 5 };

enum { KEEPER_LOOK_US = 200 * 1000 };

// Above their places first, so that none lands on another. The place of one that there is not (-1)
// stays empty.
static int
move_descriptors(const struct child_spec *spec, int error_fd, int status_fd)
{
    const int fds[N_MOVED] = {spec->stdin_fd, spec->stdout_fd, spec->stderr_fd, error_fd,
                              status_fd};
    int high[N_MOVED];

    for (int i = 0; i < N_MOVED; i++) {
        high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, STDIN_AT + N_MOVED);
        if (fds[i] >= 0 && high[i] < 0)
            return -1;
    }
    for (int i = 0; i < N_MOVED; i++) {
        if (high[i] < 0)
            close(STDIN_AT + i);
        else if (dup3(high[i], STDIN_AT + i, O_CLOEXEC) < 0)
            return -1;
    }
    close_from(STDIN_AT + N_MOVED);
    return 0;
}

// `mark` is one more variable of its environment, or NULL.
static void
exec_child(const struct child_spec *spec, char *mark)
{
    int stdin_fd = spec->stdin_fd >= 0 ? STDIN_AT : open("/dev/null", O_RDWR | O_CLOEXEC);

    if (stdin_fd < 0 || dup2(stdin_fd, 0) < 0 || dup2(STDOUT_AT, 1) < 0 || dup2(STDERR_AT, 2) < 0)
        return;
    if (spec->terminal && ioctl(0, TIOCSCTTY, 0) != 0)
        return;
    if (chdir(spec->cwd) != 0)
        return;
    raise_oom_score();
    environ = (char **)(uintptr_t)spec->envp; // whose PATH is searched
    if (mark)
        putenv(mark);
    execvp(spec->argv[0], spec->argv);
}

// Where orphans do not come to it, it looks for them.
static _Noreturn void
keep(pid_t child, bool reaps)
{
    int status;
    pid_t pid;

    close(STDIN_AT);
    close(STDOUT_AT);
    close(STDERR_AT);
    // Before the end of the error pipe, which the agent waits for.
    (void)!write(STATUS_AT, &child, sizeof child);
    close(ERROR_AT);
    while ((pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR) {
        if (pid != child)
            continue;
        (void)!write(STATUS_AT, &status, sizeof status);
        close(STATUS_AT);
    }
    while (!reaps && processes_count(getpid()) > 0)
        usleep(KEEPER_LOOK_US);
    _exit(0);
}

// Goes on in the child of the keeper, or returns -1. The command gets a session of its own; where
// orphans do not come to the keeper it stays in the keeper's, unless it has a terminal, and has a
// mark, to be known by these.
static int
become_kept(const struct child_spec *spec, char **ret_mark)
{
    bool reaps = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    pid_t keeper = getpid();
    pid_t pid = fork();
    if (pid > 0)
        keep(pid, reaps);
    if (pid < 0)
        return -1;
    if (reaps || spec->terminal)
        setsid();
    else
        setpgid(0, 0);
    *ret_mark = reaps ? NULL : kg_asprintf(PROCESSES_MARK "%d", (int)keeper);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(STATUS_AT);
    return 0;
}

static _Noreturn void
run_child(const struct child_spec *spec, int error_fd, int status_fd)
{
    char *mark = NULL;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    reset_signals();
    if (move_descriptors(spec, error_fd, status_fd) == 0 &&
        (status_fd < 0 || become_kept(spec, &mark) == 0))
        exec_child(spec, mark);
    int failure = errno;
    (void)!write(ERROR_AT, &failure, sizeof failure);
    _exit(127);
}

// ---- In the agent ---------------------------------------------------------------------------

static void
children_add(struct children *children, pid_t pid, child_exit_fn fn, void *arg)
{
    struct child *child = KG_NEW(struct child);

    *child = (struct child){.pid = pid, .fn = fn, .arg = arg};
    TAILQ_INSERT_TAIL(&children->list, child, entry);
}

static pid_t
start(struct children *children, const struct child_spec *spec, int status_fd, child_exit_fn fn,
      void *arg, struct kg_error *err)
{
    int pipe_fds[2];
    int failure = 0;

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
    KG_AUTO_FD read_end = pipe_fds[0];
    KG_AUTO_FD write_end = pipe_fds[1];
    pid_t pid = fork();
    if (pid < 0)
        return kg_error_set(err, KG_SESSION_BUSY, errno, "cannot fork");
    if (pid == 0)
        run_child(spec, write_end, status_fd);
    close(KG_STEAL_FD(write_end));
    if (read(read_end, &failure, sizeof failure) == (ssize_t)sizeof failure)
        return kg_error_set(err, failure == EAGAIN ? KG_SESSION_BUSY : KG_INVALID, failure,
                            "cannot start %.100s", spec->argv[0]);

    children_add(children, pid, fn, arg);
    return pid;
}

pid_t
children_start(struct children *children, const struct child_spec *spec, child_exit_fn fn,
               void *arg, struct kg_error *err)
{
    return start(children, spec, -1, fn, arg, err);
}

pid_t
children_start_kept(struct children *children, const struct child_spec *spec, child_exit_fn fn,
                    void *arg, struct kept_child *ret, struct kg_error *err)
{
    int pipe_fds[2];

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
    KG_AUTO_FD read_end = pipe_fds[0];
    KG_AUTO_FD write_end = pipe_fds[1];
    if (fd_set_nonblocking(read_end, err) != 0)
        return -1;
    pid_t keeper = start(children, spec, write_end, fn, arg, err);
    if (keeper < 0)
        return -1;
    close(KG_STEAL_FD(write_end));
    // A keeper that was killed at once has said nothing; its end is told.
    if (read(read_end, &ret->pid, sizeof ret->pid) != (ssize_t)sizeof ret->pid)
        ret->pid = 0;
    ret->status_fd = KG_STEAL_FD(read_end);
    return keeper;
}

// A child that has ended is not reaped here: its SIGCHLD may still be pending, and is handled then.
int
children_adopt(struct children *children, pid_t pid, child_exit_fn fn, void *arg,
               struct kg_error *err)
{
    siginfo_t info = {0};

    if (children_find(children, pid) ||
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no child %d lives", (int)pid);
    children_add(children, pid, fn, arg);
    return 0;
}
