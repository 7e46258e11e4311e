// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-code-sandbox`: uploads and artifacts.

#include <string.h>

#include "profile_mcp_code_sandbox.h"

enum { MAX_FILENAME = 255, MAX_ARTIFACT_BYTES = 10 << 20 };

// ---- Arguments ------------------------------------------------------------------------------

static bool
check_filename(struct job *job)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *name = job_string(job, "filename");
    size_t len = strlen(name);
    if (len > 0 && len <= MAX_FILENAME && strspn(name, characters) == len && !strstr(name, "..") &&
        strcmp(name, ".") != 0)
        return true;
    job_finish(job,
               result_of_json(job, mcp_code_sandbox_error(
                                       "invalid_filename",
                                       "a filename is 1 to 255 of A-Z, a-z, 0-9, ., _ and -")));
    return false;
}

static void
find_session(struct job *job,
             void (*fn)(struct job *job, struct session *session, struct kernel *kernel))
{
    const struct job_session want = {
        .kind = JOB_SESSION_NEW, .id = job_string(job, "session_id"), .must_exist = true};
    if (mcp_code_sandbox_check_id(job))
        job_open_session(job, &want, fn);
}

// ---- Artifacts ------------------------------------------------------------------------------

static json_t *
artifact(const struct job *job, const char *path, json_int_t size, const char *mime)
{
    const char *slash = strrchr(path, '/');
    KG_AUTO_FREE char *url = script_file_url(job, path);
    KG_AUTO_FREE char *essence = mime_essence(mime);
    return json_pack("{s:s, s:s, s:I, s:s, s:s?}", "path", path, "filename",
                     slash ? slash + 1 : path, "size_bytes", size, "mime_type", essence,
                     "download_url", url);
}

json_t *
mcp_code_sandbox_artifacts(const struct job *job)
{
    json_t *artifacts = json_array();
    size_t i;
    json_t *file;
    json_array_foreach(job->outcome.files, i, file) {
        const char *path = json_string_value(json_object_get(file, "file"));
        const char *mime = json_string_value(json_object_get(file, "mime"));
        json_int_t size = json_integer_value(json_object_get(file, "size"));
        if (path)
            json_array_append_new(artifacts, artifact(job, path, size, mime));
    }
    return artifacts;
}

static void
mcp_code_sandbox_on_listed(const json_t *page, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, page, err);
    if (!job)
        return;
    json_t *artifacts = json_array();
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(page, "files"), i, entry) {
        const char *type = json_string_value(json_object_get(entry, "type"));
        const char *path = json_string_value(json_object_get(entry, "path"));
        const char *mime = json_string_value(json_object_get(entry, "mime"));
        json_int_t size = json_integer_value(json_object_get(entry, "size"));
        if (type && path && strcmp(type, "file") == 0)
            json_array_append_new(artifacts, artifact(job, path, size, mime));
    }
    job_finish(job, result_of_json(job, json_pack("{s:o}", "artifacts", artifacts)));
}

static void
list_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    static const struct session_files_query query = {.limit = SESSION_FILES_PAGE_MAX};
    job_set_file_work(
        job, session_files_list(session, &query, mcp_code_sandbox_on_listed, job, &err), &err);
}

void
mcp_code_sandbox_list(struct job *job)
{
    find_session(job, list_in);
}

static void
finish_artifact(struct job *job, json_t *base64, bool is_text)
{
    (void)is_text;
    json_t *value = KG_STEAL(job->list.gathered);
    json_object_set_new(value, "content_base64", base64);
    job_finish(job, result_of_own_json(job, value));
}

static void
mcp_code_sandbox_on_read(const struct session_file *file, const void *data, size_t len,
                         const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    job->list.gathered = artifact(job, file->path, (json_int_t)len, file->mime);
    json_object_del(job->list.gathered, "download_url");
    job_bytes_as_string(job, data, len, false, finish_artifact);
}

// A file that is too large comes as its link.
static void
mcp_code_sandbox_on_stat(const struct session_file *file, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    struct kg_error find_err = {0};
    struct session *session = job_find_session(job, job->session.id, &find_err);
    if (!session) {
        job_fail(job, &find_err);
        return;
    }
    if (file->size <= MAX_ARTIFACT_BYTES) {
        job_set_file_work(job,
                          session_file_read(session, job_file_path(job), MAX_ARTIFACT_BYTES,
                                            mcp_code_sandbox_on_read, job, &find_err),
                          &find_err);
        return;
    }
    json_t *value =
        mcp_code_sandbox_error("artifact_too_large", "the file is too large to be returned");
    KG_AUTO_FREE char *url = script_file_url(job, file->path);
    json_object_set_new(value, "size_bytes", json_integer(file->size));
    if (url)
        json_object_set_new(value, "download_url", json_string(url));
    job_finish(job, result_of_json(job, value));
}

static void
read_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    job_set_file_work(
        job, session_file_stat(session, job_file_path(job), mcp_code_sandbox_on_stat, job, &err),
        &err);
}

void
mcp_code_sandbox_read(struct job *job)
{
    const char *path;
    struct kg_error err = {0};
    if (path_in_session(job_string(job, "path"), &path, &err) < 0)
        job_fail(job, &err);
    else
        find_session(job, read_in);
}

// ---- Upload ---------------------------------------------------------------------------------

static void
mcp_code_sandbox_on_uploaded(const struct session_file *file, bool created,
                             const struct kg_error *err, void *arg)
{
    (void)created;
    struct job *job = arg;
    job->work = NULL;
    if (file)
        job_finish(job, result_of_json(job, json_pack("{s:s, s:s}", "session_id", job->session.id,
                                                      "path", file->path)));
    else
        job_fail(job, err);
}

static void
upload_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    const struct session_file_source source = {.data = job->file.data.data,
                                               .len = job->file.data.len};
    bool keep = !job_bool(job, "overwrite", false);
    job_set_file_work(job,
                      session_file_put(session, job_string(job, "filename"), &source, keep,
                                       mcp_code_sandbox_on_uploaded, job, &err),
                      &err);
}

static void
upload_decoded(struct job *job)
{
    const char *id = job_string(job, "session_id");
    char fresh[SESSION_MAX_ID_LEN + 1];
    mcp_code_sandbox_fresh_id(fresh);
    script_open(job, "python", JOB_SESSION_NEW, id ? id : fresh, id != NULL, upload_in);
}

void
mcp_code_sandbox_upload(struct job *job)
{
    if (check_filename(job) && mcp_code_sandbox_check_id(job))
        job_decode_base64(job, job_string(job, "content_base64"), upload_decoded);
}
