// SPDX-License-Identifier: Apache-2.0
// Unpacks wheels, each in a sandbox of its own: the wheel is delivered, and what it becomes is
// taken out part by part. What wheels contain is untrusted, and so is what the sandbox makes of
// them: it has no say in any other wheel.

#include <string.h>

#include "loop.h"
#include "packages_priv.h"
#include "pip.h"
#include "wheel_trees.h"

enum {
    READY_MS = 30 * 1000,
    PART_MS = 120 * 1000,
    SILENCE_MS = 30 * 1000,
    AGENT_IDLE_S = 300,
    MAX_PARTS = 500,
    DEADLINE_MS = 600 * 1000, // for all wheels
};

// making a sandbox -> delivering -> unpacking a part -> reading it, until the wheel has no more ->
// the next wheel
struct wheel_unpack {
    struct packages *packages;
    json_t *wheels;
    size_t n_begun;
    struct sandbox *sandbox;
    struct packages_delivery *delivery;
    struct sandbox_command *command;
    struct pip_output output;
    struct wheel_draft *draft;
    struct sandbox_call *call;
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
    packages_delivery_cancel(unpack->delivery);
    if (unpack->command)
        sandbox_command_cancel(unpack->command);
    sandbox_call_cancel(unpack->call);
    wheel_draft_cancel(unpack->draft);
    if (unpack->sandbox)
        sandbox_destroy(unpack->sandbox, NULL, NULL);
    pip_output_clear(&unpack->output);
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

static void next_part(struct wheel_unpack *unpack);

static const json_t *
wheel_of(const struct wheel_unpack *unpack)
{
    return json_array_get(unpack->wheels, unpack->n_begun - 1);
}

static void
unpack_on_data(const void *data, size_t len, void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    if (wheel_draft_write(unpack->draft, data, len, &err) == 0)
        return;
    sandbox_call_cancel(KG_STEAL(unpack->call));
    unpack_end(unpack, &err);
}

static void
unpack_on_read(const json_t *result, const struct kg_error *read_err, void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    (void)result;
    unpack->call = NULL;
    if (read_err) {
        unpack_end(unpack, read_err);
    } else if (!wheel_draft_is_whole(unpack->draft)) {
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
read_part(struct wheel_unpack *unpack, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_data = unpack_on_data,
                                                        .on_end = unpack_on_read};
    json_auto_t *params = json_pack("{s:s}", "path", "part");
    const struct sandbox_stream_spec spec = {
        .method = "files.read",
        .params = params,
        .head_timeout_ms = SILENCE_MS,
        .silence_timeout_ms = SILENCE_MS,
    };
    unpack->call = sandbox_agent_stream(unpack->sandbox, &spec, &events, unpack, err);
    return unpack->call ? 0 : -1;
}

static int
take_part(struct wheel_unpack *unpack, struct kg_error *err)
{
    const struct buf *text = &unpack->output.result;
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
    if (wheel_draft_expect(unpack->draft, json_object_get(root, "files"), err) < 0)
        return -1;
    return read_part(unpack, err);
}

static void
unpack_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct wheel_unpack *unpack = arg;
    pip_output_take(&unpack->output, stream, text, len);
}

static void
unpack_on_ended(const struct sandbox_command_result *result, const struct kg_error *end_err,
                void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    unpack->command = NULL;
    if (pip_output_check(&unpack->output, result, end_err, &err) < 0 || take_part(unpack, &err) < 0)
        unpack_end(unpack, &err);
}

static void
next_part(struct wheel_unpack *unpack)
{
    static const struct sandbox_command_events events = {.on_output = unpack_on_output,
                                                         .on_end = unpack_on_ended};
    struct kg_error err = {0};
    json_auto_t *env = json_pack("{s:s, s:s}", "PYTHONDONTWRITEBYTECODE", "1", "LANG", "C.UTF-8");
    char **argv = unpack_argv(unpack->packages, wheel_of(unpack), unpack->next);
    const struct sandbox_command_spec spec = {.argv = (const char *const *)argv,
                                              .env = env,
                                              .timeout_ms = PART_MS,
                                              .max_output_bytes = PIP_OUTPUT_MAX};
    pip_output_clear(&unpack->output);
    unpack->command = sandbox_command_start(unpack->sandbox, &spec, &events, unpack, &err);
    pip_argv_free(argv);
    if (!unpack->command)
        unpack_end(unpack, &err);
}

// ---- A wheel --------------------------------------------------------------------------------

static void
unpack_on_delivered(const struct kg_error *err, void *arg)
{
    struct wheel_unpack *unpack = arg;
    unpack->delivery = NULL;
    if (err)
        unpack_end(unpack, err);
    else
        next_part(unpack);
}

static char *
key_of(const struct wheel_unpack *unpack)
{
    return wheel_tree_key(json_string_value(json_object_get(wheel_of(unpack), "sha256")),
                          unpack->packages->tag);
}

static int
deliver_wheel(struct wheel_unpack *unpack, struct kg_error *err)
{
    const json_t *wheel = wheel_of(unpack);
    KG_AUTO_FREE char *path = wheel_path_of(wheel);
    KG_AUTO_FREE char *key =
        wheel_tree_key(json_string_value(json_object_get(wheel, "sha256")), unpack->packages->tag);
    json_auto_t *files = json_pack("[s]", path);
    unpack->next = 0;
    unpack->n_parts = 0;
    unpack->draft = wheel_draft_new(package_sets_trees(unpack->packages->sets), key, err);
    if (!unpack->draft)
        return -1;
    unpack->delivery = packages_deliver(unpack->packages, unpack->sandbox, files,
                                        unpack_on_delivered, unpack, err);
    return unpack->delivery ? 0 : -1;
}

// ---- Its sandbox ----------------------------------------------------------------------------

// Another job may have unpacked the wheel meanwhile, and its file may have left.
static void
unpack_on_claimed(struct sandbox *sandbox, const struct kg_error *claim_err, void *arg)
{
    struct wheel_unpack *unpack = arg;
    struct kg_error err = {0};
    KG_AUTO_FREE char *key = key_of(unpack);
    (void)sandbox;
    if (claim_err)
        unpack_end(unpack, claim_err);
    else if (wheel_trees_have(package_sets_trees(unpack->packages->sets), key))
        loop_timer_start(unpack->next_step, 0);
    else if (deliver_wheel(unpack, &err) < 0)
        unpack_end(unpack, &err);
}

static void
unpack_on_ready(struct sandbox *sandbox, void *arg)
{
    struct kg_error err = {0};
    // After a crash the next gateway sees from this that the sandbox belongs to no session.
    json_auto_t *meta = json_pack("{s:s}", "purpose", "packages");
    if (sandbox_claim(sandbox, meta, 0, unpack_on_claimed, arg, &err) < 0)
        unpack_end(arg, &err);
}

static void
unpack_on_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    (void)sandbox;
    unpack_end(arg, reason);
}

static void
unpack_on_kernel_exit(struct sandbox *sandbox, const char *kernel, int pid, int exit_code,
                      int signal, bool oom, void *arg)
{
    (void)sandbox;
    (void)kernel;
    (void)pid;
    (void)exit_code;
    (void)signal;
    (void)oom;
    (void)arg; // this sandbox has no kernels
}

static int
make_sandbox(struct wheel_unpack *unpack, struct kg_error *err)
{
    static const struct sandbox_events events = {.on_ready = unpack_on_ready,
                                                 .on_gone = unpack_on_gone,
                                                 .on_kernel_exit = unpack_on_kernel_exit};
    static const struct sandbox_spec spec = {.agent_idle_timeout_s = AGENT_IDLE_S,
                                             .ready_timeout_ms = READY_MS};
    if (unpack->sandbox)
        sandbox_destroy(KG_STEAL(unpack->sandbox), NULL, NULL);
    unpack->sandbox = sandbox_create(unpack->packages->sandboxes, &spec, &events, unpack, err);
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
