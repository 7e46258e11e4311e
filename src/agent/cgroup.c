// SPDX-License-Identifier: Apache-2.0
// Reading cgroup files. The engine may mount the sandbox's own cgroup, or the whole tree: the path
// from /proc/self/cgroup is tried first.
#include "cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "processes.h"

enum { FILE_MAX = 64 * 1024 };

// Appends the path of this process in the hierarchy of `controller` ("" for version 2).
static void
own_path(const char *controller, struct buf *ret)
{
    KG_AUTO_BUF text = {0};
    char *save = NULL;

    if (file_read("/proc/self/cgroup", FILE_MAX, &text, NULL) != 0 || text.len == 0)
        return;
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        // Version 1 joins controllers by commas: cpu,cpuacct.
        const char *found = strstr(names + 1, controller);
        bool match = controller[0] ? found != NULL : names[1] == '\0';
        if (match && strcmp(path, "/") != 0) {
            buf_append_str(ret, path);
            return;
        }
    }
}

static int
read_at(const char *root, const char *folder, const char *own, const char *file, struct buf *ret)
{
    KG_AUTO_FREE char *path =
        kg_asprintf("%s%s%s%s/%s", root, folder[0] ? "/" : "", folder, own, file);
    return file_read(path, FILE_MAX, ret, NULL);
}

// `controller` names a version 1 hierarchy; NULL: version 2.
static int
read_file(const char *root, const char *controller, const char *file, struct buf *ret)
{
    KG_AUTO_BUF own = {0};

    own_path(controller ? controller : "", &own);
    const char *folder = controller ? controller : "";
    if (own.len > 0 && read_at(root, folder, own.data, file, ret) == 0)
        return 0;
    return read_at(root, folder, "", file, ret);
}

// The number after `key` at the start of a line, or of the file where `key` is NULL.
static int64_t
find_number(const char *text, const char *key)
{
    const char *at = text;
    int64_t number;

    while (key && at) {
        if (strncmp(at, key, strlen(key)) == 0 && at[strlen(key)] == ' ')
            break;
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at || sscanf(at + (key ? strlen(key) : 0), "%" SCNd64, &number) != 1)
        return -1;
    return number;
}

static int64_t
read_number(const char *root, const char *controller, const char *file, const char *key)
{
    KG_AUTO_BUF text = {0};

    if (read_file(root, controller, file, &text) != 0 || text.len == 0)
        return -1;
    return find_number(text.data, key);
}

int64_t
cgroup_memory(const char *root)
{
    int64_t bytes = read_number(root, "memory", "memory.usage_in_bytes", NULL);
    return bytes >= 0 ? bytes : read_number(root, NULL, "memory.current", NULL);
}

void
cgroup_usage(const char *root, struct cgroup_usage *ret)
{
    ret->memory_bytes = cgroup_memory(root);
    int64_t cpu_ns = read_number(root, "cpuacct", "cpuacct.usage", NULL);
    ret->cpu_us = cpu_ns >= 0 ? cpu_ns / 1000 : read_number(root, NULL, "cpu.stat", "usage_usec");
    ret->pids = read_number(root, "pids", "pids.current", NULL);
    if (ret->pids < 0)
        ret->pids = read_number(root, NULL, "pids.current", NULL);
    if (ret->pids < 0)
        ret->pids = processes_threads(); // gVisor's groups do not count them
}

int64_t
cgroup_oom_kills(const char *root)
{
    int64_t kills = read_number(root, "memory", "memory.oom_control", "oom_kill");
    return kills >= 0 ? kills : read_number(root, NULL, "memory.events", "oom_kill");
}
