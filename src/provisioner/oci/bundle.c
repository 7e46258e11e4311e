// SPDX-License-Identifier: Apache-2.0
// The config.json of a sandbox's container: its mounts, namespaces, users and limits.
#include "oci_priv.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOOK_TIMEOUT_S 20

static void
add_tmpfs(json_t *mounts, const char *destination, int64_t size_mb, const char *more)
{
    KG_AUTO_FREE char *options = sandbox_tmpfs_options(size_mb, more);
    mount_add(mounts, destination, "tmpfs", "tmpfs", options);
}

static void
add_system_mounts(json_t *mounts)
{
    mount_add(mounts, "/proc", "proc", "proc", "nosuid,noexec,nodev");
    mount_add(mounts, "/dev", "tmpfs", "tmpfs", "nosuid,noexec,mode=755,size=64k");
    mount_add(mounts, "/dev/pts", "devpts", "devpts",
              "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,max=16");
    mount_add(mounts, "/dev/shm", "tmpfs", "shm",
              "nosuid,noexec,nodev,mode=1777,size=64m,nr_inodes=4096");
    mount_add(mounts, "/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro");
    // The agent reads the memory counters and the OOM kills in it.
    mount_add(mounts, "/sys/fs/cgroup", "cgroup", "cgroup", "nosuid,noexec,nodev,ro");
}

static void
add_door(const struct oci *oci, const char *id, json_t *mounts)
{
    KG_AUTO_FREE char *door = folder_path(oci->base.state_dir, id, "door");
    mount_add(mounts, SANDBOX_DOOR, "bind", door, "bind,ro,nosuid,nodev,noexec");
}

// Whether the hook changes the container's mounts. It gives SANDBOX_DATA its second name then.
static bool
hook_has_root(const struct oci *oci)
{
    return oci->user_namespace && oci->inodes != INODES_SHARED;
}

static char *
env_path(const struct oci_kernel_env *env)
{
    return kg_asprintf(SANDBOX_KERNELS "/%s", env->name);
}

// `changing`: with the folders that change while sandboxes use them.
static json_t *
mounts_of(const struct oci *oci, const char *id, bool changing)
{
    json_t *mounts = json_array();
    if (mount_root_is_overlay(oci))
        mount_add_root(oci, mounts);
    add_system_mounts(mounts);
    if (oci->host_image)
        host_image_mounts(oci, mounts);
    if (oci->host_image && !hook_has_root(oci))
        host_image_mount_home_link(oci, mounts);
    for (size_t i = 0; i < oci->n_kernel_envs; i++) {
        const struct oci_kernel_env *env = &oci->kernel_envs[i];
        KG_AUTO_FREE char *at = env_path(env);
        if (env->changes && changing) // an overlay may miss changes
            mount_add_folder(mounts, at, env->host_dir);
        else if (!env->changes)
            mount_add_overlay(oci, mounts, at, env->host_dir);
    }
    if (!mount_root_is_overlay(oci))
        mount_add(mounts, SANDBOX_AGENT, "bind", oci->agent_path, "bind,ro,nosuid,nodev");
    if (!oci->base.gateway_key)
        add_door(oci, id, mounts);
    // runc takes the mode of a tmpfs from the folder that it covers, crun from this option.
    add_tmpfs(mounts, SANDBOX_HOME, oci->limits.tmp_mb, ",mode=1777");
    add_tmpfs(mounts, SANDBOX_DATA, oci->limits.disk_mb, ",mode=755,uid=1000,gid=1000");
    return mounts;
}

static json_t *
rlimits_of(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sandbox_n_rlimits; i++) {
        json_int_t value = sandbox_rlimit_raise(&sandbox_rlimits[i]);
        KG_AUTO_FREE char *name = kg_asprintf("RLIMIT_%s", sandbox_rlimits[i].name);
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I}", "type", name, "soft", value, "hard", value));
    }
    return list;
}

static json_t *
process_of(json_t *args)
{
    return json_pack("{s:b, s:{s:i, s:i}, s:o, s:[s, s, s, s], s:s, s:b, s:i, s:o,"
                     " s:{s:[], s:[], s:[], s:[], s:[]}}",
                     "terminal", 0, "user", "uid", SANDBOX_UID, "gid", SANDBOX_UID, "args", args,
                     "env", "PATH=" SANDBOX_PATH, "HOME=" SANDBOX_HOME, "LANG=C.UTF-8",
                     "USER=sandbox", "cwd", SANDBOX_DATA, "noNewPrivileges", 1, "oomScoreAdj",
                     SANDBOX_OOM_SCORE, "rlimits", rlimits_of(), "capabilities", "bounding",
                     "effective", "inheritable", "permitted", "ambient");
}

static json_t *
memory_of(const struct oci *oci)
{
    json_int_t limit = sandbox_memory_bytes(&oci->limits, 0);
    json_t *memory = json_pack("{s:I}", "limit", limit);
    if (oci->cgroups.swap)
        json_object_set_new(memory, "swap", json_integer(limit));
    return memory;
}

static json_t *
resources_of(const struct oci *oci)
{
    json_int_t quota = (json_int_t)(oci->limits.cpus * SANDBOX_CPU_PERIOD_US);
    return json_pack("{s:[{s:b, s:s}], s:o, s:{s:I, s:i}, s:{s:i}}", "devices", "allow", 0,
                     "access", "rwm", "memory", memory_of(oci), "cpu", "quota", quota, "period",
                     SANDBOX_CPU_PERIOD_US, "pids", "limit", oci->limits.pids);
}

// Maps the sandbox's user to a different host user for each sandbox, and also the sandbox's root,
// which only the runtime's setup uses; if that user could not reach the root folder, root is us.
static json_t *
id_mappings(const struct oci *oci, const char *id, unsigned own_id)
{
    json_int_t first = sandbox_host_users(id);
    json_int_t root = path_reachable(oci->root_dir) ? first : (json_int_t)own_id;
    return json_pack("[{s:i, s:I, s:i}, {s:i, s:I, s:i}]", "containerID", 0, "hostID", root, "size",
                     1, "containerID", SANDBOX_UID, "hostID", first + 1, "size", 1);
}

static json_t *
linux_of(const struct oci *oci, const char *id)
{
    KG_AUTO_FREE char *group = runtime_cgroup(oci, id);
    KG_AUTO_FREE char *cgroup = kg_asprintf("/%s", group);
    json_t *linux_part =
        json_pack("{s:s, s:o, s:o, s:[{s:s}, {s:s}, {s:s}, {s:s}, {s:s}, {s:s}], s:o, s:o, s:o}",
                  "cgroupsPath", cgroup, "resources", resources_of(oci), "seccomp",
                  seccomp_profile(oci->base.counts_udp), "namespaces", "type", "pid", "type",
                  "network", "type", "ipc", "type", "uts", "type", "mount", "type", "cgroup",
                  "maskedPaths", sandbox_masked_paths(), "readonlyPaths", sandbox_readonly_paths(),
                  "sysctl", sandbox_sysctls());
    if (oci->user_namespace) {
        json_array_append_new(json_object_get(linux_part, "namespaces"),
                              json_pack("{s:s}", "type", "user"));
        json_object_set_new(linux_part, "uidMappings", id_mappings(oci, id, geteuid()));
        json_object_set_new(linux_part, "gidMappings", id_mappings(oci, id, getegid()));
    }
    return linux_part;
}

static void
append_hidden_overlays(const struct oci *oci, json_t *args)
{
    for (size_t i = 0; i < oci->n_kernel_envs; i++) {
        const struct oci_kernel_env *env = &oci->kernel_envs[i];
        KG_AUTO_FREE char *options = env->changes ? NULL : mount_hidden_overlay(oci, env->host_dir);
        KG_AUTO_FREE char *at = env_path(env);
        if (!options)
            continue;
        json_array_append_new(args, json_string(at));
        json_array_append_new(args, json_string(options));
    }
}

// Limits the counters of the sandbox's user namespace, gives it its own device files and
// SANDBOX_DATA its second name, and makes the overlays that the runtime could not make, before
// anything runs in it.
static json_t *
hooks_of(const struct oci *oci)
{
    json_t *args = json_pack("[s, s]", "kernelgate-agent", "--prepare");
    if (hook_has_root(oci)) {
        json_array_append_new(args, json_string(oci->root_dir));
        append_hidden_overlays(oci, args);
    }
    return json_pack("{s:[{s:s, s:o, s:i}]}", "createRuntime", "path", oci->agent_path, "args",
                     args, "timeout", HOOK_TIMEOUT_S);
}

static json_t *
config_of(const struct oci *oci, const char *id, json_t *args, bool changing)
{
    return json_pack("{s:s, s:s, s:{s:s, s:b}, s:o, s:o, s:o}", "ociVersion", "1.0.2", "hostname",
                     "sandbox", "root", "path", oci->root_dir, "readonly",
                     !mount_root_is_overlay(oci), "process", process_of(args), "mounts",
                     mounts_of(oci, id, changing), "linux", linux_of(oci, id));
}

static int
config_write(const struct oci *oci, const char *id, json_t *config, struct kg_error *err)
{
    runtime_kind_adapt(oci->kind, config);
    KG_AUTO_FREE char *text = json_dumps(config, JSON_INDENT(1));
    if (!text)
        return kg_error_set(err, KG_INTERNAL, 0, "a path of the sandbox is not UTF-8");
    KG_AUTO_FREE char *path = folder_path(oci->base.state_dir, id, "config.json");
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

int
bundle_write(const struct oci *oci, const char *id, json_t *args, struct kg_error *err)
{
    json_auto_t *config = config_of(oci, id, args, true);
    if (oci->user_namespace)
        json_object_set_new(config, "hooks", hooks_of(oci));
    return config_write(oci, id, config, err);
}

// ---- A zygote -------------------------------------------------------------------------------

// Root owns the sandboxes' user namespaces, so it needs no capability to enter them. Without user
// namespaces it needs the capabilities that its children use until they are in the sandbox.
static json_t *
zygote_capabilities(const struct oci *oci)
{
    json_auto_t *set =
        oci->user_namespace
            ? json_array()
            : json_pack("[s, s, s, s, s, s, s]", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT",
                        "CAP_SYS_PTRACE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL");
    return json_pack("{s:O, s:O, s:O, s:[], s:[]}", "bounding", set, "effective", set, "permitted",
                     set, "inheritable", "ambient");
}

static void
zygote_adapt_process(const struct oci *oci, json_t *process, const json_t *env)
{
    const char *name;
    json_t *value;
    json_t *list = json_object_get(process, "env");
    json_object_set_new(process, "user", json_pack("{s:i, s:i}", "uid", 0, "gid", 0));
    json_object_set_new(process, "capabilities", zygote_capabilities(oci));
    json_object_foreach((json_t *)(uintptr_t)env, name, value) {
        size_t len = strlen(name);
        for (size_t i = json_array_size(list); i > 0; i--) {
            const char *other = json_string_value(json_array_get(list, i - 1));
            if (strncmp(other, name, len) == 0 && other[len] == '=')
                json_array_remove(list, i - 1);
        }
        KG_AUTO_FREE char *text = kg_asprintf("%s=%s", name, json_string_value(value));
        json_array_append_new(list, json_string(text));
    }
}

// A process can only enter PID namespaces below its own, so a zygote stays in the machine's.
static void
zygote_adapt_linux(json_t *linux_part)
{
    json_t *namespaces = json_object_get(linux_part, "namespaces");
    for (size_t i = json_array_size(namespaces); i > 0; i--) {
        const char *type =
            json_string_value(json_object_get(json_array_get(namespaces, i - 1), "type"));
        if (strcmp(type, "pid") == 0 || strcmp(type, "user") == 0)
            json_array_remove(namespaces, i - 1);
    }
    json_object_del(linux_part, "uidMappings");
    json_object_del(linux_part, "gidMappings");
    json_object_del(linux_part, "seccomp"); // its children load the sandboxes' filter
}

int
bundle_write_zygote(const struct oci *oci, const char *id, json_t *args, const json_t *env,
                    struct kg_error *err)
{
    // A zygote is root, so it sees nothing that the gateway writes: no packages.
    json_auto_t *config = config_of(oci, id, args, false);
    zygote_adapt_process(oci, json_object_get(config, "process"), env);
    zygote_adapt_linux(json_object_get(config, "linux"));
    if (oci->base.gateway_key) // a zygote dials nevertheless
        add_door(oci, id, json_object_get(config, "mounts"));
    return config_write(oci, id, config, err);
}
