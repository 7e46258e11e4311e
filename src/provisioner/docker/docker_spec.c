// SPDX-License-Identifier: Apache-2.0
// A container: the body of `POST /containers/create`, and the files that it mounts.
#include "docker_priv.h"

#include <ctype.h>
#include <string.h>

#define AGENT_MAX_BYTES ((size_t)64 << 20)

// A tmpfs that replaces a folder which would be writable otherwise.
#define NOTHING "ro,nosuid,nodev,noexec,size=4k"

// The engine mounts paths of its own machine. If the gateway is in a container, only the state
// folder has the same path in both.
static int
copy_agent(struct docker *docker, const char *agent_path, struct kg_error *err)
{
    KG_AUTO_BUF agent = {0};
    docker->agent_path = kg_asprintf("%s/agent", docker->base.state_dir);
    if (file_read(agent_path, AGENT_MAX_BYTES, &agent, err) < 0)
        return -1;
    return file_write_atomic(docker->agent_path, agent.data, agent.len, 0755, err);
}

// The same filter as for OCI runtimes, whose format docker shares. Docker takes the text, Podman
// the path of a file.
static int
write_seccomp(struct docker *docker, struct kg_error *err)
{
    json_auto_t *profile = seccomp_profile(docker->base.counts_udp);
    KG_AUTO_FREE char *text = json_dumps(profile, JSON_COMPACT);
    KG_AUTO_FREE char *path = kg_asprintf("%s/seccomp.json", docker->base.state_dir);
    docker->seccomp = kg_asprintf("seccomp=%s", docker->podman ? path : text);
    return docker->podman ? file_write_atomic(path, text, strlen(text), 0644, err) : 0;
}

int
docker_write_files(struct docker *docker, const char *agent_path, struct kg_error *err)
{
    if (copy_agent(docker, agent_path, err) < 0)
        return -1;
    return write_seccomp(docker, err);
}

// The id of the sandbox's user and group. Without user namespaces it is one that no host user has,
// since the kernel accounts much by user, and the first human user often has 1000.
static unsigned
user_of(const struct docker *docker, const char *id)
{
    return docker->own_users ? sandbox_host_users(id) + 1 : SANDBOX_UID;
}

int
docker_write_users(const struct docker *docker, const char *id, struct kg_error *err)
{
    if (!docker->own_users)
        return 0; // the image defines it
    KG_AUTO_FREE char *passwd = folder_path(docker->base.state_dir, id, "passwd");
    KG_AUTO_FREE char *group = folder_path(docker->base.state_dir, id, "group");
    return sandbox_write_users(passwd, group, user_of(docker, id), err);
}

static json_t *
mounts_of(const struct docker *docker, const char *id)
{
    KG_AUTO_FREE char *door = folder_path(docker->base.state_dir, id, "door");
    KG_AUTO_FREE char *passwd = folder_path(docker->base.state_dir, id, "passwd");
    KG_AUTO_FREE char *group = folder_path(docker->base.state_dir, id, "group");
    const struct {
        const char *source; // or NULL
        const char *target;
    } mounts[] = {
        {docker->agent_path, SANDBOX_AGENT},
        {door, SANDBOX_DOOR},
        {docker->packages_dir, SANDBOX_KERNELS "/packages"},
        {docker->own_users ? passwd : NULL, "/etc/passwd"},
        {docker->own_users ? group : NULL, "/etc/group"},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < KG_ARRAY_LEN(mounts); i++)
        if (mounts[i].source)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "Type", "bind", "Source",
                                                  mounts[i].source, "Target", mounts[i].target,
                                                  "ReadOnly", 1));
    return list;
}

// Docker's default options for a tmpfs have noexec. Its file system for message queues, which is
// not needed, would be writable.
static json_t *
tmpfs_of(const struct provisioner_limits *limits, unsigned user)
{
    KG_AUTO_FREE char *home = sandbox_tmpfs_options(limits->tmp_mb, ",exec,mode=1777");
    KG_AUTO_FREE char *owner = kg_asprintf(",exec,mode=755,uid=%u,gid=%u", user, user);
    KG_AUTO_FREE char *data = sandbox_tmpfs_options(limits->disk_mb, owner);
    return json_pack("{s:s, s:s, s:s}", SANDBOX_HOME, home, SANDBOX_DATA, data, "/dev/mqueue",
                     NOTHING);
}

// Podman supports few options of a tmpfs: none that limits its inodes, and U to make the user its
// owner. If the root is read-only, it adds writable tmpfs mounts, except where we have our own.
static json_t *
podman_tmpfs_of(const struct provisioner_limits *limits)
{
    static const char options[] = "nosuid,nodev,exec,notmpcopyup,size=%lldm,%s";
    KG_AUTO_FREE char *home = kg_asprintf(options, (long long)limits->tmp_mb, "mode=1777");
    KG_AUTO_FREE char *data = kg_asprintf(options, (long long)limits->disk_mb, "mode=755,U");
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", SANDBOX_HOME, home, SANDBOX_DATA, data,
                     "/dev/mqueue", NOTHING, "/run", NOTHING, "/var/tmp", NOTHING);
}

static json_t *
ulimits_of(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sandbox_n_rlimits; i++) {
        KG_AUTO_FREE char *name = kg_strdup(sandbox_rlimits[i].name);
        for (char *c = name; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        json_int_t value = sandbox_rlimits[i].value;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I}", "Name", name, "Soft", value, "Hard", value));
    }
    return list;
}

// No AutoRemove: with live-restore, Docker 20.10 removes such containers when it restarts, even
// running ones.
static json_t *
host_config(const struct docker *docker, const char *id)
{
    const struct provisioner_limits *limits = &docker->limits;
    json_int_t memory = sandbox_memory_bytes(limits, 0);
    // Not NanoCpus, which Docker limits to the machine's processors.
    json_int_t quota_us = (json_int_t)(limits->cpus * SANDBOX_CPU_PERIOD_US);
    json_t *tmpfs =
        docker->podman ? podman_tmpfs_of(limits) : tmpfs_of(limits, user_of(docker, id));
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:s, s:b, s:b, s:[s], s:[s, s], s:I, s:I, s:i, s:I, s:i, s:I, s:i,"
        " s:o, s:o, s:o, s:o, s:{s:s, s:{s:s, s:s}}}",
        "Mounts", mounts_of(docker, id), "Tmpfs", tmpfs, "NetworkMode", "none", "IpcMode",
        "private", "CgroupnsMode", "private", "ReadonlyRootfs", 1, "Init", 0, "CapDrop", "ALL",
        "SecurityOpt", "no-new-privileges", docker->seccomp, "Memory", memory, "MemorySwap", memory,
        "CpuPeriod", SANDBOX_CPU_PERIOD_US, "CpuQuota", quota_us, "PidsLimit", limits->pids,
        "ShmSize", (json_int_t)(SANDBOX_SHM_MB * MIB), "OomScoreAdj", SANDBOX_OOM_SCORE, "Ulimits",
        ulimits_of(), "MaskedPaths", sandbox_masked_paths(), "ReadonlyPaths",
        sandbox_readonly_paths(), "Sysctls", sandbox_sysctls(), "LogConfig", "Type", "json-file",
        "Config", "max-size", "1m", "max-file", "1");
}

json_t *
docker_container_spec(const struct docker *docker, const char *id, json_t *args)
{
    KG_AUTO_FREE char *user = kg_asprintf("%u:%u", user_of(docker, id), user_of(docker, id));
    json_t *entrypoint = json_pack("[O]", json_array_get(args, 0));
    json_array_remove(args, 0);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:[s, s, s, s], s:{s:[s]}, s:{s:s, s:s, s:s, s:s}, s:o}",
        "Image", docker->image, "Hostname", "sandbox", "User", user, "WorkingDir", SANDBOX_DATA,
        "Entrypoint", entrypoint, "Cmd", args, "Env", "PATH=" SANDBOX_PATH, "HOME=" SANDBOX_HOME,
        "LANG=C.UTF-8", "USER=sandbox", "Healthcheck", "Test", "NONE", "Labels",
        DOCKER_LABEL_GATEWAY, docker->base.gateway_id, DOCKER_LABEL_SANDBOX, id, DOCKER_LABEL_STATE,
        docker->base.root_dir, DOCKER_LABEL_FOLDER, docker->folder, "HostConfig",
        host_config(docker, id));
}
