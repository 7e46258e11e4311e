// SPDX-License-Identifier: Apache-2.0
// Stands in for the agent as PID 1 of a sandbox: dials the door, obeys one line a connection
// (`run COMMAND`, `reap`, `exit`, or what fake_attempts.h has), answers, hangs up, dials again.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_attempts.h"
#include "prepare.h"

#define LIFETIME_S 120 // of one whose test has died

static const char *
door_path(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--door"))
            return argv[i + 1];
    return NULL;
}

static int
dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void
run_command(const char *command, int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

// Waits for all that commands have left behind.
static void
reap_all(void)
{
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}

static void
obey(int fd)
{
    char line[4096];
    ssize_t len = read(fd, line, sizeof(line) - 1);
    if (len <= 0)
        return;
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (!strncmp(line, "run ", 4))
        run_command(line + 4, fd);
    else if (attempt(line, fd))
        return;
    else if (!strcmp(line, "reap"))
        reap_all();
    else if (!strcmp(line, "exit"))
        _exit(0);
}

static void
on_alarm(int signum)
{
    (void)signum;
    _exit(1);
}

int
main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        puts("fake agent");
        return 0;
    }
    if (argc >= 2 && !strcmp(argv[1], "--prepare"))
        return prepare_main(argc > 2 ? argv[2] : NULL, argc > 2 ? argv + 3 : argv + 2);
    const char *door = door_path(argc, argv);
    signal(SIGALRM, on_alarm); // by default PID 1 would ignore it
    alarm(LIFETIME_S);
    while (door) {
        int fd = dial(door);
        if (fd >= 0) {
            obey(fd);
            close(fd);
        } else {
            usleep(1000);
        }
    }
    return 2;
}
