// SPDX-License-Identifier: Apache-2.0
// The records of notebook sessions. Each is a small file in the state folder, since kernels outlive
// the gateway. A record is removed when its kernel is found to have ended.

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "notebook_priv.h"

enum { RECORD_BYTES_MAX = 64 << 10, RECORDS_OF_OWNER_MAX = 256 };

// ---- Files ----------------------------------------------------------------------------------

static char *
file_of(const struct notebook *notebook, const char *id)
{
    return kg_asprintf("%s/%s.json", notebook->records_dir, id);
}

// If the file cannot be written, the session ends with this gateway.
static void
write_record(const struct notebook *notebook, const struct session_record *record)
{
    struct kg_error err = {0};
    json_auto_t *value =
        json_pack("{s:s, s:s, s:s, s:s?, s:s}", "owner", record->owner, "kernel", record->kernel_id,
                  "path", record->path, "name", record->name, "type", record->type);
    KG_AUTO_FREE char *text = json_dumps(value, JSON_COMPACT);
    KG_AUTO_FREE char *file = file_of(notebook, record->id);
    if (file_write_atomic(file, text, strlen(text), 0600, &err) < 0)
        log_warning("a notebook's session will not outlive the gateway", LOG_ERR(&err));
}

static void
record_free(struct session_record *record)
{
    free(record->owner);
    free(record->path);
    free(record->name);
    free(record->type);
    free(record);
}

static struct session_record *
record_new(struct notebook *notebook, const char *id, const char *owner, const char *kernel_id,
           const struct session_fields *fields)
{
    struct session_record *record = KG_NEW(struct session_record);
    snprintf(record->id, sizeof record->id, "%s", id);
    snprintf(record->kernel_id, sizeof record->kernel_id, "%s", kernel_id);
    record->owner = kg_strdup(owner);
    record->path = kg_strdup(fields->path);
    record->name = fields->name ? kg_strdup(fields->name) : NULL;
    record->type = kg_strdup(fields->type);
    TAILQ_INSERT_TAIL(&notebook->records, record, link);
    return record;
}

static int
read_record(struct notebook *notebook, const char *id, struct kg_error *err)
{
    KG_AUTO_FREE char *file = file_of(notebook, id);
    KG_AUTO_BUF text = {0};
    json_error_t why;
    struct session_fields fields = {0};
    const char *owner, *kernel_id;
    const json_t *name;
    if (file_read(file, RECORD_BYTES_MAX, &text, err) < 0)
        return -1;
    json_auto_t *value = text.len > 0 ? json_loadb(text.data, text.len, 0, &why) : NULL;
    if (json_unpack(value, "{s:s, s:s, s:s, s:o, s:s}", "owner", &owner, "kernel", &kernel_id,
                    "path", &fields.path, "name", &name, "type", &fields.type) < 0)
        return kg_error_set(err, KG_INVALID, 0, "%s is malformed", file);
    fields.name = json_string_value(name);
    if (!kernel_find(notebook, owner, kernel_id, err))
        return -1;
    record_new(notebook, id, owner, kernel_id, &fields);
    return 0;
}

// Reads a file whose name is that of a record. Other files, such as unfinished ones, are removed.
static void
take_file(struct notebook *notebook, const char *name)
{
    struct kg_error err = {0};
    size_t len = strlen(name);
    KG_AUTO_FREE char *id = kg_strndup(name, len > 5 ? len - 5 : 0);
    if (kernel_id_is_valid(id) && strcmp(name + len - 5, ".json") == 0) {
        if (read_record(notebook, id, &err) == 0)
            return;
        log_debug("a notebook's session is gone", LOG_ERR(&err));
    }
    KG_AUTO_FREE char *file = kg_asprintf("%s/%s", notebook->records_dir, name);
    (void)unlink(file);
}

int
session_records_load(struct notebook *notebook, struct kg_error *err)
{
    if (dir_make(notebook->records_dir, 0700, err) < 0)
        return -1;
    DIR *dir = opendir(notebook->records_dir);
    if (!dir)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", notebook->records_dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            take_file(notebook, entry->d_name);
    }
    closedir(dir);
    return 0;
}

// ---- The list -------------------------------------------------------------------------------

struct session *
session_record_kernel(const struct notebook *notebook, const struct session_record *record)
{
    return kernel_find(notebook, record->owner, record->kernel_id, NULL);
}

bool
session_record_shares_kernel(const struct notebook *notebook, const struct session_record *record)
{
    const struct session_record *other;
    TAILQ_FOREACH(other, &notebook->records, link) {
        if (other != record && strcmp(other->kernel_id, record->kernel_id) == 0 &&
            strcmp(other->owner, record->owner) == 0)
            return true;
    }
    return false;
}

void
session_record_remove(struct notebook *notebook, struct session_record *record)
{
    KG_AUTO_FREE char *file = file_of(notebook, record->id);
    if (unlink(file) < 0 && errno != ENOENT)
        log_warning("the file of a notebook session cannot be removed", LOG_STR("file", file));
    TAILQ_REMOVE(&notebook->records, record, link);
    record_free(record);
}

void
session_records_prune(struct notebook *notebook)
{
    struct session_record *next;
    for (struct session_record *record = TAILQ_FIRST(&notebook->records); record; record = next) {
        next = TAILQ_NEXT(record, link);
        if (!session_record_kernel(notebook, record))
            session_record_remove(notebook, record);
    }
}

struct session_record *
session_record_find(const struct notebook *notebook, const char *owner, const char *id)
{
    struct session_record *record;
    TAILQ_FOREACH(record, &notebook->records, link) {
        if (strcmp(record->id, id) == 0 && strcmp(record->owner, owner) == 0)
            return record;
    }
    return NULL;
}

struct session_record *
session_record_of_path(const struct notebook *notebook, const char *owner, const char *path)
{
    struct session_record *record;
    TAILQ_FOREACH(record, &notebook->records, link) {
        if (strcmp(record->path, path) == 0 && strcmp(record->owner, owner) == 0)
            return record;
    }
    return NULL;
}

int
session_records_check_room(const struct notebook *notebook, const char *owner, struct kg_error *err)
{
    int n = 0;
    const struct session_record *record;
    TAILQ_FOREACH(record, &notebook->records, link)
        n += strcmp(record->owner, owner) == 0;
    if (n < RECORDS_OF_OWNER_MAX)
        return 0;
    return kg_error_set(err, KG_MAX_SESSIONS, 0,
                        "this key has %d sessions of notebooks already; delete one", n);
}

struct session_record *
session_record_add(struct notebook *notebook, const char *owner, const char *kernel_id,
                   const struct session_fields *fields)
{
    char id[KERNEL_ID_LEN + 1];
    kernel_id_random(id);
    struct session_record *record = record_new(notebook, id, owner, kernel_id, fields);
    write_record(notebook, record);
    return record;
}

static void
replace(char **text, const char *with)
{
    if (!with)
        return;
    free(*text);
    *text = kg_strdup(with);
}

void
session_record_change(struct notebook *notebook, struct session_record *record,
                      const char *kernel_id, const struct session_fields *fields)
{
    if (kernel_id)
        snprintf(record->kernel_id, sizeof record->kernel_id, "%s", kernel_id);
    replace(&record->path, fields->path);
    replace(&record->name, fields->name);
    replace(&record->type, fields->type);
    write_record(notebook, record);
}

void
session_records_free(struct notebook *notebook)
{
    for (struct session_record *record; (record = TAILQ_FIRST(&notebook->records));) {
        TAILQ_REMOVE(&notebook->records, record, link);
        record_free(record);
    }
}

// ---- The model ------------------------------------------------------------------------------

json_t *
session_record_model(const struct notebook *notebook, const struct session_record *record)
{
    const struct session *session = session_record_kernel(notebook, record);
    json_t *model = json_pack(
        "{s:s, s:s, s:s?, s:s, s:o*}", "id", record->id, "path", record->path, "name", record->name,
        "type", record->type, "kernel",
        session ? kernel_model(notebook, session, kernel_named(session, record->kernel_id)) : NULL);
    if (strcmp(record->type, "notebook") == 0) // the deprecated form
        json_object_set_new(model, "notebook",
                            json_pack("{s:s, s:s?}", "path", record->path, "name", record->name));
    return model;
}
