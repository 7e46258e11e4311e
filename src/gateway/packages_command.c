// SPDX-License-Identifier: Apache-2.0
// The packages of all sessions: the setting, the file in the state folder, and kernelgate packages,
// which changes that file.

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway.h"
#include "requirement.h"

enum { MAX_FILE_BYTES = 64 << 10 };

// ---- The list -------------------------------------------------------------------------------

static char *
list_path(const char *state_dir)
{
    return kg_asprintf("%s/packages.json", state_dir);
}

// An array; empty where there is no file.
static json_t *
read_file(const char *state_dir, struct kg_error *err)
{
    KG_AUTO_FREE char *path = list_path(state_dir);
    KG_AUTO_BUF text = {0};
    if (access(path, F_OK) < 0)
        return json_array();
    if (file_read(path, MAX_FILE_BYTES, &text, err) < 0)
        return NULL;
    json_auto_t *list = json_loadb(text.data, text.len, 0, NULL);
    if (json_array_size(list) == 0 && json_is_array(list))
        return KG_STEAL(list);
    json_auto_t *read = requirements_read(list, err);
    if (!read)
        kg_error_set(err, KG_INVALID, 0, "%s is not a list of packages", path);
    return KG_STEAL(read);
}

static int
write_file(const char *state_dir, const json_t *list, struct kg_error *err)
{
    KG_AUTO_FREE char *path = list_path(state_dir);
    KG_AUTO_FREE char *text = json_dumps(list, JSON_INDENT(1));
    struct stat st;
    if (stat(state_dir, &st) < 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "there is no state folder %s yet: start the gateway once, or name its "
                            "folder by --state-dir",
                            state_dir);
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

static void
drop_name(json_t *list, const char *name)
{
    for (size_t i = json_array_size(list); i-- > 0;) {
        KG_AUTO_FREE char *each = requirement_name(json_string_value(json_array_get(list, i)));
        if (strcmp(each, name) == 0)
            json_array_remove(list, i);
    }
}

// Adds requirements in their normal form, in place of others of the same names.
static void
add_all(json_t *list, const json_t *requirements)
{
    size_t i;
    json_t *item;
    json_array_foreach(requirements, i, item) {
        KG_AUTO_FREE char *name = requirement_name(json_string_value(item));
        drop_name(list, name);
        json_array_append(list, item);
    }
}

json_t *
common_packages_list(const struct config *config, const char *state_dir, struct kg_error *err)
{
    json_auto_t *list = read_file(state_dir, err);
    if (!list)
        return NULL;
    if (config->packages) {
        struct kg_error why = {0};
        json_auto_t *text = json_pack("[s]", config->packages);
        json_auto_t *set = requirements_read(text, &why);
        if (!set) {
            kg_error_set(err, KG_INVALID, 0, "setting packages: %s", why.message);
            return NULL;
        }
        add_all(list, set);
    }
    return KG_STEAL(list);
}

// ---- The command ----------------------------------------------------------------------------

static int
packages_add(json_t *list, const json_t *words, struct kg_error *err)
{
    json_auto_t *requirements = requirements_read(words, err);
    if (!requirements)
        return -1;
    add_all(list, requirements);
    if (json_array_size(list) > REQUIREMENTS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "at most %d packages", REQUIREMENTS_MAX);
    return 0;
}

static int
packages_remove(json_t *list, const json_t *words, struct kg_error *err)
{
    size_t i;
    json_t *word;
    json_array_foreach(words, i, word) {
        const char *text = json_string_value(word);
        KG_AUTO_FREE char *name = package_name_normalise(text, strlen(text));
        size_t before = json_array_size(list);
        if (name)
            drop_name(list, name);
        if (json_array_size(list) == before)
            return kg_error_set(err, KG_NOT_FOUND, 0, "%.100s is not in the list", text);
    }
    return 0;
}

static int
packages_list(json_t *list, const json_t *words, struct kg_error *err)
{
    (void)words;
    (void)err;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
        puts(json_string_value(item));
    return 0;
}

static const struct verb {
    const char *name;
    const char *words;
    bool takes_words;
    int (*run)(json_t *list, const json_t *words, struct kg_error *err);
    const char *help;
} verbs[] = {
    {"add", " NAME…", true, packages_add,
     "gives packages (name, name==1.0, name[extra]>=2) to all sessions"},
    {"remove", " NAME…", true, packages_remove, "takes them out again"},
    {"list", "", false, packages_list, "prints those that were added"},
    {0},
};

// Of one verb, or of all where it is NULL.
static void
print_usage(FILE *out, const struct verb *verb)
{
    if (verb) {
        fprintf(out, "usage: kernelgate packages %s%s [FLAGS]\n\n%s\n", verb->name, verb->words,
                verb->help);
    } else {
        fputs("usage: kernelgate packages VERB [FLAGS]\n\n", out);
        for (verb = verbs; verb->name; verb++) {
            KG_AUTO_FREE char *words = kg_asprintf("%s%s", verb->name, verb->words);
            fprintf(out, "  %-20s  %s\n", words, verb->help);
        }
    }
    fputs(
        "\nThe list is in the state folder. The gateway reads it when it starts: restart it after "
        "a change.\nSessions of the engines oci and docker get them; on Kubernetes put them into "
        "the image.\n\n",
        out);
    config_print_help(out, CONFIG_PACKAGES);
}

static int
run_verb(const struct config *config, const struct verb *verb, const json_t *words,
         struct kg_error *err)
{
    KG_AUTO_FREE char *dir = config->state_dir ? kg_strdup(config->state_dir) : state_default_dir();
    json_auto_t *list = read_file(dir, err);
    if (!list || verb->run(list, words, err) < 0)
        return -1;
    if (!verb->takes_words)
        return 0;
    if (write_file(dir, list, err) < 0)
        return -1;
    puts("The gateway does so when it starts next.");
    return 0;
}

// The words follow the verb, and the flags follow the words.
int
command_packages(int argc, char **argv)
{
    const struct verb *verb = verbs;
    while (verb->name && (argc < 2 || strcmp(verb->name, argv[1]) != 0))
        verb++;
    bool asked = config_asks_for_help(argc, argv);
    json_auto_t *words = json_array();
    int n = 2;
    while (verb->name && verb->takes_words && n < argc && argv[n][0] != '-')
        json_array_append_new(words, json_string(argv[n++]));
    if (!asked && !verb->name && argc > 1)
        fprintf(stderr, "kernelgate: there is no command packages %.80s\n\n", argv[1]);
    if (asked || !verb->name || verb->takes_words != (json_array_size(words) > 0)) {
        print_usage(asked ? stdout : stderr, verb->name ? verb : NULL);
        return asked ? 0 : 2;
    }
    struct kg_error err = {0};
    struct config config;
    int code = 2;
    argv[n - 1] = argv[0]; // whose flags follow
    if (config_load(&config, CONFIG_PACKAGES, argc - n + 1, argv + n - 1, ".env", &err) == 0)
        code = run_verb(&config, verb, words, &err) < 0 ? 1 : 0;
    if (code != 0)
        fprintf(stderr, "kernelgate: %s\n", err.message);
    config_fini(&config);
    return code;
}
