// SPDX-License-Identifier: Apache-2.0
// The inside of a sandbox, the same for every engine: users, limits, paths, the agent's arguments.
#include "provisioner_engine.h"

#include <string.h>
#include <sys/resource.h>

#define INODES_PER_MIB 128 // of a tmpfs: an inode costs about 1 KiB of kernel memory

// These reveal the machine: its hardware, boot line, other users' keys, kernel addresses.
static const char *const masked[] = {
    "/proc/acpi",        "/proc/asound",    "/proc/cmdline",     "/proc/config.gz",
    "/proc/interrupts",  "/proc/kcore",     "/proc/keys",        "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi",      "/proc/timer_list",  "/sys/devices/virtual/powercap",
    "/sys/firmware",     "/sys/kernel/btf", "/sys/kernel/notes", "/sys/kernel/slab",
};

static const char *const readonly[] = {
    "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
};

const struct sandbox_rlimit sandbox_rlimits[] = {
    {"NOFILE", RLIMIT_NOFILE, SANDBOX_NOFILE},
    // Not 0, which the kernel ignores if core_pattern is a pipe; 1 keeps it from starting the
    // program that reads the pipe. The system call filter prevents changing it.
    {"CORE", RLIMIT_CORE, 1},
    // These two are also charged to the host's root: without limits, one sandbox's timers, queued
    // signals and message queues could use up root's share.
    {"SIGPENDING", RLIMIT_SIGPENDING, 1024},
    {"MSGQUEUE", RLIMIT_MSGQUEUE, 0},
};
const size_t sandbox_n_rlimits = KG_ARRAY_LEN(sandbox_rlimits);

// Sandboxes' users on the host are in 0x70000000..0x7fffffff: above the ids that distributions and
// systemd-nspawn assign, below those that break programs that keep a uid in an int.
#define HOST_UID_BASE 0x70000000
#define HOST_UID_PAIRS 0x08000000

uint32_t
sandbox_host_users(const char *id)
{
    return HOST_UID_BASE + 2 * (hash_fnv1a(id, strlen(id)) % HOST_UID_PAIRS);
}

char *
sandbox_container_name(const char *gateway_id, const char *id)
{
    return kg_asprintf("kg-%s-%s", gateway_id, id);
}

int
sandbox_write_users(const char *passwd, const char *group, unsigned user, struct kg_error *err)
{
    KG_AUTO_FREE char *users = kg_asprintf("root:x:0:0:root:/:/usr/sbin/nologin\n"
                                           "sandbox:x:%u:%u:sandbox:" SANDBOX_HOME ":/bin/sh\n"
                                           "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
                                           user, user);
    KG_AUTO_FREE char *groups = kg_asprintf("root:x:0:\nsandbox:x:%u:\nnogroup:x:65534:\n", user);
    if (file_write_atomic(passwd, users, strlen(users), 0644, err) < 0)
        return -1;
    return file_write_atomic(group, groups, strlen(groups), 0644, err);
}

json_t *
sandbox_agent_args(const struct provisioner_op *op)
{
    const char *key = op->provisioner->gateway_key;
    KG_AUTO_FREE char *timeout = kg_asprintf("%d", op->idle_timeout_s);
    KG_AUTO_FREE char *port = kg_asprintf("%d", SANDBOX_AGENT_PORT);
    json_t *args = key ? json_pack("[s, s, s, s, s, s, s]", SANDBOX_AGENT, "--listen", port,
                                   "--sandbox", op->id, "--gateway-key", key)
                       : json_pack("[s, s, s]", SANDBOX_AGENT, "--door", SANDBOX_DOOR "/door.sock");
    json_array_append_new(args, json_string("--idle-timeout"));
    json_array_append_new(args, json_string(timeout));
    if (op->network) {
        json_array_append_new(args, json_string("--egress-port"));
        json_array_append_new(args, json_string(SANDBOX_EGRESS_PORT));
    }
    return args;
}

int64_t
sandbox_memory_bytes(const struct provisioner_limits *limits, int64_t memory_mb)
{
    int64_t own_mb = memory_mb > 0 ? memory_mb : limits->memory_mb;
    return (own_mb + limits->disk_mb + limits->tmp_mb) * MIB;
}

char *
sandbox_tmpfs_options(int64_t size_mb, const char *more)
{
    return kg_asprintf("nosuid,nodev,size=%lldm,nr_inodes=%lld%s", (long long)size_mb,
                       (long long)(size_mb * INODES_PER_MIB + 1024), more);
}

static json_t *
list_of(const char *const *paths, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(paths[i]));
    return list;
}

json_t *
sandbox_masked_paths(void)
{
    return list_of(masked, KG_ARRAY_LEN(masked));
}

json_t *
sandbox_readonly_paths(void)
{
    return list_of(readonly, KG_ARRAY_LEN(readonly));
}

json_t *
sandbox_sysctls(void)
{
    // What a connection receives before it is accepted is nobody's memory, so it begins with a
    // small buffer, which grows when its program reads. Closed connections that are remembered are
    // not counted, either.
    return json_pack("{s:s, s:s, s:s}", "net.ipv4.tcp_rmem", "4096 16384 4194304",
                     "net.ipv4.tcp_max_tw_buckets", "4096", "net.core.somaxconn", "1024");
}

unsigned
sandbox_rlimit_raise(const struct sandbox_rlimit *limit)
{
    struct rlimit own = {0};
    getrlimit((__rlimit_resource_t)limit->resource, &own);
    const struct rlimit raised = {.rlim_cur = own.rlim_cur, .rlim_max = limit->value};
    bool enough = own.rlim_max >= limit->value ||
                  setrlimit((__rlimit_resource_t)limit->resource, &raised) == 0;
    return enough ? limit->value : (unsigned)own.rlim_max;
}

void
provisioner_raise_limits(void)
{
    for (size_t i = 0; i < sandbox_n_rlimits; i++)
        (void)sandbox_rlimit_raise(&sandbox_rlimits[i]);
}
