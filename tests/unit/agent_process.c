// SPDX-License-Identifier: Apache-2.0
// Starting and ending the agent.
#include "agent_process.h"

#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base.h"

void
agent_place_make(struct agent_place *place)
{
    snprintf(place->dir, sizeof place->dir, "/tmp/kg-agent-test-XXXXXX");
    if (!mkdtemp(place->dir))
        abort();
    snprintf(place->data, sizeof place->data, "%s/data", place->dir);
    snprintf(place->tmp, sizeof place->tmp, "%s/tmp", place->dir);
    if (mkdir(place->data, 0700) != 0 || mkdir(place->tmp, 0700) != 0)
        abort();
    snprintf(place->clock, sizeof place->clock, "%s/clock", place->dir);
    KG_AUTO_FD fd = open(place->clock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *place->added_ms) != 0)
        abort();
    void *shared = mmap(NULL, sizeof *place->added_ms, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        abort();
    place->added_ms = shared;
}

void
agent_clock_advance(const struct agent_place *place, int64_t ms)
{
    *place->added_ms += ms;
}

void
agent_place_remove(const struct agent_place *place)
{
    struct kg_error err;
    munmap(place->added_ms, sizeof *place->added_ms);
    if (path_remove_tree(place->dir, &err) != 0)
        abort();
}

// `door`: the arguments that say how it is reached, up to NULL.
static pid_t
start(const struct agent_place *place, const char *const *door, int idle_timeout_s)
{
    char timeout[16];
    const char *argv[20] = {"kernelgate-agent", "--idle-timeout",  timeout,    "--data-dir",
                            place->data,        "--tmp-dir",       place->tmp, "--cgroup-root",
                            place->tmp,         "--tenant-socket", place->dir};
    pid_t parent = getpid();
    pid_t pid = fork();

    assert(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    // The leak check traces the process, which root may do although the agent is not dumpable.
    if (geteuid() != 0)
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("AGENT_CLOCK", place->clock, 1);
    snprintf(timeout, sizeof timeout, "%d", idle_timeout_s);
    for (size_t i = 11; *door; i++)
        argv[i] = *door++;
    execv(AGENT_PATH, (char *const *)(uintptr_t)argv);
    _exit(127);
}

pid_t
agent_process_start(const struct agent_place *place, const char *door, int idle_timeout_s)
{
    const char *const arguments[] = {"--door", door, NULL};
    return start(place, arguments, idle_timeout_s);
}

pid_t
agent_process_listen(const struct agent_place *place, int port, const char *sandbox,
                     const char *key, int idle_timeout_s)
{
    char number[16];
    const char *const arguments[] = {"--listen",      number, "--sandbox", sandbox,
                                     "--gateway-key", key,    NULL};
    snprintf(number, sizeof number, "%d", port);
    return start(place, arguments, idle_timeout_s);
}

int
agent_free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    KG_AUTO_FD fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (const struct sockaddr *)&addr, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        abort();
    return ntohs(addr.sin_port);
}

int
agent_dial(int port)
{
    const struct sockaddr_in addr = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)!connect(fd, (const struct sockaddr *)&addr, sizeof addr);
    return fd;
}

int
agent_process_wait(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int
agent_process_end(pid_t pid, int signum)
{
    kill(pid, signum);
    return agent_process_wait(pid);
}
