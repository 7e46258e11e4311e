// SPDX-License-Identifier: Apache-2.0
// The keys in force. A changed file is read and checked on a worker, since hashing 1 MiB of keys
// takes longer than the loop may be held; then the whole set is replaced.

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "auth_priv.h"
#include "file_watch.h"

// Belongs to the worker until it is done.
struct reading {
    struct api_keys *keys;
    char *path;
    int fd;              // the open file; -1: the path is to be opened
    struct key_set *set; // the fixed key, then also those of the file
    bool failed;
    struct kg_error err;
};

struct api_keys {
    struct http_authenticator authenticator; // the first member
    char *path;
    struct http_quota alone;
    struct http_quota shared;
    struct key_set *fixed; // the setting api-key
    struct key_set *set;   // in force
    struct loop *loop;
    struct loop_file_watch *watch; // NULL: nobody watches, or somebody else does
    struct loop_work *work;        // while the file is read
    struct reading *next;          // what is read then; NULL: nothing
    loop_fn on_change;
    void *arg;
};

// ---- The authenticator ----------------------------------------------------------------------

static struct http_check *
keys_check(struct http_authenticator *authenticator, const char *credential, char *ret_owner,
           http_checked_fn done, void *arg)
{
    (void)done;
    (void)arg;
    const struct api_keys *keys = (const struct api_keys *)authenticator;
    const char *owner = key_set_find(keys->set, credential);
    strcpy(ret_owner, owner ? owner : ""); // at most HTTP_OWNER_MAX characters
    return NULL;
}

static struct http_quota
keys_quota(const struct http_authenticator *authenticator, const char *owner)
{
    (void)owner;
    const struct api_keys *keys = (const struct api_keys *)authenticator;
    return key_set_has_several_owners(keys->set) ? keys->shared : keys->alone;
}

static bool
keys_have_owner(const struct http_authenticator *authenticator, const char *owner)
{
    const struct api_keys *keys = (const struct api_keys *)authenticator;
    return key_set_has_owner(keys->set, owner);
}

static struct http_check *
keys_check_owner(struct http_authenticator *authenticator, const char *owner, char *ret_owner,
                 http_checked_fn done, void *arg)
{
    (void)done;
    (void)arg;
    strcpy(ret_owner, keys_have_owner(authenticator, owner) ? owner : "");
    return NULL;
}

static const struct http_authenticator_ops keys_ops = {.check = keys_check,
                                                       .quota = keys_quota,
                                                       .has_owner = keys_have_owner,
                                                       .check_owner = keys_check_owner};

struct http_authenticator *
api_keys_authenticator(struct api_keys *keys)
{
    return &keys->authenticator;
}

void
api_keys_set_shared(struct api_keys *keys, const struct http_quota *shared)
{
    keys->shared = *shared;
}

bool
api_keys_have_several_owners(const struct api_keys *keys)
{
    return key_set_has_several_owners(keys->set);
}

// ---- A changed file -------------------------------------------------------------------------

static struct reading *
reading_new(struct api_keys *keys, int fd)
{
    struct reading *reading = KG_NEW(struct reading);
    reading->keys = keys;
    reading->path = kg_strdup(keys->path);
    reading->fd = fd;
    reading->set = key_set_copy(keys->fixed);
    return reading;
}

static void
reading_free(void *arg)
{
    struct reading *reading = arg;
    if (!reading)
        return;
    if (reading->fd >= 0)
        close(reading->fd);
    key_set_free(reading->set);
    free(reading->path);
    free(reading);
}

static void
reading_run(void *arg)
{
    struct reading *reading = arg;
    int result = reading->fd >= 0 ? key_set_add_open_file(reading->set, reading->fd, reading->path,
                                                          &reading->err)
                                  : key_set_add_file(reading->set, reading->path, &reading->err);
    reading->failed = result < 0;
}

static void
keys_not_read(const struct kg_error *err)
{
    log_error("the API keys were not read again: those read before stay valid", LOG_ERR(err));
}

static void keys_read(struct api_keys *keys, struct reading *reading);

static void
reading_done(void *arg)
{
    struct reading *reading = arg;
    struct api_keys *keys = reading->keys;
    keys->work = NULL;
    bool other = !reading->failed && !key_set_equal(reading->set, keys->set);
    if (reading->failed) {
        keys_not_read(&reading->err);
    } else if (other) {
        key_set_free(keys->set);
        keys->set = KG_STEAL(reading->set);
        log_info("the API keys have changed", LOG_INT("keys", key_set_count(keys->set)));
    }
    reading_free(reading);
    if (keys->next)
        keys_read(keys, KG_STEAL(keys->next));
    if (other && keys->on_change)
        keys->on_change(keys->arg);
}

// Takes the reading; it replaces one that waits.
static void
keys_read(struct api_keys *keys, struct reading *reading)
{
    if (keys->work) {
        reading_free(keys->next);
        keys->next = reading;
        return;
    }
    keys->work = loop_work_start(keys->loop, LOOP_LANE_GATEWAY, reading_run, reading_done, reading);
}

static void
keys_on_file(void *arg)
{
    struct api_keys *keys = arg;
    keys_read(keys, reading_new(keys, -1));
}

void
api_keys_watch(struct api_keys *keys, struct loop *loop, loop_fn on_change, void *arg)
{
    if (!keys->path)
        return;
    api_keys_follow(keys, loop, on_change, arg);
    keys->watch = loop_file_watch_new(loop, keys->path, keys_on_file, keys);
    keys_on_file(keys); // it may have changed since it was read first
}

void
api_keys_follow(struct api_keys *keys, struct loop *loop, loop_fn on_change, void *arg)
{
    keys->loop = loop;
    keys->on_change = on_change;
    keys->arg = arg;
}

void
api_keys_take_file(struct api_keys *keys, int fd, const struct kg_error *err)
{
    assert(keys->path && keys->loop);
    if (fd < 0)
        keys_not_read(err);
    else
        keys_read(keys, reading_new(keys, fd));
}

// ---- Life -----------------------------------------------------------------------------------

struct api_keys *
api_keys_new(const struct api_keys_settings *settings, struct kg_error *err)
{
    KG_AUTO(api_keys) keys = KG_NEW(struct api_keys);
    keys->authenticator.ops = &keys_ops;
    keys->alone = settings->alone;
    keys->shared = settings->shared;
    keys->fixed = key_set_new();
    if (settings->key && key_set_add(keys->fixed, "default", settings->key, err) < 0)
        return NULL;
    keys->set = key_set_copy(keys->fixed);
    keys->path = settings->path ? kg_strdup(settings->path) : NULL;
    if (keys->path && key_set_add_file(keys->set, keys->path, err) < 0)
        return NULL;
    return KG_STEAL(keys);
}

void
api_keys_free(struct api_keys *keys)
{
    if (!keys)
        return;
    if (keys->work)
        loop_work_cancel(keys->work, reading_free);
    reading_free(keys->next);
    loop_file_watch_free(keys->watch);
    key_set_free(keys->fixed);
    key_set_free(keys->set);
    free(keys->path);
    free(keys);
}
