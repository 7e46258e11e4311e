// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines on two descriptors without blocking, for the stdio transport.
#pragma once

#include "base.h"
#include "loop.h"

struct line_io;
// Receives a line without its newline, borrowed; never an empty one. NULL: the line was too long.
typedef void (*line_io_fn)(const char *line, size_t len, void *arg);
// Borrows the descriptors, and makes pipes, sockets and terminals non-blocking. `on_end` is called
// once: the input has ended, or the output cannot be written. The last line may lack its newline.
KG_MUST_CHECK struct line_io *line_io_new(struct loop *loop, int in, int out, line_io_fn on_line,
                                          loop_fn on_end, void *arg, struct kg_error *err);
void line_io_free(struct line_io *io);
// Bytes that the reader has not accepted yet.
size_t line_io_backlog(const struct line_io *io);
// Writes a line, and adds a newline. If the backlog becomes too large, this is the end.
void line_io_write(struct line_io *io, const char *line, size_t len);
// The same without a copy: takes `line`, and replaces the NUL after `len` bytes.
void line_io_write_take(struct line_io *io, char *line, size_t len);
// Neither a line nor the end of the input is reported until it is resumed. May be called by
// `on_line`.
void line_io_pause(struct line_io *io);
// Must not be called by `on_line`, which it may call.
void line_io_resume(struct line_io *io);
