// SPDX-License-Identifier: Apache-2.0
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START_MS = 120 * 1000, // the engine tries each runtime in several ways
    END_MS = 900,          // after the gateway's end, for what the helper frees
    MIN_BACKOFF_MS = 100,
    MAX_BACKOFF_MS = 5000,
    STEADY_MS = 10 * 1000,
};

struct starter {
    const struct starter_settings *settings;
    int gateway;       // the socket; its end is the gateway's
    int gateway_pidfd; // for a gateway that has passed its socket on before it ended
    pid_t helper;
    int64_t backoff_ms;
    int64_t started_ms;
};

// ---- The helper's process -------------------------------------------------------------------

static void
ignore(int signum)
{
    (void)signum;
}

// A terminal and systemd signal all processes of a service: the gateway ends, and these follow. A
// handler is reset in the programs that they start; an ignored signal would stay ignored.
static void
outlive_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < KG_ARRAY_LEN(signals); i++)
        sigaction(signals[i], &action, NULL);
}

// Only the log is shared with the gateway.
static void
drop_streams(void)
{
    KG_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
}

// A helper whose starter is killed would not be replaced: it ends, too.
static void
end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(0);
}

static void
starter_run_helper(const struct starter *starter, int fd, pid_t parent)
{
    end_with(parent);
    prctl(PR_SET_NAME, "kg-helper", 0, 0, 0);
    close(starter->gateway);
    exit(starter->settings->serve(fd, starter->settings->arg));
}

// Returns the gateway's end of the connection, or -1.
static int
starter_fork_helper(struct starter *starter)
{
    int ends[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    starter->helper = fork();
    if (starter->helper == 0) {
        close(ends[1]);
        starter_run_helper(starter, ends[0], parent);
    }
    close(ends[0]);
    if (starter->helper > 0)
        return ends[1];
    close(ends[1]);
    return -1;
}

// ---- The starter's process ------------------------------------------------------------------

// The helper notices, too.
static void
starter_end(const struct starter *starter)
{
    for (int waited = 0; starter->helper > 0 && waited < END_MS; waited += 10) {
        if (waitpid(starter->helper, NULL, WNOHANG) != 0)
            exit(0);
        poll(NULL, 0, 10);
    }
    if (starter->helper > 0) {
        kill(starter->helper, SIGKILL);
        while (waitpid(starter->helper, NULL, 0) < 0 && errno == EINTR)
            ; // it holds the lock of the state folder until then
    }
    exit(0);
}

// Waits for `fd` (-1: for nothing) to become readable, and ends this process with the gateway,
// which sends nothing.
static void
starter_wait_for(const struct starter *starter, int fd, int timeout_ms)
{
    struct pollfd all[] = {{.fd = fd, .events = POLLIN},
                           {.fd = starter->gateway, .events = POLLIN},
                           {.fd = starter->gateway_pidfd, .events = POLLIN}};
    while (poll(all, KG_ARRAY_LEN(all), timeout_ms) < 0 && errno == EINTR)
        ;
    if (all[1].revents || all[2].revents)
        starter_end(starter);
}

static void
starter_reap(struct starter *starter)
{
    int status = 0;
    if (starter->helper <= 0)
        return;
    while (waitpid(starter->helper, &status, 0) < 0 && errno == EINTR)
        ;
    starter->helper = 0;
    if (WIFSIGNALED(status))
        log_error("the helper was killed", LOG_INT("signal", WTERMSIG(status)));
    else
        log_error("the helper has ended", LOG_INT("exit_code", WEXITSTATUS(status)));
}

// Passes the connection on once the helper has started. Returns false if it ends before.
static bool
starter_pass(const struct starter *starter, int fd)
{
    struct helper_reply started;
    int stray = -1;
    starter_wait_for(starter, fd, -1);
    ssize_t n = helper_receive(fd, &started, sizeof started, 0, &stray);
    if (stray >= 0)
        close(stray);
    return n > 0 && helper_reply_is_valid(&started, (size_t)n) &&
           helper_send(starter->gateway, &started, sizeof started, fd, 0) == 0;
}

// One that ends soon after its start would do so again.
static void
starter_back_off(struct starter *starter)
{
    bool lived = clock_mono_ms() - starter->started_ms > STEADY_MS;
    starter->backoff_ms = lived ? MIN_BACKOFF_MS : starter->backoff_ms * 2;
    if (starter->backoff_ms > MAX_BACKOFF_MS)
        starter->backoff_ms = MAX_BACKOFF_MS;
    starter_wait_for(starter, -1, (int)starter->backoff_ms);
}

static void
starter_run(struct starter *starter)
{
    prctl(PR_SET_NAME, "kg-starter", 0, 0, 0);
    drop_streams();
    outlive_signals();
    if (starter->settings->confine(starter->settings->arg) < 0)
        exit(1);
    for (;;) {
        int fd = starter_fork_helper(starter);
        bool started = fd >= 0 && starter_pass(starter, fd);
        if (fd >= 0)
            close(fd);
        starter->started_ms = clock_mono_ms();
        if (started) {
            KG_AUTO_FD pidfd = pidfd_open(starter->helper, 0);
            starter_wait_for(starter, pidfd, -1);
        }
        starter_reap(starter);
        starter_back_off(starter);
    }
}

// ---- The gateway's process ------------------------------------------------------------------

static int
await_started(int socket, struct helper_link *ret, struct kg_error *err)
{
    struct pollfd answer = {.fd = socket, .events = POLLIN};
    int ready;
    do
        ready = poll(&answer, 1, START_MS);
    while (ready < 0 && errno == EINTR);
    ssize_t n = ready > 0
                    ? helper_receive(socket, &ret->started, sizeof ret->started, 0, &ret->helper)
                    : -1;
    if (n > 0 && ret->helper >= 0 && helper_reply_is_valid(&ret->started, (size_t)n))
        return 0;
    return kg_error_set(err, KG_INTERNAL, 0,
                        "the helper, which makes sandboxes, did not start; the log says why");
}

int
starter_start(const struct starter_settings *settings, struct helper_link *ret,
              struct kg_error *err)
{
    int ends[2];
    struct starter starter = {.settings = settings, .backoff_ms = MIN_BACKOFF_MS};
    *ret = (struct helper_link){.helper = -1, .starter = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a socket");
    fflush(NULL);
    KG_AUTO_FD gateway_pidfd = pidfd_open(getpid(), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        starter.gateway = ends[0];
        starter.gateway_pidfd = gateway_pidfd;
        starter_run(&starter);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return kg_error_set(err, KG_INTERNAL, errno, "cannot start another process");
    }
    ret->starter = ends[1];
    if (await_started(ends[1], ret, err) == 0)
        return 0;
    close(KG_STEAL_FD(ret->starter));
    return -1;
}
