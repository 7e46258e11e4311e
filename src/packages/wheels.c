// SPDX-License-Identifier: Apache-2.0
// The cache of wheels on disk.

#include "wheels.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packages_script.h"
#include "requirement.h"
#include "unpack_script.h"
#include "wheel_room.h"

#define CACHE_MAX_BYTES (INT64_C(2) << 30)
#define FRESH_MS (INT64_C(24) * 3600 * 1000)

#define RECORDS_MAX_BYTES (INT64_C(64) << 20)

enum { CACHE_MAX_FILES = 10 * 1000 };
enum { MAX_RECORD_BYTES = 256 << 10, MAX_CA_BYTES = 4 << 20, HASH_HEX = 64 };

struct wheels {
    char *shared;
    char *files;    // wheels
    char *records;  // resolved, in a folder for each environment
    char *incoming; // on the same file system
    struct wheel_room *room;
    struct wheel_room *record_room;
};

struct wheel_file {
    struct wheels *wheels;
    char *path;
    char *final;
    char sha256[HASH_HEX + 1];
    int64_t size;
    int64_t len;
    int fd;
    crypto_hash_sha256_state hash;
};

// ---- Records --------------------------------------------------------------------------------

static int
compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The file of a list of requirements in one environment, below the folder of records.
static char *
record_place(const char *environment, const json_t *packages)
{
    size_t n = json_array_size(packages);
    KG_AUTO_FREE const char **sorted = kg_calloc(n + 1, sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_string_value(json_array_get(packages, i));
    qsort(sorted, n, sizeof *sorted, compare_strings);
    KG_AUTO_BUF key = {0};
    for (size_t i = 0; i < n; i++)
        buf_printf(&key, "%s\n", sorted[i]);
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[HASH_HEX + 1];
    crypto_hash_sha256(hash, (const unsigned char *)(key.data ? key.data : ""), key.len);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    return kg_asprintf("%.16s/%s.json", environment, hex);
}

char *
wheels_locate(const struct wheels *wheels, const char *path)
{
    if (strncmp(path, "wheels/", 7) == 0)
        return kg_asprintf("%s/%s", wheels->files, path + 7);
    return kg_asprintf("%s/%s", wheels->shared, path);
}

char *
wheel_place(const json_t *wheel)
{
    return kg_asprintf("%s/%s", json_string_value(json_object_get(wheel, "sha256")),
                       json_string_value(json_object_get(wheel, "file")));
}

char *
wheel_path_of(const json_t *wheel)
{
    KG_AUTO_FREE char *place = wheel_place(wheel);
    return kg_asprintf("wheels/%s", place);
}

static char *
wheel_path(const struct wheels *wheels, const json_t *wheel)
{
    KG_AUTO_FREE char *place = wheel_place(wheel);
    return kg_asprintf("%s/%s", wheels->files, place);
}

bool
wheels_has(const struct wheels *wheels, const json_t *wheel)
{
    KG_AUTO_FREE char *path = wheel_path(wheels, wheel);
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_size == json_integer_value(json_object_get(wheel, "size"));
}

bool
wheels_use(const struct wheels *wheels, const json_t *wheel)
{
    if (!wheels_has(wheels, wheel))
        return false;
    KG_AUTO_FREE char *place = wheel_place(wheel);
    wheel_room_use(wheels->room, place);
    return true;
}

void
wheels_drop(const struct wheels *wheels, const json_t *wheel)
{
    KG_AUTO_FREE char *place = wheel_place(wheel);
    wheel_room_drop(wheels->room, place);
}

json_t *
wheels_find(const struct wheels *wheels, const char *environment, const json_t *packages,
            bool *ret_fresh)
{
    KG_AUTO_FREE char *place = record_place(environment, packages);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", wheels->records, place);
    KG_AUTO_BUF text = {0};
    struct kg_error err = {0};
    struct stat st;
    if (stat(path, &st) < 0 || file_read(path, MAX_RECORD_BYTES, &text, &err) < 0)
        return NULL;
    json_t *resolution = resolution_parse(text.data, text.len, &err);
    bool pinned = true;
    size_t i;
    json_t *item;
    json_array_foreach(packages, i, item)
        pinned = pinned && requirement_is_pinned(json_string_value(item));
    *ret_fresh = pinned || clock_wall_ms() - (int64_t)st.st_mtime * 1000 < FRESH_MS;
    return resolution;
}

static const char *
version_in(const json_t *resolution, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(resolution, "wheels"), i, item) {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return json_string_value(json_object_get(item, "version"));
    }
    return NULL;
}

static void
write_record(const struct wheels *wheels, const char *environment, const json_t *packages,
             const json_t *resolution)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *place = record_place(environment, packages);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", wheels->records, place);
    KG_AUTO_FREE char *folder = kg_strndup(path, (size_t)(strrchr(path, '/') - path));
    KG_AUTO_FREE char *text = json_dumps(resolution, JSON_COMPACT);
    int64_t size = (int64_t)strlen(text);
    wheel_room_make(wheels->record_room, size);
    if (dir_make(folder, 0700, &err) < 0 ||
        file_write_atomic(path, text, (size_t)size, 0600, &err) < 0)
        log_warning("cannot store a resolution of packages", LOG_ERR(&err));
    else
        wheel_room_add(wheels->record_room, place, size);
}

void
wheels_remember(struct wheels *wheels, const char *environment, const json_t *packages,
                const json_t *resolution)
{
    json_auto_t *pinned = json_array();
    size_t i;
    json_t *item;
    json_array_foreach(packages, i, item) {
        const char *text = json_string_value(item);
        KG_AUTO_FREE char *name = requirement_name(text);
        const char *version = version_in(resolution, name);
        // With its extras, since they may have brought further wheels.
        int len = (int)strcspn(text, "=~!<>");
        KG_AUTO_FREE char *exact = version ? kg_asprintf("%.*s==%s", len, text, version) : NULL;
        json_array_append_new(pinned, json_string(exact ? exact : text));
    }
    write_record(wheels, environment, packages, resolution);
    if (!json_equal(pinned, packages))
        write_record(wheels, environment, pinned, resolution);
}

// ---- Wheels ---------------------------------------------------------------------------------

void
wheel_file_cancel(struct wheel_file *file)
{
    if (!file)
        return;
    close(file->fd);
    (void)unlink(file->path);
    free(file->path);
    free(file->final);
    free(file);
}

struct wheel_file *
wheel_file_new(struct wheels *wheels, const json_t *wheel, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/XXXXXX", wheels->incoming);
    int64_t size = json_integer_value(json_object_get(wheel, "size"));
    wheel_room_make(wheels->room, size);
    if (disk_check_free(wheels->incoming, size, err) < 0)
        return NULL;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        kg_error_set(err, KG_INTERNAL, errno, "cannot make a file in %.100s", wheels->incoming);
        return NULL;
    }
    struct wheel_file *file = KG_NEW(struct wheel_file);
    file->wheels = wheels;
    file->path = KG_STEAL(path);
    file->final = wheel_path(wheels, wheel);
    file->fd = fd;
    file->size = size;
    snprintf(file->sha256, sizeof file->sha256, "%s",
             json_string_value(json_object_get(wheel, "sha256")));
    crypto_hash_sha256_init(&file->hash);
    return file;
}

int
wheel_file_write(struct wheel_file *file, const void *data, size_t len, struct kg_error *err)
{
    if ((int64_t)len > file->size - file->len)
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel is larger than announced");
    ssize_t n = pwrite(file->fd, data, len, file->len);
    if (n != (ssize_t)len)
        return kg_error_set(err, KG_INTERNAL, n < 0 ? errno : ENOSPC,
                            "cannot write a wheel to the cache");
    crypto_hash_sha256_update(&file->hash, data, len);
    file->len += n;
    return 0;
}

static int
move_into_cache(struct wheel_file *file)
{
    KG_AUTO_FREE char *folder =
        kg_strndup(file->final, (size_t)(strrchr(file->final, '/') - file->final));
    if ((mkdir(folder, 0700) < 0 && errno != EEXIST) || rename(file->path, file->final) < 0)
        return -1;
    // Another download may have brought the same wheel meanwhile.
    wheel_room_add(file->wheels->room, file->final + strlen(file->wheels->files) + 1, file->size);
    return 0;
}

static int
place(struct wheel_file *file, struct kg_error *err)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[HASH_HEX + 1];
    crypto_hash_sha256_final(&file->hash, hash);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    if (file->len != file->size || strcmp(hex, file->sha256) != 0)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a wheel's size or SHA-256 is not the one that the index gives");
    if (move_into_cache(file) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot write a wheel to the cache");
    return 0;
}

int
wheel_file_finish(struct wheel_file *file, struct kg_error *err)
{
    int result = place(file, err);
    wheel_file_cancel(file); // the temporary name is gone already
    return result;
}

// ---- The folder -----------------------------------------------------------------------------

static int
fill_shared(const struct wheels *wheels, const char *authorities, struct kg_error *err)
{
    KG_AUTO_FREE char *script = kg_asprintf("%s/packages.py", wheels->shared);
    KG_AUTO_FREE char *unpack = kg_asprintf("%s/unpack.py", wheels->shared);
    KG_AUTO_FREE char *ca = kg_asprintf("%s/ca.pem", wheels->shared);
    KG_AUTO_BUF text = {0};
    if (file_write_atomic(script, packages_script, packages_script_len, 0644, err) < 0 ||
        file_write_atomic(unpack, unpack_script, unpack_script_len, 0644, err) < 0)
        return -1;
    if (!authorities)
        return path_remove_tree(ca, err);
    if (file_read(authorities, MAX_CA_BYTES, &text, err) < 0)
        return -1;
    return file_write_atomic(ca, text.data ? text.data : "", text.len, 0644, err);
}

// Wheels that sandboxes saw, and resolutions of no environment, both of version 0.2.0.
static int
remove_old(const char *dir, const char *shared, struct kg_error *err)
{
    KG_AUTO_FREE char *old_wheels = kg_asprintf("%s/wheels", shared);
    KG_AUTO_FREE char *old_records = kg_asprintf("%s/resolved", dir);
    int result = path_remove_tree(old_wheels, err);
    return result < 0 ? result : path_remove_tree(old_records, err);
}

struct wheels *
wheels_new(const char *dir, const char *authorities, struct kg_error *err)
{
    KG_AUTO(wheels) wheels = KG_NEW(struct wheels);
    wheels->shared = kg_asprintf("%s/shared", dir);
    wheels->files = kg_asprintf("%s/wheels", dir);
    wheels->records = kg_asprintf("%s/resolutions", dir);
    wheels->incoming = kg_asprintf("%s/incoming", dir);
    // Sandboxes' users must be able to read what is mounted, whatever the umask.
    mode_t mask = umask(0);
    int result = dir_make(dir, 0711, err);
    if (result == 0)
        result = path_remove_tree(wheels->incoming, err);
    if (result == 0)
        result = dir_make(wheels->shared, 0755, err);
    if (result == 0)
        result = remove_old(dir, wheels->shared, err);
    if (result == 0)
        result = dir_make(wheels->files, 0700, err);
    if (result == 0)
        result = dir_make(wheels->records, 0700, err);
    if (result == 0)
        result = dir_make(wheels->incoming, 0700, err);
    if (result == 0)
        result = fill_shared(wheels, authorities, err);
    umask(mask);
    if (result != 0)
        return NULL;
    wheels->room = wheel_room_new(wheels->files, CACHE_MAX_BYTES, CACHE_MAX_FILES);
    wheels->record_room = wheel_room_new(wheels->records, RECORDS_MAX_BYTES, CACHE_MAX_FILES);
    return KG_STEAL(wheels);
}

void
wheels_free(struct wheels *wheels)
{
    if (!wheels)
        return;
    free(wheels->shared);
    free(wheels->files);
    free(wheels->records);
    free(wheels->incoming);
    wheel_room_free(wheels->room);
    wheel_room_free(wheels->record_room);
    free(wheels);
}

const char *
wheels_shared_dir(const struct wheels *wheels)
{
    return wheels->shared;
}
