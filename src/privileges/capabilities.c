// SPDX-License-Identifier: Apache-2.0
// Ids and capabilities are given up, and read back: nothing relies on what Linux drops by itself.
// See capabilities(7).
#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "privileges.h"

enum { STATUS_MAX = 64 * 1024 };

// ---- The sets -------------------------------------------------------------------------------

// A bit for each capability.
struct capabilities {
    uint64_t effective, permitted, inheritable, bounding, ambient;
};

static uint64_t
capabilities_bit(int capability)
{
    return UINT64_C(1) << capability;
}

static int
capabilities_read(struct capabilities *ret, struct kg_error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0}; // the low and the high 32 bits
    if (syscall(SYS_capget, &header, data) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot read the process's capabilities");
    *ret = (struct capabilities){
        .effective = (uint64_t)data[1].effective << 32 | data[0].effective,
        .permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted,
        .inheritable = (uint64_t)data[1].inheritable << 32 | data[0].inheritable,
    };
    // The first number that Linux does not know ends the list.
    for (int i = 0, has; i < 64 && (has = prctl(PR_CAPBSET_READ, i, 0, 0, 0)) >= 0; i++) {
        if (has)
            ret->bounding |= capabilities_bit(i);
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1)
            ret->ambient |= capabilities_bit(i);
    }
    return 0;
}

// Needs CAP_SETPCAP if anything is to be dropped.
static int
capabilities_bound(uint64_t keep, struct kg_error *err)
{
    for (int i = 0, has; i < 64 && (has = prctl(PR_CAPBSET_READ, i, 0, 0, 0)) >= 0; i++) {
        if (has && !(keep & capabilities_bit(i)) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0)
            return kg_error_set(err, KG_INTERNAL, errno,
                                "cannot drop capability %d from the bounding set", i);
    }
    return 0;
}

// All sets but the bounding one.
static int
capabilities_set(uint64_t keep, struct kg_error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)},
    };
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot empty the ambient set");
    if (syscall(SYS_capset, &header, data) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot set the process's capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot set no_new_privs");
    return 0;
}

static int
capabilities_verify(uint64_t kept, struct kg_error *err)
{
    struct capabilities now = {0};
    if (capabilities_read(&now, err) != 0)
        return -1;
    if (now.effective != kept || now.permitted != kept || now.bounding != kept ||
        now.inheritable != 0 || now.ambient != 0)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "the process has other capabilities than it should (%" PRIx64
                            "): effective %" PRIx64 ", permitted %" PRIx64 ", bounding %" PRIx64
                            ", inheritable %" PRIx64 ", ambient %" PRIx64,
                            kept, now.effective, now.permitted, now.bounding, now.inheritable,
                            now.ambient);
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return kg_error_set(err, KG_INTERNAL, 0, "no_new_privs is not set");
    return 0;
}

// Capabilities are those of a thread, not of a process: others would keep theirs.
static int
capabilities_check_threads(struct kg_error *err)
{
#ifdef __SANITIZE_THREAD__ // has a thread of its own
    (void)err;
#else
    KG_AUTO_BUF status = {0};
    if (file_read("/proc/self/status", STATUS_MAX, &status, err) != 0)
        return -1;
    if (!strstr(status.data, "\nThreads:\t1\n"))
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a process can give up privileges only before it starts threads");
#endif
    return 0;
}

int
privileges_limit(const int *capabilities, size_t n, struct kg_error *err)
{
    struct capabilities had = {0};
    uint64_t keep = 0;
    for (size_t i = 0; i < n; i++) {
        assert(capabilities[i] >= 0 && capabilities[i] < 64);
        keep |= capabilities_bit(capabilities[i]);
    }
    if (capabilities_check_threads(err) != 0 || capabilities_read(&had, err) != 0)
        return -1;
    keep &= had.permitted & had.bounding;
    if (capabilities_bound(keep, err) != 0 || capabilities_set(keep, err) != 0)
        return -1;
    return capabilities_verify(keep, err);
}

// ---- The user -------------------------------------------------------------------------------

static int
user_become(const struct privileges_user *user, struct kg_error *err)
{
    if (setgroups(user->n_groups, user->groups) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot take the groups of user %s",
                            user->name);
    if (setresgid(user->gid, user->gid, user->gid) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot take the group of user %s",
                            user->name);
    // The last of the three: it needs no capabilities afterwards, and the others do.
    if (setresuid(user->uid, user->uid, user->uid) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot become user %s", user->name);
    return 0;
}

// Linux sorts them.
static bool
user_has_groups(const struct privileges_user *user)
{
    gid_t groups[PRIVILEGES_GROUPS_MAX];
    int n = getgroups(PRIVILEGES_GROUPS_MAX, groups);
    if (n < 0 || (size_t)n != user->n_groups)
        return false;
    for (size_t i = 0, j; i < user->n_groups; i++) {
        for (j = 0; j < user->n_groups && groups[j] != user->groups[i]; j++)
            ;
        if (j == user->n_groups)
            return false;
    }
    return true;
}

static int
user_verify(const struct privileges_user *user, struct kg_error *err)
{
    uid_t uid[3];
    gid_t gid[3];
    bool ok = getresuid(&uid[0], &uid[1], &uid[2]) == 0 &&
              getresgid(&gid[0], &gid[1], &gid[2]) == 0 && user_has_groups(user);
    for (int i = 0; ok && i < 3; i++)
        ok = uid[i] == user->uid && gid[i] == user->gid;
    if (!ok)
        return kg_error_set(err, KG_INTERNAL, 0, "the process has not become user %s", user->name);
    if (setuid(0) == 0 || setgid(0) == 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the process can become root again");
    return 0;
}

int
privileges_drop(const struct privileges_user *user, struct kg_error *err)
{
    if (user->uid == 0 || user->gid == 0 || user->n_groups > PRIVILEGES_GROUPS_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "no user to become");
    if (capabilities_check_threads(err) != 0)
        return -1;
    // The bounding set first: a user who is not root has no capability to change it.
    if (capabilities_bound(0, err) != 0 || user_become(user, err) != 0 ||
        capabilities_set(0, err) != 0 || capabilities_verify(0, err) != 0)
        return -1;
    return user_verify(user, err);
}
