// SPDX-License-Identifier: Apache-2.0
// What the rows of settings_table.h refer to, and the table of them.

#include <stddef.h>

#include "config_priv.h"

#define MIB (1024.0 * 1024.0)

static const char *const registrations[] = {"closed", "open", NULL};
static const char *const kernel_starts[] = {"auto", "fork", "exec", NULL};
static const char *const provisioners[] = {"auto", "oci", "docker", "kubernetes", NULL};
static const char *const evictions[] = {"none", "idle", NULL};
static const char *const networks[] = {"none", "egress", NULL};
static const char *const log_levels[] = {"debug", "info", "warning", "error", NULL};
static const char *const log_formats[] = {"console", "json", NULL};

enum {
    LISTEN = CONFIG_SERVE, // settings of the HTTP server
    SERVE = CONFIG_SERVE | CONFIG_MCP,
    BOTH = CONFIG_SERVE | CONFIG_MCP | CONFIG_DOCTOR,
};

#define SETTING(setting_type, field, setting_name, ...)                                            \
    {.name = (setting_name),                                                                       \
     .type = SETTING_##setting_type,                                                               \
     .offset = offsetof(struct config, field),                                                     \
     __VA_ARGS__},
const struct setting config_settings[CONFIG_N_SETTINGS] = {
#include "settings_table.h"
};
#undef SETTING

const size_t config_n_settings = CONFIG_N_SETTINGS;
