// SPDX-License-Identifier: Apache-2.0
// Unpacks wheels, each in a sandbox of its own: the wheel is delivered, and what it becomes is
// taken out part by part. What wheels contain is untrusted, and so is what the sandbox makes of
// them: it has no say in any other wheel.

#include <string.h>

#include "loop.h"
#include "packages_priv.h"
#include "pip.h"
#include "wheel_sandbox.h"
#include "wheel_trees.h"

enum {
    PART_MS = 120 * 1000,
    MAX_PARTS = 500,
    DEADLINE_MS = 600 * 1000, // for all wheels
};

// making a sandbox -> delivering -> unpacking a part -> reading it, until the wheel has no more ->
// the next wheel
struct wheel_unpack {
    struct packages *packages;
    json_t *wheels;
    size_t n_begun;
    struct wheel_sandbox *sandbox;
    struct wheel_draft *draft;
    int64_t next; // entry of the wheel; -1: it has no more
    int n_parts;
    struct loop_timer *end;       // in a later turn of the loop, since this may run in a callback
    struct loop_timer *next_step; // the same, for the next wheel
    struct loop_timer *deadline;
    struct kg_error err;
    wheel_unpack_fn fn;
    void *arg;
};

// ---- The end --------------------------------------------------------------------------------

void
wheel_unpack_cancel(struct wheel_unpack *unpack)
{
    if (!unpack)
        return;
    wheel_sandbox_free(unpack->sandbox);
    wheel_draft_cancel(unpack->draft);
    loop_timer_free(unpack->end);
    loop_timer_free(unpack->next_step);
    loop_timer_free(unpack->deadline);
    json_decref(unpack->wheels);
    free(unpack);
}

static void
unpack_on_end(void *arg)
{
    struct wheel_unpack *unpack = arg;
    const struct kg_error err = unpack->err;
    wheel_unpack_fn fn = unpack->fn;
    void *fn_arg = unpack->arg;
    wheel_unpack_cancel(unpack);
    fn(err.code ? &err : NULL, fn_arg);
}

static void
unpack_end(struct wheel_unpack *unpack, const struct kg_error *err)
{
    if (err && !unpack->err.code)
        unpack->err = *err;
    loop_timer_start(unpack->end, 0);
}

static void
unpack_on_deadline(void *arg)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_INTERNAL, 0, "unpacking the wheels takes more than %d minutes",
                 DEADLINE_MS / 60000);
    unpack_end(arg, &err);
}

// ---- A part ---------------------------------------------------------------------------------

static void next_part(void *arg);

static const json_t *
wheel_of(const struct wheel_unpack *unpack)
{
    return json_array_get(unpack->wheels, unpack->n_begun - 1);
}

static void
unpack_on_read(void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    if (!wheel_draft_is_whole(unpack->draft)) {
        kg_error_set(&err, KG_INTERNAL, 0, "a wheel's files are smaller than announced");
        unpack_end(unpack, &err);
    } else if (unpack->next >= 0) {
        next_part(unpack);
    } else if (wheel_draft_finish(KG_STEAL(unpack->draft), &err) < 0) {
        unpack_end(unpack, &err);
    } else {
        wheels_drop(unpack->packages->wheels, wheel_of(unpack));
        loop_timer_start(unpack->next_step, 0);
    }
}

static int
take_part(struct wheel_unpack *unpack, struct kg_error *err)
{
    const struct buf *text = wheel_sandbox_result(unpack->sandbox);
    json_auto_t *root = pip_result_parse(text->data, text->len, err);
    if (!root)
        return -1;
    const json_t *next = json_object_get(root, "next");
    const char *python = json_string_value(json_object_get(root, "python"));
    int64_t after = json_is_integer(next) ? json_integer_value(next) : -1;
    if (!python || strcmp(python, unpack->packages->tag) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the image's Python is another one than before");
    if ((after >= 0 && after <= unpack->next) || ++unpack->n_parts > MAX_PARTS)
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel does not come to its end");
    unpack->next = after;
    return wheel_draft_expect(unpack->draft, json_object_get(root, "files"), err);
}

static void
unpack_on_part(void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    if (take_part(unpack, &err) < 0)
        unpack_end(unpack, &err);
    else
        wheel_sandbox_read(unpack->sandbox, "part", unpack_on_read);
}

static void
next_part(void *arg)
{
    struct wheel_unpack *unpack = arg;
    json_auto_t *env = json_pack("{s:s, s:s}", "PYTHONDONTWRITEBYTECODE", "1", "LANG", "C.UTF-8");
    char **argv = unpack_argv(unpack->packages, wheel_of(unpack), unpack->next);
    wheel_sandbox_run(unpack->sandbox, argv, env, PART_MS, unpack_on_part);
}

static char *
key_of(const struct wheel_unpack *unpack)
{
    return wheel_tree_key(json_string_value(json_object_get(wheel_of(unpack), "sha256")),
                          unpack->packages->tag);
}

// ---- A wheel --------------------------------------------------------------------------------

// Another job may have unpacked the wheel meanwhile, and its file may have left.
static void
unpack_on_ready(void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    struct wheel_trees *trees = package_sets_trees(unpack->packages->sets);
    KG_AUTO_FREE char *key = key_of(unpack);
    KG_AUTO_FREE char *path = wheel_path_of(wheel_of(unpack));
    if (wheel_trees_have(trees, key)) {
        loop_timer_start(unpack->next_step, 0);
        return;
    }
    unpack->next = 0;
    unpack->n_parts = 0;
    unpack->draft = wheel_draft_new(trees, key, &err);
    if (unpack->draft)
        wheel_sandbox_deliver(unpack->sandbox, path, next_part);
    else
        unpack_end(unpack, &err);
}

static void
unpack_on_failed(const struct kg_error *err, void *arg)
{
    unpack_end(arg, err);
}

static int
unpack_on_data(const void *data, size_t len, void *arg, struct kg_error *err)
{
    struct wheel_unpack *unpack = arg;
    return wheel_draft_write(unpack->draft, data, len, err);
}

static int
make_sandbox(struct wheel_unpack *unpack, struct kg_error *err)
{
    static const struct wheel_sandbox_events events = {.on_failed = unpack_on_failed,
                                                       .on_data = unpack_on_data};
    wheel_sandbox_free(KG_STEAL(unpack->sandbox));
    unpack->sandbox =
        wheel_sandbox_new(unpack->packages, false, &events, unpack, unpack_on_ready, err);
    return unpack->sandbox ? 0 : -1;
}

// ---- Start ----------------------------------------------------------------------------------

static void
next_wheel(void *arg)
{
    struct wheel_unpack *unpack = arg;
    const struct wheel_trees *trees = package_sets_trees(unpack->packages->sets);
    struct kg_error err = {0};
    while (unpack->n_begun++ < json_array_size(unpack->wheels)) {
        KG_AUTO_FREE char *key = key_of(unpack);
        if (wheel_trees_have(trees, key))
            continue;
        if (make_sandbox(unpack, &err) < 0)
            unpack_end(unpack, &err);
        return;
    }
    unpack_end(unpack, NULL);
}

struct wheel_unpack *
wheel_unpack_start(struct packages *packages, const json_t *wheels, wheel_unpack_fn fn, void *arg)
{
    struct wheel_unpack *unpack = KG_NEW(struct wheel_unpack);
    unpack->packages = packages;
    unpack->wheels = json_deep_copy(wheels);
    unpack->fn = fn;
    unpack->arg = arg;
    unpack->end = loop_timer_new(packages->loop, unpack_on_end, unpack);
    unpack->next_step = loop_timer_new(packages->loop, next_wheel, unpack);
    unpack->deadline = loop_timer_new(packages->loop, unpack_on_deadline, unpack);
    loop_timer_start(unpack->next_step, 0);
    loop_timer_start(unpack->deadline, DEADLINE_MS);
    return unpack;
}
