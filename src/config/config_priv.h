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
