// SPDX-License-Identifier: Apache-2.0
// What czmq does for a whole process.

#include "socket_priv.h"

#include <sys/resource.h>

// libzmq keeps a table of this many slots; three sockets a kernel.
enum { MAX_SOCKETS = 16 * 1024 };

void
jupyter_init(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    zsys_handler_set(NULL); // before zsys_init, which would take SIGINT and SIGTERM
    zsys_init();
    zsys_set_logstream(stderr);
    zsys_set_max_sockets(MAX_SOCKETS);
}

void
jupyter_fini(void)
{
    socket_fini();
    zsys_shutdown();
}
