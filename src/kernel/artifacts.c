// SPDX-License-Identifier: Apache-2.0
// The files that an execution has created or changed. The agent is asked as soon as the code has
// come to its end, while the rest of that is still on its way; what it does not answer in time
// costs the `file` lines, not the execution. The next execution waits, since its files are not of
// this one's.

#include <assert.h>

#include "kernel_priv.h"
#include "metrics.h"

// What the agent says is untrusted: more lines than it is meant to tell of would only cost time.
enum { ANSWER_MS = 5000, FILES_MAX = 100 };

static void
reset(struct kernel_artifacts *artifacts)
{
    sandbox_question_cancel(KG_STEAL(artifacts->question));
    json_decref(KG_STEAL(artifacts->changes));
    artifacts->asked = false;
}

static void
append_file(struct kernel *kernel, struct execution *execution, const json_t *file)
{
    const struct kernel_context *context = kernel->context;
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
append_files(struct kernel *kernel, struct execution *execution)
{
    const json_t *changes = kernel->artifacts.changes;
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(changes, "files"), i, file) {
        if (i == FILES_MAX)
            break;
        execution->log.last_message++; // each is dropped by itself
        append_file(kernel, execution, file);
    }
    execution->more_files = json_integer_value(json_object_get(changes, "more"));
}

// Ends the execution that has been waiting for the answer.
static void
finish(struct kernel *kernel)
{
    struct kernel_artifacts *artifacts = &kernel->artifacts;
    KG_AUTO(execution) execution = KG_STEAL(artifacts->ending);
    append_files(kernel, execution);
    reset(artifacts);
    loop_timer_start(kernel->next, 0);
    execution_finish(execution, artifacts->status, artifacts->restarted);
    kernel->events->on_execution_done(kernel, execution, kernel->arg);
}

static void
on_changes(const json_t *changes, const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    struct kernel_artifacts *artifacts = &kernel->artifacts;
    artifacts->question = NULL;
    if (changes)
        artifacts->changes = json_incref((json_t *)(uintptr_t)changes);
    else
        log_warning("an execution's files are unknown", LOG_ERR(err));
    if (artifacts->ending)
        finish(kernel);
}

void
kernel_artifacts_ask(struct kernel *kernel, const struct execution *execution)
{
    struct kernel_artifacts *artifacts = &kernel->artifacts;
    struct kg_error err = {0};
    if (artifacts->asked)
        return;
    artifacts->asked = true;
    artifacts->question = sandbox_ask_changes(kernel->sandbox, kernel->spec->name,
                                              clock_mono_us() - execution->started_us, ANSWER_MS,
                                              on_changes, kernel, &err);
    if (!artifacts->question)
        log_warning("an execution's files are unknown", LOG_ERR(&err));
}

void
kernel_artifacts_finish(struct kernel *kernel, struct execution *execution,
                        enum execution_status status, enum kernel_fate fate)
{
    struct kernel_artifacts *artifacts = &kernel->artifacts;
    assert(!artifacts->ending);
    execution->kernel = NULL; // nothing to stop any more
    artifacts->ending = execution;
    artifacts->status = status;
    artifacts->restarted = fate == KERNEL_REPLACED;
    if (fate == KERNEL_GOES)
        sandbox_question_cancel(KG_STEAL(artifacts->question));
    else
        kernel_artifacts_ask(kernel, execution);
    if (!artifacts->question)
        finish(kernel);
}

void
kernel_artifacts_end(struct kernel *kernel)
{
    struct kernel_artifacts *artifacts = &kernel->artifacts;
    sandbox_question_cancel(KG_STEAL(artifacts->question));
    if (artifacts->ending)
        finish(kernel);
    reset(artifacts);
}
