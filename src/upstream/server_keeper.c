// SPDX-License-Identifier: Apache-2.0
#include "server_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NETWORK_FD = 3,
    GRACE_MS = 400,      // from the end of the input to SIGTERM
    LAST_GRACE_MS = 200, // from there to SIGKILL
    FILES_MAX = 4096,
    PROCESSES_MAX = 4096, // and threads, of the user, who has none elsewhere
    FILE_MAX_BYTES = 1 << 30,
    OOM_SCORE = 500, // before the gateway
    EXIT_FAILED = 125,
};

struct keeper {
    struct server_keeper_spec spec;
    pid_t own;
    char home[64]; // made by the program's process, as its user
    pid_t program;
    int signals;
};

// ---- The program's process ------------------------------------------------------------------

static int
become(uid_t user)
{
    if (user == 0)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(user, user, user) < 0 ||
        setresuid(user, user, user) < 0)
        return -1;
    return getuid() == user && geteuid() == user && getegid() == user && setuid(0) < 0 ? 0 : -1;
}

static void
limit(int resource, rlim_t most)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return;
    struct rlimit wanted = {.rlim_cur = most, .rlim_max = most};
    if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most)
        wanted = (struct rlimit){.rlim_cur = now.rlim_max, .rlim_max = now.rlim_max};
    setrlimit((__rlimit_resource_t)resource, &wanted);
}

static void
set_limits(uid_t user)
{
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, FILES_MAX);
    limit(RLIMIT_FSIZE, FILE_MAX_BYTES);
    if (user != 0) // else they count together with those of whoever has started the gateway
        limit(RLIMIT_NPROC, PROCESSES_MAX);
    KG_AUTO_FD score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0)
        dprintf(score, "%d", OOM_SCORE);
}

static _Noreturn void
run_program(const struct keeper *keeper)
{
    const struct server_keeper_spec *spec = &keeper->spec;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    set_limits(spec->user);
    umask(077);
    if (become(spec->user) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        mkdir(keeper->home, 0700) < 0 || chdir(keeper->home) < 0)
        _exit(EXIT_FAILED);
    // After the change of user, which resets it.
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != keeper->own)
        _exit(EXIT_FAILED);
    setenv("HOME", keeper->home, 0);
    setenv("TMPDIR", keeper->home, 0);
    dup2(STDIN_FILENO, STDOUT_FILENO);
    close_range(STDERR_FILENO + 1, ~0U, 0);
    execvp(spec->argv[0], spec->argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", spec->argv[0], strerror(errno));
    _exit(EXIT_FAILED);
}

// ---- The end --------------------------------------------------------------------------------

// Children of this process: also those that descendants have left behind, since it is a subreaper.
static void
kill_children(void)
{
    char path[64];
    KG_AUTO_BUF list = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    if (file_read(path, 1 << 20, &list, NULL) < 0 || !list.data)
        return;
    for (char *rest = list.data, *end; *rest; rest = end) {
        long pid = strtol(rest, &end, 10);
        if (end == rest)
            break;
        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
        end += strspn(end, " \n");
    }
}

// What forks meanwhile is the child of one that is being killed, and then of this process.
static void
kill_all(const struct keeper *keeper)
{
    if (keeper->program > 0)
        kill(-keeper->program, SIGKILL);
    do
        kill_children();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

// As the user whose folder it is: nothing that the program has made is followed with more rights.
static void
remove_home(const struct keeper *keeper)
{
    pid_t pid = fork();
    if (pid == 0) {
        bool done = become(keeper->spec.user) == 0 && path_remove_tree(keeper->home, NULL) == 0;
        _exit(done ? 0 : 1);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

// ---- The watch ------------------------------------------------------------------------------

// Whether the program itself has ended; reaps whatever has. `ret_told`: this process is to end.
static bool
program_has_ended(const struct keeper *keeper, bool *ret_told)
{
    struct signalfd_siginfo info;
    bool ended = false;
    while (read(keeper->signals, &info, sizeof info) == sizeof info)
        *ret_told |= info.ssi_signo != SIGCHLD;
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
        ended |= pid == keeper->program;
    return ended;
}

// Waits until the program ends, or `timeout_ms` is over; without a timeout (-1) also until the
// connection ends, or this process is told to end. Returns whether the program has ended.
static bool
await_program(const struct keeper *keeper, int timeout_ms)
{
    int64_t until_ms = clock_mono_ms() + timeout_ms;
    bool told = false;
    for (;;) {
        struct pollfd all[] = {{.fd = keeper->signals, .events = POLLIN},
                               {.fd = timeout_ms < 0 ? STDIN_FILENO : -1, .events = POLLRDHUP}};
        int64_t left = until_ms - clock_mono_ms();
        if (timeout_ms >= 0 && left <= 0)
            return false;
        if (poll(all, KG_ARRAY_LEN(all), timeout_ms < 0 ? -1 : (int)left) < 0 && errno != EINTR)
            return false;
        if (program_has_ended(keeper, &told))
            return true;
        if (timeout_ms < 0 && (told || all[1].revents))
            return false;
    }
}

static void
keep(struct keeper *keeper)
{
    if (!await_program(keeper, -1)) {
        // The gateway has closed its end, which the program reads as the end of its input.
        if (!await_program(keeper, GRACE_MS)) {
            kill(keeper->program, SIGTERM);
            (void)await_program(keeper, LAST_GRACE_MS);
        }
    }
    kill_all(keeper);
    remove_home(keeper);
}

// ---- The start ------------------------------------------------------------------------------

static int
choose_home(struct keeper *keeper)
{
    static const char *const folders[] = {"/tmp", "/var/tmp", "/dev/shm"};
    char random[13];
    id_random(random, sizeof random - 1);
    for (size_t i = 0; i < KG_ARRAY_LEN(folders); i++) {
        struct stat st;
        if (stat(folders[i], &st) < 0 || !(st.st_mode & S_IWOTH))
            continue;
        snprintf(keeper->home, sizeof keeper->home, "%s/kernelgate-mcp-%s", folders[i], random);
        return 0;
    }
    return -1;
}

static int
open_signals(void)
{
    static const int wanted[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < KG_ARRAY_LEN(wanted); i++)
        sigaddset(&set, wanted[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int
server_keeper_main(int argc, char **argv)
{
    struct keeper keeper = {0};
    if (argc < 4)
        return EXIT_FAILED;
    keeper.spec = (struct server_keeper_spec){.user = (uid_t)strtoul(argv[1], NULL, 10),
                                              .has_network = strcmp(argv[2], "1") == 0,
                                              .argv = argv + 3};
    prctl(PR_SET_NAME, "kg-mcp-server", 0, 0, 0);
    setsid(); // a terminal's signals are not for it
    if (keeper.spec.has_network) {
        if (setns(NETWORK_FD, CLONE_NEWNET) < 0)
            return EXIT_FAILED;
        close(NETWORK_FD);
    }
    keeper.own = getpid();
    keeper.signals = open_signals();
    if (keeper.signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
        choose_home(&keeper) < 0)
        return EXIT_FAILED;
    keeper.program = fork();
    if (keeper.program < 0)
        return EXIT_FAILED;
    if (keeper.program == 0)
        run_program(&keeper);
    keep(&keeper);
    return 0;
}
