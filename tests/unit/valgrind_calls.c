// SPDX-License-Identifier: Apache-2.0
// System calls that valgrind does not know yet (pidfd_open, close_range), made of those that it
// does, and posix_spawnp. script/valgrind preloads this; nothing else uses it.

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FDS = 4096, LOOK_MS = 5 };

// Gone, or a zombie.
static int
has_ended(pid_t pid)
{
    char path[32], stat[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 1;
    size_t len = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[len] = '\0';
    const char *after_name = strrchr(stat, ')');
    return !after_name || after_name[1] == '\0' || after_name[2] == 'Z' || after_name[2] == 'X';
}

// Holds the writing end of a pipe until the process, or whoever watches it, has ended.
static void __attribute__((noreturn)) watch(pid_t pid, int fd)
{
    dup2(fd, 3);
    close_range(4, ~0U, 0);
    struct pollfd reader = {.fd = 3};
    while (!has_ended(pid) && poll(&reader, 1, LOOK_MS) == 0)
        ;
    _exit(0);
}

// A descriptor that can be read (its end, that is) once the process has ended. The watcher is
// nobody's child, so that no wait() finds it.
int
pidfd_open(pid_t pid, unsigned flags)
{
    (void)flags;
    int ends[2];
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return -1;
    if (pipe(ends) != 0)
        return -1;
    pid_t between = fork();
    if (between == 0) {
        if (fork() == 0)
            watch(pid, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    while (waitpid(between, NULL, 0) < 0 && errno == EINTR)
        ;
    return ends[0];
}

int
close_range(unsigned first, unsigned last, int flags)
{
    (void)flags;
    for (unsigned fd = first; fd <= last && fd < MAX_FDS; fd++)
        close((int)fd);
    return 0;
}

// Under valgrind the child does not share its parent's memory, so its failed exec is not reported.
int
posix_spawnp(pid_t *restrict pid, const char *restrict file,
             const posix_spawn_file_actions_t *restrict actions,
             const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
             char *const envp[restrict])
{
    union {
        void *symbol;
        __typeof__(posix_spawnp) *fn;
    } next = {dlsym(RTLD_NEXT, "posix_spawnp")};
    if (strchr(file, '/') && access(file, X_OK) != 0)
        return errno;
    return next.fn(pid, file, actions, attributes, argv, envp);
}
