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
describe_made(const char *root, const char *path, const struct stat *st, bool created)
{
    json_t *entry = file_details(root, path, st);
    json_object_set_new(entry, "created", json_boolean(created));
    return entry;
}

// ---- Looking, making ------------------------------------------------------------------------

// The parameters of a call about what is at a path; its mode only where one is wanted.
static int
read_one(const struct agent *agent, const struct request *request, struct file_place *ret,
         int *ret_mode, struct kg_error *err)
{
    json_error_t why;
    const char *path;
    json_t *params = request_params(request);

    int result =
        ret_mode ? json_unpack_ex(params, &why, 0, "{s:s, s:i !}", "path", &path, "mode", ret_mode)
                 : json_unpack_ex(params, &why, 0, "{s:s !}", "path", &path);
    if (result != 0)
        return params_failed(&why, err);
    if (ret_mode && (*ret_mode < 0 || *ret_mode > FILE_MODE_MAX))
        return kg_error_set(err, KG_INVALID, 0, "mode must be 0 to %d", FILE_MODE_MAX);
    return file_place_find(agent, path, ret, err);
}

void
files_stat_call(struct request *request, void *arg)
{
    struct kg_error err = {0};
    struct file_place place;
    struct stat st;

    bool found = read_one(arg, request, &place, NULL, &err) == 0 &&
                 file_stat(place.root, place.path, &st, &err) == 0;
    request_end(request, found ? file_details(place.root, place.path, &st) : NULL, &err);
}

void
files_chmod_call(struct request *request, void *arg)
{
    struct kg_error err = {0};
    struct file_place place;
    struct stat st;
    int mode;

    bool changed = read_one(arg, request, &place, &mode, &err) == 0 &&
                   file_chmod(place.root, place.path, (mode_t)mode, &st, &err) == 0;
    request_end(request, changed ? file_details(place.root, place.path, &st) : NULL, &err);
}

void
files_unused_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct file_names names = {0};
    struct kg_error err = {0};
    json_error_t why;
    json_t *answer = NULL;
    struct file_place place;
    const char *folder;
    int number;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:s, s:s, s:s !}", "folder",
                       &folder, "start", &names.start, "insert", &names.insert, "end",
                       &names.end) != 0)
        (void)params_failed(&why, &err);
    else if (file_place_find(agent, folder, &place, &err) == 0 &&
             file_find_unused(place.root, place.path, &names, &number, &err) == 0)
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
    struct file_place place;
    struct stat st;
    const char *path;
    bool created;
    int keep, parents = 0;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:b, s?b !}", "path", &path, "keep",
                       &keep, "parents", &parents) != 0)
        (void)params_failed(&why, &err);
    else if (file_place_find(agent, path, &place, &err) == 0 &&
             file_make_folder(place.root, place.path, flags_of(keep, parents), &st, &created,
                              &err) == 0)
        entry = describe_made(place.root, place.path, &st, created);
    request_end(request, entry, &err);
}

// ---- Moving, copying ------------------------------------------------------------------------

// The parameters of both calls. The paths are below one root, and to be freed.
struct two_paths {
    const char *root;
    char *from;
    char *to;
    unsigned flags;
};

static void
two_paths_fini(struct two_paths *paths)
{
    free(paths->from);
    free(paths->to);
}

static int
two_paths_read(const struct agent *agent, const struct request *request, struct two_paths *ret,
               struct kg_error *err)
{
    struct file_place from, to;
    const char *from_path, *to_path;
    json_error_t why;
    int keep, parents = 0;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:s, s:b, s?b !}", "from",
                       &from_path, "to", &to_path, "keep", &keep, "parents", &parents) != 0)
        return params_failed(&why, err);
    if (file_place_find(agent, from_path, &from, err) != 0 ||
        file_place_find(agent, to_path, &to, err) != 0)
        return -1;
    bool differs = from.root != to.root;
    *ret = (struct two_paths){
        .root = differs ? agent->settings.root_dir : from.root,
        .from = differs ? file_place_from_root(agent, &from) : kg_strdup(from.path),
        .to = differs ? file_place_from_root(agent, &to) : kg_strdup(to.path),
        .flags = flags_of(keep, parents),
    };
    return 0;
}

// A copy under way; of a move to another file system, too, whose original is then deleted.
struct copying {
    struct agent *agent;
    struct request *request;
    struct file_copy *copy;
    struct two_paths paths;
    bool moves;
};

static void
copying_end(struct copying *copying, json_t *entry, const struct kg_error *err)
{
    request_end(copying->request, entry, err);
    copying->agent->n_copies--;
    file_copy_free(copying->copy);
    two_paths_fini(&copying->paths);
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
own_changes(const struct copying *copying, const struct stat *st)
{
    struct agent *agent = copying->agent;
    const char *own = file_place_in_data(agent, copying->paths.root, file_copy_path(copying->copy));

    if (own && S_ISDIR(st->st_mode))
        changes_own_folder(agent->changes, own);
    else if (own)
        changes_own(agent->changes, own, st);
}

static void
commit_copy(struct copying *copying)
{
    const struct two_paths *paths = &copying->paths;
    struct kg_error err = {0};
    struct stat st;
    bool created;

    if (file_copy_commit(copying->copy, &st, &created, &err) != 0) {
        copying_end(copying, NULL, &err);
        return;
    }
    own_changes(copying, &st);
    if (copying->moves && file_delete(paths->root, paths->from, false, &err) != 0)
        copying_end(copying, NULL, &err);
    else
        copying_end(copying, describe_made(paths->root, paths->to, &st, created), NULL);
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

// Takes what `paths` holds. On failure the request is answered.
static void
copying_start(struct agent *agent, struct request *request, struct two_paths *paths, bool moves)
{
    static const struct file_copy_limits limits = {COPY_BYTES_MAX, COPY_ENTRIES_MAX, COPY_MS_MAX};
    struct kg_error err = {0};
    struct file_copy *copy = NULL;

    if (agent->n_copies < COPIES_MAX)
        copy = file_copy_begin(paths->root, paths->from, paths->to, paths->flags, &limits, &err);
    else
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "%d files or folders are being copied",
                           COPIES_MAX);
    if (!copy) {
        two_paths_fini(paths);
        request_fail(request, &err);
        return;
    }
    struct copying *copying = KG_NEW(struct copying);
    *copying = (struct copying){agent, request, copy, *paths, moves};
    agent->n_copies++;
    request_on_gone(request, on_copier_gone, copying);
    request_on_room(request, copy_on, copying);
    copy_on(copying);
}

void
files_copy_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct two_paths paths;
    struct kg_error err = {0};

    if (two_paths_read(agent, request, &paths, &err) == 0)
        copying_start(arg, request, &paths, false);
    else
        request_fail(request, &err);
}

void
files_move_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct two_paths paths;
    struct stat st;
    bool created, elsewhere;

    if (two_paths_read(agent, request, &paths, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    int result =
        file_move(paths.root, paths.from, paths.to, paths.flags, &st, &created, &elsewhere, &err);
    if (result != 0 && elsewhere) {
        copying_start(agent, request, &paths, true);
        return;
    }
    const char *own = file_place_in_data(agent, paths.root, paths.to);
    // Of what is in a folder that is moved, nothing has changed.
    if (result == 0 && own && S_ISREG(st.st_mode))
        changes_own(agent->changes, own, &st);
    request_end(request, result == 0 ? describe_made(paths.root, paths.to, &st, created) : NULL,
                &err);
    two_paths_fini(&paths);
}
