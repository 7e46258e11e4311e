// SPDX-License-Identifier: Apache-2.0
// Loads kernelspecs from their folder.

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "kernel.h"

enum { MAX_KERNELSPECS = 64, MAX_KERNEL_JSON_BYTES = 256 << 10 };

struct kernelspecs {
    struct kernelspec *specs[MAX_KERNELSPECS];
    size_t n;
};

static void
kernelspec_free(struct kernelspec *spec)
{
    if (!spec)
        return;
    json_decref(spec->argv);
    json_decref(spec->env);
    json_decref(spec->aliases);
    json_decref(spec->metadata);
    json_decref(spec->zygote_argv);
    json_decref(spec->zygote_late);
    free(spec->zygote_prepare);
    free(spec->name);
    free(spec->display_name);
    free(spec->language);
    free(spec->transport);
    free(spec->savepoint_code);
    free(spec->variables_code);
    free(spec->env_code);
    free(spec->env_restore_code);
    free(spec->startup_code);
    free(spec->folder_code);
    free(spec->warmup_code);
    free(spec);
}
KG_DEFINE_AUTO(kernelspec, kernelspec_free)

void
kernelspecs_free(struct kernelspecs *specs)
{
    if (!specs)
        return;
    for (size_t i = 0; i < specs->n; i++)
        kernelspec_free(specs->specs[i]);
    free(specs);
}

static bool
is_list_of_strings(const json_t *list)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (!json_is_string(item))
            return false;
    }
    return json_is_array(list);
}

static bool
is_object_of_strings(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value))
            return false;
    }
    return json_is_object(object);
}

static char *
optional_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? kg_strdup(text) : NULL;
}

static json_t *
ref_or_new(json_t *value, json_t *fallback)
{
    if (!value)
        return fallback;
    json_decref(fallback);
    return json_incref(value);
}

// `metadata.kernelgate.zygote`: a process that forks kernels, which run a Python module.
static int
fill_zygote(struct kernelspec *spec, const json_t *zygote, const char *path, struct kg_error *err)
{
    json_t *argv = json_object_get(zygote, "argv");
    json_t *late = json_object_get(zygote, "late");
    const json_t *prepare = json_object_get(zygote, "prepare");
    if (!zygote)
        return 0;
    if (!is_list_of_strings(argv) || json_array_size(argv) == 0 ||
        (late && !is_list_of_strings(late)) || (prepare && !json_is_string(prepare)))
        return kg_error_set(err, KG_INVALID, 0,
                            "%s: zygote must have argv, and may have late, both lists of strings, "
                            "and prepare, a string",
                            path);
    spec->zygote_argv = json_incref(argv);
    spec->zygote_late = json_incref(late);
    spec->zygote_prepare = optional_string(zygote, "prepare");
    return 0;
}

static int
kernelspec_fill(struct kernelspec *spec, json_t *root, const char *path, struct kg_error *err)
{
    const char *display_name = NULL;
    const char *language = NULL;
    const char *interrupt_mode = "signal";
    const char *transport = "tcp"; // what jupyter_client uses where nobody says otherwise
    json_t *argv = NULL;
    json_t *env = NULL;
    json_t *ours = NULL;
    json_error_t why;
    if (json_unpack_ex(root, &why, 0, "{s:o, s?s, s:s, s?s, s?o, s?{s?o}}", "argv", &argv,
                       "display_name", &display_name, "language", &language, "interrupt_mode",
                       &interrupt_mode, "env", &env, "metadata", "kernelgate", &ours) < 0)
        return kg_error_set(err, KG_INVALID, 0, "%s: %s", path, why.text);
    const char *given_transport = json_string_value(json_object_get(ours, "transport"));
    if (given_transport)
        transport = given_transport;
    spec->argv = json_incref(argv);
    spec->env = ref_or_new(env, json_object());
    spec->metadata = json_object();
    json_object_update(spec->metadata, json_object_get(root, "metadata"));
    json_object_del(spec->metadata, "kernelgate");
    spec->aliases = ref_or_new(json_object_get(ours, "aliases"), json_array());
    if (!is_list_of_strings(spec->argv) || json_array_size(spec->argv) == 0)
        return kg_error_set(err, KG_INVALID, 0, "%s: argv must be a list of strings", path);
    if (!is_object_of_strings(spec->env) || !is_list_of_strings(spec->aliases))
        return kg_error_set(err, KG_INVALID, 0,
                            "%s: env must be an object, aliases a list, both of strings", path);
    if (strcmp(transport, "ipc") != 0 && strcmp(transport, "tcp") != 0)
        return kg_error_set(err, KG_INVALID, 0, "%s: transport must be ipc or tcp", path);
    spec->display_name = kg_strdup(display_name ? display_name : spec->name);
    spec->language = kg_strdup(language);
    spec->transport = kg_strdup(transport);
    spec->interrupt_by_message = strcmp(interrupt_mode, "message") == 0;
    spec->savepoint_code = optional_string(ours, "savepoint");
    spec->variables_code = optional_string(ours, "variables");
    spec->env_code = optional_string(ours, "env");
    spec->env_restore_code = optional_string(ours, "env_restore");
    spec->startup_code = optional_string(ours, "startup");
    spec->folder_code = optional_string(ours, "folder");
    spec->warmup_code = optional_string(ours, "warmup");
    return fill_zygote(spec, json_object_get(ours, "zygote"), path, err);
}

static struct kernelspec *
kernelspec_load(const char *dir, const char *name, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s/kernel.json", dir, name);
    KG_AUTO_BUF text = {0};
    if (file_read(path, MAX_KERNEL_JSON_BYTES, &text, err) < 0)
        return NULL;
    json_error_t why;
    json_auto_t *root = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        kg_error_set(err, KG_INVALID, 0, "%s, line %d: %s", path, why.line, why.text);
        return NULL;
    }
    KG_AUTO(kernelspec) spec = KG_NEW(struct kernelspec);
    spec->name = kg_strdup(name);
    if (kernelspec_fill(spec, root, path, err) < 0)
        return NULL;
    return KG_STEAL(spec);
}

static bool
is_kernelspec_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= KERNEL_MAX_NAME_LEN &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

// Takes every folder that has a kernel.json.
static int
load_entries(struct kernelspecs *specs, const char *dir, struct dirent **entries, int n,
             struct kg_error *err)
{
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s/kernel.json", dir, name);
        if (access(path, F_OK) < 0)
            continue;
        if (!is_kernelspec_name(name))
            return kg_error_set(err, KG_INVALID, 0,
                                "%s: a kernelspec's folder is named with 1 to 32 of a-z0-9_-",
                                path);
        if (specs->n == MAX_KERNELSPECS)
            return kg_error_set(err, KG_INVALID, 0, "%s: more than %d kernelspecs", dir,
                                MAX_KERNELSPECS);
        specs->specs[specs->n] = kernelspec_load(dir, name, err);
        if (!specs->specs[specs->n])
            return -1;
        specs->n++;
    }
    if (specs->n == 0)
        return kg_error_set(err, KG_INVALID, 0, "%s: no kernelspec (<name>/kernel.json) there",
                            dir);
    return 0;
}

struct kernelspecs *
kernelspecs_load(const char *dir, struct kg_error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, by_name);
    if (n < 0) {
        kg_error_set(err, KG_INVALID, errno, "cannot read the kernelspecs' folder %s", dir);
        return NULL;
    }
    KG_AUTO(kernelspecs) specs = KG_NEW(struct kernelspecs);
    int result = load_entries(specs, dir, entries, n, err);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return result < 0 ? NULL : KG_STEAL(specs);
}

size_t
kernelspecs_count(const struct kernelspecs *specs)
{
    return specs->n;
}

const struct kernelspec *
kernelspecs_at(const struct kernelspecs *specs, size_t index)
{
    return specs->specs[index];
}

static bool
has_name(const struct kernelspec *spec, const char *name)
{
    if (strcasecmp(spec->name, name) == 0)
        return true;
    size_t i;
    json_t *alias;
    json_array_foreach(spec->aliases, i, alias) {
        if (strcasecmp(json_string_value(alias), name) == 0)
            return true;
    }
    return false;
}

const struct kernelspec *
kernelspecs_find(const struct kernelspecs *specs, const char *name, struct kg_error *err)
{
    KG_AUTO_BUF names = {0};
    for (size_t i = 0; i < specs->n; i++) {
        if (has_name(specs->specs[i], name))
            return specs->specs[i];
        buf_printf(&names, "%s%s", i ? ", " : "", specs->specs[i]->name);
    }
    kg_error_set(err, KG_UNKNOWN_KERNEL, 0, "there is no kernel \"%.40s\"; there are: %s", name,
                 names.data);
    return NULL;
}
