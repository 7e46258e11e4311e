// SPDX-License-Identifier: Apache-2.0
// Files below a folder, `root`. Paths as file_path_check() has them, relative to `root`; no
// symbolic link is followed, on the way or at the end. All on the loop's thread; nothing waits for
// anything but the disk.
#pragma once

#include <jansson.h>
#include <sys/stat.h>

#include "base.h"

enum { FILES_PAGE_MAX = 1000, FILE_ETAG_MAX = 64, FILE_PERMISSIONS = 07777 };

// Lists what a walk visits ("" is `root` itself): {"files": [{"path", "size", "mtime_ms", "type"}],
// "next"}; `next` only where there is more. With `details` each has "mode", "uid" and "gid", too.
struct walk_query;
KG_MUST_CHECK json_t *files_list(const char *root, const struct walk_query *query, int limit,
                                 bool details, struct kg_error *err);

// Opens a regular file for reading; KG_INVALID_PATH where it is anything else.
KG_MUST_CHECK int file_open(const char *root, const char *path, struct stat *ret_st,
                            struct kg_error *err);
// The same for `name` in an open folder, with O_RDONLY, or O_WRONLY and more, as `access`; `path`
// is for messages.
KG_MUST_CHECK int file_open_at(int folder, const char *name, const char *path, int access,
                               struct stat *ret_st, struct kg_error *err);
// KG_INVALID_PATH, with what it is instead, where it is not a regular file.
KG_MUST_CHECK int file_check_regular(const struct stat *st, const char *path, struct kg_error *err);
// With its quotes; another one whenever the content may be another one.
void file_etag(const struct stat *st, char ret[FILE_ETAG_MAX + 1]);
int64_t file_mtime_ms(const struct stat *st);
// {"size", "mtime_ms", "etag"}.
json_t *file_describe(const struct stat *st);

// As file_path_check(); with `own` the first name must be one of kernelgate's own, which no path of
// a client begins with.
KG_MUST_CHECK int file_check(const char *path, bool is_new, bool own, struct kg_error *err);

// Sets the error that an errno stands for, where `path` could not be written, say: KG_DISK_FULL,
// KG_FILE_EXISTS, else KG_INVALID_PATH. Returns -1.
int file_fail(const char *verb, const char *path, int failure, struct kg_error *err);
enum {
    FILE_RANDOM_LEN = 12,
    FILE_TEMPORARY_SIZE = sizeof FILE_OWN_PREFIX "12345678-" + FILE_RANDOM_LEN,
};
// A name that nothing has, and that no listing shows. `purpose` has at most 8 bytes.
void file_temporary_name(const char *purpose, char ret[FILE_TEMPORARY_SIZE]);
// All of it, or -1 with errno.
KG_MUST_CHECK int file_write_bytes(int fd, const void *data, size_t len);

// A file of any kind, or a folder with all in it.
KG_MUST_CHECK int file_delete(const char *root, const char *path, bool own, struct kg_error *err);

// ---- Writing (file_write.c) -----------------------------------------------------------------

enum {
    FILE_KEEP = 1,       // what is there is not replaced: KG_FILE_EXISTS
    FILE_OWN = 2,        // see file_check()
    FILE_NO_FOLDERS = 4, // the folders on the way are not made: KG_INVALID_PATH
};

// A file that is being written, under another name until it is complete.
struct file_write;
// With `size` above 0 that much room is taken at once.
KG_MUST_CHECK struct file_write *file_write_begin(const char *root, const char *path, int64_t size,
                                                  unsigned flags, struct kg_error *err);
KG_MUST_CHECK int file_write_add(struct file_write *write, const void *data, size_t len,
                                 struct kg_error *err);
int64_t file_write_len(const struct file_write *write);
// Puts it in its place: KG_FILE_EXISTS where something is there that is to be kept.
KG_MUST_CHECK int file_write_commit(struct file_write *write, struct stat *ret_st,
                                    bool *ret_created, struct kg_error *err);
// Appends it to the file that is there, or puts it in its place where there is none: all of it or
// nothing, in one go. Returns 1; 0, and does nothing, where the file would have more than `max`
// bytes; -1.
KG_MUST_CHECK int file_write_append(struct file_write *write, int64_t max, struct stat *ret_st,
                                    bool *ret_created, struct kg_error *err);
const char *file_write_path(const struct file_write *write);
// Removes what was not put in its place.
void file_write_free(struct file_write *write);
KG_DEFINE_AUTO(file_write, file_write_free)

// ---- Files and folders (file_entries.c) -----------------------------------------------------

// {"type", "size", "mtime_ms", "mode"}: walk_type_name(), bytes, the time of the last change, and
// the permissions as a number (0644 is 420).
json_t *file_entry(const struct stat *st);
// The same with {"uid", "gid"} and, of the symbolic link at `path`, {"target"} as far as that is
// UTF-8, and {"target_type"} if it leads to something.
json_t *file_details(const char *root, const char *path, const struct stat *st);
// What is at `path` ("" is `root`); a symbolic link is one. KG_NOT_FOUND where there is nothing.
KG_MUST_CHECK int file_stat(const char *root, const char *path, struct stat *ret_st,
                            struct kg_error *err);
// The same for `name` in an open folder; `path` is for messages.
KG_MUST_CHECK int file_look_at(int folder, const char *name, const char *path, struct stat *ret_st,
                               struct kg_error *err);
// Sets the permissions (0 to FILE_MODE_MAX) of a file or folder; not of a symbolic link.
enum { FILE_MODE_MAX = 0777 };
KG_MUST_CHECK int file_chmod(const char *root, const char *path, mode_t mode, struct stat *ret_st,
                             struct kg_error *err);
// Makes a folder. One that is there is left as it is, with *ret_created false, or KG_FILE_EXISTS
// with FILE_KEEP; anything else there is KG_FILE_EXISTS. `flags` may have FILE_NO_FOLDERS, too.
KG_MUST_CHECK int file_make_folder(const char *root, const char *path, unsigned flags,
                                   struct stat *ret_st, bool *ret_created, struct kg_error *err);
// Gives what is at `from` (KG_NOT_FOUND where there is nothing), a symbolic link, too, the path
// `to`. What is there is replaced, as rename() does it: a folder by a folder, and only an empty
// one; else by anything but a folder. `flags` may have FILE_KEEP and FILE_NO_FOLDERS. *ret_created
// is false where something was replaced. *ret_elsewhere: it has failed since `to` is on another
// file system, which takes a copy; `from` could be deleted.
KG_MUST_CHECK int file_move(const char *root, const char *from, const char *to, unsigned flags,
                            struct stat *ret_st, bool *ret_created, bool *ret_elsewhere,
                            struct kg_error *err);
// Numbered names: start and end, then start, insert, 1 and end, and so on up to FILE_NUMBERS - 1.
struct file_names {
    const char *start;
    const char *insert;
    const char *end;
};
enum { FILE_NUMBERS = 10000 };
// The number of the first name that nothing in the folder has, 0 for the one without a number;
// KG_FILE_EXISTS where all are taken.
KG_MUST_CHECK int file_find_unused(const char *root, const char *folder,
                                   const struct file_names *names, int *ret_number,
                                   struct kg_error *err);
// renameat() that replaces nothing with `keep`: EEXIST.
KG_MUST_CHECK int file_rename(int from_folder, const char *from, int to_folder, const char *to,
                              bool keep);
// Whether the path is below the path of a folder.
bool file_path_is_below(const char *path, const char *folder);

// ---- Copying (file_copy.c) ------------------------------------------------------------------

// A copy under way, of a file or of a folder with all in it, under another name until it is
// complete. Symbolic links, FIFOs and sockets in a folder are made anew, holes in files stay holes;
// what has a name of kernelgate's own is left out, and so is what vanishes meanwhile. Permissions
// are kept, but the owner can use every folder. What is copied belongs to the agent's user.
struct file_copy;
struct file_copy_limits {
    int64_t bytes; // of files, without holes
    int entries;   // below the folder
    int64_t ms;    // from the begin on
};
enum { FILE_COPY_LEVELS_MAX = 64 }; // of folders in each other
// KG_NOT_FOUND: there is nothing at `from`; KG_INVALID_PATH: it is neither a file nor a folder, or
// `to` is below it. A file replaces a file, and nothing else replaces anything; `flags` may have
// FILE_KEEP and FILE_NO_FOLDERS.
KG_MUST_CHECK struct file_copy *file_copy_begin(const char *root, const char *from, const char *to,
                                                unsigned flags,
                                                const struct file_copy_limits *limits,
                                                struct kg_error *err);
// Does one part of the work, at most 128 KiB of a file or one entry of a folder. Returns 1 as long
// as there is more to do, then 0; -1: KG_INVALID beyond a limit, KG_DISK_FULL, …
KG_MUST_CHECK int file_copy_step(struct file_copy *copy, struct kg_error *err);
// Puts it in its place.
KG_MUST_CHECK int file_copy_commit(struct file_copy *copy, struct stat *ret_st, bool *ret_created,
                                   struct kg_error *err);
const char *file_copy_path(const struct file_copy *copy); // `to`
// Removes what was not put in its place.
void file_copy_free(struct file_copy *copy);
KG_DEFINE_AUTO(file_copy, file_copy_free)
