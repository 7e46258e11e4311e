// SPDX-License-Identifier: Apache-2.0
// The runtimes' command lines, which are the same as far as used here, and their log.
#include "oci_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_MAX (1024 * 1024)

char *
runtime_cgroup(const struct oci *oci, const char *id)
{
    KG_AUTO_FREE char *container = sandbox_container_name(oci->base.gateway_id, id);
    return kg_asprintf("%s/%s", oci->group, container);
}

static size_t
add_global(const struct oci *oci, struct runtime_argv *argv)
{
    size_t n = 0;
    argv->items[n++] = oci->runtime;
    argv->items[n++] = "--root";
    argv->items[n++] = oci->runtime_root;
    for (const char *const *flag = oci->kind->flags; *flag; flag++)
        argv->items[n++] = *flag;
    return n;
}

static size_t
add_log(const struct oci *oci, const char *id, struct runtime_argv *argv, size_t n)
{
    argv->owned[0] = folder_path(oci->base.state_dir, id, "runtime.log");
    argv->items[n++] = "--log";
    argv->items[n++] = argv->owned[0];
    argv->items[n++] = "--log-format";
    argv->items[n++] = "json";
    return n;
}

void
runtime_argv_run(const struct oci *oci, const char *id, bool detach, struct runtime_argv *ret)
{
    *ret = (struct runtime_argv){0};
    size_t n = add_log(oci, id, ret, add_global(oci, ret));
    ret->owned[1] = folder_path(oci->base.state_dir, id, NULL);
    ret->owned[2] = folder_path(oci->base.state_dir, id, "init.pid");
    ret->owned[3] = sandbox_container_name(oci->base.gateway_id, id);
    ret->items[n++] = "run";
    if (detach)
        ret->items[n++] = "--detach";
    ret->items[n++] = "--bundle";
    ret->items[n++] = ret->owned[1];
    ret->items[n++] = "--pid-file";
    ret->items[n++] = ret->owned[2];
    ret->items[n++] = ret->owned[3];
}

void
runtime_argv_delete(const struct oci *oci, const char *id, struct runtime_argv *ret)
{
    *ret = (struct runtime_argv){0};
    size_t n = add_log(oci, id, ret, add_global(oci, ret));
    ret->owned[1] = sandbox_container_name(oci->base.gateway_id, id);
    ret->items[n++] = "delete";
    ret->items[n++] = "--force";
    ret->items[n++] = ret->owned[1];
}

void
runtime_argv_fini(struct runtime_argv *argv)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(argv->owned); i++)
        free(argv->owned[i]);
}

// The last message of the runtime's log, which has one JSON object per line; NULL if there is none.
static json_t *
last_message(const struct oci *oci, const char *id)
{
    KG_AUTO_FREE char *path = folder_path(oci->base.state_dir, id, "runtime.log");
    KG_AUTO_BUF log = {0};
    if (access(path, F_OK) < 0 || file_read(path, LOG_MAX, &log, NULL) < 0 || !log.len)
        return NULL;
    while (log.len && log.data[log.len - 1] == '\n')
        log.data[--log.len] = '\0';
    const char *line = strrchr(log.data, '\n');
    json_auto_t *entry = json_loads(line ? line + 1 : log.data, 0, NULL);
    return json_incref(json_object_get(entry, "msg"));
}

// The end of a text, since runtimes put the cause last. It begins with a whole word if possible.
static const char *
tail_of(const char *text, size_t max)
{
    size_t len = strlen(text);
    if (len <= max)
        return text;
    const char *tail = text + len - max;
    const char *space = strchr(tail, ' ');
    return space ? space + 1 : tail;
}

int
runtime_error(const struct oci *oci, const char *id, const struct loop_process_result *result,
              struct kg_error *err)
{
    enum { TAIL = 160 };
    const char *name = tail_of(oci->runtime, 64);
    json_auto_t *message = last_message(oci, id);
    if (result->timed_out)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s did not end in time", name);
    if (json_is_string(message))
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s: %s", name,
                            tail_of(json_string_value(message), TAIL));
    if (result->output_len)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s: %.*s", name,
                            (int)strcspn(tail_of(result->output, TAIL), "\n"),
                            tail_of(result->output, TAIL));
    if (result->signal)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s was killed by signal %d", name,
                            result->signal);
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s failed with exit code %d", name,
                        result->exit_code);
}

bool
runtime_knows(const struct oci *oci, const char *id)
{
    KG_AUTO_FREE char *container = sandbox_container_name(oci->base.gateway_id, id);
    KG_AUTO_FREE char *path = runtime_kind_state(oci->kind, oci->runtime_root, container);
    return access(path, F_OK) == 0;
}

int
runtime_init_pid(const struct oci *oci, const char *id, int *ret, struct kg_error *err)
{
    KG_AUTO_FREE char *path = folder_path(oci->base.state_dir, id, "init.pid");
    KG_AUTO_BUF text = {0};
    if (file_read(path, 32, &text, err) < 0)
        return -1;
    if (!text.len || sscanf(text.data, "%d", ret) != 1 || *ret <= 1)
        return kg_error_set(err, KG_INTERNAL, 0, "%s does not contain a process id", path);
    return 0;
}

// Whether the init that the runtime started is still in the sandbox's control group. Its process id
// alone does not suffice, since another process may have it by now.
bool
runtime_init_lives(const struct oci *oci, const char *id, int *ret_pid)
{
    KG_AUTO_FREE char *group = runtime_cgroup(oci, id);
    return runtime_knows(oci, id) && runtime_init_pid(oci, id, ret_pid, NULL) == 0 &&
           cgroup_has(&oci->cgroups, group, *ret_pid);
}

char *
runtime_find(const char *name)
{
    if (strchr(name, '/'))
        return access(name, X_OK) == 0 ? kg_strdup(name) : NULL;
    const char *path = getenv("PATH");
    if (!path)
        path = "/usr/sbin:/usr/bin:/sbin:/bin";
    for (const char *at = path; *at; at += *at == ':') {
        size_t len = strcspn(at, ":");
        KG_AUTO_FREE char *candidate = kg_asprintf("%.*s/%s", (int)len, at, name);
        if (access(candidate, X_OK) == 0)
            return KG_STEAL(candidate);
        at += len;
    }
    return NULL;
}
