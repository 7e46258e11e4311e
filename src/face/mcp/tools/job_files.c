// SPDX-License-Identifier: Apache-2.0
// Files of tool calls: paths, and the file operation that a job waits for.

#include <ctype.h>
#include <string.h>

#include "tools_priv.h"

const char working_directory[] = "/mnt/data";

// ---- MIME types -----------------------------------------------------------------------------

char *
mime_essence(const char *mime)
{
    return mime ? kg_strndup(mime, strcspn(mime, "; ")) : kg_strdup("application/octet-stream");
}

// ---- Paths and sessions ---------------------------------------------------------------------

int
path_in_session(const char *path, const char **ret, struct kg_error *err)
{
    *ret = path ? path : "";
    size_t len = strlen(working_directory);
    if (strncmp(*ret, working_directory, len) == 0 && ((*ret)[len] == '/' || !(*ret)[len]))
        *ret += len + ((*ret)[len] == '/');
    else if (**ret == '/')
        return kg_error_set(
            err, KG_INVALID_PATH, 0,
            "path must be below %s, or relative to it; run_command can use other files",
            working_directory);
    while (strncmp(*ret, "./", 2) == 0)
        *ret += 2;
    if (strcmp(*ret, ".") == 0)
        *ret += 1;
    // session_files.h would take it for one that is not below the folder.
    return **ret == '/' ? file_path_check(*ret, false, err) : 0;
}

void
cancel_file_work(void *work)
{
    session_file_op_cancel(work);
}

void
job_set_file_work(struct job *job, struct session_file_op *work, const struct kg_error *err)
{
    job->work = work;
    job->cancel_work = cancel_file_work;
    if (!work)
        job_fail(job, err);
}

void
job_with_files(struct job *job, bool must_exist, job_ready_fn fn)
{
    struct kg_error err = {0};
    const char *path;
    if (path_in_session(job_string(job, "path"), &path, &err) < 0) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {
        .kind = JOB_SESSION_OWN, .id = job_string(job, "session_id"), .must_exist = must_exist};
    job_open_session(job, &want, fn);
}

const char *
job_file_path(const struct job *job)
{
    const char *path = "";
    return path_in_session(job_string(job, "path"), &path, NULL) < 0 ? "" : path;
}

// ---- A file that is not there ---------------------------------------------------------------

enum { COMPARED_LEN = 64, COMPARED_FILES = 200, NAMED_FILES = 8, NAMED_LEN = 200 };

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// How many letters must be added, removed or replaced, in either case of letters; of the first
// COMPARED_LEN.
static int
distance(const char *a, const char *b)
{
    int row[COMPARED_LEN + 1];
    int n = (int)strnlen(b, COMPARED_LEN);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] && i <= COMPARED_LEN; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int best = diagonal + !same;
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

// Whether one of these names may have been meant by the other.
static bool
is_near(const char *path, const char *other)
{
    const char *a = base_name(path), *b = base_name(other);
    return distance(a, b) <= 1 + (int)strnlen(a, COMPARED_LEN) / 4;
}

// Names the files that may have been meant, or else the first ones.
static void
advise_files(struct job *job, const json_t *files)
{
    size_t n_named = 0, n_files = 0;
    for (int pass = 0; pass < 2 && n_named == 0; pass++) {
        size_t i;
        json_t *entry;
        json_array_foreach(files, i, entry) {
            const char *name = json_string_value(json_object_get(entry, "path"));
            const char *type = json_string_value(json_object_get(entry, "type"));
            bool is_file = name && type && strcmp(type, "file") == 0;
            bool fits = is_file && (pass == 1 || is_near(job_file_path(job), name));
            n_files += is_file && pass == 0;
            if (fits && n_named < NAMED_FILES)
                buf_printf(&job->advice, "%s%.*s",
                           n_named++ ? ", "
                           : pass    ? "There are: "
                                     : "Near it: ",
                           (int)utf8_cut(name, strlen(name), NAMED_LEN), name);
        }
    }
    if (n_files == 0)
        buf_append_str(&job->advice, "There are no files yet.");
    else
        buf_append_str(&job->advice, n_files > n_named ? "; list_files shows all." : ".");
}

static void
on_listed_instead(const json_t *page, const struct kg_error *list_err, void *arg)
{
    struct job *job = arg;
    struct kg_error err = {0};
    (void)list_err;
    job->work = NULL;
    if (page)
        advise_files(job, json_object_get(page, "files"));
    kg_error_set(&err, KG_NOT_FOUND, 0, "there is no file %.100s", job_file_path(job));
    job_fail(job, &err);
}

// Fails with the names of files that there are.
static void
fail_not_found(struct job *job, const struct kg_error *stat_err)
{
    static const struct session_files_query query = {.limit = COMPARED_FILES};
    struct session *session = job_find_session(job, job->session.id, NULL);
    job->work = session ? session_files_list(session, &query, on_listed_instead, job, NULL) : NULL;
    job->cancel_work = cancel_file_work;
    if (!job->work)
        job_fail(job, stat_err);
}

// ---- Looking up -----------------------------------------------------------------------------

static void
job_on_stat(const struct session_file *file, const struct kg_error *stat_err, void *arg)
{
    if (stat_err && stat_err->code == KG_NOT_FOUND) {
        fail_not_found(arg, stat_err);
        return;
    }
    struct job *job = job_after_work(arg, file, stat_err);
    struct kg_error err = {0};
    if (!job)
        return;
    struct session *session = job_find_session(job, job->session.id, &err);
    if (session)
        job->file.on_found(job, session, file);
    else
        job_fail(job, &err);
}

void
job_find_file(struct job *job, struct session *session, job_file_fn fn)
{
    struct kg_error err = {0};
    job->file.on_found = fn;
    job_set_file_work(job, session_file_stat(session, job_file_path(job), job_on_stat, job, &err),
                      &err);
}
