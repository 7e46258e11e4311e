// SPDX-License-Identifier: Apache-2.0
// The complete output of an execution as one text, from its log. Making it takes a tenth of a
// second, so a worker does it piece by piece. A model reads it in parts, so the text is kept for a
// while.

#include <string.h>

#include "tools_priv.h"

enum {
    MAX_OUTPUT_BYTES = 8 << 20,
    PIECE_BYTES = 256 << 10, // of lines, copied per turn of the loop
    MAX_KEPT = 4,
    KEEP_MS = 60 * 1000, // after the last read
};

// The kept text of an execution that has ended.
struct output_text {
    TAILQ_ENTRY(output_text) link;
    char *id;
    char *data;
    size_t len;
};

// Lines that a worker adds to the text, and the text meanwhile.
struct output_piece {
    struct output_read *read; // not for the worker
    struct text text;
    struct buf lines; // each after its length, a size_t
};

struct output_read {
    struct mcp_tools *tools;
    struct execution *execution;
    struct subscription *subscription; // NULL: not begun
    struct loop_timer *next;
    struct loop_work *work; // for a piece, or NULL
    size_t bytes;           // read
    bool more;              // after the current piece
    struct text text;
    output_read_fn fn;
    void *arg;
};

static const char scheme[] = "kernelgate-output://";

char *
output_uri(const struct execution *execution)
{
    return kg_asprintf("%s%s", scheme, execution_id(execution));
}

const char *
output_uri_id(const char *uri)
{
    return strncmp(uri, scheme, strlen(scheme)) == 0 ? uri + strlen(scheme) : NULL;
}

// ---- What is kept ---------------------------------------------------------------------------

static void
forget(struct mcp_tools *tools, struct output_text *kept)
{
    TAILQ_REMOVE(&tools->outputs, kept, link);
    free(kept->id);
    free(kept->data);
    free(kept);
}

static void
on_forget(void *arg)
{
    struct mcp_tools *tools = arg;
    while (!TAILQ_EMPTY(&tools->outputs))
        forget(tools, TAILQ_FIRST(&tools->outputs));
}

void
outputs_init(struct mcp_tools *tools)
{
    TAILQ_INIT(&tools->outputs);
    tools->forget_outputs = loop_timer_new(tools->settings.loop, on_forget, tools);
}

void
outputs_fini(struct mcp_tools *tools)
{
    on_forget(tools);
    loop_timer_free(tools->forget_outputs);
}

static const struct output_text *
find_kept(struct mcp_tools *tools, const char *id)
{
    struct output_text *kept;
    TAILQ_FOREACH(kept, &tools->outputs, link) {
        if (strcmp(kept->id, id) != 0)
            continue;
        TAILQ_REMOVE(&tools->outputs, kept, link);
        TAILQ_INSERT_HEAD(&tools->outputs, kept, link);
        return kept;
    }
    return NULL;
}

static const struct output_text *
keep(struct mcp_tools *tools, const char *id, struct buf *text)
{
    struct output_text *kept = KG_NEW(struct output_text), *oldest;
    size_t n = 0;
    kept->id = kg_strdup(id);
    kept->len = text->len;
    kept->data = buf_take(text);
    TAILQ_INSERT_HEAD(&tools->outputs, kept, link);
    TAILQ_FOREACH(oldest, &tools->outputs, link)
        n++;
    if (n > MAX_KEPT)
        forget(tools, TAILQ_LAST(&tools->outputs, output_texts));
    return kept;
}

// ---- Lines ----------------------------------------------------------------------------------

// Loads only this member, since a line may have many more values.
static json_t *
value_of(const char *line, size_t len, const char *name)
{
    size_t value_len;
    const char *value = json_member(line, len, name, &value_len);
    return value ? json_loadb(value, value_len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL) : NULL;
}

static void
add_string(struct text *text, const json_t *value)
{
    if (json_is_string(value))
        text_add(text, json_string_value(value), json_string_length(value));
}

static void
add_line(struct text *text, const char *line, size_t len)
{
    json_auto_t *type = value_of(line, len, "type"), *written = value_of(line, len, "text");
    const char *name = json_string_value(type);
    if (!name)
        return;
    add_string(text, written);
    if (strcmp(name, "result") == 0 || strcmp(name, "display") == 0)
        text_add(text, "\n", 1);
    if (strcmp(name, "error") != 0)
        return;
    size_t i;
    json_t *part;
    json_auto_t *traceback = value_of(line, len, "traceback");
    json_array_foreach(traceback, i, part) {
        add_string(text, part);
        text_add(text, "\n", 1);
    }
}

// ---- A piece --------------------------------------------------------------------------------

static void
piece_run(void *arg)
{
    struct output_piece *piece = arg;
    size_t len;
    for (size_t at = 0; at < piece->lines.len; at += sizeof len + len) {
        memcpy(&len, piece->lines.data + at, sizeof len);
        add_line(&piece->text, piece->lines.data + at + sizeof len, len);
    }
    buf_fini(&piece->lines);
}

static void
piece_free(void *arg)
{
    struct output_piece *piece = arg;
    text_fini(&piece->text);
    buf_fini(&piece->lines);
    free(piece);
}

// ---- A read ---------------------------------------------------------------------------------

void
output_read_cancel(void *arg)
{
    struct output_read *read = arg;
    // If this was the last reader of a running execution, the execution ends.
    if (read->subscription)
        subscription_abandon(read->subscription);
    execution_unref(read->execution);
    loop_work_cancel(read->work, piece_free);
    loop_timer_free(read->next);
    text_fini(&read->text);
    free(read);
}

static void
output_finish(struct output_read *read)
{
    struct mcp_tools *tools = read->tools;
    const char *id = execution_id(read->execution);
    const struct output_text *kept = find_kept(tools, id);
    KG_AUTO_BUF text = {0};
    if (!kept)
        text_append_to(&read->text, &text);
    if (!kept && execution_state(read->execution) == EXECUTION_DONE)
        kept = keep(tools, id, &text);
    loop_timer_start(tools->forget_outputs, KEEP_MS);
    output_read_fn fn = read->fn;
    void *arg = read->arg;
    output_read_cancel(read);
    if (kept)
        fn(kept->data ? kept->data : "", kept->len, arg);
    else
        fn(text.data ? text.data : "", text.len, arg);
}

// The read does not wait for further lines.
static void
on_news(void *arg)
{
    (void)arg;
}

static void read_piece(struct output_read *read);

static void
piece_done(void *arg)
{
    struct output_piece *piece = arg;
    struct output_read *read = piece->read;
    read->work = NULL;
    read->text = piece->text;
    free(piece);
    if (read->more)
        read_piece(read);
    else
        output_finish(read);
}

// A running execution may print faster than this reads, so its bytes are limited.
static void
read_piece(struct output_read *read)
{
    struct output_piece *piece = KG_NEW(struct output_piece);
    size_t len;
    const char *line = NULL;
    while (piece->lines.len < PIECE_BYTES && (line = subscription_next(read->subscription, &len))) {
        buf_append(&piece->lines, &len, sizeof len);
        buf_append(&piece->lines, line, len);
    }
    read->bytes += piece->lines.len;
    bool ended = execution_state(read->execution) == EXECUTION_DONE;
    read->more = line && (ended || read->bytes < read->tools->settings.face->max_output_bytes);
    piece->read = read;
    piece->text = read->text;
    read->text = (struct text){0};
    read->work = loop_work_start(read->tools->settings.loop, (uint64_t)(uintptr_t)read->execution,
                                 piece_run, piece_done, piece);
}

static void
output_on_next(void *arg)
{
    struct output_read *read = arg;
    if (find_kept(read->tools, execution_id(read->execution))) {
        output_finish(read);
        return;
    }
    read->subscription = execution_subscribe(read->execution, 0, on_news, NULL);
    read_piece(read);
}

struct output_read *
output_read_start(struct mcp_tools *tools, const char *owner, const char *id, output_read_fn fn,
                  void *arg, struct kg_error *err)
{
    struct execution *execution = executions_find(tools->settings.face->executions, id, owner, err);
    if (!execution)
        return NULL;
    struct output_read *read = KG_NEW(struct output_read);
    read->tools = tools;
    read->execution = execution_ref(execution);
    read->fn = fn;
    read->arg = arg;
    text_init(&read->text, MAX_OUTPUT_BYTES / 2, MAX_OUTPUT_BYTES / 2);
    read->next = loop_timer_new(tools->settings.loop, output_on_next, read);
    loop_timer_start(read->next, 0);
    return read;
}
