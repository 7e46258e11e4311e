// SPDX-License-Identifier: Apache-2.0
// Results for models: text first, then images, then links to files.

#include <stdio.h>
#include <string.h>

#include "tools_priv.h"

enum {
    MAX_TEXT_HEAD = 12 << 10,
    MAX_TEXT_TAIL = 8 << 10,
    MAX_IMAGES = 20,
    MAX_IMAGE_BYTES = 5 << 20, // of base64; larger images break clients
    MAX_LISTED_FILES = 20,
    MAX_LISTED_CALLS = 20,
};

// ---- Sections -------------------------------------------------------------------------------

// A single section gets no heading, unless it is stderr.
struct sections {
    struct buf text;
    size_t n_cut;
    bool headings;
};

static void
end_paragraph(struct buf *text)
{
    while (text->len > 0 && text->data[text->len - 1] == '\n')
        text->data[--text->len] = '\0';
    if (text->len > 0)
        buf_append_str(text, "\n");
}

static void
add_section(struct sections *sections, const char *heading, const char *data, size_t len)
{
    if (len == 0)
        return;
    end_paragraph(&sections->text);
    if (sections->headings)
        buf_printf(&sections->text, "%s[%s]\n", sections->text.len ? "\n" : "", heading);
    buf_append(&sections->text, data, len);
}

static void
add_stream(struct sections *sections, const char *heading, const struct text *stream)
{
    KG_AUTO_BUF whole = {0};
    sections->n_cut += text_append_to(stream, &whole);
    add_section(sections, heading, whole.data ? whole.data : "", whole.len);
}

// Adds a line in brackets, for a message of the gateway.
static void KG_PRINTF(2, 3) add_remark(struct buf *text, const char *fmt, ...)
{
    KG_AUTO_FREE char *remark = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&remark, fmt, args) < 0)
        abort();
    va_end(args);
    end_paragraph(text);
    buf_printf(text, "[%s]\n", remark);
}

// ---- Displays and images --------------------------------------------------------------------

static void
add_items(struct sections *sections, const struct outcome *outcome)
{
    for (size_t i = 0; i < outcome->n_items; i++) {
        const struct outcome_item *item = &outcome->items[i];
        if (item->text && !(outcome_has_image(item) && !item->is_result))
            add_section(sections, item->is_result ? "result" : "display", item->text,
                        item->text_len);
    }
}

bool
image_fits(const struct job *job, const struct image_size *size)
{
    int max = job->tools->settings.max_image_side;
    return max == 0 || (size->width <= max && size->height <= max);
}

// An image whose size is not known is shown.
static bool
item_fits(const struct job *job, const struct outcome_item *item)
{
    return !item->size.mime || image_fits(job, &item->size);
}

static bool
is_shown(const struct job *job, const struct outcome_item *item, size_t n_shown)
{
    return outcome_image_mime(item) && n_shown < MAX_IMAGES && item->image.len <= MAX_IMAGE_BYTES &&
           item_fits(job, item);
}

json_t *
image_string(struct job *job, struct outcome_item *item)
{
    struct outcome_image *image = &item->image;
    if (!image->string)
        image->string = mcp_call_attach(job->call, image->text, image->len, job->outcome.release,
                                        KG_STEAL(image->held));
    return json_incref(image->string);
}

size_t
append_images(json_t *content, struct job *job)
{
    struct outcome *outcome = &job->outcome;
    size_t n = 0;
    for (size_t i = 0; i < outcome->n_items; i++) {
        struct outcome_item *item = &outcome->items[i];
        if (!is_shown(job, item, n))
            continue;
        json_array_append_new(content,
                              mcp_image_string(image_string(job, item), outcome_image_mime(item)));
        n++;
    }
    return n;
}

// Names the images with too many pixels, and returns their number.
static size_t
remark_huge(struct buf *text, const struct job *job)
{
    size_t n = 0;
    for (size_t i = 0; i < job->outcome.n_items; i++) {
        const struct outcome_item *item = &job->outcome.items[i];
        if (!outcome_image_mime(item) || item_fits(job, item))
            continue;
        add_remark(text,
                   "an image of %d x %d pixels is not shown, since a side may have %d at most: "
                   "display a smaller one",
                   item->size.width, item->size.height, job->tools->settings.max_image_side);
        n++;
    }
    return n;
}

static void
remark_images(struct buf *text, const struct job *job, size_t n_shown)
{
    const struct outcome *outcome = &job->outcome;
    size_t n_images = 0, n_svg = 0;
    for (size_t i = 0; i < outcome->n_items; i++) {
        n_images += outcome_has_image(&outcome->items[i]);
        n_svg += outcome_has_image(&outcome->items[i]) && !outcome_image_mime(&outcome->items[i]);
    }
    size_t n_huge = remark_huge(text, job);
    if (n_svg > 0)
        add_remark(text, "%zu SVG image%s cannot be shown here: display PNG, or save to a file",
                   n_svg, n_svg == 1 ? "" : "s");
    size_t n_hidden = n_images - n_svg - n_huge - n_shown + outcome->n_items_left_out;
    if (n_hidden > 0)
        add_remark(
            text,
            "%zu further images or displays were left out (too many or too large): save them to "
            "files, or make them smaller",
            n_hidden);
}

// ---- Files ----------------------------------------------------------------------------------

static void
remark_files(struct buf *text, const struct outcome *outcome)
{
    size_t n = json_array_size(outcome->files);
    if (n == 0)
        return;
    KG_AUTO_BUF names = {0};
    for (size_t i = 0; i < n && i < MAX_LISTED_FILES; i++) {
        const json_t *file = json_array_get(outcome->files, i);
        const char *path = json_string_value(json_object_get(file, "file"));
        json_int_t size = json_integer_value(json_object_get(file, "size"));
        buf_printf(&names, "%s%s (%lld bytes)", i ? ", " : "", path ? path : "?", (long long)size);
    }
    if (n > MAX_LISTED_FILES)
        buf_printf(&names, ", and %zu more", n - MAX_LISTED_FILES);
    add_remark(text, "files written: %s", names.data);
}

static void
append_file_links(json_t *content, const struct job *job)
{
    size_t i;
    json_t *file;
    json_array_foreach(job->outcome.files, i, file) {
        const char *path = json_string_value(json_object_get(file, "file"));
        const char *mime = json_string_value(json_object_get(file, "mime"));
        const json_t *size = json_object_get(file, "size");
        if (!path || i >= MAX_LISTED_FILES)
            continue;
        KG_AUTO_FREE char *uri = file_uri(job->session.id, path);
        KG_AUTO_FREE char *essence = mime_essence(mime);
        json_array_append_new(
            content, mcp_resource_link(uri, path, NULL, essence,
                                       json_is_integer(size) ? json_integer_value(size) : -1));
    }
}

// Adds the session, the execution and its status, for programs.
static json_t *
with_meta(const struct job *job, json_t *result)
{
    json_t *meta = json_object();
    if (*job->session.id)
        json_object_set_new(meta, "kernelgate/session_id", json_string(job->session.id));
    if (job->run.execution)
        json_object_set_new(meta, "kernelgate/execution_id",
                            json_string(execution_id(job->run.execution)));
    if (job->run.calls)
        json_object_set_new(meta, "kernelgate/status", json_string("tool_calls"));
    else if (job->outcome.done)
        json_object_set_new(meta, "kernelgate/status", json_string(outcome_status(&job->outcome)));
    if (json_object_size(meta) > 0)
        json_object_set(result, "_meta", meta);
    json_decref(meta);
    return result;
}

// ---- Remarks --------------------------------------------------------------------------------

static void
remark_session(struct buf *text, const struct job *job)
{
    const char *id = job->session.id;
    if (job->session.note == JOB_NOTE_NEW)
        add_remark(text, "new session %s: pass session_id=\"%s\" to go on in it", id, id);
    else if (job->session.note == JOB_NOTE_AGAIN)
        add_remark(
            text,
            "NOTE: session %s did not exist any more (expired, closed, or ended to make room for "
            "another one) and was created again: its variables, imports, packages and files are "
            "gone",
            id);
}

static void
remark_end(struct buf *text, const struct job *job)
{
    const struct outcome *outcome = &job->outcome;
    const char *status = outcome_status(outcome);
    if (strcmp(status, "timeout") == 0)
        add_remark(
            text,
            "timed out: pass a larger timeout (up to %lld s), work in smaller steps, or start "
            "long work in the background",
            (long long)(job->tools->settings.face->max_timeout_ms / 1000));
    else if (strcmp(status, "interrupted") == 0)
        add_remark(text, "interrupted");
    if (json_is_true(json_object_get(outcome->done, "kernel_restarted")))
        add_remark(text,
                   "the kernel was restarted: variables and imports are gone, files are kept");
    if (outcome->dropped_bytes > 0)
        add_remark(text,
                   "%lld bytes of output arrived too fast and were lost (setting max-output-bytes)",
                   (long long)outcome->dropped_bytes);
}

// ---- Results --------------------------------------------------------------------------------

// A text block of the shortened output and the remarks.
static json_t *
text_block(const struct buf *output, const struct buf *remarks)
{
    KG_AUTO_BUF whole = {0};
    buf_append(&whole, output->data, output->len);
    if (remarks->len > 0) {
        end_paragraph(&whole);
        buf_printf(&whole, "%s%s", whole.len ? "\n" : "", remarks->data);
    }
    return mcp_text(whole.data, whole.len);
}

// Keeps the beginning and the end. Returns whether anything was left out.
static bool
cut_output(struct sections *sections)
{
    struct text shaped;
    text_init(&shaped, MAX_TEXT_HEAD, MAX_TEXT_TAIL);
    text_add(&shaped, sections->text.data ? sections->text.data : "", sections->text.len);
    sections->text.len = 0;
    sections->n_cut += text_append_to(&shaped, &sections->text);
    text_fini(&shaped);
    return sections->n_cut > 0;
}

// The number of kinds of output; stderr counts twice, since it always needs a heading.
static int
n_kinds(const struct outcome *outcome)
{
    return !text_is_empty(&outcome->out) + 2 * !text_is_empty(&outcome->err) +
           (outcome->n_errors > 0) + (outcome->n_items > 0);
}

// The calls that wait, for a reader; programs read structuredContent.
static void
remark_calls(struct buf *text, const struct job *job)
{
    KG_AUTO_BUF names = {0};
    size_t i;
    const json_t *call;
    json_array_foreach(job->run.calls, i, call) {
        if (i == MAX_LISTED_CALLS)
            break;
        KG_AUTO_FREE char *arguments = json_dumps(json_object_get(call, "arguments"), JSON_COMPACT);
        buf_printf(&names, "%s%s: %s(%.200s)", i ? ", " : "",
                   json_string_value(json_object_get(call, "call_id")),
                   json_string_value(json_object_get(call, "name")), arguments);
    }
    if (i > 0)
        add_remark(text,
                   "the code waits for %zu call%s of tools, which continue_execution answers: %s%s",
                   json_array_size(job->run.calls), json_array_size(job->run.calls) == 1 ? "" : "s",
                   names.data, i < json_array_size(job->run.calls) ? ", …" : "");
}

// What programs that bring tools read; NULL: this one has brought none.
static json_t *
structured_run(const struct job *job)
{
    bool waits = job->run.calls != NULL;
    if (!job->run.with_tools)
        return NULL;
    return json_pack("{s:s, s:s, s:s, s:O*}", "status",
                     waits ? "tool_calls" : outcome_status(&job->outcome), "execution_id",
                     execution_id(job->run.execution), "session_id", job->session.id, "tool_calls",
                     job->run.calls);
}

json_t *
result_of_run(struct job *job)
{
    bool waits = job->run.calls != NULL;
    bool is_ok = waits || outcome_is_ok(&job->outcome);
    const struct outcome *outcome = &job->outcome;
    struct sections sections = {.headings = n_kinds(outcome) > 1};
    KG_AUTO_BUF remarks = {0};
    json_t *content = json_array();
    size_t n_images = append_images(content, job);
    add_stream(&sections, "stdout", &outcome->out);
    add_stream(&sections, "stderr", &outcome->err);
    add_items(&sections, outcome);
    KG_AUTO_BUF errors = {0};
    outcome_append_errors(outcome, &errors);
    add_section(&sections, "error", errors.data, errors.len);
    if (sections.text.len == 0 && n_images > 0)
        add_remark(&remarks, "%zu image%s", n_images, n_images == 1 ? "" : "s");
    else if (!waits && sections.text.len == 0 && outcome->n_items == 0 && is_ok &&
             json_array_size(outcome->files) == 0)
        add_remark(&remarks, "ran without error, and without output: print() shows a value");
    if (cut_output(&sections)) {
        KG_AUTO_FREE char *uri = output_uri(job->run.execution);
        add_remark(&remarks, "the output was cut; read_file(path=\"%s\", offset=N) reads all of it",
                   uri);
        json_array_append_new(content, mcp_resource_link(uri, "output", "The whole output, as text",
                                                         "text/plain", -1));
    }
    remark_images(&remarks, job, n_images);
    remark_files(&remarks, outcome);
    append_file_links(content, job);
    if (waits)
        remark_calls(&remarks, job);
    else
        remark_end(&remarks, job);
    remark_session(&remarks, job);
    json_array_insert_new(content, 0, text_block(&sections.text, &remarks));
    buf_fini(&sections.text);
    return with_meta(job, mcp_tool_result(content, structured_run(job), !is_ok));
}

json_t *
result_of_command(const struct job *job)
{
    const struct sandbox_command_result *end = &job->command.result;
    struct sections sections = {.headings = !text_is_empty(&job->outcome.err)};
    KG_AUTO_BUF remarks = {0};
    add_stream(&sections, "stdout", &job->outcome.out);
    add_stream(&sections, "stderr", &job->outcome.err);
    bool empty = sections.text.len == 0;
    if (cut_output(&sections))
        add_remark(&remarks, "the output was cut: redirect it to a file, and read that");
    if (end->timed_out)
        add_remark(
            &remarks,
            "timed out after %.0f s and was killed: pass a larger timeout (up to %lld s), or "
            "start it in the background: nohup COMMAND >log 2>&1 &",
            (double)end->duration_ms / 1000,
            (long long)(job->tools->settings.face->max_timeout_ms / 1000));
    if (end->oom)
        add_remark(&remarks,
                   "the sandbox ran out of memory (setting memory-mb): work on less at a time");
    if (empty || end->exit_code != 0)
        add_remark(&remarks, "exit code %d%s", end->exit_code, empty ? ", no output" : "");
    remark_session(&remarks, job);
    json_t *content = json_pack("[o]", text_block(&sections.text, &remarks));
    buf_fini(&sections.text);
    bool failed = end->exit_code != 0 || end->timed_out;
    return with_meta(job, mcp_tool_result(content, NULL, failed));
}

json_t *
result_of_text(const struct job *job, const char *text, json_t *structured)
{
    KG_AUTO_BUF output = {0}, remarks = {0};
    buf_append_str(&output, text);
    remark_session(&remarks, job);
    json_t *content = json_pack("[o]", text_block(&output, &remarks));
    return with_meta(job, mcp_tool_result(content, structured, false));
}

json_t *
result_of_own_json(struct job *job, json_t *value)
{
    json_t *content = json_pack("[o]", mcp_json_text(value));
    append_images(content, job);
    return mcp_tool_result(content, NULL, false);
}

json_t *
result_of_json(struct job *job, json_t *value)
{
    KG_AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_t *content = json_pack("[o]", mcp_text(text, strlen(text)));
    append_images(content, job);
    json_decref(value);
    return mcp_tool_result(content, NULL, false);
}

json_t *
result_of_error_json(struct job *job, json_t *value)
{
    json_t *result = result_of_json(job, value);
    json_object_set_new(result, "isError", json_true());
    return result;
}

// What the model can do about an error whose message does not say it. NULL: nothing more.
static const char *
next_step(enum kg_code code)
{
    static const struct {
        enum kg_code code;
        const char *text;
    } steps[] = {
        {KG_SESSION_NOT_FOUND,
         "list_sessions shows the sessions that there are, create_session makes one, "
         "and without session_id the one of this conversation is used."},
        {KG_MAX_SESSIONS, "list_sessions shows the sessions, close_session ends one."},
        {KG_FILE_EXISTS, "Pass overwrite=true to replace it, or another path."},
        {KG_DISK_FULL,
         "Make room: run_command with `du -ah /mnt/data | sort -h | tail` shows the largest "
         "files, `rm` removes them."},
        {KG_SESSION_BUSY,
         "interrupt_session stops what runs there, create_session makes another one."},
        {KG_ARTIFACT_TOO_LARGE, "Read it in parts, or with code."},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(steps); i++) {
        if (steps[i].code == code)
            return steps[i].text;
    }
    return NULL;
}

json_t *
result_of_error(struct job *job, const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    const char *next = next_step(err->code);
    KG_AUTO_BUF text = {0}, remarks = {0};
    buf_printf(&text, "Error %s: %s", info->name, err->message);
    if (next)
        buf_printf(&text, "\n%s", next);
    if (job->advice.len > 0)
        buf_printf(&text, "\n%s", job->advice.data);
    if (info->retryable)
        buf_append_str(&text, "\nThe same call can succeed later.");
    if (*job->session.id) // later results would not say that it is a new one
        remark_session(&remarks, job);
    json_t *structured = json_pack("{s:s, s:s, s:b}", "code", info->name, "message", err->message,
                                   "retryable", info->retryable);
    json_t *content = json_pack("[o]", text_block(&text, &remarks));
    return with_meta(job, mcp_tool_result(content, structured, true));
}
