// SPDX-License-Identifier: Apache-2.0
// The keeper is started by posix_spawn(), which copies no page tables, from /proc/self/exe: this
// program, even if its file was replaced meanwhile.

#include "server_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server_keeper.h"

enum { END_MS = 750, KEEPER_ARGS = 4, OWN_VARIABLES = 2 };

struct server_process {
    LIST_ENTRY(server_process) link;
    struct server_processes *processes;
    pid_t keeper;
    int pidfd;
    struct loop_fd *watch;
};

struct server_processes {
    struct loop *loop;
    int network;
    bool shows_errors;
    LIST_HEAD(, server_process) all;
    size_t n;
};

// ---- The end --------------------------------------------------------------------------------

static void
process_free(struct server_process *process)
{
    while (waitpid(process->keeper, NULL, WNOHANG) < 0 && errno == EINTR)
        ;
    LIST_REMOVE(process, link);
    process->processes->n--;
    loop_fd_free(process->watch);
    close(process->pidfd);
    free(process);
}

static void
process_on_end(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    process_free(arg);
}

void
server_processes_free(struct server_processes *processes)
{
    if (!processes)
        return;
    int64_t until_ms = clock_mono_ms() + END_MS;
    for (struct server_process *process; (process = LIST_FIRST(&processes->all));) {
        struct pollfd end = {.fd = process->pidfd, .events = POLLIN};
        int64_t left = until_ms - clock_mono_ms();
        while (left > 0 && poll(&end, 1, (int)left) < 0 && errno == EINTR)
            left = until_ms - clock_mono_ms();
        process_free(process);
    }
    free(processes);
}

struct server_processes *
server_processes_new(struct loop *loop, int network, bool shows_errors)
{
    struct server_processes *processes = KG_NEW(struct server_processes);
    processes->loop = loop;
    processes->network = network;
    processes->shows_errors = shows_errors;
    LIST_INIT(&processes->all);
    return processes;
}

// ---- What the keeper gets -------------------------------------------------------------------

// Nothing of this process's environment but where programs are.
static char **
make_env(const struct server_spec *spec)
{
    const char *path = getenv("PATH");
    size_t n = 0;
    while (spec->env && spec->env[n])
        n++;
    char **env = kg_calloc(n + OWN_VARIABLES + 1, sizeof env[0]);
    for (size_t i = 0; i < n; i++)
        env[i] = kg_strdup(spec->env[i]);
    bool has_path = false;
    bool has_lang = false;
    for (size_t i = 0; i < n; i++) {
        has_path |= strncmp(env[i], "PATH=", 5) == 0;
        has_lang |= strncmp(env[i], "LANG=", 5) == 0;
    }
    if (!has_path)
        env[n++] = kg_asprintf("PATH=%s", path && *path ? path : "/usr/local/bin:/usr/bin:/bin");
    if (!has_lang)
        env[n++] = kg_strdup("LANG=C.UTF-8");
    return env;
}

static void
free_env(char **env)
{
    for (char **each = env; *each; each++) {
        explicit_bzero(*each, strlen(*each));
        free(*each);
    }
    free(env);
}

static int
add_actions(posix_spawn_file_actions_t *actions, int socket, int network, bool shows_errors)
{
    int failed = posix_spawn_file_actions_adddup2(actions, socket, STDIN_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_RDWR, 0);
    if (!failed && !shows_errors)
        failed = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_RDWR, 0);
    if (!failed && network >= 0)
        failed = posix_spawn_file_actions_adddup2(actions, network, STDERR_FILENO + 1);
    if (!failed)
        failed =
            posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1 + (network >= 0));
    return failed;
}

static int
spawn_keeper(const struct server_processes *processes, int socket, char *const *argv,
             char *const *env, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed = add_actions(&actions, socket, processes->network, processes->shows_errors);
    if (!failed)
        failed = posix_spawn(ret, "/proc/self/exe", &actions, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

// ---- The start ------------------------------------------------------------------------------

static int
start_keeper(const struct server_processes *processes, const struct server_spec *spec,
             size_t number, int socket, pid_t *ret)
{
    char user[16];
    char network[] = {processes->network >= 0 ? '1' : '0', '\0'};
    char name[] = "kernelgate";
    char command[] = SERVER_KEEPER_COMMAND;
    size_t n = 0;
    while (spec->argv[n])
        n++;
    snprintf(user, sizeof user, "%zu", geteuid() == 0 ? SERVER_USER_FIRST + number : 0);
    char **argv = kg_calloc(KEEPER_ARGS + n + 1, sizeof argv[0]);
    char *const first[KEEPER_ARGS] = {name, command, user, network};
    memcpy(argv, first, sizeof first);
    memcpy(argv + KEEPER_ARGS, spec->argv, n * sizeof argv[0]);
    char **env = make_env(spec);
    int failed = spawn_keeper(processes, socket, argv, env, ret);
    free_env(env);
    free(argv);
    return failed;
}

int
server_process_start(struct server_processes *processes, const struct server_spec *spec,
                     size_t number, struct kg_error *err)
{
    int ends[2];
    pid_t keeper = -1;
    if (processes->n >= SERVER_PROCESSES_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "%d programs of MCP servers run already",
                            SERVER_PROCESSES_MAX);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a socket");
    KG_AUTO_FD ours = ends[0];
    KG_AUTO_FD theirs = ends[1];
    int failed = start_keeper(processes, spec, number, theirs, &keeper);
    if (failed)
        return kg_error_set(err, KG_INTERNAL, failed, "cannot start a process");
    struct server_process *process = KG_NEW(struct server_process);
    process->processes = processes;
    process->keeper = keeper;
    process->pidfd = pidfd_open(keeper, 0);
    process->watch =
        loop_fd_new(processes->loop, process->pidfd, LOOP_READ, process_on_end, process);
    LIST_INSERT_HEAD(&processes->all, process, link);
    processes->n++;
    return KG_STEAL_FD(ours);
}
