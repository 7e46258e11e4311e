// SPDX-License-Identifier: Apache-2.0
// The record of a session, by which another gateway knows it (provisioner_claim()): its text, and
// how it is written again when a client changes the session.

#include <string.h>

#include "sandbox.h"
#include "session.h"
#include "session_tokens.h"
#include "sessions_priv.h"

enum { METADATA_MAX = 32, METADATA_NAME_MAX = 64, METADATA_VALUE_MAX = 512 };
enum { METADATA_BYTES_MAX = 4096 };

// A change that waits until it is recorded.
struct session_recording {
    LIST_ENTRY(session_recording) link;
    struct provisioner_op *op;
    session_recorded_fn fn;
    void *arg;
};

// ---- Metadata -------------------------------------------------------------------------------

static bool
is_name(const char *name)
{
    size_t len = strlen(name);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return len > 0 && len <= METADATA_NAME_MAX;
}

int
session_metadata_check(const json_t *metadata, struct kg_error *err)
{
    size_t bytes = 0;
    const char *name;
    json_t *value;
    if (!json_is_object(metadata))
        return kg_error_set(err, KG_INVALID, 0, "metadata must be an object of strings");
    if (json_object_size(metadata) > METADATA_MAX)
        return kg_error_set(err, KG_INVALID, 0, "metadata has more than %d members", METADATA_MAX);
    json_object_foreach((json_t *)(uintptr_t)metadata, name, value) {
        if (!is_name(name))
            return kg_error_set(
                err, KG_INVALID, 0,
                "metadata: a name must have 1 to %d bytes, without control characters",
                METADATA_NAME_MAX);
        if (!json_is_string(value) || json_string_length(value) > METADATA_VALUE_MAX)
            return kg_error_set(err, KG_INVALID, 0,
                                "metadata: \"%s\" must be a string of at most %d bytes", name,
                                METADATA_VALUE_MAX);
        bytes += strlen(name) + json_string_length(value);
    }
    if (bytes > METADATA_BYTES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "metadata is larger than %d bytes",
                            METADATA_BYTES_MAX);
    return 0;
}

bool
session_has_metadata(const struct session *session, const json_t *wanted)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)wanted, name, value) {
        if (!json_equal(json_object_get(session->metadata, name), value))
            return false;
    }
    return true;
}

// ---- Its text -------------------------------------------------------------------------------

// Those that are not default kernels, without what is being removed.
static json_t *
list_kernels(const struct session *session)
{
    json_t *list =
        session->recorded_kernels ? json_deep_copy(session->recorded_kernels) : json_array();
    const struct kernel *kernel;
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++) {
        if (!session_kernel_is_default(kernel))
            json_array_append_new(list, json_pack("{s:s, s:s, s:s*}", "name", kernel_name(kernel),
                                                  "kernel", kernel_spec(kernel)->name, "cwd",
                                                  kernel_folder(kernel)));
    }
    return list;
}

json_t *
session_record_make(const struct session *session)
{
    json_t *kernels = list_kernels(session);
    if (json_array_size(kernels) == 0)
        json_decref(KG_STEAL(kernels));
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:O, s:O, s:I, s:o, s:O*, s:b, s:s*, s:o*, s:o*, s:o*}",
        "session_id", session->id, "owner", session->owner, "created_ms",
        (json_int_t)session->created_wall_ms, "idle_timeout_ms",
        (json_int_t)session->idle_timeout_ms, "one_shot", session->one_shot, "env", session->env,
        "metadata", session->metadata, "ends_ms", (json_int_t)session->ends_wall_ms, "tokens",
        session_tokens_list(session), "face", session->face, "ports_are_public",
        session->ports_are_public, "home", session->home, "kernels", kernels, "outlives_kernels",
        session->outlives_kernels ? json_true() : NULL, "savepoints",
        session_savepoints_record(session));
}

int
session_record_read(const json_t *record, struct session_record *ret, struct kg_error *err)
{
    json_error_t why;
    int one_shot, ports_are_public = false, outlives_kernels = false;
    json_int_t created_ms, idle_timeout_ms, ends_ms = 0;
    *ret = (struct session_record){0};
    // What has a question mark is not in records of earlier versions.
    if (json_unpack_ex(
            (json_t *)(uintptr_t)record, &why, 0,
            "{s:s, s:s, s:I, s:I, s:b, s:o, s?o, s?I, s?o, s?o, s?b, s?s, s?o, s?b, s?o}",
            "session_id", &ret->id, "owner", &ret->owner, "created_ms", &created_ms,
            "idle_timeout_ms", &idle_timeout_ms, "one_shot", &one_shot, "env", &ret->env,
            "metadata", &ret->metadata, "ends_ms", &ends_ms, "tokens", &ret->tokens, "face",
            &ret->face, "ports_are_public", &ports_are_public, "home", &ret->home, "kernels",
            &ret->kernels, "outlives_kernels", &outlives_kernels, "savepoints",
            &ret->savepoints) < 0)
        return kg_error_set(err, KG_INVALID, 0, "meta.json is malformed: %s", why.text);
    if (one_shot)
        return kg_error_set(err, KG_INVALID, 0, "the client of this one-shot session is gone");
    ret->created_wall_ms = created_ms;
    ret->idle_timeout_ms = idle_timeout_ms;
    ret->ends_wall_ms = ends_ms;
    ret->ports_are_public = ports_are_public;
    ret->outlives_kernels = outlives_kernels;
    return 0;
}

// ---- Changes --------------------------------------------------------------------------------

static void
recording_free(struct session_recording *recording)
{
    LIST_REMOVE(recording, link);
    free(recording);
}

static void
record_on_written(const struct kg_error *err, void *arg)
{
    struct session_recording *recording = arg;
    session_recorded_fn fn = recording->fn;
    void *fn_arg = recording->arg;
    if (err)
        log_error("a change of a session is not recorded: it is lost when the gateway ends",
                  LOG_ERR(err));
    recording_free(recording);
    fn(err, fn_arg);
}

struct session_recording *
session_record(struct session *session, session_recorded_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *record = session_record_make(session);
    struct session_recording *recording = KG_NEW(struct session_recording);
    recording->fn = fn;
    recording->arg = arg;
    LIST_INSERT_HEAD(&session->recordings, recording, link);
    recording->op = sandbox_record(session->sandbox, record, record_on_written, recording, err);
    if (recording->op)
        return recording;
    recording_free(recording);
    return NULL;
}

void
session_recording_cancel(struct session_recording *recording)
{
    if (!recording)
        return;
    sandbox_record_cancel(recording->op);
    recording_free(recording);
}

void
session_recordings_end(struct session *session, const struct kg_error *err)
{
    for (struct session_recording *recording; (recording = LIST_FIRST(&session->recordings));) {
        session_recorded_fn fn = recording->fn;
        void *arg = recording->arg;
        session_recording_cancel(recording);
        fn(err, arg);
    }
}
