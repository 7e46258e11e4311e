// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base.h"

int
unix_listen(const char *path, int type, unsigned mode, int backlog, struct kg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a socket's path is longer than %zu bytes: choose a shorter state-dir",
                            sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    KG_AUTO_FD fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a socket");
    if (unlink(path) != 0 && errno != ENOENT)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot remove an old socket");
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(path, mode) != 0 || listen(fd, backlog) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot listen on %s", path);
    return KG_STEAL_FD(fd);
}
