// SPDX-License-Identifier: Apache-2.0
// The first process of each pod: it holds the pod's namespaces, reaps orphans, and ends on a
// signal.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void
on_end(int number)
{
    (void)number;
    _exit(0);
}

static void
on_child(int number)
{
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int
main(void)
{
    signal(SIGINT, on_end);
    signal(SIGTERM, on_end);
    signal(SIGCHLD, on_child);
    for (;;)
        pause();
}
