// SPDX-License-Identifier: Apache-2.0
// Steps about files, processes, memory and the kernel's end.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steps.h"

static void
raise_errno(struct cell *cell)
{
    cell_raise(cell, "OSError", strerror(errno));
}

// ---- Files ----------------------------------------------------------------------------------

static void
put(struct cell *cell, const char *name, int flags, const char *text, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    for (ssize_t n = 0; fd >= 0 && len > 0; text += n, len -= (size_t)n)
        if ((n = write(fd, text, len)) < 0)
            break;
    if (fd < 0 || len > 0)
        raise_errno(cell);
    if (fd >= 0)
        close(fd);
}

static void
write_text(struct cell *cell, char *rest, int flags, const char *end)
{
    size_t len;
    const char *name = step_word(&rest);
    char *text = step_text(rest, end, &len);
    put(cell, name, flags, text, len);
    free(text);
}

static void
step_write(struct cell *cell, char *rest)
{
    write_text(cell, rest, O_TRUNC, "");
}

static void
step_append(struct cell *cell, char *rest)
{
    write_text(cell, rest, O_APPEND, "\n");
}

static void
step_file_size(struct cell *cell, char *rest)
{
    const char *name = step_word(&rest);
    double size = step_number(cell, &rest);
    if (cell->ended)
        return;
    char *text = malloc((size_t)size + 1);
    memset(text, 'x', (size_t)size);
    put(cell, name, O_TRUNC, text, (size_t)size);
    free(text);
}

// The picture of one pixel.
static void
step_png(struct cell *cell, char *rest)
{
    static const unsigned char png[] = {
        137, 80,  78,  71,  13, 10, 26, 10,  0,   0,  0,  13, 73,  72,  68,  82, 0,
        0,   0,   1,   0,   0,  0,  1,  8,   0,   0,  0,  0,  58,  126, 155, 85, 0,
        0,   0,   10,  73,  68, 65, 84, 120, 156, 99, 96, 0,  0,   0,   2,   0,  1,
        72,  175, 164, 113, 0,  0,  0,  0,   73,  69, 78, 68, 174, 66,  96,  130};
    put(cell, rest, O_TRUNC, (const char *)png, sizeof png);
}

static void
step_read(struct cell *cell, char *rest)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(rest, "re");
    if (!file || getdelim(&text, &size, '\0', file) < 0)
        errno ? raise_errno(cell) : (void)0;
    else
        print_text(cell, text);
    if (file)
        fclose(file);
    free(text);
}

static void
step_remove(struct cell *cell, char *rest)
{
    if (remove(rest) < 0)
        raise_errno(cell);
}

static void
step_mkdir(struct cell *cell, char *rest)
{
    if (mkdir(rest, 0755) < 0)
        raise_errno(cell);
}

static void
step_exists(struct cell *cell, char *rest)
{
    print_text(cell, access(rest, F_OK) == 0 ? "True\n" : "False\n");
}

static void
step_pid(struct cell *cell, char *rest)
{
    (void)rest;
    char line[32];
    snprintf(line, sizeof line, "%d\n", getpid());
    print_text(cell, line);
}

// ---- Processes ------------------------------------------------------------------------------

// Starts a shell with a command; its output goes to `output`.
static pid_t
start_shell(const char *command, int output)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(127);
}

static void
step_spawn(struct cell *cell, char *rest)
{
    if (start_shell(rest, -1) < 0)
        raise_errno(cell);
}

static void
step_sh(struct cell *cell, char *rest)
{
    int ends[2], status = 0;
    char *output = NULL;
    size_t size = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        raise_errno(cell);
        return;
    }
    pid_t pid = start_shell(rest, ends[1]);
    close(ends[1]);
    FILE *file = fdopen(ends[0], "re");
    if (pid > 0 && getdelim(&output, &size, '\0', file) > 0)
        print_text(cell, output);
    fclose(file);
    free(output);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        raise_errno(cell);
    else if (status != 0)
        cell_raise(cell, "CalledProcessError", rest);
}

// The sandbox's control group is a plain folder there (test-runtime), so a kernel can write it.
static void
write_counter(struct cell *cell, const char *path, const char *name, double number)
{
    FILE *file = cell->ended ? NULL : fopen(path, "we");
    if (!cell->ended && !file)
        raise_errno(cell);
    if (!file)
        return;
    fprintf(file, "%s%lld\n", name, (long long)number);
    fclose(file);
}

static void
step_memory(struct cell *cell, char *rest)
{
    write_counter(cell, "/sys/fs/cgroup/memory.current", "", step_number(cell, &rest));
}

static void
step_oom(struct cell *cell, char *rest)
{
    (void)rest;
    write_counter(cell, "/sys/fs/cgroup/memory.events", "oom_kill ", 1);
    raise(SIGKILL);
}

static void
step_allocate(struct cell *cell, char *rest)
{
    double size = step_number(cell, &rest);
    char *memory = cell->ended ? NULL : malloc((size_t)size);
    if (memory)
        memset(memory, 'x', (size_t)size);
    else if (!cell->ended)
        cell_raise(cell, "MemoryError", "");
}

static void
step_exit(struct cell *cell, char *rest)
{
    (void)rest;
    cell_reply(cell, json_pack("{s:s, s:{}, s:[{s:s, s:b}]}", "status", "ok", "user_expressions",
                               "payload", "source", "ask_exit", "keepkernel", 0));
    cell_idle(cell);
    loop_quit(0);
}

static void
step_die(struct cell *cell, char *rest)
{
    double code = step_number(cell, &rest);
    if (!cell->ended)
        loop_quit((int)code);
}

static void
step_kill(struct cell *cell, char *rest)
{
    double number = step_number(cell, &rest);
    if (!cell->ended)
        kill(getpid(), (int)number);
}

const struct step steps_process[] = {
    {"write", step_write},
    {"append", step_append},
    {"file-size", step_file_size},
    {"png", step_png},
    {"read", step_read},
    {"remove", step_remove},
    {"mkdir", step_mkdir},
    {"exists", step_exists},
    {"pid", step_pid},
    {"spawn", step_spawn},
    {"sh", step_sh},
    {"memory", step_memory},
    {"oom", step_oom},
    {"allocate", step_allocate},
    {"exit", step_exit},
    {"die", step_die},
    {"kill", step_kill},
    {NULL, NULL},
};
