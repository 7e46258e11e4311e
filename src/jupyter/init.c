// SPDX-License-Identifier: Apache-2.0
// What czmq does for a whole process.

#include "socket_priv.h"

#include <assert.h>
#include <sys/resource.h>

enum {
    // Of every kernel; stdin is opened only for taps, and fails if no socket is left.
    SOCKETS_OF_KERNEL = JUPYTER_N_CHANNELS - 1,
    SPARE_SOCKETS = 1024, // libzmq's own, and sockets that are being closed
};

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
}

size_t
jupyter_max_kernels(void)
{
    return (zsys_socket_limit() - SPARE_SOCKETS) / SOCKETS_OF_KERNEL;
}

void
jupyter_reserve(size_t n_kernels)
{
    assert(n_kernels <= jupyter_max_kernels());
    size_t n_sockets = n_kernels * JUPYTER_N_CHANNELS + SPARE_SOCKETS;
    size_t most = zsys_socket_limit();
    zsys_set_max_sockets(n_sockets < most ? n_sockets : most);
}

void
jupyter_fini(void)
{
    socket_fini();
    zsys_shutdown();
}
