// SPDX-License-Identifier: Apache-2.0
// Looks up the value of each setting in flags, environment and .env, and checks it.

#include "config_priv.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HELP_VALUE = 256, WARNING = 256 };

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
    for (size_t i = 0; i < config->n_warnings; i++)
        free(config->warnings[i]);
    free(config->warnings);
    *config = (struct config){0};
}

// ---- Warnings -------------------------------------------------------------------------------

static void
warn(struct config *config, const char *fmt, ...)
{
    char text[WARNING];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    config->warnings =
        kg_realloc(config->warnings, (config->n_warnings + 1) * sizeof config->warnings[0]);
    config->warnings[config->n_warnings++] = kg_strdup(text);
}

void
config_log_warnings(const struct config *config)
{
    for (size_t i = 0; i < config->n_warnings; i++)
        log_warning("a variable is ignored", LOG_STR("reason", config->warnings[i]));
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
refuse(const struct setting *setting, const char *source, bool in_dotenv, const char *text,
       struct kg_error *err)
{
    char bounds[HELP_VALUE];
    describe_bounds(setting, bounds, sizeof bounds);
    return kg_error_set(
        err, KG_INVALID, 0, "setting %s, from %s%s: invalid value \"%.40s\"; allowed: %s",
        setting->name, source, in_dotenv ? " in .env" : "", setting->secret ? "***" : text, bounds);
}

// Looks a name up in the text of the .env file, or, where that is NULL, in the environment. An
// empty value counts as none, and so does what Kubernetes sets: KERNELGATE_PORT=tcp://10.0.0.1:80.
static char *
look_up(const char *dotenv, const char *name)
{
    if (dotenv)
        return dotenv_get(dotenv, name);
    const char *value = getenv(name);
    if (!value || !*value || names_is_service_link(name, value))
        return NULL;
    return kg_strdup(value);
}

// Returns 1 where it has a value that the setting can have, 0 where not.
static int
take_alias(struct config *config, const struct setting *setting, const struct setting_alias *alias,
           const char *dotenv, struct kg_error *err)
{
    KG_AUTO_FREE char *raw = look_up(dotenv, alias->env);
    if (!raw)
        return 0;
    KG_AUTO_FREE char *text = translate(alias->form, raw);
    switch (text ? store(config, setting, text) : VALUE_NONSENSE) {
    case VALUE_FINE:
        return 1;
    case VALUE_OUT_OF_BOUNDS:
        return refuse(setting, alias->env, dotenv != NULL, raw, err);
    case VALUE_NONSENSE:
        warn(config, "%s%s: its value makes no sense for setting %s", alias->env,
             dotenv ? " in .env" : "", setting->name);
    }
    return 0;
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
        return store(config, setting, own) == VALUE_FINE
                   ? 1
                   : refuse(setting, name, dotenv != NULL, own, err);
    int found = 0;
    for (size_t i = 0; found == 0 && i < SETTING_MAX_ALIASES && setting->aliases[i].env; i++)
        found = take_alias(config, setting, &setting->aliases[i], dotenv, err);
    return found;
}

static int
refuse_flag(const char *flag, enum config_command command, struct kg_error *err)
{
    KG_AUTO_FREE char *name = kg_strdup(flag + strspn(flag, "-"));
    name[strcspn(name, "=")] = '\0';
    const struct setting *meant = names_nearest(name, (int)command);
    return meant ? kg_error_set(err, KG_INVALID, 0,
                                "unknown flag %.80s; did you mean --%s? See --help", flag,
                                meant->name)
                 : kg_error_set(err, KG_INVALID, 0, "unknown flag %.80s; see --help", flag);
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
            return refuse_flag(argv[optind - 1], command, err);
        size_t index = (size_t)value - 1000;
        const struct setting *setting = &config_settings[index];
        const char *text = optarg ? optarg : "true";
        KG_AUTO_FREE char *flag = kg_asprintf("--%s", setting->name);
        if (store(config, setting, text) != VALUE_FINE)
            return refuse(setting, flag, false, text, err);
        ret_given[index] = true;
    }
    if (optind < argc)
        return kg_error_set(err, KG_INVALID, 0, "unexpected argument %.80s; see --help",
                            argv[optind]);
    return 0;
}

static void
look_at_name(const char *name, const char *value, void *arg)
{
    KG_AUTO_FREE char *complaint = names_complaint(name, value);
    if (complaint)
        warn(arg, "%.80s in .env: %s", name, complaint);
}

// Whether some begin as a setting's name, but are not one.
static void
look_at_names(struct config *config, const char *dotenv)
{
    for (char **each = environ; each && *each; each++) {
        size_t len = strcspn(*each, "=");
        KG_AUTO_FREE char *name = kg_asprintf("%.*s", (int)len, *each);
        KG_AUTO_FREE char *complaint = names_complaint(name, *each + len + ((*each)[len] == '='));
        if (complaint)
            warn(config, "%.80s: %s", name, complaint);
    }
    dotenv_each(dotenv, look_at_name, config);
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
    if (dotenv_path && dotenv_read(dotenv_path, &dotenv, err) < 0)
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
    look_at_names(config, dotenv.data);
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
