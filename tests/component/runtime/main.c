// SPDX-License-Identifier: Apache-2.0
// A runtime for tests, which has runc's command line as far as kernelgate uses it: the agent is a
// plain process with a sandbox's paths, process ids, network and control group, and without its
// confinement.
//
//   test-runtime OPTIONS run [--detach] --bundle DIR --pid-file FILE NAME
//   test-runtime OPTIONS delete --force NAME
//   test-runtime OPTIONS kill NAME KILL
//
// with OPTIONS: --root DIR [--log FILE --log-format json]
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"

enum { KILL_MS = 30000, STAT_MAX = 4096, START_TIME = 22 };

static const char *root_dir, *log_file, *bundle, *pid_file, *name;
static bool detach;
static int ready_fd = -1; // of a fork that is not the agent yet

// ---- What all parts use ---------------------------------------------------------------------

void
runtime_fail(const char *format, ...)
{
    char text[1024];
    const char *why = errno ? strerror(errno) : "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *line = json_pack("{s:s, s:s++}", "level", "error", "msg", text, *why ? ": " : "", why);
    FILE *log = log_file ? fopen(log_file, "ae") : NULL;
    json_dumpf(line, log ? log : stderr, 0);
    fputc('\n', log ? log : stderr);
    fflush(NULL);
    if (ready_fd >= 0 && write(ready_fd, "x", 1) < 0)
        _exit(2);
    _exit(1);
}

char *
runtime_path(const char *format, ...)
{
    char *ret;
    va_list args;
    va_start(args, format);
    if (vasprintf(&ret, format, args) < 0)
        abort();
    va_end(args);
    return ret;
}

void
runtime_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) < 0)
        runtime_fail("cannot write %s", path);
}

void
runtime_make_folders(const char *path)
{
    char *copy = strdup(path);
    for (char *slash = copy; (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = '\0';
        mkdir(copy, 0755);
    }
    if (mkdir(copy, 0755) < 0 && errno != EEXIST)
        runtime_fail("cannot make %s", path);
    free(copy);
}

// When a process began: its id alone may be a later one's by now.
static unsigned long long
start_time(pid_t pid)
{
    char text[STAT_MAX] = "", *path = runtime_path("/proc/%d/stat", pid), *at = NULL;
    FILE *file = fopen(path, "re");
    if (file && fgets(text, sizeof text, file))
        at = strrchr(text, ')'); // the second field
    for (int field = 2; at && field < START_TIME; field++)
        at = strchr(at + 1, ' ');
    if (file)
        fclose(file);
    free(path);
    return at ? strtoull(at, NULL, 10) : 0;
}

// ---- run ------------------------------------------------------------------------------------

// By its control group the gateway finds a sandbox again. One hierarchy suffices: of version 1 the
// one that costs least, or version 2.
static void
join_group(const json_t *config, pid_t pid)
{
    static const char *const mounts[] = {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"};
    const json_t *part = json_object_get(config, "linux");
    const char *path = json_string_value(json_object_get(part, "cgroupsPath"));
    size_t i = 0;
    while (i < 1 && access(runtime_path("%s/cgroup.procs", mounts[i]), F_OK) < 0)
        i++;
    char *group = runtime_path("%s%s", mounts[i], path);
    runtime_make_folders(group);
    runtime_write(runtime_path("%s/cgroup.procs", group), runtime_path("%d", pid));
}

// Returns when the agent runs, which is when the pipe ends without a byte.
static bool
has_begun(int fd)
{
    char byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) < 0 && errno == EINTR)
        continue;
    return n == 0;
}

static int
run(void)
{
    json_error_t why;
    int ready[2], joined[2], status = 0;
    const json_t *config = json_load_file(runtime_path("%s/config.json", bundle), 0, &why);
    if (!config)
        runtime_fail("config.json: %s", why.text);
    char *state = runtime_path("%s/%s", root_dir, name);
    runtime_make_folders(state);
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) < 0 ||
        pipe2(ready, O_CLOEXEC) < 0 || pipe2(joined, O_CLOEXEC) < 0)
        runtime_fail("cannot make namespaces");
    pid_t pid = fork();
    if (pid < 0)
        runtime_fail("cannot make a process");
    if (pid == 0) {
        ready_fd = ready[1];
        close(joined[1]);
        has_begun(joined[0]); // in its group, or its children are not
        inside_enter(config);
    }
    close(ready[1]);
    join_group(config, pid);
    runtime_write(pid_file, runtime_path("%d", pid));
    runtime_write(runtime_path("%s/pid", state), runtime_path("%d %llu", pid, start_time(pid)));
    close(joined[1]);
    if (has_begun(ready[0]) && detach)
        return 0;
    waitpid(pid, &status, 0);
    unlink(runtime_path("%s/pid", state));
    rmdir(state);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// ---- kill and delete ------------------------------------------------------------------------

static void
kill_and_wait(pid_t pid, unsigned long long began)
{
    struct pollfd end = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    if (end.fd < 0 || start_time(pid) != began)
        return;
    if (pidfd_send_signal(end.fd, SIGKILL, NULL, 0) == 0 && poll(&end, 1, KILL_MS) != 1)
        runtime_fail("the process %d does not end", pid);
}

static int delete (void)
{
    int pid;
    unsigned long long began;
    char *state = runtime_path("%s/%s", root_dir, name), *path = runtime_path("%s/pid", state);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d %llu", &pid, &began) == 2)
        kill_and_wait(pid, began);
    unlink(path);
    return rmdir(state) < 0 && errno != ENOENT ? 1 : 0;
}

// ---- The command line -----------------------------------------------------------------------

// The variable that an option sets, or NULL; `--log-format` sets none that matters.
static const char **
variable_of(const char *option)
{
    static const char *ignored;
    return strcmp(option, "--root") == 0         ? &root_dir
           : strcmp(option, "--log") == 0        ? &log_file
           : strcmp(option, "--bundle") == 0     ? &bundle
           : strcmp(option, "--pid-file") == 0   ? &pid_file
           : strcmp(option, "--log-format") == 0 ? &ignored
                                                 : NULL;
}

int
main(int argc, char **argv)
{
    const char *command = "";
    bool is_version = false, is_forced = false;
    for (int i = 1; i < argc; i++) {
        const char **variable = variable_of(argv[i]);
        if (variable && i + 1 < argc)
            *variable = argv[++i];
        else if (argv[i][0] != '-' && !*command)
            command = argv[i];
        else if (argv[i][0] != '-' && !name)
            name = argv[i];
        detach |= strcmp(argv[i], "--detach") == 0;
        is_forced |= strcmp(argv[i], "--force") == 0;
        is_version |= strcmp(argv[i], "--version") == 0;
    }
    errno = 0;
    if (is_version)
        return printf("test-runtime 1\n") < 0;
    if (strcmp(command, "run") == 0 && name && root_dir && bundle && pid_file)
        return run();
    if (strcmp(command, "delete") == 0 && name && root_dir && is_forced)
        return delete ();
    runtime_fail("an unknown command line");
}
