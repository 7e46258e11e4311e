// SPDX-License-Identifier: Apache-2.0
// Who the gateway becomes: the setting `user`.
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "privileges.h"

enum { USER_RECORD_MAX = 1024 * 1024 };

// ---- Groups ---------------------------------------------------------------------------------

int
privileges_user_add_group(struct privileges_user *user, gid_t group, struct kg_error *err)
{
    if (group == 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: %s must not be in root's group (gid 0); name another user, or "
                            "give the file that is needed to another group",
                            user->name);
    if (group == user->gid)
        return 0;
    for (size_t i = 0; i < user->n_groups; i++) {
        if (user->groups[i] == group)
            return 0;
    }
    if (user->n_groups == PRIVILEGES_GROUPS_MAX)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: %s would be in more than %d groups; name a user of its own",
                            user->name, PRIVILEGES_GROUPS_MAX);
    user->groups[user->n_groups++] = group;
    return 0;
}

static int
user_check_ids(const struct privileges_user *user, struct kg_error *err)
{
    if (user->uid == 0 || user->gid == 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: %s is root, or in root's group (uid %" PRIu32 ", gid %" PRIu32
                            "); name another user, who needs no privileges",
                            user->name, user->uid, user->gid);
    return 0;
}

static int
user_find_groups(struct privileges_user *user, const char *name, struct kg_error *err)
{
    gid_t groups[PRIVILEGES_GROUPS_MAX + 1];
    int n = KG_ARRAY_LEN(groups);
    if (getgrouplist(name, user->gid, groups, &n) < 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: %s is in more than %d groups; name a user of its own",
                            user->name, PRIVILEGES_GROUPS_MAX);
    for (int i = 0; i < n; i++) {
        if (privileges_user_add_group(user, groups[i], err) != 0)
            return -1;
    }
    return 0;
}

// ---- Names ----------------------------------------------------------------------------------

// The value has 1 if there is such a user, and 0 if there is none. The strings of `ret` are in
// `memory`.
static int
user_read_record(const char *name, struct passwd *ret, struct buf *memory, struct kg_error *err)
{
    struct passwd *found = NULL;
    int failed = ERANGE;
    for (size_t size = 4096; failed == ERANGE && size <= USER_RECORD_MAX; size *= 2)
        failed = getpwnam_r(name, ret, buf_reserve(memory, size), size, &found);
    // Which of these a name service says for a missing user is its own choice: see getpwnam(3).
    if (!found && (failed == 0 || failed == ENOENT || failed == ESRCH || failed == EBADF ||
                   failed == EPERM || failed == EWOULDBLOCK))
        return 0;
    if (!found)
        return kg_error_set(err, KG_INTERNAL, failed, "user: cannot look up \"%s\"", name);
    return 1;
}

// The same value.
static int
user_find_name(const char *name, struct privileges_user *ret, struct kg_error *err)
{
    KG_AUTO_BUF memory = {0};
    struct passwd record;
    int found = user_read_record(name, &record, &memory, err);
    if (found != 1)
        return found;
    ret->uid = record.pw_uid;
    ret->gid = record.pw_gid;
    utf8_printable(name, strlen(name), ret->name, sizeof ret->name);
    return user_check_ids(ret, err) == 0 && user_find_groups(ret, name, err) == 0 ? 1 : -1;
}

// ---- Numbers --------------------------------------------------------------------------------

// Reads the digits at `*at`, and moves it behind them. The highest number is not an id, but means
// "unchanged" in system calls.
static bool
user_read_id(const char **at, uint32_t *ret)
{
    uint64_t id = 0;
    const char *begin = *at;
    for (; **at >= '0' && **at <= '9' && id < UINT32_MAX; (*at)++)
        id = id * 10 + (uint64_t)(**at - '0');
    *ret = (uint32_t)id;
    return *at > begin && id < UINT32_MAX;
}

static int
user_find_numbers(const char *setting, struct privileges_user *ret, struct kg_error *err)
{
    const char *at = setting;
    if (!user_read_id(&at, &ret->uid) || *at++ != ':' || !user_read_id(&at, &ret->gid) || *at)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: \"%s\" is not UID:GID, two numbers up to %" PRIu32, setting,
                            UINT32_MAX - 1);
    snprintf(ret->name, sizeof ret->name, "%" PRIu32, ret->uid);
    return user_check_ids(ret, err);
}

// ---- Both -----------------------------------------------------------------------------------

static int
user_find_default(struct privileges_user *ret, struct kg_error *err)
{
    int found = user_find_name(PRIVILEGES_DEFAULT_NAME, ret, err);
    if (found != 0)
        return found < 0 ? -1 : 0;
    ret->uid = PRIVILEGES_DEFAULT_ID;
    ret->gid = PRIVILEGES_DEFAULT_ID;
    snprintf(ret->name, sizeof ret->name, "%d", PRIVILEGES_DEFAULT_ID);
    return 0;
}

int
privileges_user_find(const char *setting, struct privileges_user *ret, struct kg_error *err)
{
    memset(ret, 0, sizeof *ret);
    if (!setting)
        return user_find_default(ret, err);
    if (strchr(setting, ':'))
        return user_find_numbers(setting, ret, err);
    int found = user_find_name(setting, ret, err);
    if (found == 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "user: there is no user \"%s\" on this machine; name one, or give "
                            "UID:GID in numbers",
                            setting);
    return found < 0 ? -1 : 0;
}
