// SPDX-License-Identifier: Apache-2.0
#include "prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base.h"

enum { STATE_MAX = 64 * 1024 };

// Instances and watches of a sandbox also count for the host's root.
static const struct {
    const char *path; // below /proc
    int value;
} counters[] = {
    {"sys/user/max_inotify_instances", SANDBOX_INOTIFY_INSTANCES},
    {"sys/user/max_inotify_watches", 8192},
};

// All that runtimes make, with numbers that are the same everywhere.
static const struct {
    const char *name;
    unsigned major;
    unsigned minor;
} devices[] = {
    {"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
    {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

static int
failed(const char *what)
{
    fprintf(stderr, "kernelgate-agent --prepare: %s: %s\n", what, strerror(errno));
    return -1;
}

// The process id in the state that the runtime wrote; it names nothing else "pid".
static int
read_pid(void)
{
    static char state[STATE_MAX];
    size_t len = fread(state, 1, sizeof state - 1, stdin);
    state[len] = '\0';
    const char *key = strstr(state, "\"pid\"");
    int pid;
    if (!key || sscanf(key + strlen("\"pid\""), " : %d", &pid) != 1 || pid <= 0) {
        errno = EINVAL;
        return failed("the state has no pid");
    }
    return pid;
}

static int
open_namespace(int pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? failed(path) : fd;
}

// ---- Devices --------------------------------------------------------------------------------

// Makes a device in `folder` and mounts it over the host's in /dev: read-only, which for a device
// means its inode.
static int
replace_device(size_t i, const char *folder)
{
    char made[64];
    char place[64];
    snprintf(made, sizeof made, "%s/%s", folder, devices[i].name);
    snprintf(place, sizeof place, "dev/%s", devices[i].name);
    if (mknod(made, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)) != 0)
        return failed(made);
    if (mount(made, place, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, place, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) !=
            0)
        return failed(place);
    return 0;
}

// The devices are in a tmpfs of the host's user namespace, as one of the sandbox's has none that
// work. It is in sight for as long as this takes.
static int
replace_devices(void)
{
    static const char folder[] = "dev/shm";
    umask(0);
    if (mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=4k,nr_inodes=16,mode=755") !=
        0)
        return failed(folder);
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof devices / sizeof devices[0]; i++)
        result = replace_device(i, folder);
    if (umount2(folder, MNT_DETACH) != 0)
        return failed(folder);
    return result;
}

// ---- The second name of the working folder ----------------------------------------------------

static bool
is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// Only where the image has a folder for it; a link there would lead to the host's files.
static int
mount_second_name(void)
{
    if (!is_folder("home") || !is_folder("home/user"))
        return 0;
    return mount("mnt/data", "home/user", NULL, MS_BIND, NULL) == 0 ? 0 : failed("home/user");
}

// ---- Overlays -------------------------------------------------------------------------------

// As the host's root they also show folders that other users cannot reach.
static int
mount_overlays(char *const *overlays)
{
    for (; overlays[0] && overlays[1]; overlays += 2)
        if (mount("overlay", overlays[0] + 1, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV,
                  overlays[1]) != 0)
            return failed(overlays[0]);
    return 0;
}

// Changes the mounts of the container, whose root is at `root` in this process's mount namespace.
static int
prepare_mounts(const char *root, char *const *overlays)
{
    if (chdir(root) != 0)
        return failed(root);
    if (replace_devices() != 0 || mount_second_name() != 0)
        return -1;
    return mount_overlays(overlays);
}

// ---- Counters -------------------------------------------------------------------------------

static bool
is_own_namespace(int fd)
{
    struct stat own;
    struct stat other;
    return stat("/proc/self/ns/user", &own) == 0 && fstat(fd, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

// What the files say and take is by the user namespace of the process that opens them.
static int
limit_counters(int proc)
{
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        int fd = openat(proc, counters[i].path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue; // a kernel without inotify
        if (fd < 0)
            return failed(counters[i].path);
        int written = dprintf(fd, "%d", counters[i].value);
        close(fd);
        if (written < 0)
            return failed(counters[i].path);
    }
    return 0;
}

int
prepare_main(const char *root, char *const *overlays)
{
    int pid = read_pid();
    if (pid < 0)
        return 1;
    int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int mounts = open_namespace(pid, "mnt");
    int users = open_namespace(pid, "user");
    if (proc < 0 || mounts < 0 || users < 0)
        return 1;
    bool own = is_own_namespace(users); // then these would be the host's
    if (root && (setns(mounts, CLONE_NEWNS) != 0 || prepare_mounts(root, overlays) != 0))
        return 1;
    if (!own && (setns(users, CLONE_NEWUSER) != 0 || limit_counters(proc) != 0))
        return 1;
    return 0;
}
