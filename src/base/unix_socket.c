// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base.h"

// A path of any length: one that is too long for an address is named by its folder's descriptor.
// `ret_folder` must stay open until the socket is bound.
static int
set_address(struct sockaddr_un *address, const char *path, int *ret_folder, struct kg_error *err)
{
    const size_t room = sizeof address->sun_path;
    const char *slash = strrchr(path, '/');
    address->sun_family = AF_UNIX;
    if (strlen(path) < room) {
        memcpy(address->sun_path, path, strlen(path) + 1);
        return 0;
    }
    KG_AUTO_FREE char *folder = kg_strndup(path, slash ? (size_t)(slash - path) : 0);
    *ret_folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret_folder < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", folder);
    int n = snprintf(address->sun_path, room, "/proc/self/fd/%d%s", *ret_folder, slash);
    return n > 0 && (size_t)n < room
               ? 0
               : kg_error_set(err, KG_INTERNAL, ENAMETOOLONG, "cannot listen on %s", path);
}

int
unix_listen(const char *path, int type, unsigned mode, int backlog, struct kg_error *err)
{
    struct sockaddr_un address = {0};
    KG_AUTO_FD folder = -1;
    if (set_address(&address, path, &folder, err) < 0)
        return -1;
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
