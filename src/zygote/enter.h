// SPDX-License-Identifier: Apache-2.0
// A library that a zygote's Python loads to fork itself into a sandbox. It starts no threads, uses
// no Python objects, and is called with Python's global lock held.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The steps by which a child enters a sandbox, for error messages.
enum enter_step {
    ENTER_OOM_SCORE,
    ENTER_GROUPS,
    ENTER_NAMESPACES,
    ENTER_FOLDER,
    ENTER_BOUNDING_SET,
    ENTER_USER,
    ENTER_CAPABILITIES,
    ENTER_FILTER,
    ENTER_DESCRIPTORS,
    ENTER_SECOND_FORK,
    ENTER_THIRD_FORK,
    ENTER_SESSION,
};

// A child writes this to the zygote once, when it is in the sandbox or a step has failed. A child
// that is killed writes nothing.
struct enter_report {
    int32_t pid; // of the kernel, in the sandbox; 0: a step has failed
    int32_t step;
    int32_t failure; // errno
};

struct enter_spec {
    int pidfd;           // of the sandbox's init
    const int *groups;   // cgroup.procs of its control groups, open for writing
    size_t n_groups;     //
    int user_namespace;  // whether the sandbox has its own
    const char *folder;  // the kernel's working folder, inside
    const char *output;  // a FIFO, inside: its stdout and stderr
    const void *filter;  // struct sock_filter
    unsigned filter_len; // instructions
    unsigned user;       // its user and group id, inside
};

// Prepares the zygote for forks, and makes it not dumpable: other processes can no longer trace or
// read it. Returns -1 with errno.
int enter_prepare(void);
// Forks. In the child, returns 0 when the child is in the sandbox, with no more rights than the
// sandbox's other processes. In the zygote, returns at once: the process id of the one that joins,
// which the caller must reap, and which ends soon after the report. A struct enter_report can be
// read from `ret_report_fd`, which the caller owns. Returns -1 with errno if nothing was forked.
int enter_fork(const struct enter_spec *spec, int *ret_report_fd);
// What a step does, for messages.
const char *enter_step_name(int step);
