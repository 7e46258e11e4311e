// SPDX-License-Identifier: Apache-2.0
// Queries the engine before the main loop runs: its version when the gateway starts, and for
// `kernelgate doctor` its limits, its image, and a temporary container.
#include "docker_priv.h"

#include <stdio.h>
#include <string.h>

// Waits for an answer in a separate loop.
struct answer {
    const struct docker *docker;
    struct loop *loop;
    json_t *body;
    struct kg_error err;
};

static void
on_answer(const struct http_call_result *result, void *arg)
{
    struct answer *answer = arg;
    (void)docker_check(answer->docker, result, &answer->err);
    answer->body = json_loadb(result->body, result->body_len, 0, NULL);
    loop_stop(answer->loop);
}

// The call is made by a copy of the engine, whose calls use a separate loop.
static int
ask_and_wait(const struct docker *docker, const char *method, const char *path, json_t *body,
             json_t **ret, struct kg_error *err)
{
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(http_client) http = http_client_new(loop);
    struct docker asking = *docker;
    struct answer answer = {.docker = docker, .loop = loop};
    asking.http = http;
    if (docker_call(&asking, method, path, body, on_answer, &answer, &answer.err))
        loop_run(loop);
    if (ret && !answer.err.code)
        *ret = json_incref(answer.body);
    json_decref(answer.body);
    if (!answer.err.code)
        return 0;
    *err = answer.err;
    return -1;
}

static int
ask_version(struct docker *docker, struct kg_error *err)
{
    json_auto_t *version = NULL;
    if (ask_and_wait(docker, "GET", "/version", NULL, &version, err) < 0)
        return -1;
    return docker_take_version(docker, version, err);
}

// ---- Limits ---------------------------------------------------------------------------------

char *
docker_missing_limits(const json_t *info, bool needed)
{
    static const struct {
        const char *key;
        const char *what;
        bool needed;
    } limits[] = {{"MemoryLimit", "memory", true},
                  {"PidsLimit", "processes", true},
                  {"SwapLimit", "swap", false},
                  {"CpuCfsQuota", "processors", false}};
    struct buf missing = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(limits); i++)
        if (limits[i].needed == needed && !json_is_true(json_object_get(info, limits[i].key)))
            buf_printf(&missing, "%s%s", missing.len ? ", " : "", limits[i].what);
    return missing.len ? buf_take(&missing) : NULL;
}

// With user namespaces or without root, the engine has few user ids, and they are not the host's;
// Podman has not been tested.
void
docker_take_info(struct docker *docker, const json_t *info)
{
    size_t i;
    const json_t *option;
    const char *version = json_string_value(json_object_get(info, "CgroupVersion"));
    docker->base.counts_udp = version && strcmp(version, "2") == 0;
    docker->own_users = !docker->podman;
    json_array_foreach(json_object_get(info, "SecurityOptions"), i, option) {
        const char *text = json_string_value(option);
        if (text &&
            (strncmp(text, "name=userns", 11) == 0 || strncmp(text, "name=rootless", 13) == 0))
            docker->own_users = false;
    }
}

// The engine ignores limits that it cannot set, with only a warning at each create.
static int
check_limits(struct docker *docker, struct kg_error *err)
{
    json_auto_t *info = NULL;
    if (ask_and_wait(docker, "GET", "/info", NULL, &info, err) < 0)
        return -1;
    docker_take_info(docker, info);
    KG_AUTO_FREE char *needed = docker_missing_limits(info, true);
    KG_AUTO_FREE char *others = docker_missing_limits(info, false);
    if (needed)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "docker at %.80s cannot limit: %s; see docker info", docker->host,
                            needed);
    if (others)
        log_warning("docker cannot set all limits of a sandbox", LOG_STR("missing", others));
    return 0;
}

int
docker_trial(struct docker *docker, struct kg_error *err)
{
    return ask_version(docker, err) < 0 || check_limits(docker, err) < 0 ? -1 : 0;
}

// ---- doctor ---------------------------------------------------------------------------------

static void
find_gaps(const struct docker *docker, const json_t *info, provisioner_finding_fn fn, void *arg)
{
    const char *version = json_string_value(json_object_get(info, "CgroupVersion"));
    bool v1 = version && strcmp(version, "1") == 0;
    fn("docker: users", true,
       docker->own_users ? "every sandbox has its own user on the host"
       : docker->podman ? "all sandboxes are uid 1000 of the engine's user namespace or of the host"
                        : "all sandboxes are uid 1000 of the engine's user namespace",
       arg);
    fn("docker: TCP buffers", !v1,
       v1 ? "not limited with control groups version 1 (boot with "
            "systemd.unified_cgroup_hierarchy=1)"
          : "count towards their sandbox's memory",
       arg);
    fn("docker: UDP", true,
       v1 ? "sandboxes have none: control groups version 1 do not count its buffers"
          : "counts towards its sandbox's memory",
       arg);
    fn("docker: other limits", false,
       "none on terminals, inotify and disk reads of a sandbox, nor on all sandboxes together; the"
       " engine oci has them",
       arg);
}

static bool
find_limits(struct docker *docker, provisioner_finding_fn fn, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *info = NULL;
    if (ask_and_wait(docker, "GET", "/info", NULL, &info, &err) < 0) {
        fn("docker: limits", false, err.message, arg);
        return false;
    }
    docker_take_info(docker, info);
    KG_AUTO_FREE char *needed = docker_missing_limits(info, true);
    KG_AUTO_FREE char *others = docker_missing_limits(info, false);
    KG_AUTO_FREE char *detail =
        needed || others
            ? kg_asprintf("the engine cannot limit: %s%s%s (see docker info)", needed ? needed : "",
                          needed && others ? ", " : "", others ? others : "")
            : kg_strdup("memory, processes, swap, processors");
    fn("docker: limits", !needed && !others, detail, arg);
    find_gaps(docker, info, fn, arg);
    return !needed;
}

static bool
find_image(const struct docker *docker, provisioner_finding_fn fn, void *arg)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *escaped = docker_escape(docker->image);
    KG_AUTO_FREE char *path = kg_asprintf("/images/%s/json", escaped);
    bool there = ask_and_wait(docker, "GET", path, NULL, NULL, &err) == 0;
    KG_AUTO_FREE char *missing =
        kg_asprintf("%s; it will be pulled, or build it: docker build -t " DOCKER_IMAGE
                    " -f kernelspec/Dockerfile .",
                    err.message);
    fn("docker: image", there, there ? docker->image : missing, arg);
    return there;
}

// Runs `kg-agent --version` in a sandbox.
static int
try_container(const struct docker *docker, const char *id, struct kg_error *err)
{
    KG_AUTO_FREE char *name = sandbox_container_name(docker->base.gateway_id, id);
    KG_AUTO_FREE char *create = kg_asprintf("/containers/create?name=%s", name);
    KG_AUTO_FREE char *start = docker_container_path(docker, id, "/start");
    KG_AUTO_FREE char *wait = docker_container_path(docker, id, "/wait");
    json_t *spec =
        docker_container_spec(docker, id, json_pack("[s, s]", SANDBOX_AGENT, "--version"));
    json_auto_t *ended = NULL;
    if (ask_and_wait(docker, "POST", create, spec, NULL, err) < 0 ||
        ask_and_wait(docker, "POST", start, NULL, NULL, err) < 0 ||
        ask_and_wait(docker, "POST", wait, NULL, &ended, err) < 0)
        return -1;
    json_int_t code = json_integer_value(json_object_get(ended, "StatusCode"));
    if (code == 0)
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "the agent ended with code %d; see docker's own log", (int)code);
}

static bool
find_sandbox(const struct docker *docker, provisioner_finding_fn fn, void *arg)
{
    char id[9];
    id_random(id, 8);
    struct kg_error err = {0};
    struct kg_error ignored = {0};
    bool works = folder_make(docker->base.state_dir, id, &err) == 0 &&
                 docker_write_users(docker, id, &err) == 0 && try_container(docker, id, &err) == 0;
    KG_AUTO_FREE char *path = docker_container_path(docker, id, "?force=1&v=1");
    (void)ask_and_wait(docker, "DELETE", path, NULL, NULL, &ignored);
    if (folder_remove(docker->base.state_dir, id, &ignored) < 0)
        log_warning("cannot remove the trial's folder", LOG_ERR(&ignored));
    fn("docker: sandbox", works, works ? "ran one" : err.message, arg);
    return works;
}

bool
docker_doctor(struct docker *docker, const char *agent_path, provisioner_finding_fn fn, void *arg)
{
    struct kg_error err = {0};
    if (ask_version(docker, &err) < 0) {
        fn("docker: engine", false, err.message, arg);
        return false;
    }
    fn("docker: engine", true, docker->host, arg);
    if (!find_limits(docker, fn, arg))
        return false;
    if (docker_write_files(docker, agent_path, &err) < 0) {
        fn("docker: settings", false, err.message, arg);
        return false;
    }
    return find_image(docker, fn, arg) && find_sandbox(docker, fn, arg);
}
