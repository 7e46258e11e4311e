// SPDX-License-Identifier: Apache-2.0
// The life of a command.
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "children.h"
#include "command_output.h"
#include "environment.h"
#include "processes.h"
#include "terminal.h"

enum {
    PIPES_WAIT_MS = 200,  // for pipes that something in the background keeps open
    TERM_GRACE_MS = 1500, // from SIGTERM to SIGKILL
    KILL_STEP_MS = 2,
    FREEZE_STEPS = 50,   // after which what could not be stopped is killed as it is
    GIVE_UP_MS = 5000,   // after which a process that cannot be killed is given up
    EXIT_SIGNALLED = 128 // as a shell tells it
};

static void
close_status(struct command *command)
{
    loop_fd_free(KG_STEAL(command->status_watch));
    if (command->status_fd >= 0)
        close(KG_STEAL_FD(command->status_fd));
}

static void
close_output(struct command *command)
{
    command_output_free(KG_STEAL(command->output));
    command_input_free(KG_STEAL(command->input));
}

void
command_forget(struct command *command)
{
    if (command->log && !command->over)
        command_log_end(command->log, NULL);
    command_log_free(KG_STEAL(command->log));
}

void
command_free(struct command *command)
{
    if (command->keeper)
        children_forget(command->settings.children, command->keeper);
    close_status(command);
    close_output(command);
    command_forget(command);
    loop_timer_free(command->timeout);
    loop_timer_free(command->pipes_wait);
    loop_timer_free(command->kill_step);
    json_decref(command->argv);
    json_decref(command->cwd);
    json_decref(command->end);
    free(command->id);
    free(command->note);
    free(command);
}

// ---- Its end --------------------------------------------------------------------------------

static json_t *
describe_end(const struct command *command)
{
    bool killed = command->exit_code == EXIT_SIGNALLED + SIGKILL && !command->kill_started_ms;
    bool oom =
        killed && cgroup_oom_kills(command->settings.cgroup_root) > command->oom_kills_before;

    return json_pack("{s:i, s:i, s:b, s:b, s:I, s:I}", "exit_code", command->exit_code, "signal",
                     command->signal, "timed_out", command->timed_out, "oom", oom, "duration_ms",
                     (json_int_t)command->duration_ms, "dropped_bytes",
                     (json_int_t)command_output_dropped(command->output));
}

static void
command_finish(struct command *command)
{
    loop_timer_stop(command->timeout);
    loop_timer_stop(command->pipes_wait);
    close_status(command);
    command_output_finish(command->output);
    command->end = describe_end(command);
    close_output(command);
    command->over = true;
    command->over_ms = clock_mono_ms();
    command_log_end(command->log, command->end);
}

// As far as it is time for it; `waited`: whatever still holds the pipes open. The command may be
// freed.
static void
settle(struct command *command, bool waited)
{
    bool over = command->exited &&
                (waited || (!command->over && command_output_is_closed(command->output)));

    if (command->kill_started_ms)
        over = command->keeper == 0;
    if (over && !command->over)
        command_finish(command);
    command->settings.on_change(command, command->settings.arg);
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
    command->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    command->exit_code = command->signal ? EXIT_SIGNALLED + command->signal : WEXITSTATUS(status);
    command->duration_ms = clock_mono_ms() - command->started_ms;
    loop_timer_stop(command->timeout);
    if (!command->over && !command->kill_started_ms)
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
    children_forget(command->settings.children, command->keeper);
    command->keeper = 0;
    note_exit(command, SIGKILL);
    settle(command, true);
}

// From its keeper's end on nothing is left to kill. SIGKILL comes after `grace_ms`, and at once
// where it is asked for while another grace goes on.
static void
begin_kill(struct command *command, int64_t grace_ms)
{
    if (!command->keeper)
        return;
    if (!command->kill_started_ms) {
        command->kill_started_ms = clock_mono_ms();
        loop_timer_stop(command->pipes_wait);
        if (grace_ms > 0)
            processes_signal(command->keeper, SIGTERM);
        loop_timer_start(command->kill_step, grace_ms);
    } else if (grace_ms == 0) {
        loop_timer_start(command->kill_step, 0);
    }
}

static void
on_timeout(void *arg)
{
    struct command *command = arg;

    command->timed_out = true;
    begin_kill(command, TERM_GRACE_MS);
}

static void
on_caller_gone(void *arg)
{
    struct command *command = arg;

    if (command->keep)
        return;
    loop_timer_stop(command->timeout);
    begin_kill(command, TERM_GRACE_MS);
    settle(command, true);
}

int
command_signal(struct command *command, int signum, struct kg_error *err)
{
    bool ends = signum == SIGTERM || signum == SIGKILL;
    pid_t group = 0;

    if (!command->keeper || (!ends && command->exited))
        return kg_error_set(err, KG_INVALID, 0, "command %s has ended%s", command->id,
                            command->keeper ? "; TERM and KILL reach what it has left" : "");
    if (ends) {
        begin_kill(command, signum == SIGKILL ? 0 : TERM_GRACE_MS);
        return 0;
    }
    if (command->terminal && command_input_fd(command->input) >= 0)
        group = terminal_foreground(command_input_fd(command->input));
    if (group == 0)
        group = command->pid;
    if (group <= 1 || kill(-group, signum) != 0)
        return kg_error_set(err, KG_INVALID, 0, "command %s has no process to signal", command->id);
    return 0;
}

bool
command_is_working(const struct command *command)
{
    if (command->exited)
        return false;
    if (!command->shell || !command->terminal)
        return true;
    // Its group is the foreground while it waits for a line.
    pid_t group = command_input_fd(command->input) >= 0
                      ? terminal_foreground(command_input_fd(command->input))
                      : 0;
    return group > 0 && group != command->pid;
}

// ---- Its start ------------------------------------------------------------------------------

enum { STDIN, STDOUT, STDERR, N_ENDS };

// What the agent and the command have of its pipes or its terminal; -1 where there is none. Of a
// terminal the agent has the master's side twice, and the command's STDIN stands for all.
struct ends {
    int ours[N_ENDS];
    int theirs[N_ENDS];
};

static int
open_terminal(const struct command_spec *spec, struct ends *ends, struct kg_error *err)
{
    if (terminal_open(&spec->terminal_size, &ends->ours[STDOUT], &ends->theirs[STDIN], err) != 0)
        return -1;
    ends->ours[STDIN] = fcntl(ends->ours[STDOUT], F_DUPFD_CLOEXEC, STDERR + 1);
    if (ends->ours[STDIN] < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot duplicate a descriptor");
    return 0;
}

static int
open_stdin(struct ends *ends, struct kg_error *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
    ends->theirs[STDIN] = fds[0];
    ends->ours[STDIN] = fds[1];
    return fd_set_nonblocking(fds[1], err);
}

static int
ends_open(const struct command_spec *spec, struct ends *ends, struct kg_error *err)
{
    if (spec->terminal)
        return open_terminal(spec, ends, err);
    if (spec->with_stdin && open_stdin(ends, err) != 0)
        return -1;
    return command_pipes_open(&ends->ours[STDOUT], &ends->theirs[STDOUT], err);
}

static void
ends_close(int fds[N_ENDS])
{
    for (int i = 0; i < N_ENDS; i++) {
        if (fds[i] >= 0)
            close(KG_STEAL_FD(fds[i]));
    }
}

static char **
make_environment(const struct command_spec *spec)
{
    json_auto_t *env = spec->env ? json_copy(spec->env) : json_object();

    if (spec->terminal && !json_object_get(env, "TERM"))
        json_object_set_new(env, "TERM", json_string("xterm-256color"));
    return environment_make(env);
}

static int
spawn(struct command *command, const struct command_spec *spec, const struct ends *ends,
      struct kg_error *err)
{
    char **envp = make_environment(spec);
    const struct child_spec child = {
        .argv = (char *const *)(uintptr_t)spec->argv,
        .envp = envp,
        .cwd = spec->cwd,
        .stdin_fd = ends->theirs[STDIN],
        .stdout_fd = ends->theirs[spec->terminal ? STDIN : STDOUT],
        .stderr_fd = ends->theirs[spec->terminal ? STDIN : STDERR],
        .terminal = spec->terminal,
    };
    struct kept_child kept;

    pid_t keeper =
        children_start_kept(command->settings.children, &child, on_keeper_end, command, &kept, err);
    strings_free(envp);
    if (keeper < 0)
        return -1;
    command->keeper = keeper;
    command->pid = kept.pid;
    command->status_fd = kept.status_fd;
    return 0;
}

static void
on_log_room(void *arg)
{
    const struct command *command = arg;

    if (command->output)
        command_output_resume(command->output);
}

static json_t *
describe_start(const struct command *command)
{
    return json_pack("{s:s, s:i, s:b, s:b}", "id", command->id, "pid", (int)command->pid,
                     "terminal", command->terminal, "running", !command->exited);
}

void
command_join(struct command *command, struct request *request, bool holds)
{
    command_log_join(command->log, request, describe_start(command), holds, NULL, NULL);
}

// Takes our ends.
static void
begin(struct command *command, const struct command_spec *spec, int ours[N_ENDS])
{
    struct loop *loop = command->settings.loop;
    const struct command_output_settings output = {
        .loop = loop,
        .log = command->log,
        .fds = {KG_STEAL_FD(ours[STDOUT]), KG_STEAL_FD(ours[STDERR])},
        .terminal = spec->terminal,
        .max_bytes = spec->max_output_bytes,
        .on_closed = on_pipes_closed,
        .arg = command,
    };

    command->timeout = loop_timer_new(loop, on_timeout, command);
    command->pipes_wait = loop_timer_new(loop, on_pipes_wait, command);
    command->kill_step = loop_timer_new(loop, on_kill_step, command);
    command->status_watch = loop_fd_new(loop, command->status_fd, LOOP_READ, on_status, command);
    if (spec->timeout_ms > 0)
        loop_timer_start(command->timeout, spec->timeout_ms);
    if (ours[STDIN] >= 0)
        command->input = command_input_new(loop, KG_STEAL_FD(ours[STDIN]), spec->terminal);
    command->output = command_output_new(&output);
}

void
command_answer_start(struct command *command, struct request *request, bool detach)
{
    if (detach)
        request_reply(request,
                      json_pack("{s:s, s:i}", "id", command->id, "pid", (int)command->pid));
    else
        command_log_join(command->log, request, describe_start(command), true, on_caller_gone,
                         command);
}

struct command *
command_start(const struct command_settings *settings, const struct command_spec *spec, char *id,
              struct kg_error *err)
{
    struct ends ends = {{-1, -1, -1}, {-1, -1, -1}};
    struct command *command = KG_NEW(struct command);

    command->settings = *settings;
    command->id = id;
    command->keep = spec->keep;
    command->terminal = spec->terminal;
    command->shell = spec->shell;
    command->status_fd = -1;
    command->started_ms = clock_mono_ms();
    command->oom_kills_before = cgroup_oom_kills(settings->cgroup_root);
    command->log = command_log_new(!spec->terminal, on_log_room, command);
    int result = ends_open(spec, &ends, err);
    if (result == 0)
        result = spawn(command, spec, &ends, err);
    if (result == 0)
        begin(command, spec, ends.ours);
    ends_close(ends.ours);
    ends_close(ends.theirs);
    if (result == 0)
        return command;
    command_free(command);
    return NULL;
}
