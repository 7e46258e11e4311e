// SPDX-License-Identifier: Apache-2.0
// Lines of a script: their words, texts and steps.
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct step *const lists[] = {steps_output, steps_state, steps_process, steps_wire};
enum { N_LISTS = sizeof lists / sizeof *lists };

void
step_fail(struct cell *cell, const char *why)
{
    cell_raise(cell, "StepError", why);
}

char *
step_word(char **rest)
{
    char *word = *rest;
    size_t len = strcspn(word, " ");
    *rest += len + (word[len] == ' ');
    word[len] = '\0';
    return word;
}

double
step_number(struct cell *cell, char **rest)
{
    char *end, *word = step_word(rest);
    double number = strtod(word, &end);
    if (end == word || *end)
        step_fail(cell, "a number is missing");
    return number;
}

char *
step_literal(const char *text, const char *end)
{
    if (text[0] == '"')
        return strdup(text);
    json_t *string = json_pack("s+", text, end);
    char *ret = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    json_decref(string);
    return ret;
}

char *
step_text(const char *text, const char *end, size_t *ret_len)
{
    char *literal = step_literal(text, end);
    json_t *string = json_loads(literal, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    size_t len = json_string_length(string);
    char *ret = calloc(1, len + 1);
    if (string)
        memcpy(ret, json_string_value(string), len);
    *ret_len = len;
    json_decref(string);
    free(literal);
    return ret;
}

// The line with each {N*text} written out.
static char *
expand(const char *line)
{
    char *ret = NULL;
    size_t size;
    FILE *out = open_memstream(&ret, &size);
    for (const char *at = line; *at; at++) {
        int len = 0;
        unsigned long times;
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (!end || sscanf(at, "{%lu*%n", &times, &len) != 1 || !len) {
            fputc(*at, out);
            continue;
        }
        for (; times > 0; times--)
            fwrite(at + len, 1, (size_t)(end - at - len), out);
        at = end;
    }
    fclose(out);
    return ret;
}

static const struct step *
find(const char *name)
{
    for (size_t i = 0; i < N_LISTS; i++)
        for (const struct step *step = lists[i]; step->name; step++)
            if (strcmp(step->name, name) == 0)
                return step;
    return NULL;
}

json_t *
step_names(const char *prefix)
{
    json_t *ret = json_array();
    for (size_t i = 0; i < N_LISTS; i++)
        for (const struct step *step = lists[i]; step->name; step++)
            if (strncmp(step->name, prefix, strlen(prefix)) == 0)
                json_array_append_new(ret, json_string(step->name));
    return ret;
}

void
step_run(struct cell *cell, char *line)
{
    if (!*line || *line == '#')
        return;
    char *expanded = expand(line), *rest = expanded, *name = step_word(&rest);
    const struct step *step = find(name);
    if (step) {
        step->run(cell, rest);
    } else {
        char why[200];
        snprintf(why, sizeof why, "there is no step \"%.100s\"", name);
        step_fail(cell, why);
    }
    free(expanded);
}
