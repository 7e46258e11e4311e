// SPDX-License-Identifier: Apache-2.0
// A Jupyter kernel for tests, whose cells say what it does: see steps.h.
//
//   script-kernel CONNECTION_FILE
#include <signal.h>
#include <stdio.h>

#include "kernel.h"

int
main(int argc, char **argv)
{
    sigset_t set;
    json_error_t why;
    json_t *connection = argc == 2 ? json_load_file(argv[1], 0, &why) : NULL;
    if (!connection) {
        fprintf(stderr, "script-kernel CONNECTION_FILE: %s\n",
                argc == 2 ? why.text : "one is missing");
        return 2;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL); // before libzmq's threads
    wire_open(connection);
    json_decref(connection);
    loop_run();
}
