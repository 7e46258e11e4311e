// SPDX-License-Identifier: Apache-2.0
// `kernelgate doctor` for the engine "oci": runs trials, and reports what works and what is
// missing.
#include "oci_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct findings {
    provisioner_finding_fn fn;
    void *arg;
};

static void
find_cgroups(const struct findings *out, const struct cgroups *info)
{
    const char *version = info->v1 && info->v2 ? "hybrid (version 1 and 2)"
                          : info->v2           ? "version 2"
                                               : "version 1";
    bool complete = info->memory && info->cpu && info->pids;
    KG_AUTO_FREE char *detail =
        kg_asprintf("%s; memory: %s, cpu: %s, pids: %s, swap limit: %s%s", version,
                    info->memory ? "yes" : "missing", info->cpu ? "yes" : "missing",
                    info->pids ? "yes" : "missing", info->swap ? "yes" : "missing",
                    !complete  ? "; delegate them to kernelgate, or boot with cgroup_enable=memory"
                    : info->v1 ? "; version 1 does not count UDP buffers, so sandboxes have no UDP:"
                                 " boot with systemd.unified_cgroup_hierarchy=1"
                               : "");
    bool mounted = info->v1 || info->v2;
    out->fn("oci: control groups", complete,
            mounted ? detail : "none: mount them at /sys/fs/cgroup", out->arg);
}

// The inotify instances of sandboxes also count against the host's root.
static void
find_inotify(const struct findings *out, int64_t max_sessions)
{
    enum { OF_THE_HOST = 128 };
    int64_t wanted = OF_THE_HOST + SANDBOX_INOTIFY_INSTANCES * max_sessions;
    KG_AUTO_BUF text = {0};
    long number = 0;
    if (file_read("/proc/sys/fs/inotify/max_user_instances", 64, &text, NULL) == 0 && text.len)
        number = strtol(text.data, NULL, 10);
    KG_AUTO_FREE char *few = kg_asprintf(
        "fs.inotify.max_user_instances is %ld; %lld sessions may use so many that none are left for"
        " the host's root: sysctl fs.inotify.max_user_instances=%lld",
        number, (long long)max_sessions, (long long)wanted);
    KG_AUTO_FREE char *enough = kg_asprintf("fs.inotify.max_user_instances is %ld", number);
    out->fn("oci: inotify", number >= wanted, number >= wanted ? enough : few, out->arg);
}

// Linux has one limit for the open files of all users but root: no setting of a sandbox lowers it.
static void
find_files(const struct findings *out, const struct oci *oci, int64_t max_sessions)
{
    enum { OF_OTHERS = 100000 };
    int64_t wanted = OF_OTHERS + max_sessions * oci->limits.pids * SANDBOX_NOFILE;
    KG_AUTO_BUF text = {0};
    long long number = 0;
    if (file_read("/proc/sys/fs/file-max", 64, &text, NULL) == 0 && text.len)
        number = strtoll(text.data, NULL, 10);
    KG_AUTO_FREE char *few =
        kg_asprintf("fs.file-max is %lld; %lld sessions with %d processes each may open so many "
                    "files that none are"
                    " left for other users: sysctl fs.file-max=%lld, or fewer pids",
                    number, (long long)max_sessions, oci->limits.pids, (long long)wanted);
    KG_AUTO_FREE char *enough = kg_asprintf("fs.file-max is %lld", number);
    out->fn("oci: open files", number >= wanted, number >= wanted ? enough : few, out->arg);
}

// With a limit of 0 instead of 1, Linux starts the program that reads the pipe.
static bool
crashes_are_bounded(void)
{
    for (size_t i = 0; i < sandbox_n_rlimits; i++)
        if (sandbox_rlimits[i].resource == RLIMIT_CORE)
            return sandbox_rlimit_raise(&sandbox_rlimits[i]) > 0;
    return false;
}

static void
find_core_pattern(const struct findings *out)
{
    KG_AUTO_BUF text = {0};
    bool piped = file_read("/proc/sys/kernel/core_pattern", 256, &text, NULL) == 0 && text.len &&
                 text.data[0] == '|';
    bool bounded = crashes_are_bounded();
    out->fn("oci: core dumps", !piped || bounded,
            !piped    ? "kernel.core_pattern is not a pipe"
            : bounded ? "kernel.core_pattern is a pipe; crashes inside a sandbox do not start its"
                        " program"
                      : "kernel.core_pattern is a pipe, and crashes inside a sandbox start its"
                        " program as the host's root: this process has a hard limit of 0 for core"
                        " files, and may not raise it; start kernelgate with a limit of 1"
                        " (LimitCORE=1) or with CAP_SYS_RESOURCE",
            out->arg);
}

static void
find_seccomp(const struct findings *out)
{
    bool ok = access("/proc/sys/kernel/seccomp/actions_avail", F_OK) == 0;
    out->fn("oci: seccomp", ok,
            ok ? "the kernel filters system calls" : "the kernel does not support filters",
            out->arg);
}

// Forked kernels enter a sandbox's namespaces by a pidfd of its init. This tries the same with
// this process's own namespaces.
static void
find_forks(const struct findings *out)
{
    KG_AUTO_FD pidfd = pidfd_open(getpid(), 0);
    bool ok = pidfd >= 0 && setns(pidfd, CLONE_NEWUTS | CLONE_NEWIPC) == 0;
    KG_AUTO_FREE char *why = kg_asprintf(
        "namespaces cannot be entered by a pidfd (%s): kernels start by exec", strerror(errno));
    out->fn("oci: forked kernels", ok,
            ok ? "with runc or crun, kernel-start auto has kernels forked" : why, out->arg);
}

static void
find_rootless(const struct findings *out, const struct cgroups *info)
{
    KG_AUTO_BUF missing = {0};
    KG_AUTO_FREE char *newuidmap = runtime_find("newuidmap");
    if (!newuidmap)
        buf_append_str(&missing, "; newuidmap (install uidmap)");
    if (access("/etc/subuid", F_OK) < 0 || access("/etc/subgid", F_OK) < 0)
        buf_append_str(&missing,
                       "; subordinate ids (/etc/subuid, /etc/subgid: usermod --add-subuids)");
    if (info->v1 || !info->v2)
        buf_append_str(&missing,
                       "; control groups version 2 only (systemd.unified_cgroup_hierarchy=1),"
                       " without which nothing is limited");
    KG_AUTO_FREE char *detail =
        missing.len ? kg_asprintf("it would need %s", missing.data + 2)
                    : kg_strdup("its requirements are met, but kernelgate still needs root");
    // Only for information if we are root.
    out->fn("oci: without root", geteuid() == 0, detail, out->arg);
}

static void
find_inodes(const struct findings *out, const struct oci *oci, const char *name,
            const struct kg_error *why)
{
    KG_AUTO_FREE char *what = kg_asprintf("oci: %s, own inodes", name);
    KG_AUTO_FREE char *shared = kg_asprintf(
        "%s are shared with the host and other sandboxes, and so are their locks and watches: %s",
        oci->inodes == INODES_MOST ? "the root's few files" : "the machine's files", why->message);
    bool own = oci->inodes == INODES_OWN;
    out->fn(what, own, own ? "locks, watches and times of files stay inside" : shared, out->arg);
}

// Tries one runtime with and without a user namespace; true if one of them works.
static bool
find_runtime(const struct findings *out, struct oci *oci, const char *name)
{
    KG_AUTO_FREE char *what = kg_asprintf("oci: %s", name);
    KG_AUTO_FREE char *what_users = kg_asprintf("oci: %s, user namespace", name);
    struct oci_shortfall shortfall;
    struct kg_error err;
    if (oci_try_runtime(oci, name, &shortfall, &err) < 0) {
        out->fn(what, false, err.message, out->arg);
        return false;
    }
    if (oci->kind->own_kernel) {
        out->fn(what, true, "ran a sandbox with its own kernel", out->arg);
        return true;
    }
    out->fn(what, true, "ran a sandbox", out->arg);
    find_inodes(out, oci, name, &shortfall.inodes);
    bool users = !shortfall.users.code;
    KG_AUTO_FREE char *advice = oci_users_advice();
    KG_AUTO_FREE char *missing = kg_asprintf("%s; %s", shortfall.users.message, advice);
    out->fn(what_users, users, users ? "every sandbox has its own user on the host" : missing,
            out->arg);
    return true;
}

// Tries the runtimes that a gateway would try, and keeps the traits of the one that it would take.
static bool
find_runtimes(const struct findings *out, struct oci *oci, const char *wanted,
              struct provisioner_traits *ret)
{
    const char *const only[] = {wanted, NULL};
    const char *const *names = strcmp(wanted, "auto") == 0 ? oci_runtimes : only;
    bool any = false;
    for (size_t i = 0; names[i]; i++) {
        if (!find_runtime(out, oci, names[i]) || any)
            continue;
        any = true;
        cgroup_bound(&oci->cgroups, oci->group);
        oci_traits(oci, ret);
    }
    if (names == oci_runtimes)
        find_runtime(out, oci, "runsc"); // "auto" does not choose it
    return any;
}

bool
oci_doctor(struct oci *oci, const struct provisioner_settings *settings, provisioner_finding_fn fn,
           void *arg, struct provisioner_traits *ret)
{
    struct findings out = {fn, arg};
    find_cgroups(&out, &oci->cgroups);
    find_seccomp(&out);
    find_core_pattern(&out);
    find_forks(&out);
    find_rootless(&out, &oci->cgroups);
    bool any = find_runtimes(&out, oci, settings->oci_runtime, ret);
    int64_t max_sessions = settings->max_sessions;
    if (max_sessions == 0)
        max_sessions = provisioner_sessions_for(ret->memory_bound, oci->limits.memory_mb,
                                                provisioner_max_files());
    find_inotify(&out, max_sessions);
    find_files(&out, oci, max_sessions);
    return any;
}
