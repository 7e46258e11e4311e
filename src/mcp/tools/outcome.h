// SPDX-License-Identifier: Apache-2.0
// What came of an execution, gathered from its lines, in bounded memory.
#pragma once

#include <jansson.h>

#include "base.h"
#include "text.h"

// Of a small line a string; of a large one the inside of a string of the line, which is held, with
// its escapes. Neither: there is none.
struct outcome_image {
    json_t *string;
    const char *text;
    size_t len; // of either
    void *held;
};

// Something displayed, or the result.
struct outcome_item {
    bool is_result;
    char *display_id; // or NULL
    char *text;       // or NULL
    size_t text_len;
    struct outcome_image image; // base64, but SVG as text
    char format[8];
};

// An error line, of which no more is kept than is shown.
struct outcome_error {
    char *said; // "NameError: name 'x' is not defined", cut
    char *text; // the traceback with its beginning and its end
    size_t text_len;
    json_t *traceback; // its lines; of a long one the text
};

enum {
    OUTCOME_MAX_ERRORS = 8,
    OUTCOME_LARGE_LINE = 64 << 10, // takes longer to read than the loop should be held for
};

enum outcome_stream { OUTCOME_NEITHER, OUTCOME_STDOUT, OUTCOME_STDERR };

struct outcome_limits {
    size_t max_text_head; // of each stream
    size_t max_text_tail;
    size_t max_image_bytes; // of all together
};

// May be moved.
struct outcome {
    struct outcome_limits limits;
    struct text out;
    struct text err;
    enum outcome_stream newest; // whichever was written to last
    struct outcome_item *items;
    size_t n_items;
    size_t item_bytes;
    size_t n_items_left_out;
    struct outcome_error errors[OUTCOME_MAX_ERRORS]; // the first ones, and the newest
    size_t n_errors;
    json_t *files; // `file` lines
    bool clear_pending;
    int64_t dropped_bytes; // lost before they came here
    json_t *done;          // the last line; NULL as long as it runs
    void (*release)(void *held);
    void **released; // held lines that are not needed any more
    size_t n_released;
};

void outcome_init(struct outcome *outcome, const struct outcome_limits *limits);
void outcome_fini(struct outcome *outcome);
// Text that was printed.
void outcome_add_text(struct outcome *outcome, enum outcome_stream stream, const char *text,
                      size_t len);
// The newest line of what was printed, cut; "" where there is none.
const char *outcome_newest_line(struct outcome *outcome);
// One line of an execution (see API.md); other text is ignored. A large one is for a worker: it
// touches nothing but the outcome.
void outcome_add_line(struct outcome *outcome, const char *line, size_t len);
// The same for a line that is held, where the outcome may keep it for its image. Takes `held`;
// where it is not needed any more it is given back by outcome_release() or outcome_fini(), to
// outcome->release, which neither this nor outcome_add_line() calls.
void outcome_add_held_line(struct outcome *outcome, const char *line, size_t len, void *held);
void outcome_release(struct outcome *outcome);
bool outcome_has_image(const struct outcome_item *item);
// "ok", "error", "timeout", "interrupted", "died".
const char *outcome_status(const struct outcome *outcome);
bool outcome_is_ok(const struct outcome *outcome);
// The last error, which says why it ended, or NULL: "NameError: name 'x' is not defined".
const char *outcome_error(const struct outcome *outcome);
// Appends the tracebacks, each with its beginning and its end.
void outcome_append_errors(const struct outcome *outcome, struct buf *ret);
// The MIME type of an item's image that a client can show; NULL: it has none.
const char *outcome_image_mime(const struct outcome_item *item);
