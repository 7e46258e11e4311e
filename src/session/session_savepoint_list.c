// SPDX-License-Identifier: Apache-2.0
// The savepoints that a session has, those that it has dropped, and what another gateway knows of
// them.

#include <stdio.h>
#include <string.h>

#include "session_savepoints.h"
#include "sessions_priv.h"

enum { DROPPED_MAX = 16 };

// ---- The list -------------------------------------------------------------------------------

struct session_savepoint *
session_savepoint_named(const struct session *session, const char *id)
{
    struct session_savepoint *savepoint;
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (strcmp(savepoint->id, id) == 0)
            return savepoint;
    }
    return NULL;
}

struct session_savepoint *
session_savepoint_add(struct session *session, const char *id, const struct kernelspec *spec,
                      const char *kernel, const char *name)
{
    struct session_savepoint *savepoint = KG_NEW(struct session_savepoint);
    snprintf(savepoint->id, sizeof savepoint->id, "%s", id);
    savepoint->spec = spec;
    savepoint->kernel = kg_strdup(kernel);
    savepoint->name = name ? kg_strdup(name) : NULL;
    savepoint->created_wall_ms = clock_wall_ms();
    TAILQ_INSERT_TAIL(&session->savepoints, savepoint, link);
    return savepoint;
}

void
session_savepoint_remove(struct session *session, struct session_savepoint *savepoint)
{
    TAILQ_REMOVE(&session->savepoints, savepoint, link);
    json_decref(savepoint->lost);
    free(savepoint->kernel);
    free(savepoint->name);
    free(savepoint);
}

// NULL: none were kept.
static json_t *
files_of(const struct session_savepoint *savepoint)
{
    return savepoint->has_files
               ? json_pack("{s:I, s:i}", "bytes", (json_int_t)savepoint->files_bytes, "entries",
                           savepoint->files_entries)
               : NULL;
}

json_t *
session_savepoint_describe(const struct session_savepoint *savepoint)
{
    char created[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(savepoint->created_wall_ms, created);
    json_t *memory =
        savepoint->memory_bytes < 0 ? json_null() : json_integer(savepoint->memory_bytes);
    json_t *files = files_of(savepoint);
    return json_pack("{s:s, s:o, s:s, s:s, s:I, s:o, s:o, s:O}", "savepoint", savepoint->id, "name",
                     savepoint->name ? json_string(savepoint->name) : json_null(), "kernel",
                     savepoint->kernel, "created_at", created, "execution_count",
                     (json_int_t)savepoint->execution_count, "memory_bytes", memory, "files",
                     files ? files : json_null(), "lost", savepoint->lost);
}

bool
session_savepoint_is_listed(const struct session_savepoint *savepoint)
{
    return savepoint->is_ready && !savepoint->is_hidden;
}

json_t *
session_savepoints_describe(const struct session *session)
{
    json_t *list = json_array();
    const struct session_savepoint *savepoint;
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (session_savepoint_is_listed(savepoint))
            json_array_append_new(list, session_savepoint_describe(savepoint));
    }
    return json_pack("{s:o, s:O}", "savepoints", list, "dropped", session->dropped_savepoints);
}

int
session_savepoint_name_check(const struct session *session, const char *name, struct kg_error *err)
{
    const struct session_savepoint *savepoint;
    size_t len = strlen(name);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            len = 0;
    if (len == 0 || len > SAVEPOINT_NAME_MAX)
        return kg_error_set(err, KG_INVALID, 0,
                            "name must have 1 to %d bytes, without control characters",
                            SAVEPOINT_NAME_MAX);
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (savepoint->name && strcmp(savepoint->name, name) == 0)
            return kg_error_set(err, KG_NAME_EXISTS, 0,
                                "name: the session has a savepoint \"%s\" already; choose another "
                                "name, or delete it first",
                                name);
    }
    return 0;
}

static void
append_bounded(json_t *list, json_t *value)
{
    if (json_array_size(list) == DROPPED_MAX)
        json_array_remove(list, 0);
    json_array_append_new(list, value);
}

void
session_savepoint_note_dropped(struct session *session, const char *id, const char *name,
                               const char *reason)
{
    char at[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), at);
    append_bounded(session->dropped_savepoints,
                   json_pack("{s:s, s:o, s:s, s:s}", "savepoint", id, "name",
                             name ? json_string(name) : json_null(), "dropped_at", at, "reason",
                             reason));
    append_bounded(session->untold_savepoints, json_string(id));
}

// ---- Another gateway ------------------------------------------------------------------------

json_t *
session_savepoints_record(const struct session *session)
{
    json_t *list =
        session->recorded_savepoints ? json_deep_copy(session->recorded_savepoints) : json_array();
    const struct session_savepoint *savepoint;
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (session_savepoint_is_listed(savepoint))
            json_array_append_new(
                list, json_pack("{s:s, s:s*, s:s, s:s, s:I, s:I, s:I, s:o*, s:O}", "id",
                                savepoint->id, "name", savepoint->name, "kernel", savepoint->kernel,
                                "spec", savepoint->spec->name, "created_ms",
                                (json_int_t)savepoint->created_wall_ms, "execution_count",
                                (json_int_t)savepoint->execution_count, "memory_bytes",
                                (json_int_t)savepoint->memory_bytes, "files", files_of(savepoint),
                                "lost", savepoint->lost));
    }
    if (json_array_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

static void
savepoint_adopt(struct session *session, const json_t *entry, const json_t *processes)
{
    const char *id, *kernel, *spec_name, *name = NULL;
    json_int_t created_ms, count, memory, files_bytes = -1;
    int files_entries = 0;
    json_t *lost;
    if (json_unpack((json_t *)(uintptr_t)entry,
                    "{s:s, s?s, s:s, s:s, s:I, s:I, s:I, s?{s:I, s:i}, s:o}", "id", &id, "name",
                    &name, "kernel", &kernel, "spec", &spec_name, "created_ms", &created_ms,
                    "execution_count", &count, "memory_bytes", &memory, "files", "bytes",
                    &files_bytes, "entries", &files_entries, "lost", &lost) < 0 ||
        strncmp(id, SAVEPOINT_PREFIX, strlen(SAVEPOINT_PREFIX)) != 0 || !kernel_name_valid(id))
        return;
    const struct kernelspec *spec =
        kernelspecs_find(session->sessions->settings.specs, spec_name, NULL);
    const char *state =
        json_string_value(json_object_get(session_process_named(processes, id), "state"));
    if (!state || strcmp(state, "running") != 0 || !spec) {
        session_savepoint_note_dropped(session, id, name, "its process ended");
        return;
    }
    struct session_savepoint *savepoint = session_savepoint_add(session, id, spec, kernel, name);
    savepoint->is_ready = true;
    savepoint->created_wall_ms = created_ms;
    savepoint->execution_count = count;
    savepoint->memory_bytes = memory;
    savepoint->lost = json_incref(lost);
    savepoint->has_files = files_bytes >= 0;
    savepoint->files_bytes = files_bytes;
    savepoint->files_entries = files_entries;
}

void
session_savepoints_adopt(struct session *session, const json_t *processes)
{
    json_auto_t *recorded = KG_STEAL(session->recorded_savepoints);
    size_t i;
    json_t *entry;
    json_array_foreach(recorded, i, entry)
        savepoint_adopt(session, entry, processes);
    // Of those that have ended, and of one that was being made.
    session_savepoint_files_drop(session);
}

// ---- Its beginning and end ------------------------------------------------------------------

void
session_savepoints_init(struct session *session, json_t *recorded)
{
    TAILQ_INIT(&session->savepoints);
    TAILQ_INIT(&session->savepoint_calls);
    session->dropped_savepoints = json_array();
    session->untold_savepoints = json_array();
    session->recorded_savepoints = json_incref(recorded);
}

void
session_savepoints_fini(struct session *session)
{
    for (struct session_savepoint *each; (each = TAILQ_FIRST(&session->savepoints));)
        session_savepoint_remove(session, each);
    json_decref(session->dropped_savepoints);
    json_decref(session->untold_savepoints);
    json_decref(session->recorded_savepoints);
}
