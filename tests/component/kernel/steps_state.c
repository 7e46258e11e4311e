// SPDX-License-Identifier: Apache-2.0
// Steps about time, interrupts, variables and the environment.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "steps.h"

// inotify reports the files of the folder; others are looked for so often.
static const double look_s = 0.05;
static json_t *variables, *saved_env;

// ---- Time -----------------------------------------------------------------------------------

static void
wait_for_file(struct cell *cell, const char *name)
{
    if (!*name)
        step_fail(cell, "the name of a file is missing");
    bool goes_on = *name;
    while (goes_on && access(name, F_OK) != 0)
        goes_on = cell_wait(cell, strchr(name, '/') ? look_s : 1);
}

static void
step_wait(struct cell *cell, char *rest)
{
    wait_for_file(cell, rest);
}

static void
step_take(struct cell *cell, char *rest)
{
    wait_for_file(cell, rest);
    if (!cell->ended)
        unlink(rest);
}

static void
wait_until(struct cell *cell, double end, bool is_busy)
{
    bool goes_on = true;
    for (double now = loop_now(); goes_on && now < end; now = loop_now())
        goes_on = cell_wait(cell, is_busy ? 0 : end - now);
}

static void
step_sleep(struct cell *cell, char *rest)
{
    wait_until(cell, loop_now() + step_number(cell, &rest), false);
}

static void
step_busy(struct cell *cell, char *rest)
{
    wait_until(cell, loop_now() + step_number(cell, &rest), true);
}

static void
step_hang(struct cell *cell, char *rest)
{
    (void)rest;
    wait_until(cell, loop_now() + 1e6, false);
}

static void
step_catch(struct cell *cell, char *rest)
{
    (void)rest;
    cell->catches = true;
}

static void
step_deaf(struct cell *cell, char *rest)
{
    (void)cell, (void)rest;
    loop_set_deaf(true);
}

static void
step_hear(struct cell *cell, char *rest)
{
    (void)cell, (void)rest;
    loop_set_deaf(false);
}

static void
step_background(struct cell *cell, char *rest)
{
    (void)rest;
    cell_end(cell);
    cell->shell = NULL;
}

// ---- Input ----------------------------------------------------------------------------------

static void
ask(struct cell *cell, const char *prompt, bool is_password)
{
    if (!json_is_true(json_object_get(cell->request->content, "allow_stdin"))) {
        cell_raise(cell, "StdinNotImplementedError", "the client does not support input");
        return;
    }
    char *answer = loop_take_answer(); // one that nobody has asked for
    free(answer);
    wire_send(cell->request, STDIN, "input_request",
              json_pack("{s:s, s:b}", "prompt", prompt, "password", is_password));
    bool goes_on = true;
    while (!(answer = loop_take_answer()) && goes_on)
        goes_on = cell_wait(cell, 1e6);
    if (!answer)
        return;
    char *line;
    if (asprintf(&line, "%s\n", answer) < 0)
        abort();
    print_text(cell, line);
    free(line);
    free(answer);
}

static void
step_input(struct cell *cell, char *rest)
{
    ask(cell, rest, false);
}

static void
step_password(struct cell *cell, char *rest)
{
    ask(cell, rest, true);
}

// ---- Variables ------------------------------------------------------------------------------

static void
print_json(struct cell *cell, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), *line;
    if (asprintf(&line, "%s\n", text) < 0)
        abort();
    print_text(cell, line);
    free(line);
    free(text);
}

static json_t *
all_variables(void)
{
    if (!variables)
        variables = json_object();
    return variables;
}

static json_t *
parse(struct cell *cell, const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!value)
        step_fail(cell, "the value is not JSON");
    return value;
}

static void
step_set(struct cell *cell, char *rest)
{
    const char *name = step_word(&rest);
    json_t *value = parse(cell, rest);
    if (value)
        json_object_set_new(all_variables(), name, value);
}

static json_t *
find_variable(struct cell *cell, const char *name)
{
    json_t *value = json_object_get(all_variables(), name);
    char why[200];
    snprintf(why, sizeof why, "name '%.100s' is not defined", name);
    if (!value)
        cell_raise(cell, "NameError", why);
    return value;
}

static void
step_get(struct cell *cell, char *rest)
{
    const json_t *value = find_variable(cell, rest);
    if (value)
        print_json(cell, value);
}

static void
step_delete(struct cell *cell, char *rest)
{
    if (find_variable(cell, rest))
        json_object_del(all_variables(), rest);
}

static void
step_add(struct cell *cell, char *rest)
{
    const char *name = step_word(&rest);
    double sum = json_number_value(json_object_get(all_variables(), name));
    sum += step_number(cell, &rest);
    bool is_whole = sum == (double)(json_int_t)sum;
    json_object_set_new(all_variables(), name,
                        is_whole ? json_integer((json_int_t)sum) : json_real(sum));
}

// The kernelspec's templates give a JSON string with an object in it.
static json_t *
parse_twice(struct cell *cell, const char *text)
{
    json_t *string = parse(cell, text);
    json_t *object = string ? parse(cell, json_string_value(string)) : NULL;
    json_decref(string);
    return object;
}

static void
step_set_variables(struct cell *cell, char *rest)
{
    json_t *given = parse_twice(cell, rest);
    json_object_update(all_variables(), given);
    json_decref(given);
}

// ---- Environment ----------------------------------------------------------------------------

static void
step_set_env(struct cell *cell, char *rest)
{
    json_t *given = parse_twice(cell, rest), *value;
    const char *name;
    saved_env = json_object();
    json_object_foreach(given, name, value) {
        const char *old = getenv(name);
        json_object_set_new(saved_env, name, old ? json_string(old) : json_null());
        setenv(name, json_string_value(value), 1);
    }
    json_decref(given);
}

static void
step_restore_env(struct cell *cell, char *rest)
{
    (void)cell, (void)rest;
    const char *name;
    json_t *value;
    json_object_foreach(saved_env, name, value) {
        if (json_is_null(value))
            unsetenv(name);
        else
            setenv(name, json_string_value(value), 1);
    }
    json_decref(saved_env);
    saved_env = NULL;
}

static void
step_getenv(struct cell *cell, char *rest)
{
    const char *value = getenv(rest);
    char *line;
    if (asprintf(&line, "%s\n", value ? value : "None") < 0)
        abort();
    print_text(cell, line);
    free(line);
}

static void
step_repeat(struct cell *cell, char *rest)
{
    double n = step_number(cell, &rest);
    for (int i = 0; i < n && !cell->ended; i++) {
        char *line = NULL;
        size_t size;
        FILE *out = open_memstream(&line, &size);
        for (const char *at = rest; *at; at++) {
            if (strncmp(at, "{i}", 3) == 0 && (at += 2))
                fprintf(out, "%d", i);
            else
                fputc(*at, out);
        }
        fclose(out);
        step_run(cell, line);
        free(line);
    }
}

const struct step steps_state[] = {
    {"wait", step_wait},
    {"take", step_take},
    {"sleep", step_sleep},
    {"busy", step_busy},
    {"hang", step_hang},
    {"catch", step_catch},
    {"deaf", step_deaf},
    {"hear", step_hear},
    {"background", step_background},
    {"input", step_input},
    {"password", step_password},
    {"set", step_set},
    {"get", step_get},
    {"delete", step_delete},
    {"add", step_add},
    {"set-variables", step_set_variables},
    {"set-env", step_set_env},
    {"restore-env", step_restore_env},
    {"getenv", step_getenv},
    {"repeat", step_repeat},
    {NULL, NULL},
};
