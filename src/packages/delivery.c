// SPDX-License-Identifier: Apache-2.0
// Deliveries: copies files of the shared folder into a sandbox that does not see it, one after the
// other, by the agent's files.write.

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packages_priv.h"
#include "sandbox.h"

enum { PART_MS = 30 * 1000 }; // for an answer, or until the next part of a file is taken

// removing -> writing, a file at a time -> done
//             failed -> removing -> done
struct packages_delivery {
    const struct packages *packages;
    struct sandbox *sandbox;
    struct sandbox_call *call;
    json_t *files;
    size_t n_begun;
    int fd; // of the file that is being written; or -1
    int64_t size;
    int64_t n_read;
    struct kg_error err; // the first one
    packages_delivery_fn fn;
    void *arg;
};

bool
packages_need_delivery(const struct packages *packages)
{
    return !packages->sandboxes->shares_folders;
}

char *
packages_path_inside(const struct packages *packages, const char *path)
{
    bool delivered = packages_need_delivery(packages);
    return kg_asprintf("%s/%s", delivered ? "/mnt/data/" PACKAGES_DELIVERED : PACKAGES_INSIDE,
                       path);
}

// ---- The end --------------------------------------------------------------------------------

static void
close_file(struct packages_delivery *delivery)
{
    if (delivery->fd >= 0)
        close(KG_STEAL_FD(delivery->fd));
}

void
packages_delivery_cancel(struct packages_delivery *delivery)
{
    if (!delivery)
        return;
    sandbox_call_cancel(delivery->call);
    close_file(delivery);
    json_decref(delivery->files);
    free(delivery);
}

static void
delivery_finish(struct packages_delivery *delivery)
{
    const struct kg_error err = delivery->err;
    packages_delivery_fn fn = delivery->fn;
    void *arg = delivery->arg;
    packages_delivery_cancel(delivery);
    fn(err.code ? &err : NULL, arg);
}

// ---- Removing -------------------------------------------------------------------------------

static void write_next(struct packages_delivery *delivery);

static void
delivery_on_removed(const json_t *result, const struct kg_error *err, void *arg)
{
    struct packages_delivery *delivery = arg;
    (void)result;
    delivery->call = NULL;
    if (err && err->code != KG_NOT_FOUND && !delivery->err.code)
        delivery->err = *err;
    if (delivery->err.code)
        delivery_finish(delivery);
    else
        write_next(delivery);
}

static int
remove_all(struct packages_delivery *delivery, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s, s:b}", "path", PACKAGES_DELIVERED, "own", 1);
    delivery->call = sandbox_agent_call(delivery->sandbox, "files.delete", params, PART_MS,
                                        delivery_on_removed, delivery, err);
    return delivery->call ? 0 : -1;
}

static void
delivery_fail(struct packages_delivery *delivery, const struct kg_error *err)
{
    struct kg_error ignored;
    delivery->err = *err;
    if (remove_all(delivery, &ignored) < 0)
        delivery_finish(delivery);
}

// ---- Writing --------------------------------------------------------------------------------

static const char *
path_of(const struct packages_delivery *delivery)
{
    return json_string_value(json_array_get(delivery->files, delivery->n_begun - 1));
}

// What cannot be read is sent as zeros, and fails the delivery when the call has ended.
static size_t
delivery_on_read(void *to, size_t len, void *arg)
{
    struct packages_delivery *delivery = arg;
    if (delivery->err.code ||
        fd_read_at(delivery->fd, delivery->n_read, to, len, &delivery->err) < 0)
        memset(to, 0, len);
    delivery->n_read += (int64_t)len;
    return len;
}

static void
delivery_on_written(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct packages_delivery *delivery = arg;
    const char *path = path_of(delivery);
    struct kg_error err = call_err ? *call_err : delivery->err;
    (void)result;
    delivery->call = NULL;
    close_file(delivery);
    if (err.code == KG_DISK_FULL)
        kg_error_set(&err, KG_DISK_FULL, 0,
                     "the session's disk has no room for %.100s (%lld bytes): see disk-mb",
                     strrchr(path, '/') ? strrchr(path, '/') + 1 : path, (long long)delivery->size);
    if (err.code)
        delivery_fail(delivery, &err);
    else
        write_next(delivery);
}

static int
open_file(struct packages_delivery *delivery, struct kg_error *err)
{
    struct stat st;
    KG_AUTO_FREE char *path = wheels_locate(delivery->packages->wheels, path_of(delivery));
    delivery->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (delivery->fd < 0 || fstat(delivery->fd, &st) < 0)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a wheel was removed from the cache meanwhile; try again");
    delivery->size = st.st_size;
    delivery->n_read = 0;
    return 0;
}

static int
write_file(struct packages_delivery *delivery, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_end = delivery_on_written};
    if (open_file(delivery, err) < 0)
        return -1;
    KG_AUTO_FREE char *path = kg_asprintf(PACKAGES_DELIVERED "/%s", path_of(delivery));
    json_auto_t *params = json_pack("{s:s, s:b, s:b}", "path", path, "keep", 0, "own", 1);
    const struct sandbox_stream_spec spec = {
        .method = "files.write",
        .params = params,
        .body = {.read = delivery_on_read, .arg = delivery, .len = (size_t)delivery->size},
        .head_timeout_ms = PART_MS,
    };
    delivery->call = sandbox_agent_stream(delivery->sandbox, &spec, &events, delivery, err);
    return delivery->call ? 0 : -1;
}

static void
write_next(struct packages_delivery *delivery)
{
    struct kg_error err = {0};
    if (delivery->n_begun == json_array_size(delivery->files)) {
        delivery_finish(delivery);
        return;
    }
    delivery->n_begun++;
    if (write_file(delivery, &err) < 0)
        delivery_fail(delivery, &err);
}

// ---- Start ----------------------------------------------------------------------------------

struct packages_delivery *
packages_deliver(const struct packages *packages, struct sandbox *sandbox, const json_t *files,
                 packages_delivery_fn fn, void *arg, struct kg_error *err)
{
    struct packages_delivery *delivery = KG_NEW(struct packages_delivery);
    delivery->packages = packages;
    delivery->sandbox = sandbox;
    delivery->files = json_deep_copy(files);
    delivery->fd = -1;
    delivery->fn = fn;
    delivery->arg = arg;
    if (remove_all(delivery, err) == 0)
        return delivery;
    packages_delivery_cancel(delivery);
    return NULL;
}
