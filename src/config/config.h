// SPDX-License-Identifier: Apache-2.0
// The settings: one table (settings_table.h) behind flags, environment, aliases, .env, --help and
// docs.
#pragma once

#include <stdio.h>

#include "base.h"

// Every setting's value. Strings are owned by the config; an unset one is NULL.
struct config {
#define CONFIG_STRING const char *
#define CONFIG_CHOICE const char *
#define CONFIG_INTEGER int64_t
#define CONFIG_REAL double
#define CONFIG_FLAG bool
#define SETTING(type, field, ...) CONFIG_##type field;
#include "settings_table.h"
#undef SETTING
#undef CONFIG_STRING
#undef CONFIG_CHOICE
#undef CONFIG_INTEGER
#undef CONFIG_REAL
#undef CONFIG_FLAG

    char **strings; // what the values above point into
    size_t n_strings;
    char **warnings; // of variables that have no effect: a sentence each
    size_t n_warnings;
};

// Which commands a setting belongs to.
enum config_command {
    CONFIG_SERVE = 1,
    CONFIG_DOCTOR = 2,
    CONFIG_MCP = 4,
    CONFIG_ACCOUNTS = 8,
    CONFIG_PACKAGES = 16,
};

// Fills `config` from, in this order: the flags in `argv` (argv[0] is the command itself),
// KERNELGATE_<NAME>, the aliases, `dotenv_path` (may be NULL or missing), the defaults. Fails with
// one line that names the setting, the value and what is allowed, or the line of that file which is
// wrong. An alias whose value makes no sense and a name that begins as a setting's, but is not one,
// have no effect but a warning. `config` is to be freed with config_fini() in any case.
KG_MUST_CHECK int config_load(struct config *config, enum config_command command, int argc,
                              char **argv, const char *dotenv_path, struct kg_error *err);
void config_fini(struct config *config);
void config_log_warnings(const struct config *config);

// Whether one of the arguments after the command is --help or -h.
bool config_asks_for_help(int argc, char *const argv[]);
// Writes the table of one command's settings as the text of --help, or of all as Markdown.
void config_print_help(FILE *out, enum config_command command);
void config_print_markdown(FILE *out);

enum log_level config_log_level(const struct config *config);
enum log_format config_log_format(const struct config *config);

// Splits a comma-separated list (NULL is an empty one) into a NULL-terminated array: one
// allocation, to be freed with free(). Blanks around a name are dropped, and so are empty names.
char **config_split_list(const char *list);
