// SPDX-License-Identifier: Apache-2.0
// The outcome of an execution or a command, gathered from its output in bounded memory.
#pragma once

#include <jansson.h>

#include "base.h"
#include "image_size.h"
#include "text.h"

// From a small line `string`; from a large line `text`: the inside of a JSON string, with escapes,
// in the line, which is held. Neither: no image.
struct outcome_image {
    json_t *string;
    const char *text;
    size_t len; // of either
    void *held;
};

// A display or the result.
struct outcome_item {
    bool is_result;
    char *display_id; // or NULL
    char *text;       // or NULL
    size_t text_len;
    struct outcome_image image; // base64; SVG is text
    struct image_size size;     // of the image; `mime` NULL: not known
    char format[8];
};

// An error line, shortened to what is shown.
struct outcome_error {
    char *said; // shortened: "NameError: name 'x' is not defined"
    char *text; // the beginning and the end of the traceback
    size_t text_len;
    json_t *traceback; // its lines; if it is long, `text` alone
};

enum {
    OUTCOME_MAX_ERRORS = 8,
    OUTCOME_LARGE_LINE = 64 << 10, // too large to be read on the loop
};

enum outcome_stream { OUTCOME_NEITHER, OUTCOME_STDOUT, OUTCOME_STDERR };

struct outcome_limits {
    size_t max_text_head; // of each stream
    size_t max_text_tail;
    size_t max_image_bytes; // of all images
};

// May be moved.
struct outcome {
    struct outcome_limits limits;
    struct text out;
    struct text err;
    enum outcome_stream newest; // the one that was written to last
    struct outcome_item *items;
    size_t n_items;
    size_t item_bytes;
    size_t n_items_left_out;
    struct outcome_error errors[OUTCOME_MAX_ERRORS]; // the first ones and the newest
    size_t n_errors;
    json_t *files; // `file` lines
    bool clear_pending;
    int64_t dropped_bytes; // that the log has lost
    json_t *done;          // the last line; NULL: still running
    void (*release)(void *held);
    void **released; // held lines for outcome_release()
    size_t n_released;
};

void outcome_init(struct outcome *outcome, const struct outcome_limits *limits);
void outcome_fini(struct outcome *outcome);
// Adds printed text.
void outcome_add_text(struct outcome *outcome, enum outcome_stream stream, const char *text,
                      size_t len);
// The newest printed line, shortened; "": none.
const char *outcome_newest_line(struct outcome *outcome);
// Adds a line of an execution (see docs/api.md); other text is ignored. Uses nothing but the
// outcome, so that a worker can add large lines.
void outcome_add_line(struct outcome *outcome, const char *line, size_t len);
// The same for a line that is held, and may be kept for its image. Takes `held`. outcome_release()
// and outcome_fini() pass it to outcome->release when it is not needed any more; neither this nor
// outcome_add_line() does.
void outcome_add_held_line(struct outcome *outcome, const char *line, size_t len, void *held);
void outcome_release(struct outcome *outcome);
bool outcome_has_image(const struct outcome_item *item);
// "ok", "error", "timeout", "interrupted", "died".
const char *outcome_status(const struct outcome *outcome);
bool outcome_is_ok(const struct outcome *outcome);
// The last error, which is why the execution ended, or NULL: "NameError: name 'x' is not defined".
const char *outcome_error(const struct outcome *outcome);
// Appends the beginning and the end of each traceback.
void outcome_append_errors(const struct outcome *outcome, struct buf *ret);
// The MIME type of the item's image. NULL: no image that clients can show.
const char *outcome_image_mime(const struct outcome_item *item);
