// SPDX-License-Identifier: Apache-2.0
// What clients name packages by, and what a sandbox says that it resolved them to, that it has, and
// that a wheel has become.
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"
#include "packages_priv.h"
#include "requirement.h"
#include "wheel_trees.h"
#include "wheels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_requirement(const char *text)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *normal = requirement_normalise(text, &err);
    if (!normal) {
        assert(err.code == KG_INVALID);
        return;
    }
    // Nothing that a command line could take for something else; and normal once is normal twice.
    assert(normal[0] != '-' && !strpbrk(normal, " \t\n/@;$'\"\\"));
    KG_AUTO_FREE char *again = requirement_normalise(normal, &err);
    assert(again && strcmp(again, normal) == 0);
    KG_AUTO_FREE char *name = requirement_name(normal);
    KG_AUTO_FREE char *same = package_name_normalise(name, strlen(name));
    assert(same && strcmp(same, name) == 0);
}

static void
on_evict(const char *key, void *arg)
{
    (void)key;
    (void)arg;
    abort(); // no tree is ever finished
}

static char folder[] = "/tmp/kg-fuzz-packages-XXXXXX";
static struct loop *loop;
static struct wheel_trees *trees;

static void
clean_up(void)
{
    wheel_trees_free(trees);
    loop_free(loop); // and its workers, which remove drafts
    assert(path_remove_tree(folder, NULL) == 0);
}

static struct wheel_trees *
trees_once(void)
{
    static const struct wheel_tree_limits limits = {
        .max_bytes = 1000, .max_files = 50, .max_tree_files = 20, .max_tree_bytes = 1000};
    if (trees)
        return trees;
    assert(mkdtemp(folder) && atexit(clean_up) == 0);
    KG_AUTO_FREE char *incoming = kg_asprintf("%s/incoming", folder);
    assert(dir_make(incoming, 0700, NULL) == 0);
    loop = loop_new();
    trees = wheel_trees_new(loop, folder, &limits, on_evict, NULL, NULL);
    assert(trees);
    return trees;
}

// Writes what is announced into a folder of the gateway, as long as it is accepted.
static void
check_files(const char *text, size_t len)
{
    json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *files = json_object_get(root, "files");
    struct kg_error err = {0};
    if (!files)
        return;
    struct wheel_draft *draft = wheel_draft_new(trees_once(), "key", &err);
    assert(draft);
    if (wheel_draft_expect(draft, files, &err) == 0) {
        while (!wheel_draft_is_whole(draft) && wheel_draft_write(draft, "x", 1, &err) == 0)
            continue;
    }
    wheel_draft_cancel(draft);
}

static void
check_environment(const char *text, size_t len)
{
    struct packages packages = {0};
    struct kg_error err = {0};
    if (environment_take(&packages, text, len, &err) == 0)
        assert(packages.tag && !strpbrk(packages.tag, "/. \n") && packages.environment);
    environment_clear(&packages);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KG_AUTO_FREE char *text = kg_strndup((const char *)data, size);
    struct kg_error err = {0};
    check_requirement(text);
    if (wheel_name_is_valid(text))
        assert(!strchr(text, '/') && text[0] != '.');
    check_files((const char *)data, size);
    check_environment((const char *)data, size);
    json_auto_t *resolution = resolution_parse((const char *)data, size, &err);
    size_t i;
    json_t *wheel;
    json_array_foreach(json_object_get(resolution, "wheels"), i, wheel)
        assert(wheel_name_is_valid(json_string_value(json_object_get(wheel, "file"))));
    return 0;
}
