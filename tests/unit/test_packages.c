// SPDX-License-Identifier: Apache-2.0
// Packages: requirements, names of wheels, what a sandbox says it resolved, the cache.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake_sandbox.h"
#include "packages_priv.h"
#include "pip.h"
#include "requirement.h"
#include "test_packages.h"
#include "wheel_room.h"
#include "wheels.h"

// ---- Names ----------------------------------------------------------------------------------

static void
test_requirements(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"tinydb", "tinydb"},
        {"  Foo.Bar__baz ", "foo-bar-baz"},
        {"a==1.0", "a==1.0"},
        {"a >= 1.0 , < 2", "a>=1.0,<2"},
        {"a[x, Y_z] ~= 1.2", "a[x,y-z]~=1.2"},
        {"a===1.0+local.1", "a===1.0+local.1"},
        {"a==1.*", "a==1.*"},
        {"a!=2!1.0rc1", "a!=2!1.0rc1"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        struct kg_error err = {0};
        KG_AUTO_FREE char *normal = requirement_normalise(good[i][0], &err);
        assert_non_null(normal);
        assert_string_equal(normal, good[i][1]);
    }
    static const char *const bad[] = {
        "",         "-r x",  "--no-deps", "a b",    "a@b",        "a @ http://x",
        "http://x", "./a",   "/a",        "a/b",    "a;b",        "a; python_version>'3'",
        "a==",      "a==-1", "a=1",       "a==1,",  "a==1 --pre", "a==1\n-r x",
        "a[",       "a[]",   "a[x",       "a[x]y",  "a(>=1)",     "_a",
        "a_",       "a\t",   "a==$(x)",   "a==1|x", "\xc3\xa9",   "a==1 2",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        KG_AUTO_FREE char *normal = requirement_normalise(bad[i], &err);
        if (normal)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(err.code, KG_INVALID);
    }
    static const char *const lists[][2] = {
        {"[\"plotly, tqdm\"]", "[\"plotly\",\"tqdm\"]"},
        {"[\"a b\",\"c\\nd >= 1, <2, e\"]", "[\"a\",\"b\",\"c\",\"d>=1,<2\",\"e\"]"},
        {"[\" pip install a[x, y]==1.0 b\"]", "[\"a[x,y]==1.0\",\"b\"]"},
        {"[\"a,b,\"]", "[\"a\",\"b\"]"},
        {"[\"a, 7zip\"]", "[\"a\",\"7zip\"]"},
        {"[\"pip\",\"install\"]", "[\"pip\",\"install\"]"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(lists); i++) {
        struct kg_error err = {0};
        json_auto_t *value = json_loads(lists[i][0], JSON_DECODE_ANY, NULL);
        json_auto_t *list = requirements_read(value, &err);
        KG_AUTO_FREE char *text = list ? json_dumps(list, JSON_COMPACT) : kg_strdup(err.message);
        assert_string_equal(text, lists[i][1]);
    }
    static const char *const bad_lists[] = {
        "[\"\"]",
        "[]",
        "[1]",
        "null",
        "[\"a 1.0\"]",
        "[\"a==1 2\"]",
        "[\"a;b\"]",
        "[\"a, -r x\"]",
        "[\"a,,b\"]",
        "[\"a b==\"]",
        "[\"a\\u0000\"]",
        "[\"pip install -U a\"]",
        "[\"pip install\\u00a0a\"]",
        "[\"a(b)\"]",
        "\"a\"",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad_lists); i++) {
        struct kg_error err = {0};
        json_auto_t *value = json_loads(bad_lists[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        json_auto_t *list = requirements_read(value, &err);
        if (list)
            fail_msg("taken: %s", bad_lists[i]);
        assert_int_equal(err.code, KG_INVALID);
    }
    KG_AUTO_BUF many = {0};
    for (int i = 0; i <= REQUIREMENTS_MAX; i++)
        buf_printf(&many, "a%d ", i);
    json_auto_t *all = json_pack("[s]", many.data);
    assert_null(requirements_read(all, NULL));
    KG_AUTO_FREE char *name = requirement_name("foo-bar[x]>=1");
    assert_string_equal(name, "foo-bar");
    assert_true(requirement_is_pinned("a==1.0"));
    assert_true(requirement_is_pinned("a[x]===1.0"));
    assert_false(requirement_is_pinned("a"));
    assert_false(requirement_is_pinned("a==1.*"));
    assert_false(requirement_is_pinned("a==1,!=1.0"));
    assert_false(requirement_is_pinned("a>=1"));
}

static void
test_wheel_names(void **state)
{
    (void)state;
    assert_true(wheel_name_is_valid("tinydb-4.9.0-py3-none-any.whl"));
    assert_true(wheel_name_is_valid("a_b-1.0+x.1-2-cp311-cp311-manylinux_2_17_x86_64.whl"));
    assert_true(wheel_name_is_valid("a-1!2-py2.py3-none-any.whl"));
    static const char *const bad[] = {
        "",
        ".whl",
        "a.whl",
        "a-1-py3-none.whl",
        "a-1-2-3-4-5-6.whl",
        "../a-1-py3-none-any.whl",
        "a-1-py3-none-any.tar.gz",
        ".a-1-py3-none-any.whl",
        "a-1-py3-none-any.whl\n",
        "a b-1-py3-none-any.whl",
        "a-1--none-any.whl",
        "a/b-1-py3-none-any.whl",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        if (wheel_name_is_valid(bad[i]))
            fail_msg("taken: %s", bad[i]);
    }
}

// ---- Resolutions ----------------------------------------------------------------------------

#define HASH "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"

static json_t *
resolution_of(const char *file, const char *version, int size, const char *sha256)
{
    return json_pack("{s:[{s:s, s:s, s:s, s:i, s:s}], s:[]}", "wheels", "name", "Foo", "version",
                     version, "file", file, "size", size, "sha256", sha256, "satisfied");
}

static void
test_resolutions(void **state)
{
    (void)state;
    const struct {
        const char *file;
        const char *version;
        int size;
        const char *sha256;
        bool good;
    } cases[] = {
        {"foo-1.0-py3-none-any.whl", "1.0", 5, HASH, true},
        {"bar-1.0-py3-none-any.whl", "1.0", 5, HASH, false}, // another's name
        {"../foo-1.0-py3-none-any.whl", "1.0", 5, HASH, false},
        {"foo-1.0-py3-none-any.whl", "1 0", 5, HASH, false},
        {"foo-1.0-py3-none-any.whl", "", 5, HASH, false},
        {"foo-1.0-py3-none-any.whl", "1.0", 0, HASH, false},
        {"foo-1.0-py3-none-any.whl", "1.0", 2000000000, HASH, false},
        {"foo-1.0-py3-none-any.whl", "1.0", 5, "2CF2", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *root =
            resolution_of(cases[i].file, cases[i].version, cases[i].size, cases[i].sha256);
        KG_AUTO_FREE char *text = json_dumps(root, 0);
        struct kg_error err = {0};
        json_auto_t *parsed = resolution_parse(text, strlen(text), &err);
        assert_true((parsed != NULL) == cases[i].good);
        assert_true(parsed || err.code == KG_INTERNAL);
    }
    static const char *const malformed[] = {
        "",
        "[]",
        "{}",
        "{\"wheels\":{},\"satisfied\":[]}",
        "{\"wheels\":[1],\"satisfied\":[]}",
        "{\"wheels\":[],\"satisfied\":[{}]}",
        "{\"wheels\":[],\"satisfied\":[{\"requirement\":\"-r\",\"version\":\"1\"}]}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(malformed); i++) {
        struct kg_error err = {0};
        assert_null(resolution_parse(malformed[i], strlen(malformed[i]), &err));
        assert_int_equal(err.code, KG_INTERNAL);
    }
}

// It is weighed before it is parsed: what is parsed then is small.
static void
test_a_resolution_with_too_many_values(void **state)
{
    (void)state;
    static const char head[] = "{\"wheels\":[],\"satisfied\":[],\"x\":[";
    const int counts[] = {1000, 100 * 1000};
    for (size_t i = 0; i < KG_ARRAY_LEN(counts); i++) {
        KG_AUTO_BUF text = {0};
        struct kg_error err = {0};
        buf_append_str(&text, head);
        for (int j = 0; j < counts[i]; j++)
            buf_append_str(&text, "[],");
        buf_append_str(&text, "0]}");
        json_auto_t *parsed = resolution_parse(text.data, text.len, &err);
        assert_true((parsed != NULL) == (i == 0));
        assert_string_equal(err.message, i == 0 ? "" : "pip's result has too many values");
    }
    char deep[64];
    struct kg_error err = {0};
    memset(deep, '[', sizeof deep);
    assert_null(resolution_parse(deep, sizeof deep, &err));
    assert_string_equal(err.message, "pip's result has too many values");
}

// ---- The cache ------------------------------------------------------------------------------

struct cache {
    char dir[32];
    struct wheels *wheels;
};

static int
set_up(void **state)
{
    static struct cache cache;
    struct kg_error err = {0};
    strcpy(cache.dir, "/tmp/kg-test-wheels-XXXXXX");
    assert_non_null(mkdtemp(cache.dir));
    cache.wheels = wheels_new(cache.dir, "/proc/self/status", &err);
    assert_non_null(cache.wheels);
    *state = &cache;
    return 0;
}

static int
tear_down(void **state)
{
    struct cache *cache = *state;
    struct kg_error err = {0};
    wheels_free(cache->wheels);
    assert_int_equal(path_remove_tree(cache->dir, &err), 0);
    return 0;
}

static int
put(const struct cache *cache, const json_t *resolution, const char *data)
{
    const json_t *wheel = json_array_get(json_object_get(resolution, "wheels"), 0);
    struct kg_error err = {0};
    struct wheel_file *file = wheel_file_new(cache->wheels, wheel, &err);
    assert_non_null(file);
    if (wheel_file_write(file, data, strlen(data), &err) == 0)
        return wheel_file_finish(file, &err);
    wheel_file_cancel(file);
    return -1;
}

static void
test_shared_folder(void **state)
{
    const struct cache *cache = *state;
    static const char *const names[] = {"packages.py", "unpack.py", "ca.pem"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s", wheels_shared_dir(cache->wheels), names[i]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
    }
}

// Version 0.2.0 let sandboxes see the wheels.
static void
test_wheels_of_an_earlier_version_leave(void **state)
{
    struct cache *cache = *state;
    struct kg_error err = {0};
    KG_AUTO_FREE char *old = kg_asprintf("%s/shared/wheels", cache->dir);
    KG_AUTO_FREE char *records = kg_asprintf("%s/resolved", cache->dir);
    assert_int_equal(dir_make(old, 0755, &err), 0);
    assert_int_equal(dir_make(records, 0700, &err), 0);
    wheels_free(KG_STEAL(cache->wheels));
    cache->wheels = wheels_new(cache->dir, NULL, &err);
    assert_non_null(cache->wheels);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(records, F_OK), -1);
}

static void
test_only_the_named_bytes_get_in(void **state)
{
    const struct cache *cache = *state;
    json_auto_t *resolution = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
    const json_t *wheel = json_array_get(json_object_get(resolution, "wheels"), 0);
    assert_int_equal(put(cache, resolution, "hellO"), -1);
    assert_int_equal(put(cache, resolution, "hell"), -1);
    assert_int_equal(put(cache, resolution, "hello!"), -1);
    assert_false(wheels_has(cache->wheels, wheel));
    assert_int_equal(put(cache, resolution, "hello"), 0);
    assert_true(wheels_has(cache->wheels, wheel));
}

// A private index serves another file under the same name.
static void
test_a_name_does_not_make_a_wheel(void **state)
{
    static const char other_hash[] = // of "HELLO"
        "3733cd977ff8eb18b987357e22ced99f46097f31ecb239e878ae63760e83e4d5";
    const struct cache *cache = *state;
    json_auto_t *resolution = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
    json_auto_t *other = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, other_hash);
    const json_t *wheel = json_array_get(json_object_get(other, "wheels"), 0);
    assert_int_equal(put(cache, resolution, "hello"), 0);
    assert_false(wheels_has(cache->wheels, wheel));
    assert_int_equal(put(cache, other, "HELLO"), 0);

    KG_AUTO_BUF text = {0};
    KG_AUTO_FREE char *place = wheel_place(wheel);
    KG_AUTO_FREE char *path = kg_asprintf("%s/wheels/%s", cache->dir, place);
    assert_int_equal(file_read(path, 100, &text, NULL), 0);
    assert_string_equal(text.data, "HELLO");
}

static void
add_file(const struct cache *cache, struct wheel_room *room, const char *name, int64_t age_s)
{
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", cache->dir, name);
    KG_AUTO_FREE char *path = kg_asprintf("%s/file", folder);
    KG_AUTO_FREE char *place = kg_asprintf("%s/file", name);
    const struct timespec times[2] = {[1] = {.tv_sec = 1000 * 1000 - age_s}};
    assert_int_equal(dir_make(folder, 0700, NULL), 0);
    assert_int_equal(file_write_atomic(path, "0123456789", 10, 0600, NULL), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    if (room)
        wheel_room_add(room, place, 10);
}

static bool
is_there(const struct cache *cache, const char *name)
{
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", cache->dir, name);
    return access(folder, F_OK) == 0;
}

static void
test_the_oldest_wheels_leave(void **state)
{
    struct cache cache;
    (void)state;
    strcpy(cache.dir, "/tmp/kg-test-wheels-XXXXXX");
    assert_non_null(mkdtemp(cache.dir));
    add_file(&cache, NULL, "b", 200);
    add_file(&cache, NULL, "a", 300);
    KG_AUTO(wheel_room) room = wheel_room_new(cache.dir, 48, 100);
    add_file(&cache, room, "c", 100);
    wheel_room_make(room, 18); // it just fits
    assert_true(is_there(&cache, "a"));
    wheel_room_make(room, 19);
    assert_false(is_there(&cache, "a"));
    assert_true(is_there(&cache, "b") && is_there(&cache, "c"));
    wheel_room_use(room, "b/file");
    wheel_room_make(room, 38);
    assert_true(is_there(&cache, "b") && !is_there(&cache, "c"));
    add_file(&cache, NULL, "c", 100);
    add_file(&cache, NULL, "b", 200);

    KG_AUTO(wheel_room) few = wheel_room_new(cache.dir, 1000, 3);
    wheel_room_make(few, 10);
    assert_true(is_there(&cache, "b"));
    add_file(&cache, few, "d", 50);
    wheel_room_make(few, 10);
    assert_true(!is_there(&cache, "b") && is_there(&cache, "c") && is_there(&cache, "d"));
    assert_int_equal(path_remove_tree(cache.dir, NULL), 0);
}

static time_t
age_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return time(NULL) - st.st_mtime;
}

// Else the oldest download would leave first, however much it is used.
static void
test_use_makes_a_wheel_young(void **state)
{
    const struct cache *cache = *state;
    const struct timespec old[2] = {{.tv_sec = 1000 * 1000}, {.tv_sec = 1000 * 1000}};
    json_auto_t *resolution = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
    const json_t *wheel = json_array_get(json_object_get(resolution, "wheels"), 0);
    json_object_set_new(json_array_get(json_object_get(resolution, "wheels"), 0), "name",
                        json_string("foo"));
    assert_false(wheels_use(cache->wheels, wheel));
    assert_int_equal(put(cache, resolution, "hello"), 0);
    KG_AUTO_FREE char *place = wheel_place(wheel);
    KG_AUTO_FREE char *path = kg_asprintf("%s/wheels/%s", cache->dir, place);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(wheels_has(cache->wheels, wheel));
    assert_true(age_of(path) > 1000);
    assert_true(wheels_use(cache->wheels, wheel));
    assert_true(age_of(path) < 1000);
}

static void
test_what_was_asked_for_is_found(void **state)
{
    const struct cache *cache = *state;
    json_auto_t *resolution = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
    json_object_set_new(json_array_get(json_object_get(resolution, "wheels"), 0), "name",
                        json_string("foo"));
    json_auto_t *asked = json_pack("[s, s]", "foo>=1", "bar");
    json_auto_t *other_order = json_pack("[s, s]", "bar", "foo>=1");
    json_auto_t *exact = json_pack("[s, s]", "foo==1.0", "bar");
    json_auto_t *other = json_pack("[s]", "foo");
    bool fresh = false;
    assert_null(wheels_find(cache->wheels, "env", asked, &fresh));
    wheels_remember(cache->wheels, "env", asked, resolution);
    assert_null(wheels_find(cache->wheels, "other environment", asked, &fresh));
    json_auto_t *found = wheels_find(cache->wheels, "env", asked, &fresh);
    assert_true(json_equal(found, resolution) && fresh);
    json_auto_t *again = wheels_find(cache->wheels, "env", other_order, &fresh);
    assert_true(json_equal(again, resolution));
    json_auto_t *pinned = wheels_find(cache->wheels, "env", exact, &fresh);
    assert_true(json_equal(pinned, resolution));
    assert_null(wheels_find(cache->wheels, "env", other, &fresh));
    // The next gateway finds it as well.
    struct kg_error err = {0};
    KG_AUTO(wheels) next = wheels_new(cache->dir, NULL, &err);
    json_auto_t *kept = wheels_find(next, "env", asked, &fresh);
    assert_true(json_equal(kept, resolution));
}

static void
test_the_index_is_asked_again_after_a_day(void **state)
{
    const struct cache *cache = *state;
    json_auto_t *resolution = resolution_of("foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
    json_auto_t *asked = json_pack("[s]", "foo");
    json_auto_t *exact = json_pack("[s]", "foo==1.0");
    bool fresh = true;
    assert_int_equal(put(cache, resolution, "hello"), 0);
    wheels_remember(cache->wheels, "env", asked, resolution);
    wheels_remember(cache->wheels, "env", exact, resolution);
    KG_AUTO_FREE char *command =
        kg_asprintf("touch -d '2 days ago' %s/resolutions/*/*.json", cache->dir);
    assert_int_equal(system(command), 0);
    json_auto_t *found = wheels_find(cache->wheels, "env", asked, &fresh);
    assert_true(found && !fresh);
    json_auto_t *pinned = wheels_find(cache->wheels, "env", exact, &fresh);
    assert_true(pinned && fresh);
}

// ---- Downloads ------------------------------------------------------------------------------

enum { DEADLINE_MS = 40 * 1000 };

struct fixture {
    struct loop *loop;
    struct loop_timer *deadline;
    bool timed_out;
    struct sandbox_context sandboxes;
};

static void
on_deadline(void *arg)
{
    struct fixture *f = arg;
    f->timed_out = true;
}

#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition)) {                                                                         \
        event_base_loop(loop_event_base((f)->loop), EVLOOP_ONCE);                                  \
        assert_false((f)->timed_out);                                                              \
    }

static int
downloads_set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->deadline = loop_timer_new(f->loop, on_deadline, f);
    f->sandboxes = (struct sandbox_context){.loop = f->loop};
    loop_timer_start(f->deadline, DEADLINE_MS);
    fake_sandboxes_init(f->loop);
    *state = f;
    return 0;
}

static int
downloads_tear_down(void **state)
{
    struct fixture *f = *state;
    fake_sandboxes_fini();
    loop_timer_free(f->deadline);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void
on_step(const char *text, void *arg)
{
    (void)text;
    (void)arg;
}

static void
on_text(const char *text, size_t len, void *arg)
{
    (void)text;
    (void)len;
    (void)arg;
}

static void
on_done(const json_t *resolution, const struct kg_error *err, void *arg)
{
    assert_null(resolution);
    assert_int_equal(err->code, KG_DRAINING);
    (*(int *)arg)++;
}

static void
test_who_leaves_takes_no_place(void **state)
{
    enum { PLACES = 32, RUNNING = 2 };
    struct fixture *f = *state;
    static const struct wheel_wait_events events = {on_step, on_text, on_done};
    struct packages packages = {.loop = f->loop, .sandboxes = &f->sandboxes};
    struct wheel_wait *waits[PLACES + 1] = {0};
    struct kg_error err = {0};
    int done = 0;
    wheel_jobs_init(&packages, false);
    fake_script.hold_ready = true;
    for (int i = 0; i <= PLACES; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("p%d", i);
        json_auto_t *names = json_pack("[s]", name);
        waits[i] = wheel_wait_start(&packages, "me", names, &events, &done, &err);
        assert_int_equal(waits[i] != NULL, i < PLACES);
    }
    assert_int_equal(err.code, KG_SESSION_BUSY);
    RUN_UNTIL(f, packages.running.held == RUNNING);
    for (int i = 0; i < PLACES; i++)
        wheel_wait_cancel(waits[i]);
    RUN_UNTIL(f, packages.downloads.held == RUNNING);
    json_auto_t *other = json_pack("[s]", "other");
    assert_non_null(wheel_wait_start(&packages, "me", other, &events, &done, &err));
    wheel_jobs_stop(&packages);
    assert_int_equal(packages.downloads.held, 0);
    assert_int_equal(done, 1);
    wheel_jobs_fini(&packages);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
}

static void
test_a_wheel_that_the_disk_cannot_hold(void **state)
{
    const struct cache *cache = *state;
    struct kg_error err = {0};
    json_auto_t *wheel =
        json_pack("{s:s, s:s, s:I}", "file", "a.whl", "sha256", "ab", "size", (json_int_t)1 << 50);
    assert_null(wheel_file_new(cache->wheels, wheel, &err));
    assert_int_equal(err.code, KG_DISK_FULL);
    assert_non_null(strstr(err.message, "state-dir"));
}

static struct wheel_wait *
ask_for(struct packages *packages, const char *owner, int number, int *done)
{
    static const struct wheel_wait_events events = {on_step, on_text, on_done};
    struct kg_error err = {0};
    KG_AUTO_FREE char *name = kg_asprintf("%s%d", owner, number);
    json_auto_t *names = json_pack("[s]", name);
    struct wheel_wait *wait = wheel_wait_start(packages, owner, names, &events, done, &err);
    assert_int_equal(err.code, wait ? KG_OK : KG_SESSION_BUSY);
    return wait;
}

static void
test_one_owner_takes_half(void **state)
{
    enum { PLACES = 32 };
    struct fixture *f = *state;
    struct packages packages = {.loop = f->loop, .sandboxes = &f->sandboxes};
    int done = 0;
    wheel_jobs_init(&packages, true);
    fake_script.hold_ready = true;
    for (int i = 0; i <= PLACES / 2; i++)
        assert_int_equal(ask_for(&packages, "ann", i, &done) != NULL, i < PLACES / 2);
    RUN_UNTIL(f, packages.running.held == 1);
    // The other half is there for others, at once.
    assert_non_null(ask_for(&packages, "bob", 0, &done));
    RUN_UNTIL(f, packages.running.held == 2);
    assert_string_equal(packages.last_owner, "bob");
    wheel_jobs_stop(&packages);
    assert_int_equal(done, PLACES / 2 + 1);
    wheel_jobs_fini(&packages);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
}

// ---- Deliveries -----------------------------------------------------------------------------

// A sandbox that does not see the shared folder, and a cache with two wheels.
struct delivery {
    struct fixture *f;
    struct cache cache;
    struct packages packages;
    struct sandbox *sandbox;
    json_t *files;
    int n_done;
    struct kg_error err;
};

static void
on_delivered(const struct kg_error *err, void *arg)
{
    struct delivery *d = arg;
    d->n_done++;
    d->err = err ? *err : (struct kg_error){0};
}

static void
on_sandbox_ready(struct sandbox *sandbox, void *arg)
{
    (void)sandbox;
    (void)arg;
}

static int
delivery_set_up(void **state)
{
    static const struct sandbox_events events = {.on_ready = on_sandbox_ready};
    static const struct sandbox_spec spec = {.ready_timeout_ms = DEADLINE_MS};
    struct delivery *d = KG_NEW(struct delivery);
    struct kg_error err = {0};
    (void)downloads_set_up((void **)&d->f);
    strcpy(d->cache.dir, "/tmp/kg-test-wheels-XXXXXX");
    assert_non_null(mkdtemp(d->cache.dir));
    d->cache.wheels = wheels_new(d->cache.dir, NULL, &err);
    d->packages = (struct packages){.loop = d->f->loop,
                                    .sandboxes = &d->f->sandboxes,
                                    .python = (char *)(uintptr_t) "/bin/python",
                                    .wheels = d->cache.wheels};
    d->files = json_array();
    for (int i = 0; i < 2; i++) {
        json_auto_t *resolution = resolution_of(
            i ? "foo-1.1-py3-none-any.whl" : "foo-1.0-py3-none-any.whl", "1.0", 5, HASH);
        assert_int_equal(put(&d->cache, resolution, "hello"), 0);
        KG_AUTO_FREE char *path =
            wheel_path_of(json_array_get(json_object_get(resolution, "wheels"), 0));
        json_array_append_new(d->files, json_string(path));
    }
    d->sandbox = sandbox_create(&d->f->sandboxes, &spec, &events, NULL, &err);
    RUN_UNTIL(d->f, sandbox_state(d->sandbox) == SANDBOX_READY);
    fake_journal_clear();
    fake_script.disk_bytes = 5;
    *state = d;
    return 0;
}

static int
delivery_tear_down(void **state)
{
    struct delivery *d = *state;
    sandbox_free(d->sandbox);
    wheels_free(d->cache.wheels);
    assert_int_equal(path_remove_tree(d->cache.dir, NULL), 0);
    json_decref(d->files);
    (void)downloads_tear_down((void **)&d->f);
    free(d);
    return 0;
}

static struct packages_delivery *
deliver(struct delivery *d, const json_t *files)
{
    struct kg_error err = {0};
    struct packages_delivery *delivery =
        packages_deliver(&d->packages, d->sandbox, files, on_delivered, d, &err);
    assert_non_null(delivery);
    assert_int_equal(d->n_done, 0);
    return delivery;
}

#define DELETED "delete .kg-delivered\n"
#define WRITTEN(version)                                                                           \
    "write .kg-delivered/wheels/" HASH "/foo-" version "-py3-none-any.whl hello\n"

static void
test_deliveries(void **state)
{
    struct delivery *d = *state;
    deliver(d, d->files);
    RUN_UNTIL(d->f, d->n_done == 1);
    assert_int_equal(d->err.code, KG_OK);
    assert_string_equal(fake_journal(), DELETED WRITTEN("1.0") WRITTEN("1.1"));
    json_auto_t *nothing = json_array();
    fake_journal_clear();
    d->n_done = 0;
    deliver(d, nothing);
    RUN_UNTIL(d->f, d->n_done == 1);
    assert_int_equal(d->err.code, KG_OK);
    assert_string_equal(fake_journal(), DELETED);
}

static void
test_pip_with_and_without_a_shared_folder(void **state)
{
    const struct delivery *d = *state;
    json_auto_t *args = json_pack("[s]", "x");
    KG_AUTO_FREE char *delivered = packages_path_inside(&d->packages, "wheels/x");
    assert_string_equal(delivered, "/mnt/data/.kg-delivered/wheels/x");
    char **argv = pip_argv(&d->packages, "list", args);
    assert_string_equal(argv[0], "/bin/python");
    assert_string_equal(argv[1], "-c");
    assert_non_null(strstr(argv[2], "importlib.metadata"));
    assert_string_equal(argv[3], "list");
    assert_string_equal(argv[4], "x");
    assert_null(argv[5]);
    pip_argv_free(argv);

    d->f->sandboxes.shares_folders = true;
    KG_AUTO_FREE char *shared = packages_path_inside(&d->packages, "ca.pem");
    assert_string_equal(shared, "/opt/kernelgate/packages/ca.pem");
    argv = pip_argv(&d->packages, "list", args);
    assert_string_equal(argv[1], "/opt/kernelgate/packages/packages.py");
    assert_string_equal(argv[2], "list");
    assert_string_equal(argv[3], "x");
    assert_null(argv[4]);
    pip_argv_free(argv);
}

static void
test_a_delivery_that_finds_no_room(void **state)
{
    struct delivery *d = *state;
    fake_script.disk_bytes = 4;
    deliver(d, d->files);
    RUN_UNTIL(d->f, d->n_done == 1);
    assert_int_equal(d->err.code, KG_DISK_FULL);
    assert_string_equal(d->err.message, "the session's disk has no room for "
                                        "foo-1.0-py3-none-any.whl (5 bytes): see disk-mb");
    assert_string_equal(fake_journal(), DELETED DELETED);
}

static char *
path_of_file(const struct delivery *d, size_t i)
{
    return wheels_locate(d->cache.wheels, json_string_value(json_array_get(d->files, i)));
}

static void
test_wheels_that_cannot_be_read(void **state)
{
    struct delivery *d = *state;
    KG_AUTO_FREE char *second = path_of_file(d, 1);
    assert_int_equal(unlink(second), 0);
    deliver(d, d->files);
    RUN_UNTIL(d->f, d->n_done == 1);
    assert_int_equal(d->err.code, KG_INTERNAL);
    assert_non_null(strstr(d->err.message, "try again"));
    assert_string_equal(fake_journal(), DELETED WRITTEN("1.0") DELETED);

    // It becomes shorter while it is sent: what is missing does not count as delivered.
    KG_AUTO_FREE char *first = path_of_file(d, 0);
    json_array_remove(d->files, 1);
    d->n_done = 0;
    fake_journal_clear();
    fake_script.hold_writes = true;
    deliver(d, d->files);
    RUN_UNTIL(d->f, fake_journal_count("delete .kg-delivered") == 1);
    assert_int_equal(truncate(first, 3), 0);
    fake_sandboxes_release();
    RUN_UNTIL(d->f, d->n_done == 1);
    assert_int_equal(d->err.code, KG_INTERNAL);
    assert_int_equal(fake_journal_count("delete .kg-delivered"), 2);
}

static void
test_a_delivery_ends_with_its_sandbox_or_its_caller(void **state)
{
    struct delivery *d = *state;
    struct kg_error err = {0};
    fake_script.hold_writes = true;
    struct packages_delivery *cancelled = deliver(d, d->files);
    RUN_UNTIL(d->f, fake_journal_count("delete .kg-delivered") == 1);
    packages_delivery_cancel(cancelled);
    assert_int_equal(d->n_done, 0);
    deliver(d, d->files);
    RUN_UNTIL(d->f, fake_journal_count("delete .kg-delivered") == 2);
    fake_script.refuse_calls = true;
    sandbox_free(KG_STEAL(d->sandbox));
    assert_int_equal(d->n_done, 1);
    assert_int_equal(d->err.code, KG_SESSION_NOT_FOUND);

    static const struct sandbox_events events = {.on_ready = on_sandbox_ready};
    static const struct sandbox_spec spec = {.ready_timeout_ms = DEADLINE_MS};
    d->sandbox = sandbox_create(&d->f->sandboxes, &spec, &events, NULL, &err);
    RUN_UNTIL(d->f, sandbox_state(d->sandbox) == SANDBOX_READY);
    assert_null(packages_deliver(&d->packages, d->sandbox, d->files, on_delivered, d, &err));
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requirements),
        cmocka_unit_test(test_wheel_names),
        cmocka_unit_test(test_the_oldest_wheels_leave),
        cmocka_unit_test(test_resolutions),
        cmocka_unit_test(test_a_resolution_with_too_many_values),
        cmocka_unit_test_setup_teardown(test_shared_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wheels_of_an_earlier_version_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_named_bytes_get_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_name_does_not_make_a_wheel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_use_makes_a_wheel_young, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_wheel_that_the_disk_cannot_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_asked_for_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_index_is_asked_again_after_a_day, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_who_leaves_takes_no_place, downloads_set_up,
                                        downloads_tear_down),
        cmocka_unit_test_setup_teardown(test_one_owner_takes_half, downloads_set_up,
                                        downloads_tear_down),
        cmocka_unit_test_setup_teardown(test_deliveries, delivery_set_up, delivery_tear_down),
        cmocka_unit_test_setup_teardown(test_pip_with_and_without_a_shared_folder, delivery_set_up,
                                        delivery_tear_down),
        cmocka_unit_test_setup_teardown(test_a_delivery_that_finds_no_room, delivery_set_up,
                                        delivery_tear_down),
        cmocka_unit_test_setup_teardown(test_wheels_that_cannot_be_read, delivery_set_up,
                                        delivery_tear_down),
        cmocka_unit_test_setup_teardown(test_a_delivery_ends_with_its_sandbox_or_its_caller,
                                        delivery_set_up, delivery_tear_down),
    };
    return cmocka_run_group_tests_name("packages", tests, NULL, NULL) + test_package_sets();
}
