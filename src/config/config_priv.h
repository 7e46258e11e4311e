// SPDX-License-Identifier: Apache-2.0
// The shape of the table of settings.
#pragma once

#include "config.h"

enum setting_type { SETTING_STRING, SETTING_INTEGER, SETTING_REAL, SETTING_FLAG, SETTING_CHOICE };

// How an alias writes the value: as the setting itself, in minutes for seconds, as an amount of
// memory (512m, 1g) for MiB, in any case, or as a switch for log-level debug or network egress.
enum alias_form {
    ALIAS_SAME,
    ALIAS_MINUTES,
    ALIAS_MEMORY,
    ALIAS_LOWER,
    ALIAS_DEBUG,
    ALIAS_EGRESS,
};

struct setting_alias {
    const char *env;
    enum alias_form form;
};

enum { SETTING_MAX_ALIASES = 2 };

struct setting {
    const char *name;
    const char *unit; // or NULL
    enum setting_type type;
    size_t offset;        // in struct config
    const char *fallback; // NULL: none
    double min, max;      // of numbers
    const char *const *choices;
    struct setting_alias aliases[SETTING_MAX_ALIASES];
    const char *help;
    int commands;
    bool secret; // never shown
};

// The index of each setting's row, and how many there are.
enum {
#define SETTING(type, field, ...) CONFIG_ROW_##field,
#include "settings_table.h"
#undef SETTING
    CONFIG_N_SETTINGS
};
extern const struct setting config_settings[CONFIG_N_SETTINGS];
// The same number, for loops: gcc's analyzer would follow each of a known number of turns.
extern const size_t config_n_settings;

// ---- dotenv.c -------------------------------------------------------------------------------

// Appends the text of the file, if there is one. Fails with the number of the first line that is
// malformed: neither NAME=value nor empty nor a comment. Programs that share the file may write
// values of several lines in quotes; only settings may not.
KG_MUST_CHECK int dotenv_read(const char *path, struct buf *ret, struct kg_error *err);
// The last value of `name` in the file's text, to be freed, or NULL.
char *dotenv_get(const char *text, const char *name);
void dotenv_each(const char *text, void (*fn)(const char *name, const char *value, void *arg),
                 void *arg);

// ---- names.c --------------------------------------------------------------------------------

// Whether a variable of this name can give a setting its value.
bool names_is_known(const char *name);
// Whether the variable is one of those that Kubernetes sets in each pod for a service whose name
// begins with "kernelgate".
bool names_is_service_link(const char *name, const char *value);
// The setting of one of these commands whose name is most like `name` (max-session, MAX_SESSION),
// or NULL.
const struct setting *names_nearest(const char *name, int commands);
// What is wrong with a variable whose name begins with KERNELGATE_, to be freed. NULL: nothing, or
// it is not our business.
char *names_complaint(const char *name, const char *value);
