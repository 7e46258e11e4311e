// SPDX-License-Identifier: Apache-2.0
// From a new process in new namespaces to the agent: its paths are those of a sandbox, but nothing
// confines it.
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

enum { DATA_MAX = 8192, FILES_MAX = 4096 };

// Options of a mount that are flags; all others are the file system's.
static const struct {
    const char *name;
    unsigned long flag;
} known[] = {
    {"ro", MS_RDONLY}, {"nosuid", MS_NOSUID},       {"nodev", MS_NODEV}, {"noexec", MS_NOEXEC},
    {"bind", MS_BIND}, {"rbind", MS_BIND | MS_REC}, {"rro", 0}, // its mounts below are read-only,
                                                                // too
};
enum { N_KNOWN = sizeof known / sizeof *known };

static unsigned long
read_options(const json_t *options, char data[DATA_MAX])
{
    unsigned long flags = 0;
    for (size_t i = 0; i < json_array_size(options); i++) {
        const char *option = json_string_value(json_array_get(options, i));
        size_t k = 0, len = strlen(data);
        while (k < N_KNOWN && strcmp(known[k].name, option) != 0)
            k++;
        if (k < N_KNOWN)
            flags |= known[k].flag;
        else
            snprintf(data + len, DATA_MAX - len, "%s%s", len ? "," : "", option);
    }
    return flags;
}

// A control group that the kernel can write: what the agent reports is what a test wants.
static void
mount_sys(const char *target)
{
    if (mount("tmpfs", target, "tmpfs", 0, "") < 0)
        runtime_fail("cannot mount %s", target);
    const char *group = runtime_path("%s/fs/cgroup", target);
    runtime_make_folders(group);
    if (chmod(group, 0777) < 0)
        runtime_fail("cannot change %s", group);
}

static void
mount_one(const char *root, json_t *item)
{
    char data[DATA_MAX] = "";
    const char *destination, *type, *source;
    json_t *options;
    if (json_unpack(item, "{s:s, s:s, s:s, s:o}", "destination", &destination, "type", &type,
                    "source", &source, "options", &options) < 0)
        runtime_fail("a mount lacks something");
    const char *target = runtime_path("%s%s", root, strcmp(destination, "/") ? destination : "");
    if (strcmp(type, "devpts") == 0 || strcmp(type, "cgroup") == 0)
        return;
    if (strcmp(destination, "/sys") == 0) {
        mount_sys(target);
        return;
    }
    unsigned long flags = read_options(options, data);
    bool is_dev = strcmp(destination, "/dev") == 0; // the machine's own
    int result = is_dev ? mount("/dev", target, NULL, MS_BIND | MS_REC, NULL)
                        : mount(source, target, type, flags, data);
    if (result < 0)
        runtime_fail("cannot mount %s", destination);
}

// What the bundle's hook does, which is not run, for the working folder.
static void
mount_second_name(const char *root, const json_t *config)
{
    const char *name = runtime_path("%s/home/user", root);
    const char *data = runtime_path("%s/mnt/data", root);
    if (json_object_get(config, "hooks") && mount(data, name, NULL, MS_BIND, NULL) < 0)
        runtime_fail("cannot mount %s", name);
}

static void
start_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        runtime_fail("cannot start the loopback interface");
    close(fd);
}

// As a sandbox's; those limits are left out that count for all processes of a user.
static void
limit(void)
{
    const struct rlimit files = {FILES_MAX, FILES_MAX}, core = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &core) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        runtime_fail("cannot limit the process");
}

static void
become_user(json_t *process)
{
    int uid, gid;
    if (json_unpack(process, "{s:{s:i, s:i}}", "user", "uid", &uid, "gid", &gid) < 0)
        runtime_fail("the process has no user");
    if (setgroups(0, NULL) < 0 || setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) < 0 ||
        setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0)
        runtime_fail("cannot become the user %d", uid);
}

static char **
strings_of(const json_t *list)
{
    size_t n = json_array_size(list);
    char **ret = calloc(n + 1, sizeof *ret);
    for (size_t i = 0; i < n; i++)
        ret[i] = strdup(json_string_value(json_array_get(list, i)));
    return ret;
}

void
inside_enter(const json_t *config)
{
    const json_t *mounts = json_object_get(config, "mounts");
    json_t *process = json_object_get(config, "process");
    const char *root = json_string_value(json_object_get(json_object_get(config, "root"), "path"));
    const char *name = json_string_value(json_object_get(config, "hostname"));
    const char *cwd = json_string_value(json_object_get(process, "cwd"));
    if (!root || !cwd || !name)
        runtime_fail("config.json lacks something");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        runtime_fail("cannot make mounts private");
    for (size_t i = 0; i < json_array_size(mounts); i++)
        mount_one(root, json_array_get(mounts, i));
    mount_second_name(root, config);
    start_loopback();
    if (sethostname(name, strlen(name)) < 0 || chroot(root) < 0 || chdir(cwd) < 0)
        runtime_fail("cannot enter the root folder");
    limit();
    become_user(process);
    setsid();
    char **argv = strings_of(json_object_get(process, "args"));
    execve(argv[0], argv, strings_of(json_object_get(process, "env")));
    runtime_fail("cannot run %s", argv[0]);
}
