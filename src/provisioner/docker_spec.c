// SPDX-License-Identifier: Apache-2.0
// The body of `POST /containers/create`: what a sandbox sees, and its limits.
#include "docker_priv.h"

#include <string.h>

// A tmpfs for what would be writable otherwise.
#define NOTHING "ro,nosuid,nodev,noexec,size=4k"

static json_t *
mounts_of(const struct docker *docker, const char *id)
{
    KG_AUTO_FREE char *door = folder_path(docker->base.state_dir, id, "door");
    const struct {
        const char *source;
        const char *target;
    } mounts[] = {
        {docker->agent_path, SANDBOX_AGENT},
        {door, SANDBOX_DOOR},
        {docker->packages_dir, SANDBOX_KERNELS "/packages"},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < KG_ARRAY_LEN(mounts) && mounts[i].source; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "Type", "bind", "Source",
                                              mounts[i].source, "Target", mounts[i].target,
                                              "ReadOnly", 1));
    return list;
}

// Docker's own options for a tmpfs have noexec. Its file system for message queues, which nobody
// here needs, could be written.
static json_t *
tmpfs_of(const struct provisioner_limits *limits)
{
    KG_AUTO_FREE char *home = provisioner_tmpfs_options(limits->tmp_mb, ",exec,mode=1777");
    KG_AUTO_FREE char *data =
        provisioner_tmpfs_options(limits->disk_mb, ",exec,mode=755,uid=1000,gid=1000");
    return json_pack("{s:s, s:s, s:s}", SANDBOX_HOME, home, SANDBOX_DATA, data, "/dev/mqueue",
                     NOTHING);
}

// Podman knows few options of a tmpfs: none that bounds its inodes, and U for the user as its
// owner. Where the root is read-only it adds some that can be written, but where we have one of our
// own.
static json_t *
podman_tmpfs_of(const struct provisioner_limits *limits)
{
    static const char options[] = "nosuid,nodev,exec,notmpcopyup,size=%lldm,%s";
    KG_AUTO_FREE char *home = kg_asprintf(options, (long long)limits->tmp_mb, "mode=1777");
    KG_AUTO_FREE char *data = kg_asprintf(options, (long long)limits->disk_mb, "mode=755,U");
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", SANDBOX_HOME, home, SANDBOX_DATA, data,
                     "/dev/mqueue", NOTHING, "/run", NOTHING, "/var/tmp", NOTHING);
}

// No AutoRemove: with live-restore, Docker 20.10 removes such containers when it comes back, living
// ones too.
static json_t *
host_config(const struct docker *docker, const char *id)
{
    const struct provisioner_limits *limits = &docker->limits;
    json_int_t memory = provisioner_memory_bytes(limits);
    // Not as NanoCpus, which Docker bounds by what the machine has.
    json_int_t quota_us = (json_int_t)(limits->cpus * SANDBOX_CPU_PERIOD_US);
    json_t *tmpfs = docker->podman ? podman_tmpfs_of(limits) : tmpfs_of(limits);
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:s, s:b, s:b, s:[s], s:[s, s], s:I, s:I, s:i, s:I, s:i, s:I, s:i,"
        " s:[{s:s, s:i, s:i}, {s:s, s:i, s:i}], s:{s:s, s:{s:s, s:s}}}",
        "Mounts", mounts_of(docker, id), "Tmpfs", tmpfs, "NetworkMode", "none", "IpcMode",
        "private", "CgroupnsMode", "private", "ReadonlyRootfs", 1, "Init", 0, "CapDrop", "ALL",
        "SecurityOpt", "no-new-privileges", docker->seccomp, "Memory", memory, "MemorySwap", memory,
        "CpuPeriod", SANDBOX_CPU_PERIOD_US, "CpuQuota", quota_us, "PidsLimit", limits->pids,
        "ShmSize", (json_int_t)(SANDBOX_SHM_MB * MIB), "OomScoreAdj", SANDBOX_OOM_SCORE, "Ulimits",
        "Name", "nofile", "Soft", SANDBOX_NOFILE, "Hard", SANDBOX_NOFILE, "Name", "core", "Soft", 0,
        "Hard", 0, "LogConfig", "Type", "json-file", "Config", "max-size", "1m", "max-file", "1");
}

json_t *
docker_container_spec(const struct docker *docker, const char *id, json_t *args)
{
    KG_AUTO_FREE char *user = kg_asprintf("%d:%d", SANDBOX_UID, SANDBOX_UID);
    json_t *entrypoint = json_pack("[O]", json_array_get(args, 0));
    json_array_remove(args, 0);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:[s, s, s, s], s:{s:[s]}, s:{s:s, s:s, s:s, s:s}, s:o}",
        "Image", docker->image, "Hostname", "sandbox", "User", user, "WorkingDir", SANDBOX_DATA,
        "Entrypoint", entrypoint, "Cmd", args, "Env", "PATH=" SANDBOX_PATH, "HOME=" SANDBOX_HOME,
        "LANG=C.UTF-8", "USER=sandbox", "Healthcheck", "Test", "NONE", "Labels",
        DOCKER_LABEL_GATEWAY, docker->base.gateway_id, DOCKER_LABEL_SANDBOX, id, DOCKER_LABEL_STATE,
        docker->base.state_dir, DOCKER_LABEL_FOLDER, docker->folder, "HostConfig",
        host_config(docker, id));
}
