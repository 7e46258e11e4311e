// SPDX-License-Identifier: Apache-2.0
// Resources: the files of sessions, and the output of executions.

#include <string.h>

#include "tools_priv.h"

enum { MAX_LISTED = 1000, MAX_READ_BYTES = 10 << 20 };

static json_t *
list_templates(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return json_pack("[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s, s:s}]", "uriTemplate",
                     "kernelgate://{session_id}/{+path}", "name", "file", "title",
                     "File of a session", "description",
                     "A file below /mnt/data of a session: what code wrote or a tool put there.",
                     "uriTemplate", "kernelgate-output://{execution_id}", "name", "output", "title",
                     "Output of an execution", "description",
                     "All that an execution printed, kept for ten minutes after its end.",
                     "mimeType", "text/plain");
}

// ---- List -----------------------------------------------------------------------------------

static void
gather(struct job *job, const json_t *page)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(page, "files"), i, entry) {
        const char *path, *type, *mime = NULL;
        json_int_t size;
        if (json_unpack(entry, "{s:s, s:s, s:I, s?s}", "path", &path, "type", &type, "size", &size,
                        "mime", &mime) < 0 ||
            strcmp(type, "file") != 0 || json_array_size(job->list.gathered) >= MAX_LISTED)
            continue;
        KG_AUTO_FREE char *uri = file_uri(job->session.id, path);
        KG_AUTO_FREE char *essence = mime_essence(mime);
        KG_AUTO_FREE char *about = kg_asprintf("A file of session %s", job->session.id);
        json_array_append_new(job->list.gathered,
                              json_pack("{s:s, s:s, s:s, s:s, s:I}", "uri", uri, "name", path,
                                        "description", about, "mimeType", essence, "size", size));
    }
}

static void list_next_session(struct job *job);

// Skips the files of a session that has just ended, or does not answer.
static void
resource_on_listed(const json_t *page, const struct kg_error *err, void *arg)
{
    (void)err;
    struct job *job = arg;
    job->work = NULL;
    if (page)
        gather(job, page);
    list_next_session(job);
}

static void
list_next_session(struct job *job)
{
    struct sessions *sessions = job->tools->settings.face->sessions;
    static const struct session_files_query query = {.limit = SESSION_FILES_PAGE_MAX};
    while (json_array_size(job->list.waiting) > 0 && !job->work) {
        const char *id = json_string_value(json_array_get(job->list.waiting, 0));
        memcpy(job->session.id, id, strlen(id) + 1);
        json_array_remove(job->list.waiting, 0);
        struct session *session =
            sessions_find(sessions, mcp_call_owner(job->call), job->session.id, NULL);
        if (session && session_sandbox(session))
            job->work = session_files_list(session, &query, resource_on_listed, job, NULL);
        job->cancel_work = cancel_file_work;
    }
    if (!job->work)
        job_finish(job, json_pack("{s:O}", "resources", job->list.gathered));
}

static void
list_resources(struct mcp_call *call, void *arg)
{
    struct mcp_tools *tools = arg;
    struct job *job = job_new(tools, call, result_of_error);
    job->list.gathered = json_array();
    job->list.waiting = job_session_ids(job);
    list_next_session(job);
}

// ---- Read -----------------------------------------------------------------------------------

static void
fail_read(struct job *job, const struct kg_error *err)
{
    struct mcp_call *call = job->call;
    json_t *data =
        json_pack("{s:s, s:s}", "uri", mcp_call_name(call), "code", kg_code_info(err->code)->name);
    bool missing = err->code == KG_NOT_FOUND || err->code == KG_SESSION_NOT_FOUND ||
                   err->code == KG_INVALID_SESSION_ID || err->code == KG_INVALID_PATH;
    int code = !missing                                    ? MCP_INTERNAL_ERROR
               : mcp_call_revision(call) >= MCP_2026_07_28 ? MCP_INVALID_PARAMS
                                                           : MCP_RESOURCE_NOT_FOUND;
    job_free(job);
    mcp_call_fail(call, code, data, "%s", err->message);
}

static void
finish_contents(struct job *job, json_t *string, bool is_text)
{
    job_finish(job, json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", mcp_call_name(job->call),
                              "mimeType", job->file.mime, is_text ? "text" : "blob", string));
}

static void
answer_contents(struct job *job, const char *full_mime, const void *data, size_t len)
{
    job->file.mime = mime_essence(full_mime);
    job_bytes_as_string(job, data, len, true, finish_contents);
}

static void
resource_on_read(const struct session_file *file, const void *data, size_t len,
                 const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    if (file)
        answer_contents(job, file->mime, data ? data : "", len);
    else
        fail_read(job, err);
}

static void
read_file_of(struct job *job, const char *session_id, const char *path)
{
    struct kg_error err = {0};
    struct session *session = sessions_find(job->tools->settings.face->sessions,
                                            mcp_call_owner(job->call), session_id, &err);
    if (session && file_path_check(path, false, &err) == 0)
        job->work = session_file_read(session, path, MAX_READ_BYTES, resource_on_read, job, &err);
    job->cancel_work = cancel_file_work;
    if (!job->work)
        fail_read(job, &err);
}

static void
resource_on_output(const char *data, size_t len, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    answer_contents(job, "text/plain", data, len);
}

static void
read_output_of(struct job *job, const char *id)
{
    struct kg_error err = {0};
    job->work =
        output_read_start(job->tools, mcp_call_owner(job->call), id, resource_on_output, job, &err);
    job->cancel_work = output_read_cancel;
    if (!job->work)
        fail_read(job, &err);
}

static bool
read_resource(struct mcp_call *call, void *arg)
{
    const char *uri = mcp_call_name(call), *id = output_uri_id(uri);
    KG_AUTO_FREE char *session_id = NULL;
    KG_AUTO_FREE char *path = NULL;
    if (!id && !file_uri_parse(uri, &session_id, &path))
        return false;
    struct job *job = job_new(arg, call, result_of_error);
    if (id)
        read_output_of(job, id);
    else
        read_file_of(job, session_id, path);
    return true;
}

const struct mcp_provider kernelgate_more = {
    .list_prompts = kernelgate_list_prompts,
    .get_prompt = kernelgate_get_prompt,
    .list_resource_templates = list_templates,
    .list_resources = list_resources,
    .read_resource = read_resource,
    .complete = kernelgate_complete,
};
