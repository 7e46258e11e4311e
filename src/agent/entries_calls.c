// SPDX-License-Identifier: Apache-2.0
// The files.* methods for files and folders as wholes: looking, making, moving, copying, names.
#include <string.h>

#include "agent_priv.h"
#include "files.h"

enum {
    COPIES_MAX = 8,      // at a time: each may have some 130 descriptors
    STEPS_OF_A_TURN = 8, // small copies are made at once
    COPY_ENTRIES_MAX = 100000,
    COPY_MS_MAX = 30 * 1000,
};
#define COPY_BYTES_MAX (INT64_C(64) << 30)

static unsigned
flags_of(int keep, int parents)
{
    return (keep ? FILE_KEEP : 0) | (parents ? 0 : FILE_NO_FOLDERS);
}

static json_t *
describe_made(const struct stat *st, bool created)
{
    json_t *entry = file_entry(st);
    json_object_set_new(entry, "created", json_boolean(created));
    return entry;
}

// ---- Looking, making ------------------------------------------------------------------------

void
files_stat_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    json_t *entry = NULL;
    struct stat st;
    const char *path;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s !}", "path", &path) != 0)
        (void)params_failed(&why, &err);
    else if (file_stat(agent->settings.data_dir, path, &st, &err) == 0)
        entry = file_entry(&st);
    request_end(request, entry, &err);
}

void
files_unused_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct file_names names = {0};
    struct kg_error err = {0};
    json_error_t why;
    json_t *answer = NULL;
    const char *folder;
    int number;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:s, s:s, s:s !}", "folder",
                       &folder, "start", &names.start, "insert", &names.insert, "end",
                       &names.end) != 0)
        (void)params_failed(&why, &err);
    else if (file_find_unused(agent->settings.data_dir, folder, &names, &number, &err) == 0)
        answer = json_pack("{s:i}", "number", number);
    request_end(request, answer, &err);
}

void
files_mkdir_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    json_t *entry = NULL;
    struct stat st;
    const char *path;
    bool created;
    int keep, parents = 0;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:b, s?b !}", "path", &path, "keep",
                       &keep, "parents", &parents) != 0)
        (void)params_failed(&why, &err);
    else if (file_make_folder(agent->settings.data_dir, path, flags_of(keep, parents), &st,
                              &created, &err) == 0)
        entry = describe_made(&st, created);
    request_end(request, entry, &err);
}

// ---- Moving, copying ------------------------------------------------------------------------

// The parameters of both; the paths are borrowed.
static int
unpack_two(const struct request *request, const char **ret_from, const char **ret_to,
           unsigned *ret_flags, struct kg_error *err)
{
    json_error_t why;
    int keep, parents = 0;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:s, s:b, s?b !}", "from", ret_from,
                       "to", ret_to, "keep", &keep, "parents", &parents) != 0)
        return params_failed(&why, err);
    *ret_flags = flags_of(keep, parents);
    return 0;
}

void
files_move_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_t *entry = NULL;
    struct stat st;
    const char *from, *to;
    unsigned flags;
    bool created;

    if (unpack_two(request, &from, &to, &flags, &err) == 0 &&
        file_move(agent->settings.data_dir, from, to, flags, &st, &created, &err) == 0) {
        // Of what is in a folder that is moved, nothing has changed.
        if (S_ISREG(st.st_mode))
            changes_own(agent->changes, to, &st);
        entry = describe_made(&st, created);
    }
    request_end(request, entry, &err);
}

struct copying {
    struct agent *agent;
    struct request *request;
    struct file_copy *copy;
};

static void
copying_end(struct copying *copying, json_t *entry, const struct kg_error *err)
{
    request_end(copying->request, entry, err);
    copying->agent->n_copies--;
    file_copy_free(copying->copy);
    free(copying);
}

static void
on_copier_gone(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_INTERNAL, 0, "the caller has left");
    copying_end(arg, NULL, &err);
}

static void
commit_copy(struct copying *copying)
{
    struct changes *changes = copying->agent->changes;
    struct kg_error err = {0};
    struct stat st;
    bool created;

    if (file_copy_commit(copying->copy, &st, &created, &err) != 0) {
        copying_end(copying, NULL, &err);
        return;
    }
    if (S_ISDIR(st.st_mode))
        changes_own_folder(changes, file_copy_path(copying->copy));
    else
        changes_own(changes, file_copy_path(copying->copy), &st);
    copying_end(copying, describe_made(&st, created), NULL);
}

static void
copy_on(void *arg)
{
    struct copying *copying = arg;
    struct kg_error err = {0};

    int more = 1;
    for (int i = 0; i < STEPS_OF_A_TURN && more > 0; i++)
        more = file_copy_step(copying->copy, &err);
    if (more > 0)
        request_want_room(copying->request);
    else if (more == 0)
        commit_copy(copying);
    else
        copying_end(copying, NULL, &err);
}

static struct file_copy *
begin_copy(const struct agent *agent, const struct request *request, struct kg_error *err)
{
    static const struct file_copy_limits limits = {COPY_BYTES_MAX, COPY_ENTRIES_MAX, COPY_MS_MAX};
    const char *from, *to;
    unsigned flags;

    if (unpack_two(request, &from, &to, &flags, err) != 0)
        return NULL;
    if (agent->n_copies < COPIES_MAX)
        return file_copy_begin(agent->settings.data_dir, from, to, flags, &limits, err);
    (void)kg_error_set(err, KG_SESSION_BUSY, 0, "%d files or folders are being copied", COPIES_MAX);
    return NULL;
}

void
files_copy_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct file_copy *copy = begin_copy(agent, request, &err);

    if (!copy) {
        request_fail(request, &err);
        return;
    }
    struct copying *copying = KG_NEW(struct copying);
    *copying = (struct copying){agent, request, copy};
    agent->n_copies++;
    request_on_gone(request, on_copier_gone, copying);
    request_on_room(request, copy_on, copying);
    copy_on(copying);
}
