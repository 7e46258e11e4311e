// SPDX-License-Identifier: Apache-2.0
// What the parts of the test runtime share.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

// Writes a message to the log (JSON, as runc does) with errno's text, and ends with code 1.
void runtime_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
// The same as asprintf(), which cannot fail here.
char *runtime_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
void runtime_write(const char *path, const char *text);
// Makes a folder and those above it.
void runtime_make_folders(const char *path);

// Becomes the process that config.json describes: its mounts, root, user, arguments.
void inside_enter(const json_t *config) __attribute__((noreturn));
