// SPDX-License-Identifier: Apache-2.0
// Starting and ending the agent.
#include "agent_process.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
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
}

void
agent_place_remove(const struct agent_place *place)
{
    struct kg_error err;
    if (path_remove_tree(place->dir, &err) != 0)
        abort();
}

pid_t
agent_process_start(const struct agent_place *place, const char *door, int idle_timeout_s)
{
    char timeout[16];
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
    snprintf(timeout, sizeof timeout, "%d", idle_timeout_s);
    execl(AGENT_PATH, "kernelgate-agent", "--door", door, "--idle-timeout", timeout, "--data-dir",
          place->data, "--tmp-dir", place->tmp, "--cgroup-root", place->tmp, (char *)NULL);
    _exit(127);
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
