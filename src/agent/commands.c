// SPDX-License-Identifier: Apache-2.0
// The life of a command: its start, its end, what it leaves behind.
#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "command_output.h"
#include "environment.h"
#include "processes.h"

enum {
    MAX_RUNNING = 16,
    PIPES_WAIT_MS = 200,  // for pipes that something in the background keeps open
    TERM_GRACE_MS = 1500, // from SIGTERM to SIGKILL
    KILL_STEP_MS = 2,
    FREEZE_STEPS = 50,   // after which what could not be stopped is killed as it is
    GIVE_UP_MS = 5000,   // of killing: then whoever waits is told
    EXIT_SIGNALLED = 128 // as a shell tells it
};

// Known as long as its keeper lives or its answer is under way.
struct command {
    TAILQ_ENTRY(command) entry;
    struct commands *commands;
    struct request *request; // NULL once answered, or when the caller has gone
    struct command_output *output;
    pid_t keeper; // 0 once it has ended
    int status_fd;
    struct loop_fd *status_watch;
    bool exited; // the command itself
    int status;  // as waitpid() gives it
    bool timed_out;
    int64_t started_ms;
    int64_t duration_ms;
    int64_t oom_kills_before;
    struct loop_timer *timeout;
    struct loop_timer *pipes_wait;
    struct loop_timer *kill_step;
    int64_t kill_started_ms; // 0: it is not being killed
    int n_kill_steps;
};

struct commands {
    struct commands_settings settings;
    TAILQ_HEAD(, command) list;
};

struct commands *
commands_new(const struct commands_settings *settings)
{
    struct commands *commands = KG_NEW(struct commands);
    commands->settings = *settings;
    TAILQ_INIT(&commands->list);
    return commands;
}

static void
close_status(struct command *command)
{
    loop_fd_free(KG_STEAL(command->status_watch));
    if (command->status_fd >= 0)
        close(KG_STEAL_FD(command->status_fd));
}

static void
command_free(struct command *command)
{
    if (command->keeper)
        children_forget(command->commands->settings.children, command->keeper);
    TAILQ_REMOVE(&command->commands->list, command, entry);
    close_status(command);
    command_output_free(command->output);
    loop_timer_free(command->timeout);
    loop_timer_free(command->pipes_wait);
    loop_timer_free(command->kill_step);
    free(command);
}

void
commands_free(struct commands *commands)
{
    struct command *command;

    if (!commands)
        return;
    while ((command = TAILQ_FIRST(&commands->list))) {
        if (command->request)
            request_reply(KG_STEAL(command->request), NULL);
        command_free(command);
    }
    free(commands);
}

size_t
commands_keepers(const struct commands *commands, pid_t ret[COMMANDS_MAX])
{
    const struct command *command;
    size_t n = 0;

    TAILQ_FOREACH(command, &commands->list, entry) {
        if (command->keeper)
            ret[n++] = command->keeper;
    }
    return n;
}

// ---- Its end --------------------------------------------------------------------------------

static json_t *
describe_end(const struct command *command)
{
    int signal = WIFSIGNALED(command->status) ? WTERMSIG(command->status) : 0;
    int exit_code = signal ? EXIT_SIGNALLED + signal : WEXITSTATUS(command->status);
    bool killed = exit_code == EXIT_SIGNALLED + SIGKILL && !command->kill_started_ms;
    bool oom = killed && cgroup_oom_kills(command->commands->settings.cgroup_root) >
                             command->oom_kills_before;

    return json_pack("{s:i, s:i, s:b, s:b, s:I, s:I}", "exit_code", exit_code, "signal", signal,
                     "timed_out", command->timed_out, "oom", oom, "duration_ms",
                     (json_int_t)command->duration_ms, "dropped_bytes",
                     (json_int_t)command_output_dropped(command->output));
}

static void
commands_answer(struct command *command)
{
    struct request *request = KG_STEAL(command->request);

    loop_timer_stop(command->timeout);
    loop_timer_stop(command->pipes_wait);
    close_status(command);
    command_output_finish(command->output);
    json_t *end = describe_end(command);
    command_output_free(KG_STEAL(command->output));
    request_reply(request, end);
}

// Answers and frees, as far as it is time for it; `waited`: whatever still holds the pipes open.
static void
settle(struct command *command, bool waited)
{
    bool over = false;

    if (command->request && command->kill_started_ms)
        over = command->keeper == 0;
    else if (command->request)
        over = command->exited && (waited || command_output_is_closed(command->output));
    if (over)
        commands_answer(command);
    if (!command->request && !command->keeper)
        command_free(command);
}

static void
on_pipes_closed(void *arg)
{
    settle(arg, false);
}

static void
on_pipes_wait(void *arg)
{
    settle(arg, true);
}

static void
note_exit(struct command *command, int status)
{
    if (command->exited)
        return;
    command->exited = true;
    command->status = status;
    command->duration_ms = clock_mono_ms() - command->started_ms;
    loop_timer_stop(command->timeout);
    if (command->request && !command->kill_started_ms)
        loop_timer_start(command->pipes_wait, PIPES_WAIT_MS);
}

// A keeper that ends without a word was killed from inside.
static void
read_status(struct command *command)
{
    int status = SIGKILL;

    if (command->status_fd < 0)
        return;
    ssize_t n = read(command->status_fd, &status, sizeof status);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    note_exit(command, status);
    close_status(command);
}

static void
on_status(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;

    read_status(arg);
    settle(arg, false);
}

static void
on_keeper_end(pid_t pid, int status, void *arg)
{
    struct command *command = arg;
    (void)pid;
    (void)status;

    command->keeper = 0;
    loop_timer_stop(command->kill_step);
    read_status(command);
    note_exit(command, SIGKILL);
    settle(command, false);
}

// ---- Killing --------------------------------------------------------------------------------

// Stopped first: what is stopped cannot fork, and keeps its place among the sandbox's processes, so
// that no bomb outruns this.
static void
on_kill_step(void *arg)
{
    struct command *command = arg;

    if (command->n_kill_steps++ < FREEZE_STEPS && processes_freeze(command->keeper) > 0) {
        loop_timer_start(command->kill_step, KILL_STEP_MS);
        return;
    }
    processes_signal(command->keeper, SIGKILL);
    if (clock_mono_ms() - command->kill_started_ms < TERM_GRACE_MS + GIVE_UP_MS) {
        loop_timer_start(command->kill_step, KILL_STEP_MS);
        return;
    }
    log_warning("a command's processes do not end", LOG_INT("keeper", command->keeper));
    children_forget(command->commands->settings.children, command->keeper);
    command->keeper = 0;
    note_exit(command, SIGKILL);
    settle(command, true);
}

// From its keeper's end on nothing is left to kill.
static void
begin_kill(struct command *command)
{
    if (command->kill_started_ms || !command->keeper)
        return;
    command->kill_started_ms = clock_mono_ms();
    loop_timer_stop(command->pipes_wait);
    processes_signal(command->keeper, SIGTERM);
    loop_timer_start(command->kill_step, TERM_GRACE_MS);
}

static void
commands_on_timeout(void *arg)
{
    struct command *command = arg;

    command->timed_out = true;
    begin_kill(command);
}

static void
on_caller_gone(void *arg)
{
    struct command *command = arg;

    request_reply(KG_STEAL(command->request), NULL);
    loop_timer_stop(command->timeout);
    loop_timer_stop(command->pipes_wait);
    command_output_free(KG_STEAL(command->output));
    begin_kill(command);
    settle(command, true);
}

// ---- Its start ------------------------------------------------------------------------------

static int
check_count(const struct commands *commands, struct kg_error *err)
{
    const struct command *command;
    int n_running = 0, n_all = 0;

    TAILQ_FOREACH(command, &commands->list, entry) {
        n_all++;
        n_running += !command->exited;
    }
    if (n_running >= MAX_RUNNING)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "%d commands run already; try later",
                            n_running);
    if (n_all >= COMMANDS_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%d commands have left processes in the background; end some", n_all);
    return 0;
}

static int
spawn(struct command *command, const struct command_spec *spec, const int writes[2],
      struct kg_error *err)
{
    char **envp = environment_make(spec->env);
    const struct child_spec child = {
        .argv = (char *const *)(uintptr_t)spec->argv,
        .envp = envp,
        .cwd = spec->cwd,
        .stdin_fd = -1,
        .stdout_fd = writes[0],
        .stderr_fd = writes[1],
    };

    struct kept_child kept;
    pid_t pid = children_start_kept(command->commands->settings.children, &child, on_keeper_end,
                                    command, &kept, err);
    strings_free(envp);
    if (pid < 0)
        return -1;
    command->keeper = pid;
    command->status_fd = kept.status_fd;
    return 0;
}

// Takes the read ends.
static void
begin(struct command *command, const struct command_spec *spec, struct request *request,
      int reads[2])
{
    struct loop *loop = command->commands->settings.loop;
    const struct command_output_settings output = {
        .loop = loop,
        .request = request,
        .fds = {KG_STEAL_FD(reads[0]), KG_STEAL_FD(reads[1])},
        .max_bytes = spec->max_output_bytes,
        .on_closed = on_pipes_closed,
        .arg = command,
    };

    command->request = request;
    command->timeout = loop_timer_new(loop, commands_on_timeout, command);
    command->pipes_wait = loop_timer_new(loop, on_pipes_wait, command);
    command->kill_step = loop_timer_new(loop, on_kill_step, command);
    command->status_watch = loop_fd_new(loop, command->status_fd, LOOP_READ, on_status, command);
    loop_timer_start(command->timeout, spec->timeout_ms);
    request_on_gone(request, on_caller_gone, command);
    request_begin(request, json_object());
    command->output = command_output_new(&output);
}

int
commands_start(struct commands *commands, const struct command_spec *spec, struct request *request,
               struct kg_error *err)
{
    int reads[2] = {-1, -1}, writes[2] = {-1, -1};

    if (check_count(commands, err) != 0)
        return -1;
    struct command *command = KG_NEW(struct command);
    command->commands = commands;
    command->status_fd = -1;
    command->started_ms = clock_mono_ms();
    command->oom_kills_before = cgroup_oom_kills(commands->settings.cgroup_root);
    TAILQ_INSERT_TAIL(&commands->list, command, entry);
    int result = command_pipes_open(reads, writes, err);
    if (result == 0)
        result = spawn(command, spec, writes, err);
    if (result == 0)
        begin(command, spec, request, reads);
    else
        command_free(command);
    command_pipes_close(reads);
    command_pipes_close(writes);
    return result;
}
