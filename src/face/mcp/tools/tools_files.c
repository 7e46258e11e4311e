// SPDX-License-Identifier: Apache-2.0
// list_files, write_file.

#include <string.h>

#include "tools_priv.h"

enum { LISTED_FILES = 200 };

// ---- List -----------------------------------------------------------------------------------

static void
append_entry(struct buf *text, const json_t *entry)
{
    const char *path, *type, *mtime;
    json_int_t size;
    if (json_unpack((json_t *)(uintptr_t)entry, "{s:s, s:s, s:I, s:s}", "path", &path, "type",
                    &type, "size", &size, "mtime", &mtime) < 0)
        return;
    if (strcmp(type, "file") == 0)
        buf_printf(text, "%s  %lld bytes  %s\n", path, (long long)size, mtime);
    else
        buf_printf(text, "%s  (%s)\n", path, strcmp(type, "dir") == 0 ? "folder" : type);
}

static void
list_files_on_listed(const json_t *page, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, page, err);
    if (!job)
        return;
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(page, "files"), i, entry)
        append_entry(&text, entry);
    if (text.len == 0)
        buf_printf(&text, "There are no files in %s/%s.\n", working_directory, job_file_path(job));
    const char *next = json_string_value(json_object_get(page, "next"));
    if (next)
        buf_printf(&text, "[there are more: call again with after=\"%s\"]\n", next);
    job_finish(job, result_of_text(job, text.data, json_deep_copy(page)));
}

static void
list_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    const struct session_files_query query = {
        .folder = job_file_path(job), .after = job_string(job, "after"), .limit = LISTED_FILES};
    job_set_file_work(job, session_files_list(session, &query, list_files_on_listed, job, &err),
                      &err);
}

void
tool_list_files(struct job *job)
{
    job_with_files(job, false, list_in);
}

// ---- Write ----------------------------------------------------------------------------------

static void
on_written(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    KG_AUTO_FREE char *text = kg_asprintf("%s %s/%s, %lld bytes.", created ? "Wrote" : "Replaced",
                                          working_directory, file->path, (long long)file->size);
    job_finish(job, result_of_text(job, text, NULL));
}

static void
write_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    const struct session_file_source source = {.data = job->file.data.data,
                                               .len = job->file.data.len};
    bool keep = !job_bool(job, "overwrite", true);
    job_set_file_work(
        job, session_file_put(session, job_file_path(job), &source, keep, on_written, job, &err),
        &err);
}

static void
write_decoded(struct job *job)
{
    job_with_files(job, false, write_in);
}

void
tool_write_file(struct job *job)
{
    const char *content = job_string(job, "content"), *encoding = job_string(job, "encoding");
    if (encoding && strcmp(encoding, "base64") == 0) {
        job_decode_base64(job, content, write_decoded);
        return;
    }
    buf_append_str(&job->file.data, content);
    write_decoded(job);
}
