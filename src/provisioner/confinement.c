// SPDX-License-Identifier: Apache-2.0
// The paths, resource limits and users that are the same for the sandboxes of every engine.
#include "provisioner_priv.h"

#include <string.h>
#include <sys/resource.h>

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
