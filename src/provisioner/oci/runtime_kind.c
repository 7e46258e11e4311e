// SPDX-License-Identifier: Apache-2.0
// The differences between OCI runtimes: a row for each, and a bundle without unsupported parts.
#include "oci_priv.h"

#include <string.h>

// The control group of a runsc sandbox counts runsc's own threads: about 120, and for each process
// inside a process for its address space, with up to one thread for each of runsc's.
#define RUNSC_TASKS 512
#define RUNSC_TASKS_PER_PROCESS 32

// No network but loopback; connections to sockets in mounted folders, of which there is one, the
// door; no writable layer above the mounts; the bundle's system call filter also inside, in front
// of runsc's own kernel. The platform (ptrace, systrap, kvm) is the build's default.
static const char *const runsc_flags[] = {
    "--network=none", "--host-uds=open", "--overlay2=none", "--oci-seccomp", "--cgroupfs", NULL,
};
static const char *const no_flags[] = {NULL};

static const struct runtime_kind kinds[] = {
    // A program with any other name is assumed to behave like runc.
    {.name = "",
     .packages = "runc and crun",
     .flags = no_flags,
     .user_namespace = true,
     .mount_rro = true},
    // As of 1.8, it has no exception from the filter's default.
    {.name = "crun",
     .packages = "runc and crun",
     .flags = no_flags,
     .user_namespace = true,
     .mount_rro = true,
     .denies_newer_calls = true},
    // It makes its own user namespace, in which its processes run as nobody.
    {.name = "runsc",
     .packages = "runsc",
     .flags = runsc_flags,
     .state_files = true,
     .own_kernel = true},
};

const struct runtime_kind *
runtime_kind_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *program = slash ? slash + 1 : path;
    const struct runtime_kind *found = &kinds[0];
    for (size_t i = 1; i < KG_ARRAY_LEN(kinds); i++)
        if (strncmp(program, kinds[i].name, strlen(kinds[i].name)) == 0)
            found = &kinds[i];
    return found;
}

char *
runtime_kind_state(const struct runtime_kind *kind, const char *root, const char *container)
{
    return kind->state_files ? kg_asprintf("%s/%s_sandbox:%s.state", root, container, container)
                             : kg_asprintf("%s/%s", root, container);
}

char *
runtime_kind_sandbox(const struct runtime_kind *kind, const char *rest)
{
    const char *end = rest + strcspn(rest, "_");
    const char *dot = strrchr(end, '.');
    if (!kind->state_files)
        return kg_strdup(rest);
    return dot && strcmp(dot, ".state") == 0 ? kg_strndup(rest, (size_t)(end - rest)) : NULL;
}

static void
remove_option(json_t *mount, const char *option)
{
    json_t *options = json_object_get(mount, "options");
    for (size_t i = json_array_size(options); i > 0; i--)
        if (strcmp(json_string_value(json_array_get(options, i - 1)), option) == 0)
            json_array_remove(options, i - 1);
}

// runsc returns EPERM for everything that a filter refuses, so what should fail otherwise is left
// to its own kernel, whose memory is the sandbox's. Clone3 (ENOSYS): the one of 2022 does not have
// it, later ones have it with their own namespaces. Calls by list are too many rules for runsc.
static const char *const calls_by_list[] = {"ioctl", "fcntl", "prctl", "setsockopt", "getsockopt"};

static bool
is_call_by_list(const json_t *rule)
{
    const char *name = json_string_value(json_array_get(json_object_get(rule, "names"), 0));
    for (size_t i = 0; i < KG_ARRAY_LEN(calls_by_list); i++)
        if (strcmp(name, calls_by_list[i]) == 0)
            return true;
    return false;
}

static json_t *
adapt_filter(const json_t *profile)
{
    size_t i;
    json_t *rule;
    json_t *own = json_deep_copy(profile); // the profile is shared by all sandboxes
    json_t *rules = json_array();
    json_array_foreach(json_object_get(own, "syscalls"), i, rule) {
        if (is_call_by_list(rule))
            continue;
        if (json_object_get(rule, "errnoRet")) {
            json_object_set_new(rule, "action", json_string("SCMP_ACT_ALLOW"));
            json_object_del(rule, "errnoRet");
        }
        json_array_append(rules, rule);
    }
    json_t *names = json_pack("[s]", "pselect"); // its name for pselect6; unknown names are ignored
    for (i = 0; i < KG_ARRAY_LEN(calls_by_list); i++)
        json_array_append_new(names, json_string(calls_by_list[i]));
    json_array_append_new(rules,
                          json_pack("{s:o, s:s}", "names", names, "action", "SCMP_ACT_ALLOW"));
    json_object_set_new(own, "syscalls", rules);
    return own;
}

// Inside, the user's limit applies; the control group limits runsc itself.
static void
bound_processes_inside(json_t *process, json_t *resources)
{
    json_t *pids = json_object_get(resources, "pids");
    json_int_t limit = json_integer_value(json_object_get(pids, "limit"));
    json_array_append_new(
        json_object_get(process, "rlimits"),
        json_pack("{s:s, s:I, s:I}", "type", "RLIMIT_NPROC", "soft", limit, "hard", limit));
    json_object_set_new(pids, "limit", json_integer(RUNSC_TASKS + RUNSC_TASKS_PER_PROCESS * limit));
}

void
runtime_kind_adapt(const struct runtime_kind *kind, json_t *config)
{
    size_t i;
    json_t *mount;
    json_t *linux_part = json_object_get(config, "linux");
    json_array_foreach(json_object_get(config, "mounts"), i, mount) {
        if (!kind->mount_rro)
            remove_option(mount, "rro");
    }
    if (kind->own_kernel) {
        json_object_set_new(linux_part, "seccomp",
                            adapt_filter(json_object_get(linux_part, "seccomp")));
        json_object_del(linux_part, "sysctl");
        bound_processes_inside(json_object_get(config, "process"),
                               json_object_get(linux_part, "resources"));
    }
}

bool
provisioner_runtime_needs_network(const char *oci_runtime)
{
    return strcmp(oci_runtime, "auto") != 0 && runtime_kind_of(oci_runtime)->own_kernel;
}
