// SPDX-License-Identifier: Apache-2.0
// `kernelgate doctor` for the engine "oci": what works, tried for real, and what is missing.
#include "oci_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct findings {
    provisioner_finding_fn fn;
    void *arg;
};

static void
find_cgroups(const struct findings *out, const struct cgroup_info *info)
{
    const char *version = info->v1 && info->v2 ? "hybrid (version 1 and 2)"
                          : info->v2           ? "version 2"
                                               : "version 1";
    bool complete = info->memory && info->cpu && info->pids;
    KG_AUTO_FREE char *detail = kg_asprintf(
        "%s; memory: %s, cpu: %s, pids: %s, limit of swap: %s%s", version,
        info->memory ? "yes" : "missing", info->cpu ? "yes" : "missing",
        info->pids ? "yes" : "missing", info->swap ? "yes" : "missing",
        complete ? "" : "; delegate them to kernelgate, or boot with cgroup_enable=memory");
    bool mounted = info->v1 || info->v2;
    out->fn("oci: control groups", complete,
            mounted ? detail : "none: mount them at /sys/fs/cgroup", out->arg);
}

static void
find_seccomp(const struct findings *out)
{
    bool ok = access("/proc/sys/kernel/seccomp/actions_avail", F_OK) == 0;
    out->fn("oci: seccomp", ok,
            ok ? "the kernel filters system calls" : "the kernel has no filters", out->arg);
}

static void
find_rootless(const struct findings *out, const struct cgroup_info *info)
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
                       "; control groups version 2 alone (systemd.unified_cgroup_hierarchy=1),"
                       " without which nothing is limited");
    KG_AUTO_FREE char *detail =
        missing.len ? kg_asprintf("it would need %s", missing.data + 2)
                    : kg_strdup("what it needs is here; kernelgate itself wants root for now");
    // For information where we are root, which needs none of it.
    out->fn("oci: without root", geteuid() == 0, detail, out->arg);
}

// Tries one runtime with and without a user namespace; true where one of them works.
static bool
find_runtime(const struct findings *out, struct oci *oci, const char *name)
{
    KG_AUTO_FREE char *what = kg_asprintf("oci: %s", name);
    KG_AUTO_FREE char *what_users = kg_asprintf("oci: %s, user namespace", name);
    struct kg_error err;
    if (oci_use_runtime(oci, name, true, &err) < 0) {
        out->fn(what, false, err.message, out->arg);
        return false;
    }
    if (oci_try_container(oci, &err) == 0) {
        out->fn(what, true, "ran a sandbox", out->arg);
        out->fn(what_users, true, "every sandbox has a user of its own on the host", out->arg);
        return true;
    }
    oci->user_namespace = false;
    struct kg_error plain_err;
    if (oci_try_container(oci, &plain_err) < 0) {
        out->fn(what, false, plain_err.message, out->arg);
        return false;
    }
    out->fn(what, true, "ran a sandbox", out->arg);
    KG_AUTO_FREE char *advice =
        kg_asprintf("%s (see sysctl user.max_user_namespaces)", err.message);
    out->fn(what_users, false, advice, out->arg);
    return true;
}

bool
oci_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn, void *arg)
{
    struct findings out = {fn, arg};
    struct kg_error err;
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(oci) oci = oci_open(loop, settings, &err);
    if (!oci) {
        fn("oci: settings", false, err.message, arg);
        return false;
    }
    find_cgroups(&out, &oci->cgroups);
    find_seccomp(&out);
    find_rootless(&out, &oci->cgroups);
    if (strcmp(settings->oci_runtime, "auto") != 0)
        return find_runtime(&out, oci, settings->oci_runtime);
    bool any = false;
    for (size_t i = 0; oci_runtimes[i]; i++)
        any |= find_runtime(&out, oci, oci_runtimes[i]);
    return any;
}
