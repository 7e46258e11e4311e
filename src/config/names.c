// SPDX-License-Identifier: Apache-2.0
// Names that look like a setting's and are not: which are other programs', and which are
// misspelled.

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "config_priv.h"

#define PREFIX "KERNELGATE_"

enum { MAX_NAME = 63, MIN_BEGINNING = 4 };

// MAX_SESSIONS of max-sessions, cut to MAX_NAME.
static void
as_variable(const char *name, char ret[MAX_NAME + 1])
{
    size_t len = 0;
    for (; name[len] && len < MAX_NAME; len++)
        ret[len] = name[len] == '-' ? '_' : (char)toupper((unsigned char)name[len]);
    ret[len] = '\0';
}

static bool
is_alias(const struct setting *setting, const char *name)
{
    for (size_t i = 0; i < SETTING_MAX_ALIASES && setting->aliases[i].env; i++) {
        if (strcmp(setting->aliases[i].env, name) == 0)
            return true;
    }
    return false;
}

bool
names_is_known(const char *name)
{
    static const char for_tests[] = PREFIX "DOOR";
    char variable[MAX_NAME + 1];
    bool has_prefix = strncmp(name, PREFIX, strlen(PREFIX)) == 0;
    if (strcmp(name, for_tests) == 0)
        return true;
    for (size_t i = 0; i < config_n_settings; i++) {
        as_variable(config_settings[i].name, variable);
        if ((has_prefix && strcmp(name + strlen(PREFIX), variable) == 0) ||
            is_alias(&config_settings[i], name))
            return true;
    }
    return false;
}

// ---- Kubernetes -----------------------------------------------------------------------------

// …_PORT_80_TCP, and that with _PROTO, _PORT or _ADDR.
static bool
is_port_link(const char *name)
{
    static const char digits[] = "0123456789";
    static const char *const protocols[] = {"TCP", "UDP", "SCTP"};
    static const char *const ends[] = {"", "_PROTO", "_PORT", "_ADDR"};
    while ((name = strstr(name, "_PORT_"))) {
        name += strlen("_PORT_");
        size_t len = strspn(name, digits);
        for (size_t i = 0; len > 0 && name[len] == '_' && i < KG_ARRAY_LEN(protocols); i++) {
            size_t of_protocol = strlen(protocols[i]);
            if (strncmp(name + len + 1, protocols[i], of_protocol) != 0)
                continue;
            for (size_t e = 0; e < KG_ARRAY_LEN(ends); e++) {
                if (strcmp(name + len + 1 + of_protocol, ends[e]) == 0)
                    return true;
            }
        }
    }
    return false;
}

static bool
ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), of_end = strlen(end);
    return len >= of_end && strcmp(name + len - of_end, end) == 0;
}

bool
names_is_service_link(const char *name, const char *value)
{
    static const char *const schemes[] = {"tcp://", "udp://", "sctp://"};
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    if (ends_with(name, "_SERVICE_HOST") || strstr(name, "_SERVICE_PORT") || is_port_link(name))
        return true;
    for (size_t i = 0; ends_with(name, "_PORT") && i < KG_ARRAY_LEN(schemes); i++) {
        if (strncmp(value, schemes[i], strlen(schemes[i])) == 0)
            return true;
    }
    return false;
}

// ---- Misspelled names -----------------------------------------------------------------------

// How many characters must be inserted, removed or replaced.
static size_t
distance(const char *one, const char *other)
{
    size_t row[MAX_NAME + 1];
    size_t width = strlen(other);
    for (size_t x = 0; x <= width; x++)
        row[x] = x;
    for (size_t y = 1; one[y - 1]; y++) {
        size_t diagonal = row[0];
        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            size_t replaced = diagonal + (one[y - 1] != other[x - 1]);
            size_t changed = (row[x] < row[x - 1] ? row[x] : row[x - 1]) + 1;
            diagonal = row[x];
            row[x] = replaced < changed ? replaced : changed;
        }
    }
    return row[width];
}

// MEMORY is as near to MEMORY_MB as a misspelled name.
static size_t
distance_of(const char *wanted, const struct setting *setting)
{
    char variable[MAX_NAME + 1];
    as_variable(setting->name, variable);
    size_t len = strlen(wanted);
    size_t n = distance(wanted, variable);
    bool begins =
        len >= MIN_BEGINNING && strncmp(variable, wanted, len) == 0 && variable[len] == '_';
    return begins && n > 2 ? 2 : n;
}

const struct setting *
names_nearest(const char *name, int commands)
{
    char wanted[MAX_NAME + 1];
    as_variable(name, wanted);
    const struct setting *nearest = NULL;
    size_t least = strlen(wanted) / 4 > 2 ? strlen(wanted) / 4 + 1 : 3; // fewer than that
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *setting = &config_settings[i];
        if (!(setting->commands & commands))
            continue;
        if (is_alias(setting, wanted))
            return setting;
        size_t n = distance_of(wanted, setting);
        if (n < least) {
            least = n;
            nearest = setting;
        }
    }
    return nearest;
}

char *
names_complaint(const char *name, const char *value)
{
    if (!*value || strncasecmp(name, PREFIX, strlen(PREFIX)) != 0 || names_is_known(name) ||
        names_is_service_link(name, value))
        return NULL;
    const struct setting *meant = names_nearest(name + strlen(PREFIX), ~0);
    if (!meant)
        return kg_strdup("there is no such setting; `kernelgate serve --help` lists them");
    char variable[MAX_NAME + 1];
    as_variable(meant->name, variable);
    return kg_asprintf("there is no such setting; did you mean " PREFIX "%s?", variable);
}
