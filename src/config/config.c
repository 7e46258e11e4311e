// SPDX-License-Identifier: Apache-2.0
// Looks up the value of each setting in flags, environment and .env, and checks it.

#include "config_priv.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_DOTENV_BYTES = 1 << 20, HELP_VALUE = 256 };

static const char *
keep_string(struct config *config, char *text)
{
    config->strings =
        kg_realloc(config->strings, (config->n_strings + 1) * sizeof config->strings[0]);
    config->strings[config->n_strings++] = text;
    return text;
}

void
config_fini(struct config *config)
{
    for (size_t i = 0; i < config->n_strings; i++)
        free(config->strings[i]);
    free(config->strings);
    *config = (struct config){0};
}

// ---- Values ---------------------------------------------------------------------------------

static int
parse_number(const char *text, double *ret)
{
    char *end = NULL;
    errno = 0;
    *ret = strtod(text, &end);
    return end == text || *end != '\0' || errno != 0 || !isfinite(*ret) ? -1 : 0;
}

static int
parse_flag(const char *text, bool *ret)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    for (size_t i = 0; i < KG_ARRAY_LEN(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *ret = i % 2 == 1;
            return 0;
        }
    }
    return -1;
}

// Describes the values that a setting accepts.
static void
describe_bounds(const struct setting *setting, char *ret, size_t size)
{
    switch (setting->type) {
    case SETTING_STRING:
        snprintf(ret, size, "text");
        return;
    case SETTING_INTEGER:
    case SETTING_REAL:
        snprintf(ret, size, "%s%.15g to %.15g%s%s",
                 setting->type == SETTING_INTEGER ? "a whole number, " : "", setting->min,
                 setting->max, setting->unit ? " " : "", setting->unit ? setting->unit : "");
        return;
    case SETTING_FLAG:
        snprintf(ret, size, "true or false");
        return;
    case SETTING_CHOICE:
        for (size_t i = 0, len = 0; setting->choices[i] && len < size; i++)
            len +=
                (size_t)snprintf(ret + len, size - len, "%s%s", i ? ", " : "", setting->choices[i]);
        return;
    }
}

// Whether `text` is a value of the setting.
enum verdict { VALUE_FINE, VALUE_NONSENSE, VALUE_OUT_OF_BOUNDS };

static enum verdict
store_number(const struct setting *setting, void *field, const char *text)
{
    double number;
    if (parse_number(text, &number) < 0)
        return VALUE_NONSENSE;
    if (setting->type == SETTING_INTEGER && number != floor(number))
        return VALUE_NONSENSE;
    if (number < setting->min || number > setting->max)
        return VALUE_OUT_OF_BOUNDS;
    if (setting->type == SETTING_INTEGER)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return VALUE_FINE;
}

static enum verdict
store(struct config *config, const struct setting *setting, const char *text)
{
    void *field = (char *)config + setting->offset;
    switch (setting->type) {
    case SETTING_STRING:
        *(const char **)field = keep_string(config, kg_strdup(text));
        return VALUE_FINE;
    case SETTING_INTEGER:
    case SETTING_REAL:
        return store_number(setting, field, text);
    case SETTING_FLAG:
        return parse_flag(text, field) < 0 ? VALUE_NONSENSE : VALUE_FINE;
    case SETTING_CHOICE:
        for (size_t i = 0; setting->choices[i]; i++) {
            if (strcmp(text, setting->choices[i]) == 0) {
                *(const char **)field = setting->choices[i];
                return VALUE_FINE;
            }
        }
        return VALUE_NONSENSE;
    }
    return VALUE_NONSENSE;
}

// ---- Aliases --------------------------------------------------------------------------------

// An amount such as 512m, 1g, 1024k or bytes, as MiB.
static char *
memory_to_mib(const char *text)
{
    char *end = NULL;
    double amount = strtod(text, &end);
    if (end == text)
        return NULL;
    static const char units[] = "bkmg";
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : units;
    if (!unit ||
        (*end && end[1] && strcasecmp(end + 1, "b") != 0 && strcasecmp(end + 1, "ib") != 0))
        return NULL;
    return kg_asprintf("%.0f", floor(amount * pow(1024, (double)(unit - units) - 2)));
}

// Converts the value of an alias to the form of the setting; NULL if it cannot be read.
static char *
translate(enum alias_form form, const char *text)
{
    double number;
    bool flag;
    switch (form) {
    case ALIAS_SAME:
        return kg_strdup(text);
    case ALIAS_MINUTES:
        return parse_number(text, &number) < 0 ? NULL : kg_asprintf("%.0f", number * 60);
    case ALIAS_MEMORY:
        return memory_to_mib(text);
    case ALIAS_LOWER: {
        char *lower = kg_strdup(text);
        for (char *c = lower; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        return lower;
    }
    case ALIAS_DEBUG:
        if (parse_flag(text, &flag) < 0)
            return NULL;
        return kg_strdup(flag ? "debug" : "info");
    case ALIAS_EGRESS:
        if (parse_flag(text, &flag) < 0)
            return NULL;
        return kg_strdup(flag ? "egress" : "none");
    }
    return NULL;
}

// ---- .env -----------------------------------------------------------------------------------

// Takes a line `NAME=value` apart, in place; quotes around the value and `export` before the name
// are fine. Both are NULL for any other line.
static void
strip_line(char *line, char **ret_name, char **ret_value)
{
    *ret_name = *ret_value = NULL;
    line += strspn(line, " \t");
    if (strncmp(line, "export ", 7) == 0)
        line += 7;
    char *equals = strchr(line, '=');
    if (*line == '#' || !equals)
        return;
    *equals = '\0';
    char *value = equals + 1 + strspn(equals + 1, " \t");
    size_t len = strlen(value);
    while (len > 0 && isspace((unsigned char)value[len - 1]))
        value[--len] = '\0';
    if (len >= 2 && (*value == '"' || *value == '\'') && value[len - 1] == *value) {
        value[len - 1] = '\0';
        value++;
    }
    line[strcspn(line, " \t")] = '\0';
    *ret_name = line;
    *ret_value = value;
}

// The last value of `name` in the file's text, to be freed, or NULL.
static char *
dotenv_get(const char *dotenv, const char *name)
{
    KG_AUTO_FREE char *text = kg_strdup(dotenv);
    char *found = NULL;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *key, *value;
        strip_line(line, &key, &value);
        if (key && strcmp(key, name) == 0 && *value) {
            free(found);
            found = kg_strdup(value);
        }
    }
    return found;
}

// ---- Sources --------------------------------------------------------------------------------

static char *
env_name(const struct setting *setting)
{
    char *name = kg_asprintf("KERNELGATE_%s", setting->name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return name;
}

static int
refuse(const struct setting *setting, const char *source, const char *text, struct kg_error *err)
{
    char bounds[HELP_VALUE];
    describe_bounds(setting, bounds, sizeof bounds);
    return kg_error_set(err, KG_INVALID, 0,
                        "setting %s, from %s: invalid value \"%.40s\"; allowed: %s", setting->name,
                        source, setting->secret ? "***" : text, bounds);
}

// Looks a name up in the text of the .env file, or, where that is NULL, in the environment. An
// empty value counts as none.
static char *
look_up(const char *dotenv, const char *name)
{
    if (dotenv)
        return dotenv_get(dotenv, name);
    const char *value = getenv(name);
    return value && *value ? kg_strdup(value) : NULL;
}

// Takes the value from the environment (or .env): its own name first, then the aliases.
// Returns 1 where there was one, 0 where not.
static int
take_named(struct config *config, const struct setting *setting, const char *dotenv,
           struct kg_error *err)
{
    KG_AUTO_FREE char *name = env_name(setting);
    KG_AUTO_FREE char *own = look_up(dotenv, name);
    if (own)
        return store(config, setting, own) == VALUE_FINE ? 1 : refuse(setting, name, own, err);
    for (size_t i = 0; i < SETTING_MAX_ALIASES && setting->aliases[i].env; i++) {
        const struct setting_alias *alias = &setting->aliases[i];
        KG_AUTO_FREE char *raw = look_up(dotenv, alias->env);
        if (!raw)
            continue;
        KG_AUTO_FREE char *text = translate(alias->form, raw);
        switch (text ? store(config, setting, text) : VALUE_NONSENSE) {
        case VALUE_FINE:
            return 1;
        case VALUE_OUT_OF_BOUNDS:
            return refuse(setting, alias->env, raw, err);
        case VALUE_NONSENSE:
            log_warning("ignored an environment variable with an invalid value",
                        LOG_STR("name", alias->env), LOG_STR("setting", setting->name));
        }
    }
    return 0;
}

// The flags, with getopt_long's value being the setting's index.
static int
take_flags(struct config *config, enum config_command command, int argc, char **argv,
           bool *ret_given, struct kg_error *err)
{
    struct option options[CONFIG_N_SETTINGS + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *setting = &config_settings[i];
        if (setting->commands & (int)command)
            options[n++] = (struct option){
                .name = setting->name,
                .has_arg = setting->type == SETTING_FLAG ? optional_argument : required_argument,
                .val = (int)i + 1000,
            };
    }
    opterr = 0;
    optind = 0; // glibc: start over
    for (int value; (value = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (value == ':')
            return kg_error_set(err, KG_INVALID, 0, "%s needs a value", argv[optind - 1]);
        if (value == '?')
            return kg_error_set(err, KG_INVALID, 0, "unknown flag %.80s; see --help",
                                argv[optind - 1]);
        size_t index = (size_t)value - 1000;
        const struct setting *setting = &config_settings[index];
        const char *text = optarg ? optarg : "true";
        KG_AUTO_FREE char *flag = kg_asprintf("--%s", setting->name);
        if (store(config, setting, text) != VALUE_FINE)
            return refuse(setting, flag, text, err);
        ret_given[index] = true;
    }
    if (optind < argc)
        return kg_error_set(err, KG_INVALID, 0, "unexpected argument %.80s; see --help",
                            argv[optind]);
    return 0;
}

int
config_load(struct config *config, enum config_command command, int argc, char **argv,
            const char *dotenv_path, struct kg_error *err)
{
    *config = (struct config){0};
    bool given[CONFIG_N_SETTINGS] = {0};
    if (take_flags(config, command, argc, argv, given, err) < 0)
        return -1;
    KG_AUTO_BUF dotenv = {0};
    buf_append_str(&dotenv, "");
    if (dotenv_path && access(dotenv_path, F_OK) == 0 &&
        file_read(dotenv_path, MAX_DOTENV_BYTES, &dotenv, err) < 0)
        return -1;
    for (size_t i = 0; i < config_n_settings; i++) {
        const struct setting *setting = &config_settings[i];
        int found = given[i] ? 1 : take_named(config, setting, NULL, err);
        if (found == 0)
            found = take_named(config, setting, dotenv.data, err);
        if (found < 0)
            return -1;
        if (found == 0 && setting->fallback) {
            enum verdict verdict = store(config, setting, setting->fallback);
            assert(verdict == VALUE_FINE);
        }
    }
    return 0;
}

// ---- What the values mean -------------------------------------------------------------------

enum log_level
config_log_level(const struct config *config)
{
    switch (config->log_level[0]) {
    case 'd':
        return LOG_LEVEL_DEBUG;
    case 'w':
        return LOG_LEVEL_WARNING;
    case 'e':
        return LOG_LEVEL_ERROR;
    }
    return LOG_LEVEL_INFO;
}

enum log_format
config_log_format(const struct config *config)
{
    return strcmp(config->log_format, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_CONSOLE;
}

char **
config_split_list(const char *list)
{
    if (!list)
        list = "";
    size_t max = 2; // one name and the end
    for (const char *c = list; *c; c++)
        max += *c == ',';
    size_t table = max * sizeof(char *);
    char **names = kg_calloc(1, table + strlen(list) + 1);
    char *rest = strcpy((char *)names + table, list);
    size_t n = 0;
    for (char *name; (name = strsep(&rest, ","));) {
        name += strspn(name, " \t");
        name[strcspn(name, " \t")] = '\0';
        if (*name)
            names[n++] = name;
    }
    return names;
}
