// SPDX-License-Identifier: Apache-2.0
// How a daemon that root has started gives up what it does not need. It splits into two processes:
// the gateway, which parses all that is untrusted, becomes an ordinary user who can start no
// program (privileges_drop(), then privileges_filter()); the helper, which runs the OCI runtime,
// stays root and keeps some capabilities (privileges_limit()).
//
// The functions block, and none keeps what it is given. Those that change the process have no way
// back, and a failure leaves it somewhere between: the caller must then end the process. All of
// them fail with KG_INVALID where the operator can repair a setting, else with KG_INTERNAL.
#pragma once

#include <sys/types.h>

#include "base.h"

enum {
    // Who the gateway is on a machine without a user `kernelgate`. It needs no line in /etc/passwd,
    // and is below the ids of systemd's dynamic users (61184 to 65519), in a range that systemd
    // leaves unused.
    PRIVILEGES_DEFAULT_ID = 61160,
    PRIVILEGES_GROUPS_MAX = 32,
};
#define PRIVILEGES_DEFAULT_NAME "kernelgate"

// All zeros is no user.
struct privileges_user {
    uid_t uid;
    gid_t gid;
    gid_t groups[PRIVILEGES_GROUPS_MAX]; // the supplementary ones, without `gid`
    size_t n_groups;
    char name[33]; // for messages: the user's name, maybe cut, or the uid as text
};

// ---- Who ------------------------------------------------------------------------------------

// Finds whom the setting `user` means: a user of this machine by name, with all of the user's
// groups; or UID:GID in numbers, without other groups; or, if `setting` is NULL, the machine's user
// `kernelgate` if there is one, else PRIVILEGES_DEFAULT_ID. Root and root's group, also as a
// supplementary one, are refused, like unknown users and more than PRIVILEGES_GROUPS_MAX groups.
// Asks the machine's name service, which may load libraries and read the network: call it before
// the process gives anything up. From any thread.
KG_MUST_CHECK int privileges_user_find(const char *setting, struct privileges_user *ret,
                                       struct kg_error *err);

// Adds a supplementary group, such as that of a socket which the gateway must open, unless the user
// is in it already. Fails for root's group, and if there is no room.
KG_MUST_CHECK int privileges_user_add_group(struct privileges_user *user, gid_t group,
                                            struct kg_error *err);

// ---- Giving up ------------------------------------------------------------------------------

// Becomes that user for good, without capabilities (their five sets are empty), and such that no
// program that is executed later has more (no_new_privs). Reads all of this back, and fails if
// anything is left. For a process of one thread that may change its ids, as root does; fails
// without a change if there are more threads. What the process has open stays open. Linux makes it
// not dumpable: no process of the same user may trace it, and root owns its files below /proc.
KG_MUST_CHECK int privileges_drop(const struct privileges_user *user, struct kg_error *err);

// Stays the user that it is, but keeps no other capabilities than these `n` (CAP_* of
// linux/capability.h): the effective, permitted and bounding sets become the same, the inheritable
// and ambient ones empty, with no_new_privs. If the user is root, the programs that the process
// executes have exactly the same ones. A capability that the process has not, or that is not in its
// bounding set, stays away without an error: containers lack some. For a process of one thread with
// CAP_SETPCAP, which it may give up by this call; fails without a change if there are more threads.
KG_MUST_CHECK int privileges_limit(const int *capabilities, size_t n, struct kg_error *err);

// Lets this thread, and those that it starts from now on, make only the system calls that the
// gateway needs; sets no_new_privs. It can start threads, but neither processes nor programs, and
// it has no children to wait for (ECHILD). It has sockets of IPv4, IPv6, Unix and netlink's routes.
// Calls that change namespaces, mounts, users, the kernel or other processes fail with EPERM, all
// others that are not allowed with ENOSYS, as on a kernel that does not know them; a call of
// another ABI of the machine ends the process by SIGSYS. For a process of one thread, which is not
// checked. In a build with sanitizers, what these do at a report and at the end of the process is
// allowed: processes, programs and ptrace, too.
KG_MUST_CHECK int privileges_filter(struct kg_error *err);
