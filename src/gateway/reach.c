// SPDX-License-Identifier: Apache-2.0
// Paths for a process that can no longer pass through all folders that root can, such as /root, and
// short ones.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway.h"

enum { SHORT_MAX = 48 }; // the address of a socket below it has 107 bytes at most

bool
path_is_reachable(const char *path)
{
    KG_AUTO_FREE char *part = kg_strdup(path);
    struct stat st;
    for (char *slash; (slash = strrchr(part, '/')) && slash != part;) {
        *slash = '\0';
        if (stat(part, &st) < 0 || !(st.st_mode & S_IXOTH))
            return false;
    }
    return true;
}

char *
path_to_reach(const char *path)
{
    bool is_fine = path_is_reachable(path) && strlen(path) <= SHORT_MAX;
    int fd = is_fine ? -1 : open(path, O_PATH); // stays open
    return fd < 0 ? kg_strdup(path) : kg_asprintf(PATH_BY_DESCRIPTOR "%d", fd);
}
