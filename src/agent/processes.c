// SPDX-License-Identifier: Apache-2.0
// Walking /proc. What it says is taken as numbers only: names in it are the tenant's.
#include "processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MAX_DEPTH = 256, ENVIRON_MAX = 4 << 20 };

struct process {
    pid_t pid;
    pid_t parent;
    pid_t session;
    bool alive;
    bool stopped;
    long threads;
};

struct process_list {
    struct process *items;
    size_t n;
};

static int
read_process(int proc, const char *name, struct process *ret)
{
    char path[64];
    char text[1024];
    char state;

    if (snprintf(path, sizeof path, "%s/stat", name) >= (int)sizeof path)
        return -1;
    KG_AUTO_FD fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (len <= 0)
        return -1;
    text[len] = '\0';
    // The command's name may hold anything, parentheses too.
    const char *rest = strrchr(text, ')');
    if (!rest ||
        sscanf(rest + 1, " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
               &state, &ret->parent, &ret->session, &ret->threads) != 4)
        return -1;
    ret->pid = (pid_t)strtol(name, NULL, 10);
    ret->stopped = state == 'T' || state == 't';
    // The leader of a group of threads may be a zombie while others run.
    ret->alive = (state != 'Z' && state != 'X') || ret->threads > 1;
    return 0;
}

static int
compare_pids(const void *a, const void *b)
{
    const struct process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

// Sorted by pid; `items` is to be freed.
static void
list_processes(struct process_list *ret)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    size_t cap = 0;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        if (ret->n == cap) {
            cap = cap ? cap * 2 : 128;
            ret->items = kg_realloc(ret->items, cap * sizeof *ret->items);
        }
        if (read_process(dirfd(dir), entry->d_name, &ret->items[ret->n]) == 0)
            ret->n++;
    }
    if (dir)
        closedir(dir);
    if (ret->n > 0)
        qsort(ret->items, ret->n, sizeof *ret->items, compare_pids);
}

static const struct process *
find_process(const struct process_list *list, pid_t pid)
{
    const struct process key = {.pid = pid};
    return bsearch(&key, list->items, list->n, sizeof key, compare_pids);
}

static bool
in_set(pid_t pid, const pid_t *set, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (set[i] == pid)
            return true;
    }
    return false;
}

static bool
orphans_come_to_keepers(void)
{
    int own;
    return prctl(PR_GET_CHILD_SUBREAPER, &own) == 0;
}

// Whether the process carries the mark of one of the keepers.
static bool
is_marked(pid_t pid, const pid_t *keepers, size_t n)
{
    KG_AUTO_BUF environment = {0};
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/environ", (int)pid);
    if (n == 0 || orphans_come_to_keepers() ||
        file_read(path, ENVIRON_MAX, &environment, NULL) != 0 || environment.len == 0)
        return false;
    const char *end = environment.data + environment.len;
    for (const char *at = environment.data; at < end; at += strlen(at) + 1) {
        if (strncmp(at, PROCESSES_MARK, strlen(PROCESSES_MARK)) == 0)
            return in_set((pid_t)strtol(at + strlen(PROCESSES_MARK), NULL, 10), keepers, n);
    }
    return false;
}

static bool
is_victim(const struct process_list *list, const struct process *process, pid_t self,
          const pid_t *spared, size_t n_spared)
{
    if (process->pid == self || in_set(process->session, spared, n_spared) ||
        is_marked(process->pid, spared, n_spared))
        return false;
    for (int depth = 0; process && depth < MAX_DEPTH; depth++) {
        if (in_set(process->pid, spared, n_spared))
            return false;
        if (process->parent == self)
            return true;
        process = find_process(list, process->parent);
    }
    // Not below the agent: as PID 1 it is somebody's who entered the sandbox, else not ours.
    return self == 1;
}

int
processes_kill(const pid_t *spared, size_t n_spared)
{
    pid_t self = getpid();
    struct process_list list = {0};
    int alive = 0;

    // One call that no fork can outrun.
    if (self == 1 && n_spared == 0)
        (void)kill(-1, SIGKILL);
    list_processes(&list);
    for (size_t i = 0; i < list.n; i++) {
        const struct process *process = &list.items[i];
        if (!process->alive || !is_victim(&list, process, self, spared, n_spared))
            continue;
        (void)kill(process->pid, SIGKILL);
        alive++;
    }
    free(list.items);
    return alive;
}

// ---- One command's --------------------------------------------------------------------------

static bool
descends_from(const struct process_list *list, const struct process *process, pid_t root)
{
    for (int depth = 0; process && depth < MAX_DEPTH; depth++) {
        if (process->parent == root)
            return true;
        process = find_process(list, process->parent);
    }
    return false;
}

static bool
belongs_to(const struct process_list *list, const struct process *process, pid_t root)
{
    return process->pid != root &&
           (process->session == root || descends_from(list, process, root) ||
            is_marked(process->pid, &root, 1));
}

// What is stopped takes no other signal before it goes on.
static void
end_process(pid_t pid, int signum)
{
    (void)kill(pid, signum);
    if (signum != SIGKILL)
        (void)kill(pid, SIGCONT);
}

void
processes_signal(pid_t root, int signum)
{
    struct process_list list = {0};

    list_processes(&list);
    for (size_t i = 0; i < list.n; i++) {
        if (list.items[i].alive && belongs_to(&list, &list.items[i], root))
            end_process(list.items[i].pid, signum);
    }
    free(list.items);
}

int
processes_freeze(pid_t root)
{
    struct process_list list = {0};
    int n = 0;

    list_processes(&list);
    for (size_t i = 0; i < list.n; i++) {
        const struct process *process = &list.items[i];
        if (!process->alive || process->stopped || !belongs_to(&list, process, root))
            continue;
        (void)kill(process->pid, SIGSTOP);
        n++;
    }
    free(list.items);
    return n;
}

int
processes_root_of(pid_t pid, const pid_t *roots, size_t n)
{
    struct process_list list = {0};
    int found = -1;

    list_processes(&list);
    const struct process *process = find_process(&list, pid);
    for (size_t i = 0; process && found < 0 && i < n; i++) {
        if (pid == roots[i] || belongs_to(&list, process, roots[i]))
            found = (int)i;
    }
    free(list.items);
    return found;
}

int
processes_count(pid_t root)
{
    struct process_list list = {0};
    int n = 0;

    list_processes(&list);
    for (size_t i = 0; i < list.n; i++)
        n += list.items[i].alive && belongs_to(&list, &list.items[i], root);
    free(list.items);
    return n;
}

int
processes_threads(void)
{
    struct process_list list = {0};
    long n = 0;

    list_processes(&list);
    for (size_t i = 0; i < list.n; i++)
        n += list.items[i].alive ? list.items[i].threads : 0;
    free(list.items);
    return (int)n;
}

// ---- What one uses --------------------------------------------------------------------------

int64_t
process_own_memory(pid_t pid)
{
    enum { TEXT_MAX = 16 << 10 };
    static const char name[] = "\nPrivate_"; // of several lines
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/smaps_rollup", (int)pid);
    KG_AUTO_BUF text = {0};
    long long kib = 0, part;

    if (file_read(path, TEXT_MAX, &text, NULL) != 0 || text.len == 0)
        return -1;
    for (const char *at = text.data; (at = strstr(at, name)); at++) {
        if (sscanf(at + strlen(name), "%*[A-Za-z]: %lld kB", &part) == 1)
            kib += part;
    }
    return kib * 1024;
}

uint64_t
process_ticks(pid_t pid)
{
    enum { TEXT_MAX = 4 << 10 };
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/stat", (int)pid);
    KG_AUTO_BUF text = {0};
    unsigned long long user, system;

    const char *rest =
        file_read(path, TEXT_MAX, &text, NULL) == 0 && text.len ? strrchr(text.data, ')') : NULL;
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                        &system) != 2)
        return 0;
    return user + system;
}
