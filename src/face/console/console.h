// SPDX-License-Identifier: Apache-2.0
// The console: a page for people, whose files are built from page/.
#pragma once

#include <stddef.h>

struct console;
struct http_server;

enum {
    CONSOLE_FILES_MAX = 128,
    CONSOLE_BYTES_MAX = 16 << 20, // of all files together
};

// Reads the files of a folder and of its subfolder `assets` into memory, so that a request never
// reads from the disk and cannot name anything else. A file beside one of its name with `.gz` is
// also sent compressed. A folder without index.html, or with more than the bounds above, gives a
// console whose only answer says what is missing. Never NULL; to be freed after the server.
struct console *console_new(const char *dir);
void console_free(struct console *console);
// Serves `/console/` and redirects `/` to it; no key is needed. The console must outlive the
// server.
void console_register(struct http_server *server, struct console *console);
