// SPDX-License-Identifier: Apache-2.0
// What the machine's control groups offer, and the removal of a group that a runtime left behind.
#include "oci_priv.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

// Calls `fn` for every mounted hierarchy (version 1: one or more controllers each, in `options`).
static void
each_hierarchy(void (*fn)(const char *mount, bool v2, const char *options, void *arg), void *arg)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return;
    char line[4096];
    while (fgets(line, sizeof(line), file)) {
        char mount[1024];
        char type[64];
        char options[1024];
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %*s %1023s", mount) != 1 ||
            sscanf(tail, " - %63s %*s %1023s", type, options) != 2)
            continue;
        if (!strcmp(type, "cgroup") || !strcmp(type, "cgroup2"))
            fn(mount, !strcmp(type, "cgroup2"), options, arg);
    }
    fclose(file);
}

static bool
list_has(const char *list, const char *separators, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        if (n == len && !strncmp(at, word, len))
            return true;
        at += n;
    }
    return false;
}

static void
note_controllers(struct cgroup_info *info, const char *list, const char *separators)
{
    info->memory |= list_has(list, separators, "memory");
    info->cpu |= list_has(list, separators, "cpu");
    info->pids |= list_has(list, separators, "pids");
}

static void
on_probe(const char *mount, bool v2, const char *options, void *arg)
{
    struct cgroup_info *info = arg;
    if (!v2) {
        info->v1 = true;
        note_controllers(info, options, ",");
        KG_AUTO_FREE char *memsw = kg_asprintf("%s/memory.memsw.limit_in_bytes", mount);
        info->swap |= access(memsw, F_OK) == 0;
        return;
    }
    info->v2 = true;
    KG_AUTO_FREE char *path = kg_asprintf("%s/cgroup.controllers", mount);
    KG_AUTO_BUF controllers = {0};
    if (file_read(path, 4096, &controllers, NULL) == 0 && controllers.len) {
        note_controllers(info, controllers.data, " \n");
        info->swap |= access("/proc/swaps", F_OK) == 0;
    }
}

void
cgroup_probe(struct cgroup_info *ret)
{
    *ret = (struct cgroup_info){0};
    each_hierarchy(on_probe, ret);
}

// Calls `fn` for every process in a group's folder. One of an outer pid namespace reads as 0.
static void
each_member(const char *folder, void (*fn)(int pid, void *arg), void *arg)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/cgroup.procs", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    for (int pid; fscanf(file, "%d", &pid) == 1;)
        if (pid > 1)
            fn(pid, arg);
    fclose(file);
}

struct group {
    const char *name;
    int pid; // looked for
    bool found;
    bool gone;
};

static void
on_compare(int pid, void *arg)
{
    struct group *group = arg;
    group->found |= pid == group->pid;
}

static void
on_look(const char *mount, bool v2, const char *options, void *arg)
{
    (void)v2, (void)options;
    struct group *group = arg;
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", mount, group->name);
    each_member(folder, on_compare, group);
}

bool
cgroup_has(const char *name, int pid)
{
    struct group group = {.name = name, .pid = pid};
    each_hierarchy(on_look, &group);
    return group.found;
}

static void
on_kill(int pid, void *arg)
{
    (void)arg;
    kill(pid, SIGKILL);
}

static void
on_sweep(const char *mount, bool v2, const char *options, void *arg)
{
    (void)v2, (void)options;
    struct group *group = arg;
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", mount, group->name);
    if (access(folder, F_OK) < 0)
        return;
    each_member(folder, on_kill, NULL);
    if (rmdir(folder) < 0)
        group->gone = false;
}

bool
cgroup_sweep(const char *name)
{
    struct group group = {.name = name, .gone = true};
    each_hierarchy(on_sweep, &group);
    return group.gone;
}
