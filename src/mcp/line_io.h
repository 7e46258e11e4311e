// SPDX-License-Identifier: Apache-2.0
// Lines in and out of two descriptors, without blocking: used by the stdio transport.
#pragma once

#include "base.h"
#include "loop.h"

struct line_io;
// A line without its end, borrowed; never an empty one. `line` is NULL where one was too long.
typedef void (*line_io_fn)(const char *line, size_t len, void *arg);
// The descriptors stay the caller's; they are made non-blocking where they are pipes, sockets or
// terminals. `on_end` fires once: no line comes any more, or nobody reads the output. The input's
// last line may lack its end.
KG_MUST_CHECK struct line_io *line_io_new(struct loop *loop, int in, int out, line_io_fn on_line,
                                          loop_fn on_end, void *arg, struct kg_error *err);
void line_io_free(struct line_io *io);
// Bytes that were written and not taken yet.
size_t line_io_backlog(const struct line_io *io);
// Writes a line; adds its end. A reader that lets too much pile up is taken for gone.
void line_io_write(struct line_io *io, const char *line, size_t len);
// The same without a copy: takes `line`, whose NUL after `len` bytes becomes the line's end.
void line_io_write_take(struct line_io *io, char *line, size_t len);
// Also from within `on_line`: no line comes, nor the end of the input, until it is resumed.
void line_io_pause(struct line_io *io);
// Not from within `on_line`; may call it.
void line_io_resume(struct line_io *io);
