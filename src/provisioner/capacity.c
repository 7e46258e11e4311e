// SPDX-License-Identifier: Apache-2.0
// How many sessions a machine has room for.

#include <sys/resource.h>

#include "provisioner.h"

#define MIB (INT64_C(1) << 20)

int64_t
provisioner_max_files(void)
{
    struct rlimit files;
    bool bounded = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < INT64_MAX;
    return bounded ? (int64_t)files.rlim_max : INT64_MAX;
}

int64_t
provisioner_sessions_for(int64_t memory_bound, int64_t memory_mb, int64_t max_files)
{
    const int64_t of_session = MIB * (memory_mb > 512 ? memory_mb : 512);
    int64_t n = memory_bound / of_session;
    if (n > max_files / PROVISIONER_SESSION_FILES)
        n = max_files / PROVISIONER_SESSION_FILES;
    if (n > PROVISIONER_SESSIONS_MOST)
        n = PROVISIONER_SESSIONS_MOST;
    return n < PROVISIONER_SESSIONS_LEAST ? PROVISIONER_SESSIONS_LEAST : n;
}
