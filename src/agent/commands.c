// SPDX-License-Identifier: Apache-2.0
// The commands of the sandbox by their ids: how many there may be, and which of them are known.
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

enum {
    LISTED_ARGV_BYTES = 768, // so that a list is a result: FRAME_RESULT_MAX
    LISTED_CWD_BYTES = 768,
};

struct commands {
    struct commands_settings settings;
    struct command_settings for_each;
    TAILQ_HEAD(, command) list;
    struct loop_timer *forgetting;
    unsigned n_made_ids;
};

// ---- What is known --------------------------------------------------------------------------

static void
commands_remove(struct commands *commands, struct command *command)
{
    TAILQ_REMOVE(&commands->list, command, entry);
    command_free(command);
}

static void
commands_forget(struct commands *commands, struct command *command)
{
    command_forget(command);
    if (!command->keeper)
        commands_remove(commands, command);
}

// The one that ended first, of those that are known; NULL: there is none.
static struct command *
first_ended(const struct commands *commands, int *ret_n)
{
    struct command *command, *first = NULL;

    *ret_n = 0;
    TAILQ_FOREACH(command, &commands->list, entry) {
        if (!command->over || !command->log)
            continue;
        (*ret_n)++;
        if (!first || command->over_ms < first->over_ms)
            first = command;
    }
    return first;
}

// Forgets those that are too many or too old.
static void
forget_some(void *arg)
{
    struct commands *commands = arg;
    struct command *first;
    int n;

    while ((first = first_ended(commands, &n))) {
        int64_t left_ms = first->over_ms + COMMANDS_ENDED_MS - clock_mono_ms();
        if (n <= COMMANDS_MAX_ENDED && left_ms > 0) {
            loop_timer_start(commands->forgetting, left_ms);
            return;
        }
        commands_forget(commands, first);
    }
}

static void
on_command_change(struct command *command, void *arg)
{
    struct commands *commands = arg;

    if (commands->settings.on_change)
        commands->settings.on_change(commands->settings.arg);
    if (command->over && command->log && !command->keep && !command->has_given_id)
        command_forget(command);
    if (command->over && !command->keeper && !command->log)
        commands_remove(commands, command);
    else if (command->over)
        forget_some(commands);
}

struct commands *
commands_new(const struct commands_settings *settings)
{
    struct commands *commands = KG_NEW(struct commands);

    commands->settings = *settings;
    commands->for_each = (struct command_settings){.loop = settings->loop,
                                                   .children = settings->children,
                                                   .cgroup_root = settings->cgroup_root,
                                                   .on_change = on_command_change,
                                                   .arg = commands};
    commands->forgetting = loop_timer_new(settings->loop, forget_some, commands);
    TAILQ_INIT(&commands->list);
    return commands;
}

void
commands_free(struct commands *commands)
{
    struct command *command;

    if (!commands)
        return;
    while ((command = TAILQ_FIRST(&commands->list)))
        commands_remove(commands, command);
    loop_timer_free(commands->forgetting);
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

struct commands_activity
commands_activity(const struct commands *commands)
{
    struct commands_activity ret = {0};
    const struct command *command;

    TAILQ_FOREACH(command, &commands->list, entry) {
        if (command->exited)
            continue;
        ret.n_running += !command->terminal;
        ret.n_terminals += command->terminal;
        ret.working |= command_is_working(command);
    }
    return ret;
}

bool
command_id_valid(const char *id)
{
    size_t len = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len >= 1 && len <= COMMAND_ID_MAX && id[len] == '\0';
}

static struct command *
find(const struct commands *commands, const char *id)
{
    struct command *command;

    TAILQ_FOREACH(command, &commands->list, entry) {
        if (command->log && strcmp(command->id, id) == 0)
            return command;
    }
    return NULL;
}

static struct command *
find_or_fail(const struct commands *commands, const char *id, struct kg_error *err)
{
    struct command *command = find(commands, id);

    if (!command)
        (void)kg_error_set(err, KG_NOT_FOUND, 0, "no command %.40s", id);
    return command;
}

// ---- Starting -------------------------------------------------------------------------------

static int
check_count(const struct commands *commands, bool terminal, struct kg_error *err)
{
    const struct command *command;
    int n_running = 0, n_all = 0;

    TAILQ_FOREACH(command, &commands->list, entry) {
        n_all += command->keeper || !command->over;
        n_running += !command->exited && !command->terminal;
    }
    if (!terminal && n_running >= COMMANDS_MAX_RUNNING)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "%d commands run already; try later",
                            n_running);
    if (n_all >= COMMANDS_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%d commands and terminals run, or have left processes in the "
                            "background; end some",
                            n_all);
    return 0;
}

static char *
make_id(struct commands *commands, const char *given)
{
    char *id = given ? kg_strdup(given) : kg_asprintf("_%u", ++commands->n_made_ids);

    while (find(commands, id)) {
        free(id);
        id = kg_asprintf("_%u", ++commands->n_made_ids);
    }
    return id;
}

// At most `*left` bytes, of which as many are taken.
static json_t *
shortened(const char *text, size_t *left)
{
    size_t len = strlen(text);
    size_t cut = len <= *left ? len : utf8_cut(text, len, *left);
    KG_AUTO_FREE char *part =
        kg_asprintf("%.*s%s", (int)cut, text, cut < len ? "\xe2\x80\xa6" : "");

    *left -= cut;
    return json_string(part);
}

// Every word takes a little.
static json_t *
shortened_argv(const char *const *argv)
{
    enum { WORD = 3 };
    size_t left = LISTED_ARGV_BYTES;
    json_t *words = json_array();

    for (; *argv && left > WORD; argv++) {
        left -= WORD;
        json_array_append_new(words, shortened(*argv, &left));
    }
    if (*argv)
        json_array_append_new(words, json_string("\xe2\x80\xa6"));
    return words;
}

int
commands_start(struct commands *commands, const struct command_spec *spec, struct request *request,
               struct kg_error *err)
{
    size_t left = LISTED_CWD_BYTES;

    if (spec->id && find(commands, spec->id))
        return kg_error_set(err, KG_COMMAND_EXISTS, 0, "there is a command %s already", spec->id);
    if (check_count(commands, spec->terminal, err) != 0)
        return -1;
    struct command *command =
        command_start(&commands->for_each, spec, make_id(commands, spec->id), err);
    if (!command)
        return -1;
    command->has_given_id = spec->id != NULL;
    command->note = spec->note ? kg_strdup(spec->note) : NULL;
    command->argv = shortened_argv(spec->argv);
    command->cwd = shortened(spec->cwd, &left);
    TAILQ_INSERT_TAIL(&commands->list, command, entry);
    command_answer_start(command, request, spec->detach);
    if (commands->settings.on_change)
        commands->settings.on_change(commands->settings.arg);
    return 0;
}

// ---- By their ids ---------------------------------------------------------------------------

int
commands_join(struct commands *commands, const char *id, bool holds, struct request *request,
              struct kg_error *err)
{
    struct command *command = find_or_fail(commands, id, err);
    const struct command *other;
    int n = 0;

    if (!command)
        return -1;
    TAILQ_FOREACH(other, &commands->list, entry)
        n += other->log ? command_log_n_readers(other->log) : 0;
    if (n >= COMMANDS_MAX_READERS)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "commands have %d readers already; try later",
                            n);
    command_join(command, request, holds);
    return 0;
}

static json_t *
describe(const struct command *command)
{
    json_t *ret = json_pack("{s:s, s:O, s:O, s:i, s:b, s:b, s:I, s:b, s:i}", "id", command->id,
                            "argv", command->argv, "cwd", command->cwd, "pid", (int)command->pid,
                            "terminal", command->terminal, "running", !command->exited,
                            "started_ms_ago", (json_int_t)(clock_mono_ms() - command->started_ms),
                            "keep", command->keep, "readers", command_log_n_readers(command->log));

    if (command->note)
        json_object_set_new(ret, "note", json_string(command->note));
    if (command->exited) {
        json_object_set_new(ret, "exit_code", json_integer(command->exit_code));
        json_object_set_new(ret, "signal", json_integer(command->signal));
    }
    return ret;
}

json_t *
commands_list(const struct commands *commands)
{
    const struct command *command;
    json_t *list = json_array();

    TAILQ_FOREACH(command, &commands->list, entry) {
        if (command->log)
            json_array_append_new(list, describe(command));
    }
    return json_pack("{s:o}", "commands", list);
}

static struct command_input *
find_input(const struct commands *commands, const char *id, struct kg_error *err)
{
    const struct command *command = find_or_fail(commands, id, err);

    if (!command)
        return NULL;
    if (command->over)
        (void)kg_error_set(err, KG_INVALID, 0, "command %s has ended", id);
    else if (!command->input)
        (void)kg_error_set(err, KG_INVALID, 0,
                           "command %s was started without stdin and without a terminal", id);
    return command->input;
}

int
commands_input(struct commands *commands, const char *id, struct request *request,
               struct kg_error *err)
{
    struct command_input *input = find_input(commands, id, err);

    if (!input)
        return -1;
    command_input_take(input, request);
    return 0;
}

int
commands_close_input(struct commands *commands, const char *id, struct kg_error *err)
{
    struct command_input *input = find_input(commands, id, err);
    return input ? command_input_end(input, err) : -1;
}

int
commands_resize(struct commands *commands, const char *id, const struct terminal_size *size,
                struct kg_error *err)
{
    const struct command *command = find_or_fail(commands, id, err);

    if (!command)
        return -1;
    if (!command->terminal)
        return kg_error_set(err, KG_INVALID, 0, "command %s has no terminal", id);
    if (!command->input || command_input_fd(command->input) < 0)
        return kg_error_set(err, KG_INVALID, 0, "command %s has ended", id);
    return terminal_resize(command_input_fd(command->input), size, err);
}

int
commands_signal(struct commands *commands, const char *id, int signum, struct kg_error *err)
{
    struct command *command = find_or_fail(commands, id, err);
    return command ? command_signal(command, signum, err) : -1;
}
