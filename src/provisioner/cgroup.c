// SPDX-License-Identifier: Apache-2.0
// The machine's control groups: what they support, limits, removal of leftover groups.
#include "oci_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#define TCP_BYTES (64 * MIB)
#define DISK_BYTES_S (200 * MIB) // disk reads of one sandbox; cached data does not count
#define DISK_READS_S 10000

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

// Calls `fn` for every process in a group's folder. Processes of an outer pid namespace read as 0.
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
    const struct cgroup_disks *disks;
    int pid; // to look for
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

// Writes to a file of the group, if the hierarchy has it.
static void
set_text(const char *mount, const char *group, const char *name, const char *text)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s/%s", mount, group, name);
    if (access(path, F_OK) < 0)
        return;
    KG_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        log_warning("cannot set a limit for sandboxes", LOG_STR("path", path),
                    LOG_STR("reason", strerror(errno)));
}

static void
set_number(const char *mount, const char *group, const char *name, int64_t value)
{
    KG_AUTO_FREE char *text = kg_asprintf("%lld", (long long)value);
    set_text(mount, group, name, text);
}

static void
limit_disk(const char *mount, bool v2, const char *group, const struct cgroup_disk *disk)
{
    KG_AUTO_FREE char *both = kg_asprintf("%u:%u rbps=%lld riops=%d", disk->major, disk->minor,
                                          (long long)DISK_BYTES_S, DISK_READS_S);
    KG_AUTO_FREE char *bytes =
        kg_asprintf("%u:%u %lld", disk->major, disk->minor, (long long)DISK_BYTES_S);
    KG_AUTO_FREE char *reads = kg_asprintf("%u:%u %d", disk->major, disk->minor, DISK_READS_S);
    if (v2) {
        set_text(mount, group, "io.max", both);
    } else {
        set_text(mount, group, "blkio.throttle.read_bps_device", bytes);
        set_text(mount, group, "blkio.throttle.read_iops_device", reads);
    }
}

static void
on_limit(const char *mount, bool v2, const char *options, void *arg)
{
    (void)options;
    const struct group *group = arg;
    set_number(mount, group->name, "memory.kmem.tcp.limit_in_bytes", TCP_BYTES);
    for (size_t i = 0; i < group->disks->n; i++)
        limit_disk(mount, v2, group->name, &group->disks->items[i]);
}

void
cgroup_limit(const char *name, const struct cgroup_disks *disks)
{
    struct group group = {.name = name, .disks = disks};
    each_hierarchy(on_limit, &group);
}

// A partition has its disk's limits.
static bool
find_disk(const char *path, struct cgroup_disk *ret)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    KG_AUTO_FREE char *folder =
        kg_asprintf("/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    KG_AUTO_FREE char *partition = kg_asprintf("%s/partition", folder);
    KG_AUTO_FREE char *number =
        kg_asprintf("%s/%sdev", folder, access(partition, F_OK) == 0 ? "../" : "");
    KG_AUTO_BUF text = {0};
    return file_read(number, 64, &text, NULL) == 0 && text.len &&
           sscanf(text.data, "%u:%u", &ret->major, &ret->minor) == 2;
}

void
cgroup_disks_add(struct cgroup_disks *disks, const char *path)
{
    struct cgroup_disk found;
    if (disks->n == KG_ARRAY_LEN(disks->items) || !find_disk(path, &found))
        return;
    for (size_t i = 0; i < disks->n; i++)
        if (disks->items[i].major == found.major && disks->items[i].minor == found.minor)
            return;
    disks->items[disks->n++] = found;
}

// The number in a file, or INT64_MAX.
static int64_t
number_in(const char *path)
{
    KG_AUTO_BUF text = {0};
    long long number;
    return file_read(path, 64, &text, NULL) == 0 && text.len &&
                   sscanf(text.data, "%lld", &number) == 1
               ? number
               : INT64_MAX;
}

static void
on_bound(const char *mount, bool v2, const char *options, void *arg)
{
    (void)options;
    const struct group *group = arg;
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
    int64_t ids = number_in("/proc/sys/kernel/pid_max");
    int64_t threads = number_in("/proc/sys/kernel/threads-max");
    set_number(mount, group->name, v2 ? "memory.max" : "memory.limit_in_bytes", memory / 10 * 9);
    set_number(mount, group->name, "pids.max", (ids < threads ? ids : threads) / 2);
}

void
cgroup_bound(const char *name)
{
    struct group group = {.name = name};
    each_hierarchy(on_bound, &group);
}

static void
on_remove(const char *mount, bool v2, const char *options, void *arg)
{
    (void)v2, (void)options;
    const struct group *group = arg;
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", mount, group->name);
    (void)rmdir(folder);
}

void
cgroup_remove(const char *name)
{
    struct group group = {.name = name};
    each_hierarchy(on_remove, &group);
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
