// SPDX-License-Identifier: Apache-2.0
// The files in the working folder: list, open, write, delete. Paths as file_path_check() has them.
#pragma once

#include <jansson.h>
#include <sys/stat.h>

#include "base.h"

enum { FILES_PAGE_MAX = 1000, FILE_ETAG_MAX = 64 };

// Lists what is below `path` ("" is `root` itself), from what comes after `after` (NULL: the first)
// on: {"files": [{"path", "size", "mtime_ms", "type"}], "next"}; `next` only where there is more.
KG_MUST_CHECK json_t *files_list(const char *root, const char *path, const char *after, int limit,
                                 struct kg_error *err);

// Opens a regular file for reading; KG_INVALID_PATH where it is anything else.
KG_MUST_CHECK int file_open(const char *root, const char *path, struct stat *ret_st,
                            struct kg_error *err);
// With its quotes; another one whenever the content may be another one.
void file_etag(const struct stat *st, char ret[FILE_ETAG_MAX + 1]);
int64_t file_mtime_ms(const struct stat *st);
// {"size", "mtime_ms", "etag"}.
json_t *file_describe(const struct stat *st);

// As file_path_check(); with `own` the first name must be one of kernelgate's own, which no path of
// a client begins with.
KG_MUST_CHECK int file_check(const char *path, bool is_new, bool own, struct kg_error *err);

// A file that is being written, under another name until it is complete.
struct file_write;
enum {
    FILE_KEEP = 1, // what is there is not replaced: KG_FILE_EXISTS
    FILE_OWN = 2,  // see file_check()
};
// Makes the folders on the way. With `size` above 0 that much room is taken at once.
KG_MUST_CHECK struct file_write *file_write_begin(const char *root, const char *path, int64_t size,
                                                  unsigned flags, struct kg_error *err);
KG_MUST_CHECK int file_write_add(struct file_write *write, const void *data, size_t len,
                                 struct kg_error *err);
int64_t file_write_len(const struct file_write *write);
// Puts it in its place: KG_FILE_EXISTS where something is there that is to be kept.
KG_MUST_CHECK int file_write_commit(struct file_write *write, struct stat *ret_st,
                                    bool *ret_created, struct kg_error *err);
const char *file_write_path(const struct file_write *write);
// Removes what was not put in its place.
void file_write_free(struct file_write *write);
KG_DEFINE_AUTO(file_write, file_write_free)

// A file of any kind, or a folder with all in it.
KG_MUST_CHECK int file_delete(const char *root, const char *path, bool own, struct kg_error *err);
