// SPDX-License-Identifier: Apache-2.0
// Answers with the file or folder at a path. A worker encodes large files; listings are read from
// the agent in pages.

#include <sodium.h>
#include <string.h>

#include "contents_priv.h"
#include "metrics.h"
#include "session_files.h"

enum {
    FOLDER_ENTRIES_MAX = 10000,
    FOLDER_PAGES_MAX = 100,
    ENCODE_INLINE_MAX = 64 << 10,
    MODEL_MAX = 16 << 10, // bytes without the content; escapes make the path up to six times longer
};

// Sorts after all names in a folder: U+10FFFF.
#define LAST_NAME "\xf4\x8f\xbf\xbf"

// ---- Folders --------------------------------------------------------------------------------

// Those of sessions that other replicas hold, after `n` others.
static void
add_folders_elsewhere(const struct contents_call *call, struct buf *text, size_t n)
{
    const json_t *body, *model;
    size_t i, j;
    json_array_foreach(http_request_elsewhere(call->request), i, body)
        json_array_foreach(json_object_get(body, "content"), j, model) {
            KG_AUTO_FREE char *dump = json_dumps(model, JSON_COMPACT);
            buf_append_str(text, n++ > 0 ? "," : "");
            buf_append_str(text, dump);
        }
}

// The root has one folder for each of the owner's sessions.
static void
show_root(struct contents_call *call)
{
    json_auto_t *sessions =
        sessions_describe(call->notebook->face->sessions, http_request_owner(call->request));
    char started[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(call->notebook->started_wall_ms, started);
    struct contents_model model = {
        .path = "",
        .type = CONTENTS_DIRECTORY,
        .created = started,
        .last_modified = started,
        .size = -1,
        .format = call->with_content ? "json" : NULL,
    };
    KG_AUTO_BUF text = {0};
    contents_model_begin(&text, &model);
    buf_append_str(&text, call->with_content ? "[" : "null");
    const char *id;
    json_t *session;
    size_t n = 0;
    json_object_foreach(sessions, id, session) {
        if (!call->with_content)
            break;
        buf_append_str(&text, n++ > 0 ? "," : "");
        model.path = id;
        model.is_writable = true;
        model.format = NULL;
        model.created = json_string_value(json_object_get(session, "created_at"));
        model.last_modified = json_string_value(json_object_get(session, "last_activity"));
        contents_model_begin(&text, &model);
        buf_append_str(&text, "null}");
    }
    if (call->with_content)
        add_folders_elsewhere(call, &text, n);
    buf_append_str(&text, call->with_content ? "]}" : "}");
    contents_finish(call, &text);
}

// Begins the model in the call's data. The agent does not report when a folder was changed, so its
// times are the session's.
static void
begin_folder(struct contents_call *call, const struct session *session)
{
    json_auto_t *described = session_describe(session);
    const struct contents_model model = {
        .path = call->path,
        .type = CONTENTS_DIRECTORY,
        .is_writable = true,
        .created = json_string_value(json_object_get(described, "created_at")),
        .last_modified = json_string_value(json_object_get(described, "last_activity")),
        .size = -1,
        .format = call->with_content ? "json" : NULL,
    };
    contents_model_begin(&call->data, &model);
    buf_append_str(&call->data, call->with_content ? "[" : "null");
}

static void
end_folder(struct contents_call *call)
{
    KG_AUTO_BUF text = call->data;
    call->data = (struct buf){0};
    buf_append_str(&text, call->with_content ? "]}" : "}");
    contents_finish(call, &text);
}

// The part of a listed path below the call's folder; NULL if it is not below it.
static const char *
below(const struct contents_call *call, const char *path)
{
    size_t len = strlen(call->file);
    if (len == 0)
        return path;
    return strncmp(path, call->file, len) == 0 && path[len] == '/' ? path + len + 1 : NULL;
}

static void
add_entry(struct contents_call *call, const json_t *entry)
{
    const char *path = json_string_value(json_object_get(entry, "path"));
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *name = below(call, path);
    bool is_folder = strcmp(type, "dir") == 0;
    if (!name || name[0] == '.' || strchr(name, '/') || (!is_folder && strcmp(type, "file") != 0) ||
        call->n_entries == FOLDER_ENTRIES_MAX)
        return;
    KG_AUTO_FREE char *whole =
        kg_asprintf("%.*s/%s", (int)strcspn(call->path, "/"), call->path, path);
    const char *mtime = json_string_value(json_object_get(entry, "mtime"));
    size_t len = strlen(name);
    bool is_notebook = len > 6 && strcmp(name + len - 6, ".ipynb") == 0;
    const char *mime = json_string_value(json_object_get(entry, "mime"));
    const struct contents_model model = {
        .path = whole,
        .type = is_folder     ? CONTENTS_DIRECTORY
                : is_notebook ? CONTENTS_NOTEBOOK
                              : CONTENTS_FILE,
        .is_writable = true,
        .created = mtime,
        .last_modified = mtime,
        .size = is_folder ? -1 : json_integer_value(json_object_get(entry, "size")),
        .mimetype = is_notebook ? NULL : mime,
    };
    buf_append_str(&call->data, call->n_entries++ > 0 ? "," : "");
    contents_model_begin(&call->data, &model);
    buf_append_str(&call->data, "null}");
}

// The path after which the next page begins; NULL if there is none. The caller frees it. Skips the
// contents of subfolders.
static char *
next_after(const struct contents_call *call, const json_t *page)
{
    const char *next = json_string_value(json_object_get(page, "next"));
    const json_t *files = json_object_get(page, "files");
    const json_t *last = json_array_get(files, json_array_size(files) - 1);
    const char *name = next ? below(call, next) : NULL;
    if (!name || !last)
        return NULL;
    size_t len = strcspn(name, "/");
    bool is_folder = strcmp(json_string_value(json_object_get(last, "type")), "dir") == 0;
    if (!name[len] && !is_folder)
        return kg_strdup(next);
    return kg_asprintf("%.*s/" LAST_NAME, (int)(name - next + (ptrdiff_t)len), next);
}

// Entries count towards the limits as soon as they have arrived.
static int
add_page(struct contents_call *call, const json_t *page, struct kg_error *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(page, "files"), i, entry)
        add_entry(call, entry);
    if (call->hold)
        return contents_hold_set(call->hold, call->data.len, err);
    call->hold =
        contents_hold_new(call->notebook, http_request_owner(call->request), call->data.len, err);
    return call->hold ? 0 : -1;
}

static void list(struct contents_call *call, const char *after);

static void
on_page(const json_t *page, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    struct kg_error own_err = {0};
    call->op = NULL;
    const struct session *session = page ? contents_session(call, &own_err) : NULL;
    if (!session) {
        contents_fail(call, page ? &own_err : err);
        return;
    }
    if (call->data.len == 0)
        begin_folder(call, session);
    if (!call->with_content) {
        end_folder(call);
        return;
    }
    if (add_page(call, page, &own_err) < 0) {
        contents_fail(call, &own_err);
        return;
    }
    KG_AUTO_FREE char *after = next_after(call, page);
    if (after && call->n_entries < FOLDER_ENTRIES_MAX && ++call->n_pages < FOLDER_PAGES_MAX)
        list(call, after);
    else
        end_folder(call);
}

static void
list(struct contents_call *call, const char *after)
{
    struct kg_error err = {0};
    struct session *session = contents_session(call, &err);
    const struct session_files_query query = {
        .folder = call->file, .after = after, .limit = call->with_content ? 0 : 1};
    struct session_file_op *op =
        session ? session_files_list(session, &query, on_page, call, &err) : NULL;
    contents_wait_op(call, op, &err);
}

// ---- Files ----------------------------------------------------------------------------------

// A file that is encoded as a model. While the call's `work` runs, only the worker uses it.
struct encoding {
    struct contents_call *call;
    enum contents_type type;
    const char *format;
    bool with_content;
    bool with_hash;
    char *path;
    char mtime[CLOCK_RFC3339_LEN];
    struct buf data;
    struct buf text;
    struct kg_error err;
    struct contents_hold *hold;
};

void
contents_encoding_free(void *arg)
{
    struct encoding *encoding = arg;
    contents_hold_free(encoding->hold);
    buf_fini(&encoding->data);
    buf_fini(&encoding->text);
    free(encoding->path);
    free(encoding);
}

static bool
is_notebook(const struct contents_call *call)
{
    size_t len = strlen(call->path);
    return call->type == CONTENTS_NOTEBOOK ||
           (call->type == CONTENTS_ANY && len > 6 && strcmp(call->path + len - 6, ".ipynb") == 0);
}

// The notebook's own text, if it is an object.
static void
append_notebook(struct encoding *encoding)
{
    struct kg_error why = {0};
    const char *data = encoding->data.data ? encoding->data.data : "";
    json_auto_t *value = http_json_parse(data, encoding->data.len, &why);
    if (json_is_object(value))
        buf_append(&encoding->text, data, encoding->data.len);
    else
        kg_error_set(&encoding->err, KG_INVALID_CONTENT, 0, "Unreadable Notebook: %.60s %.120s",
                     encoding->path, value ? "it is not a JSON object" : why.message);
}

static void
append_base64(struct buf *ret, const struct buf *data)
{
    size_t size = sodium_base64_ENCODED_LEN(data->len, sodium_base64_VARIANT_ORIGINAL);
    buf_append_str(ret, "\"");
    char *to = buf_reserve(ret, size);
    sodium_bin2base64(to, size, (const unsigned char *)(data->data ? data->data : ""), data->len,
                      sodium_base64_VARIANT_ORIGINAL);
    ret->len += size - 1;
    buf_append_str(ret, "\"");
}

// The largest size of a file's content in its model. The escaped text of a small file may have six
// times the file's size.
static size_t
content_max(size_t len)
{
    size_t small = (size_t)6 * ENCODE_INLINE_MAX + 2;
    return 6 * len + 2 < small ? 6 * len + 2 : 2 * len < small ? small : 2 * len;
}

static void
append_text(struct encoding *encoding)
{
    const struct buf *data = &encoding->data;
    if (!json_append_string_within(&encoding->text, data->data ? data->data : "", data->len,
                                   content_max(data->len)))
        kg_error_set(&encoding->err, KG_ARTIFACT_TOO_LARGE, 0,
                     "%.60s takes too much as text, because it has many control characters; "
                     "format=base64 gets it",
                     encoding->path);
}

// Writes the model, with the content in a format that the file has.
static void
append_model(struct encoding *encoding, struct contents_model *model, const char *format)
{
    if (encoding->type != CONTENTS_NOTEBOOK) {
        model->mimetype = mime_of_path(encoding->path);
        if (strcmp(model->mimetype, mime_of_path("")) == 0 && strcmp(format, "text") == 0)
            model->mimetype = "text/plain";
    }
    model->format = encoding->with_content ? format : NULL;
    contents_model_begin(&encoding->text, model);
    if (!encoding->with_content)
        buf_append_str(&encoding->text, "null");
    else if (encoding->type == CONTENTS_NOTEBOOK)
        append_notebook(encoding);
    else if (strcmp(format, "text") == 0)
        append_text(encoding);
    else
        append_base64(&encoding->text, &encoding->data);
    buf_append_str(&encoding->text, "}");
}

static void
encode(void *arg)
{
    struct encoding *encoding = arg;
    const struct buf *data = &encoding->data;
    const char *bytes = data->data ? data->data : "";
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof hash + 1];
    struct contents_model model = {
        .path = encoding->path,
        .type = encoding->type,
        .is_writable = true,
        .created = encoding->mtime,
        .last_modified = encoding->mtime,
        .size = (int64_t)data->len,
    };
    const char *format = encoding->format;
    if (encoding->type == CONTENTS_NOTEBOOK) {
        format = "json";
    } else {
        bool is_text = utf8_valid_prefix(bytes, data->len) == data->len;
        if (!format)
            format = is_text && !memchr(bytes, '\0', data->len) ? "text" : "base64";
        else if (strcmp(format, "text") == 0 && !is_text)
            kg_error_set(&encoding->err, KG_INVALID_CONTENT, 0, "%s is not UTF-8 encoded",
                         encoding->path);
    }
    if (encoding->with_hash) {
        crypto_hash_sha256(hash, (const unsigned char *)bytes, data->len);
        model.hash = sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    }
    if (encoding->err.code == KG_OK)
        append_model(encoding, &model, format);
    if (encoding->err.code == KG_ARTIFACT_TOO_LARGE && !encoding->format) {
        encoding->err = (struct kg_error){0};
        encoding->text.len = 0;
        append_model(encoding, &model, "base64");
    }
    buf_fini(&encoding->data);
    encoding->data = (struct buf){0};
}

static void
encoded(void *arg)
{
    struct encoding *encoding = arg;
    struct contents_call *call = encoding->call;
    call->work = NULL;
    call->hold = KG_STEAL(encoding->hold);
    if (encoding->err.code == KG_OK)
        contents_finish(call, &encoding->text);
    else
        contents_fail_as(call, encoding->err.code == KG_ARTIFACT_TOO_LARGE ? 413 : 400,
                         &encoding->err);
    contents_encoding_free(encoding);
}

static void
read_on_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
             void *arg)
{
    (void)is_part;
    (void)offset;
    struct contents_call *call = arg;
    struct kg_error err = {0};
    call->mtime_ms = file->mtime_ms;
    if (length > CONTENTS_FILE_MAX)
        kg_error_set(
            &err, KG_ARTIFACT_TOO_LARGE, 0,
            "%.60s has more than %d bytes; GET /api/v1/sessions/{id}/files/{path} sends it",
            file->path, CONTENTS_FILE_MAX);
    else // the file, and then its model
        call->hold =
            contents_hold_new(call->notebook, http_request_owner(call->request),
                              (size_t)length + content_max((size_t)length) + MODEL_MAX, &err);
    if (!call->hold)
        contents_fail(call, &err);
}

static void
read_on_data(const void *data, size_t len, void *arg)
{
    struct contents_call *call = arg;
    buf_append(&call->data, data, len);
    metric_add(METRIC_FILE_BYTES, (double)len, "out");
}

// A path that is not a file may be a folder, unless the client asked for a file.
static void
fail_or_list(struct contents_call *call, const struct kg_error *err)
{
    if (err->code == KG_INVALID_PATH && call->type == CONTENTS_ANY && !call->hold)
        list(call, NULL);
    else
        contents_fail(call, err);
}

static void
read_on_end(const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (err) {
        fail_or_list(call, err);
        return;
    }
    struct encoding *encoding = KG_NEW(struct encoding);
    encoding->call = call;
    encoding->type = is_notebook(call) ? CONTENTS_NOTEBOOK : CONTENTS_FILE;
    encoding->format = call->format;
    encoding->with_content = call->with_content;
    encoding->with_hash = call->with_hash;
    encoding->path = kg_strdup(call->path);
    clock_format_rfc3339(call->mtime_ms, encoding->mtime);
    encoding->data = call->data;
    call->data = (struct buf){0};
    encoding->hold = KG_STEAL(call->hold);
    if (encoding->data.len <= ENCODE_INLINE_MAX) {
        encode(encoding);
        encoded(encoding);
        return;
    }
    call->work =
        loop_work_start(call->notebook->loop, loop_lane_of(http_request_owner(call->request)),
                        encode, encoded, encoding);
}

void
contents_show_file(struct contents_call *call, const struct session_file *file)
{
    char mtime[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(file->mtime_ms, mtime);
    const char *mime = mime_of_path(call->path);
    bool is_known = strcmp(mime, mime_of_path("")) != 0;
    const struct contents_model model = {
        .path = call->path,
        .type = is_notebook(call) ? CONTENTS_NOTEBOOK : CONTENTS_FILE,
        .is_writable = true,
        .created = mtime,
        .last_modified = mtime,
        .size = file->size,
        .mimetype = is_notebook(call) || !is_known ? NULL : mime,
    };
    KG_AUTO_BUF text = {0};
    contents_model_begin(&text, &model);
    buf_append_str(&text, "null}");
    contents_finish(call, &text);
}

void
contents_show_entry(struct contents_call *call, const struct session_entry *entry)
{
    const struct session_file file = {.size = entry->size, .mtime_ms = entry->mtime_ms};
    struct kg_error err = {0};
    if (strcmp(entry->type, "file") == 0) {
        contents_show_file(call, &file);
        return;
    }
    const struct session *session = contents_session(call, &err);
    if (session && strcmp(entry->type, "dir") == 0) {
        begin_folder(call, session);
        end_folder(call);
        return;
    }
    if (session && strcmp(entry->type, "symlink") == 0)
        kg_error_set(&err, KG_INVALID_PATH, 0, CONTENTS_NO_LINKS);
    else if (session)
        kg_error_set(&err, KG_INVALID_PATH, 0, "%s is neither a file nor a folder", entry->path);
    contents_fail(call, &err);
}

static void
on_stat(const struct session_file *file, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (file)
        contents_show_file(call, file);
    else
        fail_or_list(call, err);
}

// ---- Either ---------------------------------------------------------------------------------

void
contents_show(struct contents_call *call)
{
    static const struct session_file_events events = {
        .on_head = read_on_head, .on_data = read_on_data, .on_end = read_on_end};
    struct kg_error err = {0};
    bool is_folder = !*call->file;
    if (is_folder && call->type != CONTENTS_ANY && call->type != CONTENTS_DIRECTORY)
        kg_error_set(&err, KG_INVALID_PATH, 0, "%s is a directory", call->path);
    struct session *session =
        err.code == KG_OK && *call->path ? contents_session(call, &err) : NULL;
    if (session && !is_folder)
        (void)!contents_check_file(call->file, false, &err);
    if (err.code != KG_OK)
        contents_fail(call, &err);
    else if (!session)
        show_root(call);
    else if (is_folder || call->type == CONTENTS_DIRECTORY)
        list(call, NULL);
    else if (call->with_content || call->with_hash)
        contents_wait_op(
            call, session_file_get(session, call->file, &SESSION_FILE_WHOLE, &events, call, &err),
            &err);
    else
        contents_wait_op(call, session_file_stat(session, call->file, on_stat, call, &err), &err);
}

// ---- Checkpoints ----------------------------------------------------------------------------

static void
append_checkpoint(struct buf *text, int64_t mtime_ms)
{
    char mtime[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(mtime_ms, mtime);
    buf_printf(text, "{\"id\":\"checkpoint\",\"last_modified\":\"%s\"}", mtime);
}

void
contents_show_checkpoint(struct contents_call *call, const struct session_entry *entry)
{
    KG_AUTO_BUF text = {0};
    append_checkpoint(&text, entry->mtime_ms);
    contents_finish(call, &text);
}

static void
on_checkpoint_of_list(const struct session_file *file, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    KG_AUTO_BUF text = {0};
    call->op = NULL;
    if (!file && err->code != KG_NOT_FOUND) {
        contents_fail(call, err);
        return;
    }
    buf_append_str(&text, "[");
    if (file)
        append_checkpoint(&text, file->mtime_ms);
    buf_append_str(&text, "]");
    contents_finish(call, &text);
}

void
contents_list_checkpoints(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_session(call, &err);
    bool sound = session && file_path_check(call->checkpoint, false, &err) == 0;
    struct session_file_op *op =
        sound ? session_file_stat(session, call->checkpoint, on_checkpoint_of_list, call, &err)
              : NULL;
    contents_wait_op(call, op, &err);
}
