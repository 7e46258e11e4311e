// SPDX-License-Identifier: Apache-2.0
// Unpacked wheels and the sets that are made of them: what hostile wheels name, room, users, and
// what the next gateway finds.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loop.h"
#include "package_sets.h"
#include "test_packages.h"
#include "wheel_trees.h"

enum { DEADLINE_MS = 40 * 1000 };

#define TAG "cpython-311"

struct fixture {
    struct loop *loop;
    struct loop_timer *deadline;
    char dir[40];
    struct wheel_trees *trees; // for tests of trees alone
    struct package_sets *sets;
    struct package_set_limits limits;
    char evicted[200];
    char *made;
    struct kg_error err;
    int n_made;
    bool several; // owners
};

static void
on_deadline(void *arg)
{
    (void)arg;
    fail_msg("it takes too long");
}

#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition))                                                                           \
    event_base_loop(loop_event_base((f)->loop), EVLOOP_ONCE)

static char *
below(const struct fixture *f, const char *path)
{
    return kg_asprintf("%s/%s", f->dir, path);
}

static bool
is_there(const struct fixture *f, const char *path)
{
    KG_AUTO_FREE char *whole = below(f, path);
    struct stat st;
    return lstat(whole, &st) == 0;
}

static void
make_folder(const struct fixture *f, const char *path)
{
    KG_AUTO_FREE char *whole = below(f, path);
    assert_int_equal(dir_make(whole, 0755, NULL), 0);
}

static int
set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->limits = package_set_limits_default;
    f->deadline = loop_timer_new(f->loop, on_deadline, f);
    loop_timer_start(f->deadline, DEADLINE_MS);
    strcpy(f->dir, "/tmp/kg-test-sets-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    make_folder(f, "incoming");
    make_folder(f, "shared");
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    wheel_trees_free(f->trees);
    package_sets_free(f->sets);
    loop_timer_free(f->deadline);
    loop_free(f->loop);
    (void)umount(f->dir); // of the one test that mounts there
    assert_int_equal(path_remove_tree(f->dir, NULL), 0);
    free(f->made);
    free(f);
    return 0;
}

// ---- Trees ----------------------------------------------------------------------------------

static void
on_evict(const char *key, void *arg)
{
    struct fixture *f = arg;
    strncat(f->evicted, key, sizeof f->evicted - strlen(f->evicted) - 1);
}

static void
open_trees(struct fixture *f, int64_t max_bytes)
{
    const struct wheel_tree_limits limits = {
        .max_bytes = max_bytes, .max_files = 50, .max_tree_files = 10, .max_tree_bytes = 1000};
    wheel_trees_free(f->trees);
    f->trees = wheel_trees_new(f->loop, f->dir, &limits, on_evict, f, NULL);
    assert_non_null(f->trees);
}

// Writes a tree whose files have these contents, in one go and byte by byte.
static int
unpack(struct wheel_trees *trees, const char *key, const char *files, const char *contents,
       struct kg_error *err)
{
    struct wheel_draft *draft = wheel_draft_new(trees, key, err);
    json_auto_t *list = json_loads(files, 0, NULL);
    assert_true(draft && list);
    if (wheel_draft_expect(draft, list, err) < 0) {
        wheel_draft_cancel(draft);
        return -1;
    }
    for (const char *at = contents; *at; at++) {
        if (wheel_draft_write(draft, at, 1, err) < 0) {
            wheel_draft_cancel(draft);
            return -1;
        }
    }
    return wheel_draft_finish(draft, err);
}

static void
test_a_wheel_is_written(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    KG_AUTO_BUF text = {0};
    open_trees(f, 1000);
    assert_int_equal(unpack(f->trees, "a",
                            "[{\"path\": \"p/q/m.py\", \"size\": 3, \"run\": false},"
                            " {\"path\": \"p/empty\", \"size\": 0},"
                            " {\"path\": \"bin/prog\", \"size\": 2, \"run\": true}]",
                            "abcde", &f->err),
                     0);
    assert_true(wheel_trees_have(f->trees, "a"));
    KG_AUTO_FREE char *module = below(f, "unpacked/a/p/q/m.py");
    KG_AUTO_FREE char *program = below(f, "unpacked/a/bin/prog");
    KG_AUTO_FREE char *empty = below(f, "unpacked/a/p/empty");
    assert_int_equal(file_read(module, 10, &text, NULL), 0);
    assert_string_equal(text.data, "abc");
    assert_int_equal(stat(module, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0444);
    assert_int_equal(stat(program, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0555);
    assert_int_equal(stat(empty, &st), 0);
    assert_int_equal(st.st_size, 0);
    // Written again by another job at the same time: the first one stays.
    assert_int_equal(unpack(f->trees, "a", "[{\"path\": \"x\", \"size\": 1}]", "x", &f->err), 0);
    assert_false(is_there(f, "unpacked/a/x"));
    // The next gateway knows it.
    open_trees(f, 1000);
    assert_true(wheel_trees_have(f->trees, "a"));
}

static void
test_what_a_sandbox_says_of_a_wheel(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "{}",
        "[1]",
        "[{\"path\": \"a\"}]",
        "[{\"path\": 1, \"size\": 1}]",
        "[{\"path\": \"a\", \"size\": -1}]",
        "[{\"path\": \"a\", \"size\": 1.5}]",
        "[{\"path\": \"a\", \"size\": 1001}]",
        "[{\"path\": \"a\", \"size\": 9223372036854775807}, {\"path\": \"b\", \"size\": 1}]",
        "[{\"path\": \"\", \"size\": 1}]",
        "[{\"path\": \"/etc/passwd\", \"size\": 1}]",
        "[{\"path\": \"../x\", \"size\": 1}]",
        "[{\"path\": \"a/../../x\", \"size\": 1}]",
        "[{\"path\": \"a/./x\", \"size\": 1}]",
        "[{\"path\": \"a//x\", \"size\": 1}]",
        "[{\"path\": \"a/\", \"size\": 1}]",
        "[{\"path\": \"a\\nb\", \"size\": 1}]",
        "[{\"path\": \".kg-x\", \"size\": 1}]",
        "[{\"path\": \"a\", \"size\": 0}, {\"path\": \"a\", \"size\": 0}]",
        "[{\"path\": \"a\", \"size\": 0}, {\"path\": \"a/b\", \"size\": 0}]",
        "[{\"path\": \"a/b/c/d/e/f/g/h/i/j/k/l\", \"size\": 0}]", // eleven folders
        "[{\"path\": \"a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/x\", "
        "\"size\": 0}]", // deeper than any wheel
    };
    open_trees(f, 1000 * 1000);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        f->err = (struct kg_error){0};
        if (unpack(f->trees, "a", bad[i], "x", &f->err) == 0)
            fail_msg("taken: %s", bad[i]);
        assert_true(f->err.code != KG_OK && !wheel_trees_have(f->trees, "a"));
    }
    KG_AUTO_BUF many = {0};
    buf_append_str(&many, "[");
    for (int i = 0; i <= 10; i++)
        buf_printf(&many, "%s{\"path\": \"f%d\", \"size\": 0}", i ? "," : "", i);
    buf_append_str(&many, "]");
    assert_int_equal(unpack(f->trees, "a", many.data, "", &f->err), -1);
    // More and less than announced.
    assert_int_equal(unpack(f->trees, "a", "[{\"path\": \"a\", \"size\": 1}]", "xy", &f->err), -1);
    assert_int_equal(unpack(f->trees, "a", "[{\"path\": \"a\", \"size\": 2}]", "x", &f->err), -1);
    assert_false(wheel_trees_have(f->trees, "a"));
}

static void
test_modules_that_would_run_at_start_are_left_out(void **state)
{
    struct fixture *f = *state;
    open_trees(f, 1000);
    assert_int_equal(
        unpack(f->trees, "a",
               "[{\"path\": \"sitecustomize.py\", \"size\": 1},"
               " {\"path\": \"usercustomize/__init__.py\", \"size\": 1},"
               " {\"path\": \"__pycache__/sitecustomize.cpython-311.pyc\", \"size\": 1},"
               " {\"path\": \"evil.pth\", \"size\": 1}, {\"path\": \"p/data.pth\", \"size\": 1},"
               " {\"path\": \"sitecustomizer.py\", \"size\": 1}]",
               "abcdef", &f->err),
        0);
    assert_false(is_there(f, "unpacked/a/sitecustomize.py"));
    assert_false(is_there(f, "unpacked/a/usercustomize"));
    assert_false(is_there(f, "unpacked/a/__pycache__"));
    assert_false(is_there(f, "unpacked/a/evil.pth"));
    assert_true(is_there(f, "unpacked/a/p/data.pth"));
    assert_true(is_there(f, "unpacked/a/sitecustomizer.py"));
}

static int
unpack_100(const struct fixture *f, const char *key)
{
    KG_AUTO_BUF contents = {0};
    for (int i = 0; i < 100; i++)
        buf_append_str(&contents, "x");
    struct kg_error err = {0};
    int result = unpack(f->trees, key, "[{\"path\": \"f\", \"size\": 100}]", contents.data, &err);
    assert_int_equal(err.code, result == 0 ? KG_OK : KG_DISK_FULL);
    return result;
}

static void
test_unused_trees_make_room(void **state)
{
    struct fixture *f = *state;
    open_trees(f, 300);
    assert_int_equal(unpack_100(f, "a"), 0);
    assert_int_equal(unpack_100(f, "b"), 0);
    assert_int_equal(unpack_100(f, "c"), 0);
    wheel_trees_hold(f->trees, "a");
    wheel_trees_use(f->trees, "b");
    assert_int_equal(unpack_100(f, "d"), 0);
    assert_string_equal(f->evicted, "c");
    wheel_trees_hold(f->trees, "b");
    wheel_trees_hold(f->trees, "d");
    wheel_trees_hold(f->trees, "e");          // it is not there
    assert_int_equal(unpack_100(f, "e"), -1); // all are held
    wheel_trees_let_go(f->trees, "b");
    assert_int_equal(unpack_100(f, "e"), 0);
    assert_string_equal(f->evicted, "cb");
    assert_false(is_there(f, "unpacked/b"));
    // A smaller cache; what a crash left half removed.
    KG_AUTO_FREE char *record = below(f, "unpacked/a.json");
    assert_int_equal(unlink(record), 0);
    open_trees(f, 300);
    assert_false(wheel_trees_have(f->trees, "a"));
    assert_false(is_there(f, "unpacked/a"));
    assert_true(wheel_trees_have(f->trees, "d"));
}

// ---- Sets -----------------------------------------------------------------------------------

static json_t *
wheel(const char *name, const char *version)
{
    KG_AUTO_FREE char *sha256 = kg_asprintf("%s%s", name, version);
    return json_pack("{s:s, s:s, s:s}", "name", name, "version", version, "sha256", sha256);
}

static void
open_sets(struct fixture *f)
{
    package_sets_free(f->sets);
    f->sets = package_sets_new(f->loop, f->dir, &f->limits, &f->err);
    assert_non_null(f->sets);
}

static void
unpack_wheel(const struct fixture *f, const json_t *item, const char *path)
{
    KG_AUTO_FREE char *key =
        wheel_tree_key(json_string_value(json_object_get(item, "sha256")), TAG);
    KG_AUTO_FREE char *files = kg_asprintf("[{\"path\": \"%s\", \"size\": 1}]", path);
    assert_int_equal(unpack(package_sets_trees(f->sets), key, files, "x", NULL), 0);
}

static void
on_made(const char *name, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    free(f->made);
    f->made = name ? kg_strdup(name) : NULL;
    f->err = err ? *err : (struct kg_error){0};
    f->n_made++;
}

static struct package_set_making *
make_of(struct fixture *f, const char *owner, const json_t *wheels)
{
    const struct package_set_request request = {
        .wheels = wheels, .tag = TAG, .owner = owner, .is_shared = f->several};
    return package_sets_make(f->sets, &request, on_made, f);
}

static const char *
make_set_of(struct fixture *f, const char *owner, const json_t *wheels)
{
    f->n_made = 0;
    const struct package_set_making *making = make_of(f, owner, wheels);
    assert_int_equal(f->n_made, making ? 0 : 1);
    RUN_UNTIL(f, f->n_made > 0);
    assert_int_equal(f->n_made, 1);
    return f->made;
}

static const char *
make_set(struct fixture *f, const json_t *wheels)
{
    return make_set_of(f, "ann", wheels);
}

static bool
set_has(const struct fixture *f, const char *name, const char *path)
{
    KG_AUTO_FREE char *whole = kg_asprintf("shared/sets/%s/%s", name, path);
    return is_there(f, whole);
}

static void
test_a_set_has_all_files_of_its_wheels(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    json_auto_t *one = json_pack("[o]", wheel("one", "1"));
    json_auto_t *both = json_pack("[o, o]", wheel("one", "1"), wheel("two", "2"));
    json_auto_t *turned = json_pack("[o, o]", wheel("two", "2"), wheel("one", "1"));
    assert_false(package_sets_can_make(f->sets, both, TAG));
    unpack_wheel(f, json_array_get(both, 0), "space/one/m.py");
    assert_false(package_sets_can_make(f->sets, both, TAG));
    unpack_wheel(f, json_array_get(both, 1), "space/two/m.py");
    assert_true(package_sets_can_make(f->sets, both, TAG));
    assert_false(package_sets_can_make(f->sets, both, "cpython-313"));
    KG_AUTO_FREE char *name = kg_strdup(make_set(f, both));
    assert_true(set_has(f, name, "space/one/m.py") && set_has(f, name, "space/two/m.py"));
    // Where both have a file, the first one's counts: the order makes another set.
    assert_string_not_equal(make_set(f, turned), name);
    KG_AUTO_FREE char *other = kg_strdup(make_set(f, one));
    assert_string_not_equal(other, name);
    assert_false(set_has(f, other, "space/two"));
    // The same bytes on the disk, however many sets have them.
    KG_AUTO_FREE char *path = kg_asprintf("%s/shared/sets/%s/space/one/m.py", f->dir, other);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 4);
}

// Neither by listing nor by knowing which wheels are in them.
static void
test_nobody_finds_sets_that_are_not_named(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    open_sets(f);
    json_auto_t *wheels = json_pack("[o]", wheel("one", "1"));
    unpack_wheel(f, json_array_get(wheels, 0), "m.py");
    KG_AUTO_FREE char *name = kg_strdup(make_set(f, wheels));
    KG_AUTO_FREE char *folder = below(f, "shared/sets");
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0311);
    // Another installation gives another name to the same wheels.
    KG_AUTO_FREE char *key = below(f, "key");
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(unlink(key), 0);
    open_sets(f);
    assert_string_not_equal(make_set(f, wheels), name);
}

static void
test_users_of_sets(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    json_auto_t *wheels = json_pack("[o]", wheel("one", "1"));
    unpack_wheel(f, json_array_get(wheels, 0), "m.py");
    KG_AUTO_FREE char *name = kg_strdup(make_set(f, wheels));
    package_sets_use(f->sets, "ann", "owner", name);
    package_sets_use(f->sets, "bob", "owner", name);
    assert_true(json_equal(package_sets_wheels_of(f->sets, "ann"), wheels));
    assert_string_equal(package_sets_name_of(f->sets, "bob"), name);
    package_sets_use(f->sets, "bob", "owner", NULL);
    assert_null(package_sets_wheels_of(f->sets, "bob"));
    package_sets_use(f->sets, "cyd", "owner", name);
    open_sets(f);
    assert_true(json_equal(package_sets_wheels_of(f->sets, "ann"), wheels));
    assert_null(package_sets_wheels_of(f->sets, "bob"));
    package_sets_keep(f->sets, "ann");
    package_sets_forget_others(f->sets);
    assert_non_null(package_sets_wheels_of(f->sets, "ann"));
    assert_null(package_sets_wheels_of(f->sets, "cyd"));
    open_sets(f);
    assert_null(package_sets_wheels_of(f->sets, "cyd"));
}

static void
test_what_a_crash_left_of_a_set(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    json_auto_t *wheels = json_pack("[o]", wheel("one", "1"));
    unpack_wheel(f, json_array_get(wheels, 0), "m.py");
    KG_AUTO_FREE char *name = kg_strdup(make_set(f, wheels));
    KG_AUTO_FREE char *folder = kg_asprintf("%s/shared/sets/%s", f->dir, name);
    package_sets_use(f->sets, "ann", "owner", name);
    assert_int_equal(path_remove_tree(folder, NULL), 0);
    open_sets(f);
    assert_null(package_sets_wheels_of(f->sets, "ann"));
    assert_string_equal(make_set(f, wheels), name);
    assert_true(set_has(f, name, "m.py"));
}

static void
test_a_set_that_cannot_be_made(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    json_auto_t *wheels = json_pack("[o]", wheel("one", "1"));
    unpack_wheel(f, json_array_get(wheels, 0), "m.py");
    KG_AUTO_FREE char *tree = below(f, "unpacked/one1-" TAG);
    assert_int_equal(path_remove_tree(tree, NULL), 0);
    assert_null(make_set(f, wheels));
    assert_int_equal(f->err.code, KG_INTERNAL);
}

// The set is one, whoever waits for it; and it goes where nobody does.
static void
test_those_who_wait_for_one_set(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    json_auto_t *wheels = json_pack("[o, o]", wheel("one", "1"), wheel("two", "2"));
    unpack_wheel(f, json_array_get(wheels, 0), "one.py");
    unpack_wheel(f, json_array_get(wheels, 1), "two.py");
    package_set_making_cancel(make_of(f, "ann", wheels));
    assert_non_null(make_of(f, "ann", wheels));
    assert_non_null(make_of(f, "bob", wheels));
    RUN_UNTIL(f, f->n_made == 2);
    KG_AUTO_FREE char *name = kg_strdup(f->made);
    assert_true(set_has(f, name, "one.py") && set_has(f, name, "two.py"));

    json_auto_t *one = json_pack("[o]", wheel("one", "1"));
    package_set_making_cancel(make_of(f, "ann", one));
    // The sets end while a worker links.
    json_auto_t *turned = json_pack("[o, o]", wheel("two", "2"), wheel("one", "1"));
    struct package_set_making *making = make_of(f, "ann", turned);
    assert_non_null(making);
    package_set_making_cancel(making);
    open_sets(f);
    assert_string_equal(make_set(f, wheels), name);
}

// Of what the cache can hold, one owner's sandboxes use half while there are several.
static void
test_an_owner_has_half_of_the_cache(void **state)
{
    struct fixture *f = *state;
    open_sets(f);
    f->several = true;
    json_auto_t *big = json_pack("[o]", wheel("big", "1"));
    json_auto_t *small = json_pack("[o]", wheel("small", "1"));
    unpack_wheel(f, json_array_get(big, 0), "big.py");
    unpack_wheel(f, json_array_get(small, 0), "small.py");
    // As large as that, for its record says so.
    KG_AUTO_FREE char *record = below(f, "unpacked/big1-" TAG ".json");
    static const char size[] = "{\"bytes\": 3221225472, \"files\": 1}"; // 3 of 6 GiB
    assert_int_equal(file_write_atomic(record, size, sizeof size - 1, 0600, NULL), 0);
    open_sets(f);
    KG_AUTO_FREE char *name = kg_strdup(make_set(f, big));
    package_sets_use(f->sets, "sandbox", "ann", name);
    assert_null(make_set(f, small));
    assert_int_equal(f->err.code, KG_DISK_FULL);
    assert_non_null(make_set_of(f, "bob", small));
}

// Unpacks a wheel of that many files, and of one folder with the set's own.
static json_t *
unpack_wheel_of(const struct fixture *f, const char *name, int n_files)
{
    json_t *item = wheel(name, "1");
    KG_AUTO_FREE char *key =
        wheel_tree_key(json_string_value(json_object_get(item, "sha256")), TAG);
    KG_AUTO_BUF files = {0};
    for (int i = 0; i < n_files; i++)
        buf_printf(&files, "%s{\"path\": \"%s-%d\", \"size\": 0}", i ? "," : "[", name, i);
    buf_append_str(&files, "]");
    assert_int_equal(unpack(package_sets_trees(f->sets), key, files.data, "", NULL), 0);
    return item;
}

// `n` sets, each of a wheel of 50 files and another of one.
struct large_sets {
    json_t *wheels[12];
};

static void
unpack_large_sets(const struct fixture *f, struct large_sets *ret)
{
    json_auto_t *large = unpack_wheel_of(f, "large", 50);
    for (size_t i = 0; i < KG_ARRAY_LEN(ret->wheels); i++) {
        KG_AUTO_FREE char *name = kg_asprintf("small%zu", i);
        ret->wheels[i] = json_pack("[O, o]", large, unpack_wheel_of(f, name, 1));
    }
}

static void
free_large_sets(struct large_sets *sets)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(sets->wheels); i++)
        json_decref(sets->wheels[i]);
}

// The trees of these sets are nearly the same, but each has links of its own.
static void
test_an_owner_has_half_of_the_links(void **state)
{
    struct fixture *f = *state;
    struct large_sets large;
    f->limits.max_links = 520; // ten of these sets
    f->several = true;
    open_sets(f);
    unpack_large_sets(f, &large);
    static const char *const users[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < KG_ARRAY_LEN(users); i++)
        package_sets_use(f->sets, users[i], "ann", make_set(f, large.wheels[i]));
    // While they are being made, too.
    f->n_made = 0;
    assert_non_null(make_of(f, "ann", large.wheels[4]));
    assert_null(make_of(f, "ann", large.wheels[5]));
    assert_int_equal(f->err.code, KG_DISK_FULL);
    RUN_UNTIL(f, f->n_made == 2);
    assert_non_null(f->made);
    package_sets_use(f->sets, "e", "ann", f->made);
    assert_null(make_set(f, large.wheels[5]));
    // What is there already costs an owner as much, once.
    assert_non_null(make_set(f, large.wheels[0]));
    KG_AUTO_FREE char *of_bob = kg_strdup(make_set_of(f, "bob", large.wheels[5]));
    package_sets_use(f->sets, "f", "bob", of_bob);
    assert_null(make_set(f, large.wheels[5]));
    assert_string_equal(make_set_of(f, "bob", large.wheels[5]), of_bob);
    free_large_sets(&large);
}

static void
test_links_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct large_sets large;
    f->limits.max_links = 120; // two of these sets
    open_sets(f);
    unpack_large_sets(f, &large);
    KG_AUTO_FREE char *used = kg_strdup(make_set(f, large.wheels[0]));
    package_sets_use(f->sets, "a", "ann", used);
    KG_AUTO_FREE char *unused = kg_strdup(make_set(f, large.wheels[1]));
    assert_non_null(make_set(f, large.wheels[2])); // instead of the unused one
    assert_true(set_has(f, used, "large-49") && !set_has(f, unused, "large-49"));
    package_sets_use(f->sets, "b", "ann", f->made);
    assert_null(make_set(f, large.wheels[3]));
    assert_int_equal(f->err.code, KG_DISK_FULL);
    // Those of a set that is being made count.
    package_sets_use(f->sets, "b", "ann", NULL);
    f->n_made = 0;
    assert_non_null(make_of(f, "ann", large.wheels[3]));
    assert_null(make_of(f, "ann", large.wheels[4]));
    assert_int_equal(f->err.code, KG_DISK_FULL);
    RUN_UNTIL(f, f->n_made == 2);
    assert_non_null(f->made);
    free_large_sets(&large);
}

static void
test_sets_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct large_sets large;
    f->limits.max_sets = 2;
    open_sets(f);
    unpack_large_sets(f, &large);
    package_sets_use(f->sets, "a", "ann", make_set(f, large.wheels[0]));
    KG_AUTO_FREE char *unused = kg_strdup(make_set(f, large.wheels[1]));
    package_sets_use(f->sets, "b", "ann", make_set(f, large.wheels[2]));
    assert_false(set_has(f, unused, "large-0"));
    assert_null(make_set(f, large.wheels[3]));
    assert_int_equal(f->err.code, KG_DISK_FULL);
    free_large_sets(&large);
}

// A link takes none where the file system is on a disk, but folders do.
static void
test_sets_leave_half_of_the_free_inodes(void **state)
{
    struct fixture *f = *state;
    struct large_sets large;
    // Of a file system of its own; the trees take 64, and so does each set.
    assert_int_equal(mount("tmpfs", f->dir, "tmpfs", 0, "nr_inodes=330"), 0);
    make_folder(f, "incoming");
    make_folder(f, "shared");
    open_sets(f);
    unpack_large_sets(f, &large);
    KG_AUTO_FREE char *used = kg_strdup(make_set(f, large.wheels[0]));
    assert_non_null(used);
    package_sets_use(f->sets, "a", "ann", used);
    size_t n_made = 1;
    while (n_made < KG_ARRAY_LEN(large.wheels) && make_set(f, large.wheels[n_made])) {
        KG_AUTO_FREE char *user = kg_asprintf("user%zu", n_made++);
        package_sets_use(f->sets, user, "ann", f->made);
    }
    assert_int_equal(f->err.code, KG_DISK_FULL);
    struct statvfs disk;
    assert_int_equal(statvfs(f->dir, &disk), 0);
    assert_true(disk.f_favail > 50 && n_made > 1);
    free_large_sets(&large);
}

int
test_package_sets(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_wheel_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_sandbox_says_of_a_wheel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modules_that_would_run_at_start_are_left_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_unused_trees_make_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_set_has_all_files_of_its_wheels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_finds_sets_that_are_not_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_users_of_sets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_crash_left_of_a_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_set_that_cannot_be_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_those_who_wait_for_one_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_owner_has_half_of_the_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_owner_has_half_of_the_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sets_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sets_leave_half_of_the_free_inodes, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("packages: sets", tests, NULL, NULL);
}
