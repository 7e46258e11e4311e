// SPDX-License-Identifier: Apache-2.0
// The data.* methods: what savepoints keep of the working folder, in folders beside its files,
// whose room is the session's disk. The tenant's code can reach them, as all of kernelgate's own.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_priv.h"
#include "files.h"
#include "mirror.h"
#include "walk.h"

#define KEPT FILE_OWN_PREFIX "savepoints" // in the working folder

enum { STEPS_OF_A_TURN = 8 };

// The working folder, and KEPT in it; -1: it is not there.
struct data_places {
    int data;
    int kept;
};

static void
data_places_fini(struct data_places *places)
{
    if (places->data >= 0)
        close(places->data);
    if (places->kept >= 0)
        close(places->kept);
}

static int
data_places_open(const struct agent *agent, bool makes, struct data_places *ret,
                 struct kg_error *err)
{
    *ret = (struct data_places){.data = -1, .kept = -1};
    ret->data = walk_open_folder(agent->settings.data_dir, "", err);
    if (ret->data < 0)
        return -1;
    if (makes && mkdirat(ret->data, KEPT, S_IRWXU) != 0 && errno != EEXIST)
        return file_fail("make", KEPT, errno, err);
    ret->kept = walk_open_at(ret->data, KEPT);
    return ret->kept >= 0 || !makes ? 0 : file_fail("open", KEPT, errno, err);
}

static const char *
read_name(const struct request *request, struct kg_error *err)
{
    json_error_t why;
    const char *name;
    if (json_unpack_ex(request_params(request), &why, 0, "{s:s !}", "name", &name) != 0) {
        (void)params_failed(&why, err);
        return NULL;
    }
    if (target_kernel_name_valid(name))
        return name;
    (void)kg_error_set(err, KG_INVALID, 0, "invalid name");
    return NULL;
}

static json_t *
describe_size(const struct mirror_size *size)
{
    return json_pack("{s:I, s:i}", "bytes", (json_int_t)size->bytes, "entries", size->entries);
}

// ---- Keeping, putting back ------------------------------------------------------------------

// What is put back goes on when its caller leaves: half of it would be worse than all.
struct mirroring {
    struct agent *agent;
    struct request *request;
    struct data_places places;
    char *name;
    char temporary[FILE_TEMPORARY_SIZE]; // of what is being kept; empty: it is put back
    struct mirror *mirror;
    struct mirror_size size;
    struct loop_timer *turn;
};

static void
mirroring_end(struct mirroring *mirroring, struct kg_error *err)
{
    const struct data_places *places = &mirroring->places;
    bool keeps = mirroring->temporary[0] != '\0';

    if (err->code == KG_OK && keeps &&
        renameat(places->kept, mirroring->temporary, places->kept, mirroring->name) != 0)
        (void)file_fail("keep", mirroring->name, errno, err);
    if (err->code != KG_OK && keeps)
        (void)!path_remove_at(places->kept, mirroring->temporary);
    if (err->code == KG_OK && !keeps)
        changes_own_folder(mirroring->agent->changes, ""); // no execution has written them
    mirroring->agent->mirroring = NULL;
    request_end(mirroring->request, err->code == KG_OK ? describe_size(&mirroring->size) : NULL,
                err);
    mirror_free(mirroring->mirror);
    data_places_fini(&mirroring->places);
    loop_timer_free(mirroring->turn);
    free(mirroring->name);
    free(mirroring);
}

void
mirroring_cancel(struct mirroring *mirroring)
{
    struct kg_error err;

    if (!mirroring)
        return;
    (void)kg_error_set(&err, KG_INTERNAL, 0, "the caller has left");
    mirroring_end(mirroring, &err);
}

static void
mirroring_on_gone(void *arg)
{
    mirroring_cancel(arg);
}

static void
mirroring_on_turn(void *arg)
{
    struct mirroring *mirroring = arg;
    struct kg_error err = {0};
    int more = 1;

    for (int i = 0; i < STEPS_OF_A_TURN && more > 0; i++)
        more = mirror_step(mirroring->mirror, &err);
    if (more > 0)
        loop_timer_start(mirroring->turn, 0);
    else
        mirroring_end(mirroring, &err);
}

// The folders that become equal; both are closed afterwards.
static int
open_pair(struct mirroring *mirroring, int *ret_from, int *ret_to, struct kg_error *err)
{
    const struct data_places *places = &mirroring->places;

    *ret_from = *ret_to = -1;
    if (mirroring->temporary[0] != '\0') {
        if (mkdirat(places->kept, mirroring->temporary, S_IRWXU) != 0)
            return file_fail("make", mirroring->temporary, errno, err);
        *ret_to = walk_open_at(places->kept, mirroring->temporary);
        *ret_from = fcntl(places->data, F_DUPFD_CLOEXEC, 0);
    } else {
        *ret_from = walk_open_at(places->kept, mirroring->name);
        *ret_to = fcntl(places->data, F_DUPFD_CLOEXEC, 0);
    }
    if (*ret_from >= 0 && *ret_to >= 0)
        return 0;
    return errno == ENOENT ? kg_error_set(err, KG_NOT_FOUND, 0, "no files are kept by that name")
                           : file_fail("open", mirroring->name, errno, err);
}

static int
mirroring_begin(struct mirroring *mirroring, struct kg_error *err)
{
    int from, to;

    int result = data_places_open(mirroring->agent, true, &mirroring->places, err);
    if (result == 0) {
        result = open_pair(mirroring, &from, &to, err);
        if (result == 0)
            result = mirror_check(from, to, &mirroring->size, err);
        mirroring->mirror = result == 0 ? mirror_begin(from, to, err) : NULL;
        if (from >= 0)
            close(from);
        if (to >= 0)
            close(to);
    }
    return mirroring->mirror ? 0 : -1;
}

static void
mirroring_start(struct request *request, struct agent *agent, bool keeps)
{
    struct kg_error err = {0};
    const char *name = read_name(request, &err);

    if (name && agent->mirroring)
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0,
                           "the files of another savepoint are being kept or put back");
    if (err.code != KG_OK) {
        request_fail(request, &err);
        return;
    }
    struct mirroring *mirroring = KG_NEW(struct mirroring);
    mirroring->agent = agent;
    mirroring->request = request;
    mirroring->name = kg_strdup(name);
    if (keeps)
        file_temporary_name("keep", mirroring->temporary);
    mirroring->turn = loop_timer_new(agent->loop, mirroring_on_turn, mirroring);
    agent->mirroring = mirroring;
    if (mirroring_begin(mirroring, &err) != 0) {
        mirroring_end(mirroring, &err);
        return;
    }
    if (keeps)
        request_on_gone(request, mirroring_on_gone, mirroring);
    loop_timer_start(mirroring->turn, 0);
}

void
data_keep_call(struct request *request, void *arg)
{
    mirroring_start(request, arg, true);
}

void
data_restore_call(struct request *request, void *arg)
{
    mirroring_start(request, arg, false);
}

// Whether data.restore would find the room for it.
void
data_check_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    struct data_places places = {.data = -1, .kept = -1};
    struct mirror_size size;
    const char *name = read_name(request, &err);

    if (name && data_places_open(agent, false, &places, &err) == 0) {
        KG_AUTO_FD from = places.kept >= 0 ? walk_open_at(places.kept, name) : -1;
        if (from < 0)
            (void)kg_error_set(&err, KG_NOT_FOUND, 0, "no files are kept by that name");
        else
            (void)!mirror_check(from, places.data, &size, &err);
    }
    data_places_fini(&places);
    request_end(request, err.code == KG_OK ? describe_size(&size) : NULL, &err);
}

// ---- Dropping -------------------------------------------------------------------------------

static bool
is_among(const json_t *names, const char *name)
{
    size_t i;
    json_t *each;

    json_array_foreach(names, i, each) {
        if (json_is_string(each) && strcmp(json_string_value(each), name) == 0)
            return true;
    }
    return false;
}

// Takes `folder`. What is being kept has a name of kernelgate's own.
static int
drop_others(int folder, const json_t *except, bool is_mirroring, struct kg_error *err)
{
    DIR *dir = fdopendir(folder);
    int result = 0;

    if (!dir) {
        close(folder);
        return file_fail("list", KEPT, errno, err);
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !is_among(except, name) &&
            !(is_mirroring && file_name_is_own(name)) && path_remove_at(folder, name) != 0)
            result = file_fail("remove", name, errno, err);
    }
    closedir(dir);
    return result;
}

// {"except": names}: drops what other savepoints have kept.
void
data_drop_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    struct data_places places;
    json_error_t why;
    json_t *except;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:o !}", "except", &except) != 0) {
        (void)params_failed(&why, &err);
        request_fail(request, &err);
        return;
    }
    int result = data_places_open(agent, false, &places, &err);
    if (result == 0 && places.kept >= 0)
        result = drop_others(KG_STEAL_FD(places.kept), except, agent->mirroring != NULL, &err);
    if (result == 0 && json_array_size(except) == 0)
        (void)unlinkat(places.data, KEPT, AT_REMOVEDIR);
    data_places_fini(&places);
    request_end(request, result == 0 ? json_object() : NULL, &err);
}
