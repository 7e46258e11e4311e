// SPDX-License-Identifier: Apache-2.0
// The machine's control groups: what they support, limits, removal of groups that are left.
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

static bool
list_has(const char *list, const char *separators, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        if (n == len && strncmp(at, word, len) == 0)
            return true;
        at += n;
    }
    return false;
}

static void
note_controllers(struct cgroups *cgroups, const char *list, const char *separators)
{
    cgroups->memory |= list_has(list, separators, "memory");
    cgroups->cpu |= list_has(list, separators, "cpu");
    cgroups->pids |= list_has(list, separators, "pids");
}

// Of version 1 each hierarchy has one or more controllers, which are in its `options`.
static void
add_hierarchy(struct cgroups *cgroups, const char *mount, bool v2, const char *options)
{
    cgroups->mounts =
        kg_realloc(cgroups->mounts, (cgroups->n_mounts + 1) * sizeof(*cgroups->mounts));
    cgroups->mounts[cgroups->n_mounts++] = (struct cgroup_mount){kg_strdup(mount), v2};
    if (!v2) {
        cgroups->v1 = true;
        cgroups->memory_v1 |= list_has(options, ",", "memory");
        note_controllers(cgroups, options, ",");
        KG_AUTO_FREE char *memsw = kg_asprintf("%s/memory.memsw.limit_in_bytes", mount);
        cgroups->swap |= access(memsw, F_OK) == 0;
        return;
    }
    cgroups->v2 = true;
    KG_AUTO_FREE char *path = kg_asprintf("%s/cgroup.controllers", mount);
    KG_AUTO_BUF controllers = {0};
    if (file_read(path, 4096, &controllers, NULL) == 0 && controllers.len) {
        note_controllers(cgroups, controllers.data, " \n");
        cgroups->swap |= access("/proc/swaps", F_OK) == 0;
    }
}

void
cgroups_init(struct cgroups *cgroups)
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
        if (strcmp(type, "cgroup") == 0 || strcmp(type, "cgroup2") == 0)
            add_hierarchy(cgroups, mount, strcmp(type, "cgroup2") == 0, options);
    }
    fclose(file);
}

void
cgroups_fini(struct cgroups *cgroups)
{
    for (size_t i = 0; i < cgroups->n_mounts; i++)
        free(cgroups->mounts[i].path);
    free(cgroups->mounts);
}

// The folder of a group in one hierarchy.
static char *
folder_of(const struct cgroup_mount *mount, const char *name)
{
    return kg_asprintf("%s/%s", mount->path, name);
}

// ---- Members --------------------------------------------------------------------------------

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

struct search {
    int pid;
    bool found;
};

static void
member_compare(int pid, void *arg)
{
    struct search *search = arg;
    search->found |= pid == search->pid;
}

bool
cgroup_has(const struct cgroups *cgroups, const char *name, int pid)
{
    struct search search = {.pid = pid};
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        each_member(folder, member_compare, &search);
    }
    return search.found;
}

int
cgroup_open_members(const struct cgroups *cgroups, const char *name, int *ret, size_t max,
                    struct kg_error *err)
{
    size_t n = 0;
    int failed = 0;
    for (size_t i = 0; i < cgroups->n_mounts && !failed; i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s/cgroup.procs", cgroups->mounts[i].path, name);
        if (access(path, F_OK) < 0)
            continue; // the runtime does not use this hierarchy
        int fd = n < max ? open(path, O_WRONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            failed =
                kg_error_set(err, KG_INTERNAL, n < max ? errno : EMFILE, "cannot open %s", path);
        else
            ret[n++] = fd;
    }
    if (n == 0 && !failed)
        failed =
            kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "there is no control group %s", name);
    while (failed && n > 0)
        close(ret[--n]);
    return failed ? -1 : (int)n;
}

static void
member_kill(int pid, void *arg)
{
    (void)arg;
    kill(pid, SIGKILL);
}

bool
cgroup_sweep(const struct cgroups *cgroups, const char *name)
{
    bool gone = true;
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        if (access(folder, F_OK) < 0)
            continue;
        each_member(folder, member_kill, NULL);
        gone &= rmdir(folder) == 0;
    }
    return gone;
}

void
cgroup_remove(const struct cgroups *cgroups, const char *name)
{
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        (void)rmdir(folder);
    }
}

// ---- Limits ---------------------------------------------------------------------------------

// Writes to a file of the group, if the hierarchy has it.
static void
set_text(const char *folder, const char *name, const char *text)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", folder, name);
    if (access(path, F_OK) < 0)
        return;
    KG_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        log_warning("cannot set a limit for sandboxes", LOG_STR("path", path),
                    LOG_STR("reason", strerror(errno)));
}

static void
set_number(const char *folder, const char *name, int64_t value)
{
    KG_AUTO_FREE char *text = kg_asprintf("%lld", (long long)value);
    set_text(folder, name, text);
}

static void
limit_disk(const char *folder, bool v2, const struct cgroup_disk *disk)
{
    KG_AUTO_FREE char *both = kg_asprintf("%u:%u rbps=%lld riops=%d", disk->major, disk->minor,
                                          (long long)DISK_BYTES_S, DISK_READS_S);
    KG_AUTO_FREE char *bytes =
        kg_asprintf("%u:%u %lld", disk->major, disk->minor, (long long)DISK_BYTES_S);
    KG_AUTO_FREE char *reads = kg_asprintf("%u:%u %d", disk->major, disk->minor, DISK_READS_S);
    if (v2) {
        set_text(folder, "io.max", both);
    } else {
        set_text(folder, "blkio.throttle.read_bps_device", bytes);
        set_text(folder, "blkio.throttle.read_iops_device", reads);
    }
}

void
cgroup_limit(const struct cgroups *cgroups, const char *name)
{
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        set_number(folder, "memory.kmem.tcp.limit_in_bytes", TCP_BYTES);
        for (size_t disk = 0; disk < cgroups->n_disks; disk++)
            limit_disk(folder, cgroups->mounts[i].v2, &cgroups->disks[disk]);
    }
}

static int
write_number(const char *path, int64_t value, struct kg_error *err)
{
    KG_AUTO_FREE char *text = kg_asprintf("%lld", (long long)value);
    KG_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "cannot write %s", path);
    return 0;
}

// Of version 1, memory may never have more than memory and swap together, so writing the former
// first fails if the limit rises.
static int
limit_memory_v1(const char *folder, int64_t bytes, struct kg_error *err)
{
    KG_AUTO_FREE char *memory = kg_asprintf("%s/memory.limit_in_bytes", folder);
    KG_AUTO_FREE char *both = kg_asprintf("%s/memory.memsw.limit_in_bytes", folder);
    if (access(memory, F_OK) < 0)
        return 0; // another controller's
    bool has_both = access(both, F_OK) == 0;
    if (write_number(memory, bytes, err) == 0)
        return has_both ? write_number(both, bytes, err) : 0;
    if (!has_both || write_number(both, bytes, err) < 0)
        return -1;
    return write_number(memory, bytes, err);
}

int
cgroup_limit_memory(const struct cgroups *cgroups, const char *name, int64_t bytes,
                    struct kg_error *err)
{
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        KG_AUTO_FREE char *max = kg_asprintf("%s/memory.max", folder);
        int failed = 0;
        if (!cgroups->mounts[i].v2)
            failed = limit_memory_v1(folder, bytes, err);
        else if (access(max, F_OK) == 0)
            failed = write_number(max, bytes, err);
        if (failed)
            return -1;
    }
    return 0;
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
cgroups_add_disk(struct cgroups *cgroups, const char *path)
{
    struct cgroup_disk found;
    if (cgroups->n_disks == KG_ARRAY_LEN(cgroups->disks) || !find_disk(path, &found))
        return;
    for (size_t i = 0; i < cgroups->n_disks; i++)
        if (cgroups->disks[i].major == found.major && cgroups->disks[i].minor == found.minor)
            return;
    cgroups->disks[cgroups->n_disks++] = found;
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

static int64_t
machine_memory(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
}

// Sandboxes are bounded with their swap. Of version 1, a group that is full could still swap theirs
// out, and the machine would do little else.
static void
bound_memory(const char *folder, bool v2, int64_t bytes)
{
    struct kg_error err;
    if (v2) {
        set_number(folder, "memory.max", bytes);
        set_number(folder, "memory.swap.max", 0);
    } else if (limit_memory_v1(folder, bytes, &err) < 0) {
        log_warning("cannot set a limit for sandboxes", LOG_ERR(&err));
    }
}

void
cgroup_bound(const struct cgroups *cgroups, const char *name)
{
    int64_t ids = number_in("/proc/sys/kernel/pid_max");
    int64_t threads = number_in("/proc/sys/kernel/threads-max");
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        bool v2 = cgroups->mounts[i].v2;
        KG_AUTO_FREE char *folder = folder_of(&cgroups->mounts[i], name);
        bound_memory(folder, v2, machine_memory() / 10 * 9);
        set_number(folder, "pids.max", (ids < threads ? ids : threads) / 2);
    }
}

// A gateway in a container sees the container's own limit at the top of the hierarchy.
int64_t
cgroup_memory_bound(const struct cgroups *cgroups, const char *name)
{
    int64_t bound = 0;
    for (size_t i = 0; i < cgroups->n_mounts; i++) {
        const struct cgroup_mount *mount = &cgroups->mounts[i];
        const char *file = mount->v2 ? "memory.max" : "memory.limit_in_bytes";
        KG_AUTO_FREE char *own = kg_asprintf("%s/%s/%s", mount->path, name, file);
        KG_AUTO_FREE char *around = kg_asprintf("%s/%s", mount->path, file);
        int64_t bytes = number_in(own), most = number_in(around);
        if (bytes <= machine_memory())
            bound = bytes < most ? bytes : most;
    }
    return bound;
}
