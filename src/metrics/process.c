// SPDX-License-Identifier: Apache-2.0
// What Linux says of this process, under the names that Prometheus's own clients use.

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "metrics.h"

// proc_pid_stat(5): counted from 1, the name in parentheses (which may hold anything) is the 2nd.
enum { STAT_FIRST_AFTER_NAME = 3, STAT_START_TICKS = 22, STAT_RESIDENT_PAGES = 24 };

static double
seconds_of(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double
stat_field(const char *after_name, int wanted)
{
    const char *at = after_name;
    for (int field = STAT_FIRST_AFTER_NAME; at && field < wanted; field++) {
        at = strchr(at, ' ');
        at += at ? 1 : 0;
    }
    return at ? strtod(at, NULL) : 0;
}

static void
read_stat(void)
{
    static double started; // computed once: it would follow every step of the wall clock
    enum { MAX_STAT = 4096 };
    KG_AUTO_BUF stat = {0};
    struct kg_error err = {0};
    const char *name_end = NULL;
    if (file_read("/proc/self/stat", MAX_STAT, &stat, &err) == 0)
        name_end = strrchr(stat.data, ')');
    if (!name_end || name_end[1] != ' ')
        return;
    double pages = stat_field(name_end + 2, STAT_RESIDENT_PAGES);
    double ticks = stat_field(name_end + 2, STAT_START_TICKS);
    if (started == 0)
        started = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) +
                  ticks / (double)sysconf(_SC_CLK_TCK);
    metric_set(METRIC_PROCESS_RESIDENT_BYTES, pages * (double)sysconf(_SC_PAGESIZE));
    metric_set(METRIC_PROCESS_START_SECONDS, started);
}

static void
count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return;
    int n = -1; // the folder's own
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    metric_set(METRIC_PROCESS_OPEN_FDS, n);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        metric_set(METRIC_PROCESS_MAX_FDS, (double)limit.rlim_cur);
}

void
metrics_read_process(void)
{
    metric_set(METRIC_PROCESS_CPU_SECONDS, seconds_of(CLOCK_PROCESS_CPUTIME_ID));
    read_stat();
    count_fds();
}
