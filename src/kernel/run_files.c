// SPDX-License-Identifier: Apache-2.0
// The files that an execution has created or changed. The agent is asked as soon as the code has
// ended, while the kernel's last messages are still on their way. An answer that does not come in
// time costs the `file` lines, not the execution. The next execution waits for the answer, since
// its files belong to it alone.

#include <assert.h>

#include "metrics.h"
#include "runner_priv.h"
#include "sandbox.h"

// The agent's answer is untrusted: more files than it may name are ignored.
enum { ANSWER_MS = 5000, FILES_MAX = 100 };

static void
run_files_reset(struct run_files *files)
{
    sandbox_call_cancel(KG_STEAL(files->question));
    json_decref(KG_STEAL(files->changes));
    files->asked = false;
}

static void
append_file(const struct kernel_context *context, struct execution *execution, const json_t *file)
{
    const char *path = json_string_value(json_object_get(file, "path"));
    json_t *size = json_object_get(file, "size");
    if (!path || file_path_check(path, false, NULL) < 0 || !json_is_integer(size) ||
        json_integer_value(size) < 0)
        return;
    json_t *line =
        json_pack("{s:s, s:O, s:s}", "file", path, "size", size, "mime", mime_of_path(path));
    if (context->file_url && !execution->session_ends) {
        KG_AUTO_FREE char *url =
            context->file_url(context->file_url_arg, execution->owner, execution->session_id, path);
        json_object_set_new(line, "url", json_string(url));
    }
    output_log_append(&execution->log, "file", OUTPUT_DROPPABLE, line);
    metric_add(METRIC_ARTIFACTS, 1);
}

static void
append_files(const struct run_files *files, struct execution *execution)
{
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(files->changes, "files"), i, file) {
        if (i == FILES_MAX)
            break;
        execution->log.last_message++; // each is dropped by itself
        append_file(files->context, execution, file);
    }
    execution->more_files = json_integer_value(json_object_get(files->changes, "more"));
}

// Ends the execution that has been waiting for the answer.
static void
finish(struct run_files *files)
{
    KG_AUTO(execution) execution = KG_STEAL(files->ending);
    append_files(files, execution);
    run_files_reset(files);
    execution_finish(execution, files->status, files->replaced);
    files->on_done(execution, files->arg);
}

static void
run_files_on_changes(const json_t *changes, const struct kg_error *err, void *arg)
{
    struct run_files *files = arg;
    files->question = NULL;
    if (changes) {
        files->changes = json_incref((json_t *)(uintptr_t)changes);
        sandbox_note_look(files->sandbox, files->cursor);
    } else {
        log_warning("an execution's files are unknown", LOG_ERR(err));
    }
    if (files->ending)
        finish(files);
}

void
run_files_ask(struct run_files *files, const struct execution *execution)
{
    struct kg_error err = {0};
    if (files->asked)
        return;
    files->asked = true;
    json_auto_t *params = json_pack("{s:s, s:I}", "cursor", files->cursor, "within_us",
                                    (json_int_t)(clock_mono_us() - execution->started_us));
    if (sandbox_looked_us(files->sandbox, files->cursor) < execution->started_us)
        json_object_set_new(params, "after_look", json_true());
    files->question = sandbox_agent_call(files->sandbox, "changes", params, ANSWER_MS,
                                         run_files_on_changes, files, &err);
    if (!files->question)
        log_warning("an execution's files are unknown", LOG_ERR(&err));
}

void
run_files_finish(struct run_files *files, struct execution *execution, enum execution_status status,
                 bool replaced, bool at_once)
{
    assert(!files->ending);
    files->ending = execution;
    files->status = status;
    files->replaced = replaced;
    if (at_once)
        sandbox_call_cancel(KG_STEAL(files->question));
    else
        run_files_ask(files, execution);
    if (!files->question)
        finish(files);
}

void
run_files_end(struct run_files *files)
{
    sandbox_call_cancel(KG_STEAL(files->question));
    if (files->ending)
        finish(files);
    run_files_reset(files);
}
