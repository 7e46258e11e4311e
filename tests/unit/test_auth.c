// SPDX-License-Identifier: Apache-2.0
// API keys: their file, and changes of it.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth_priv.h"
#include "loop_wait.h"

struct bench {
    struct loop *loop;
    char dir[32];
    char log_path[64];
    int log_stderr; // the test's own
    int n_changes;
};

static struct bench bench;

static void
on_change(void *arg)
{
    (void)arg;
    bench.n_changes++;
}

// The log is written to a file, which tests read.
static int
set_up(void **state)
{
    (void)state;
    bench = (struct bench){.loop = loop_new(), .dir = "/tmp/kg-test-auth-XXXXXX"};
    assert_non_null(mkdtemp(bench.dir));
    snprintf(bench.log_path, sizeof bench.log_path, "%s/log", bench.dir);
    fflush(stderr);
    bench.log_stderr = dup(STDERR_FILENO);
    assert_non_null(freopen(bench.log_path, "w", stderr));
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    fflush(stderr);
    dup2(bench.log_stderr, STDERR_FILENO);
    close(bench.log_stderr);
    loop_free(bench.loop);
    struct kg_error err;
    assert_int_equal(path_remove_tree(bench.dir, &err), 0);
    return 0;
}

static char *
in_dir(const char *name)
{
    return kg_asprintf("%s/%s", bench.dir, name);
}

static void
write_in_place(const char *name, const char *text)
{
    KG_AUTO_FREE char *path = in_dir(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void
make_folder(const char *name)
{
    KG_AUTO_FREE char *path = in_dir(name);
    assert_int_equal(mkdir(path, 0700), 0);
}

// Replaces a link, as `ln -sfn` and the kubelet do.
static void
link_to(const char *target, const char *name)
{
    KG_AUTO_FREE char *path = in_dir(name);
    KG_AUTO_FREE char *fresh = kg_asprintf("%s.tmp", path);
    assert_int_equal(symlink(target, fresh), 0);
    assert_int_equal(rename(fresh, path), 0);
}

static void
replace(const char *name, const char *text)
{
    write_in_place("fresh", text);
    KG_AUTO_FREE char *from = in_dir("fresh");
    KG_AUTO_FREE char *to = in_dir(name);
    assert_int_equal(rename(from, to), 0);
}

static int
log_count(const char *text)
{
    KG_AUTO_BUF log = {0};
    struct kg_error err;
    buf_append_str(&log, "");
    assert_int_equal(file_read(bench.log_path, 1 << 20, &log, &err), 0);
    int n = 0;
    for (const char *at = log.data; (at = strstr(at, text)); at += strlen(text))
        n++;
    return n;
}

static struct api_keys *
load(const char *name, struct kg_error *err)
{
    KG_AUTO_FREE char *path = in_dir(name);
    const struct api_keys_settings settings = {
        .key = "fixed", .path = path, .shared.max_sessions = 5, .alone.max_sessions = 10};
    return api_keys_new(&settings, err);
}

static struct api_keys *
watch(const char *name)
{
    struct kg_error err = {0};
    struct api_keys *keys = load(name, &err);
    assert_string_equal(err.message, "");
    api_keys_watch(keys, bench.loop, on_change, NULL);
    return keys;
}

// The owner of a key, now; valid until the next call.
static const char *
owner_of(struct api_keys *keys, const char *key)
{
    static char owner[HTTP_OWNER_MAX + 1];
    struct http_authenticator *authenticator = api_keys_authenticator(keys);
    assert_null(authenticator->ops->check(authenticator, key, owner, NULL, NULL));
    return owner;
}

static bool
is_owner(struct api_keys *keys, const char *key, const char *owner)
{
    return strcmp(owner_of(keys, key), owner) == 0;
}

static void
test_keys_file(void **state)
{
    (void)state;
    struct kg_error err = {0};
    write_in_place("keys", "# comment\n\nalice:secret-a\n  bob : "
                           "sha256:"
                           "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\r\n"
                           "carol:with:colon");
    KG_AUTO(api_keys) keys = load("keys", &err);
    assert_non_null(keys);
    assert_true(is_owner(keys, "secret-a", "alice"));
    assert_true(is_owner(keys, "secret", "bob"));
    assert_true(is_owner(keys, "with:colon", "carol"));
    assert_true(is_owner(keys, "fixed", "default"));
    assert_true(is_owner(keys, "", ""));
    assert_true(is_owner(keys, "secret-", ""));
    assert_true(is_owner(keys, "secret-ab", ""));
    assert_true(api_keys_have_several_owners(keys));
}

// Errors name the line, and never contain its text.
static void
test_broken_keys_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"s3cret\n", "line 1: expected owner:key"},
        {"a:b\ns3cret word:x\n", "line 2: the owner's name"},
        {"s3cret:\n", "line 1: the key is empty"},
        {"", "contains no key"},
        {"# alice:s3cret\n", "contains no key"},
        {"a:b\na:sha256:5ec7e7\n", "line 2: sha256: must be followed"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        write_in_place("keys", cases[i].text);
        assert_null(load("keys", &err));
        assert_non_null(strstr(err.message, cases[i].message));
        assert_null(strstr(err.message, "s3cret"));
        assert_null(strstr(err.message, "5ec7e7"));
    }
    struct kg_error err = {0};
    assert_null(load("missing", &err));
    assert_non_null(strstr(err.message, "No such file"));
}

static void
test_a_changed_file_is_read(void **state)
{
    (void)state;
    write_in_place("keys", "default:ka\n");
    KG_AUTO(api_keys) keys = watch("keys");
    const struct http_authenticator *authenticator = api_keys_authenticator(keys);
    assert_int_equal(authenticator->ops->quota(authenticator, "default").max_sessions, 10);
    replace("keys", "default:ka\nbob:kb\n"); // as editors do
    WAIT_FOR(&bench, bench.n_changes == 1);
    assert_true(is_owner(keys, "kb", "bob"));
    assert_true(is_owner(keys, "ka", "default"));
    assert_true(api_keys_have_several_owners(keys));
    assert_int_equal(authenticator->ops->quota(authenticator, "bob").max_sessions, 5);
    write_in_place("keys", "bob:kb\ncarol:kc\n"); // as >> does
    WAIT_FOR(&bench, bench.n_changes == 2);
    assert_true(is_owner(keys, "ka", ""));
    assert_true(is_owner(keys, "kc", "carol"));
    assert_true(is_owner(keys, "fixed", "default"));
    write_in_place("keys", "default:kc\n");
    WAIT_FOR(&bench, bench.n_changes == 3);
    assert_false(api_keys_have_several_owners(keys));
    assert_int_equal(log_count("the API keys have changed"), 3);
}

// The layout of a mounted Secret, and how the kubelet replaces it.
static void
test_a_mounted_secret_is_read(void **state)
{
    (void)state;
    make_folder("secret");
    make_folder("secret/..1");
    write_in_place("secret/..1/keys", "alice:ka\n");
    link_to("..1", "secret/..data");
    link_to("..data/keys", "secret/keys");
    KG_AUTO(api_keys) keys = watch("secret/keys");
    for (int i = 2; i <= 4; i++) {
        KG_AUTO_FREE char *folder = kg_asprintf("secret/..%d", i);
        KG_AUTO_FREE char *file = kg_asprintf("%s/keys", folder);
        KG_AUTO_FREE char *text = kg_asprintf("alice:k%d\n", i);
        KG_AUTO_FREE char *key = kg_asprintf("k%d", i);
        KG_AUTO_FREE char *before = kg_asprintf("%s/secret/..%d", bench.dir, i - 1);
        make_folder(folder);
        write_in_place(file, text);
        link_to(strrchr(folder, '/') + 1, "secret/..data");
        struct kg_error err;
        assert_int_equal(path_remove_tree(before, &err), 0);
        WAIT_FOR(&bench, is_owner(keys, key, "alice"));
        assert_true(is_owner(keys, "ka", ""));
    }
    assert_int_equal(log_count("not read again"), 0);
}

// Every folder and link on the way to the file is watched.
static void
test_a_link_elsewhere_is_followed(void **state)
{
    (void)state;
    KG_AUTO_FREE char *absolute = in_dir("v1/in/keys");
    make_folder("v1");
    make_folder("v1/in");
    make_folder("v2");
    make_folder("v2/in");
    write_in_place("v1/in/keys", "alice:k1\n");
    write_in_place("v2/in/keys", "alice:k2\n");
    link_to("v1", "current");
    link_to("./current/../current/in//keys", "keys");
    KG_AUTO(api_keys) keys = watch("keys");
    replace("v1/in/keys", "alice:k1b\n"); // at the end of the way
    WAIT_FOR(&bench, is_owner(keys, "k1b", "alice"));
    link_to("v2", "current"); // in the middle
    WAIT_FOR(&bench, is_owner(keys, "k2", "alice"));
    write_in_place("v2/in/keys", "alice:k2b\n");
    WAIT_FOR(&bench, is_owner(keys, "k2b", "alice"));
    link_to(absolute, "keys"); // at its beginning
    WAIT_FOR(&bench, is_owner(keys, "k1b", "alice"));
    KG_AUTO_FREE char *v1 = in_dir("v1/in");
    KG_AUTO_FREE char *away = in_dir("v1/away");
    assert_int_equal(rename(v1, away), 0);
    WAIT_FOR(&bench, log_count("not read again") >= 1);
    assert_true(is_owner(keys, "k1b", "alice"));
    make_folder("v1/in");
    write_in_place("v1/in/keys", "alice:k1c\n"); // the file exists again
    WAIT_FOR(&bench, is_owner(keys, "k1c", "alice"));
}

static void
test_a_broken_change_changes_nothing(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = watch("keys");
    replace("keys", "bob:kb\ns3cret-without-a-colon\n");
    WAIT_FOR(&bench, log_count("keys, line 2: expected owner:key") >= 1);
    assert_true(is_owner(keys, "ka", "alice"));
    assert_true(is_owner(keys, "kb", ""));
    replace("keys", "");
    WAIT_FOR(&bench, log_count("contains no key") >= 1);
    KG_AUTO_FREE char *path = in_dir("keys");
    assert_int_equal(unlink(path), 0);
    WAIT_FOR(&bench, log_count("No such file") >= 1);
    assert_true(is_owner(keys, "ka", "alice"));
    assert_int_equal(bench.n_changes, 0);
    write_in_place("keys", "bob:s3cret-b\n");
    WAIT_FOR(&bench, bench.n_changes == 1);
    assert_true(is_owner(keys, "s3cret-b", "bob"));
    assert_true(is_owner(keys, "ka", ""));
    assert_int_equal(log_count("s3cret"), 0);
}

// The keys can be freed in any state, also while a worker reads the file.
static void
test_the_end_while_a_file_is_read(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    for (int i = 0; i < 5; i++) {
        KG_AUTO(api_keys) keys = watch("keys");
        replace("keys", "alice:kb\n");
        if (i > 0)
            event_base_loop(loop_event_base(bench.loop), EVLOOP_NONBLOCK);
    }
    assert_int_equal(log_count("not read again"), 0);
}

// ---- A file that somebody else opens --------------------------------------------------------

// The loop has one more descriptor from the first delivery on: that of its workers.
static struct api_keys *
follow(const char *name)
{
    struct kg_error err = {0};
    struct api_keys *keys = load(name, &err);
    assert_string_equal(err.message, "");
    api_keys_follow(keys, bench.loop, on_change, NULL);
    return keys;
}

// Opens a file, and leaves its offset where another reader would.
static int
open_in_dir(const char *name, int flags)
{
    KG_AUTO_FREE char *path = in_dir(name);
    int fd = open(path, flags | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 3, SEEK_SET), 3);
    return fd;
}

// Delivers a text as the file's content.
static void
deliver(struct api_keys *keys, const char *text)
{
    write_in_place("elsewhere", text);
    KG_AUTO_FREE char *path = in_dir("elsewhere");
    api_keys_take_file(keys, open_in_dir("elsewhere", O_RDONLY), NULL);
    assert_int_equal(unlink(path), 0);
}

static int
count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void
test_a_delivered_file_is_read(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = follow("keys");
    deliver(keys, "alice:kb\nbob:kc\n");
    assert_true(is_owner(keys, "ka", "alice")); // it is read by a worker
    WAIT_FOR(&bench, bench.n_changes == 1);
    assert_true(is_owner(keys, "ka", ""));
    assert_true(is_owner(keys, "kb", "alice"));
    assert_true(is_owner(keys, "kc", "bob"));
    assert_true(is_owner(keys, "fixed", "default"));
    int before = count_descriptors();
    deliver(keys, "alice:kb\nbob:kc\n"); // nothing else
    deliver(keys, "alice:kd\n");
    WAIT_FOR(&bench, is_owner(keys, "kd", "alice"));
    assert_int_equal(bench.n_changes, 2);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(log_count("the API keys have changed"), 2);
    assert_int_equal(log_count("not read again"), 0);
}

// The path is nobody's to open here: what is in it is not read.
static void
test_a_path_is_not_opened_by_who_follows(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = follow("keys");
    write_in_place("keys", "mallory:km\n");
    deliver(keys, "alice:kb\n");
    WAIT_FOR(&bench, bench.n_changes == 1);
    assert_true(is_owner(keys, "kb", "alice"));
    assert_true(is_owner(keys, "km", ""));
}

static void
test_a_broken_delivery_changes_nothing(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = follow("keys");
    deliver(keys, "bob:kb\ns3cret-without-a-colon\n");
    WAIT_FOR(&bench, log_count("/keys, line 2: expected owner:key") == 1);
    int before = count_descriptors();
    deliver(keys, "");
    WAIT_FOR(&bench, log_count("/keys contains no key") == 1);
    write_in_place("large", "bob:kb\n");
    KG_AUTO_FREE char *large = in_dir("large");
    assert_int_equal(truncate(large, (1 << 20) + 1), 0);
    api_keys_take_file(keys, open_in_dir("large", O_RDONLY), NULL);
    WAIT_FOR(&bench, log_count("/keys has more than 1048576 bytes") == 1);
    assert_int_equal(truncate(large, 1 << 20), 0);
    api_keys_take_file(keys, open_in_dir("large", O_RDONLY), NULL);
    WAIT_FOR(&bench, log_count("/keys contains a NUL byte") == 1);
    api_keys_take_file(keys, open_in_dir("large", O_WRONLY), NULL);
    WAIT_FOR(&bench, log_count("cannot read ") == 1);
    assert_int_equal(log_count("/keys: Bad file descriptor"), 1);
    assert_int_equal(log_count("not read again"), 5);
    assert_int_equal(log_count("s3cret"), 0);
    assert_int_equal(bench.n_changes, 0);
    assert_true(is_owner(keys, "ka", "alice"));
    assert_true(is_owner(keys, "kb", ""));
    assert_int_equal(count_descriptors(), before);
}

static void
test_a_file_that_cannot_be_opened_changes_nothing(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = follow("keys");
    struct kg_error err;
    kg_error_set(&err, KG_INTERNAL, ENOENT, "cannot open /etc/keys");
    api_keys_take_file(keys, -1, &err);
    assert_int_equal(log_count("the API keys were not read again"), 1);
    assert_int_equal(log_count("cannot open /etc/keys: No such file"), 1);
    assert_true(is_owner(keys, "ka", "alice"));
    deliver(keys, "alice:kb\n"); // is read
    deliver(keys, "alice:kc\n"); // waits
    api_keys_take_file(keys, -1, &err);
    WAIT_FOR(&bench, is_owner(keys, "kc", "alice"));
    assert_int_equal(bench.n_changes, 2);
    assert_int_equal(log_count("not read again"), 2);
}

// Of the contents that come while one is read only the last one is.
static void
test_the_newest_delivery_counts(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) keys = follow("keys");
    deliver(keys, "alice:kb\n");
    WAIT_FOR(&bench, bench.n_changes == 1);
    int before = count_descriptors();
    for (int i = 0; i < 10; i++) {
        KG_AUTO_FREE char *text = kg_asprintf("alice:k%d\n", i);
        deliver(keys, text);
    }
    assert_int_equal(count_descriptors(), before + 2); // of the one that is read, and the last one
    WAIT_FOR(&bench, is_owner(keys, "k9", "alice"));
    assert_int_equal(bench.n_changes, 3);
    assert_int_equal(count_descriptors(), before);
}

// Also with one that waits. What a worker reads is closed when it is done.
static void
test_the_end_while_a_delivery_is_read(void **state)
{
    (void)state;
    write_in_place("keys", "alice:ka\n");
    KG_AUTO(api_keys) first = follow("keys");
    deliver(first, "alice:kb\n");
    WAIT_FOR(&bench, bench.n_changes == 1);
    int before = count_descriptors();
    for (int i = 0; i < 10; i++) {
        KG_AUTO(api_keys) keys = follow("keys");
        for (int n = 0; n < i % 4; n++)
            deliver(keys, "alice:kb\n");
        if (i > 4)
            event_base_loop(loop_event_base(bench.loop), EVLOOP_NONBLOCK);
    }
    WAIT_FOR(&bench, count_descriptors() == before);
    assert_int_equal(log_count("not read again"), 0);
}

int
main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_keys_file),
        TEST(test_broken_keys_files),
        TEST(test_a_changed_file_is_read),
        TEST(test_a_mounted_secret_is_read),
        TEST(test_a_link_elsewhere_is_followed),
        TEST(test_a_broken_change_changes_nothing),
        TEST(test_the_end_while_a_file_is_read),
        TEST(test_a_delivered_file_is_read),
        TEST(test_a_path_is_not_opened_by_who_follows),
        TEST(test_a_broken_delivery_changes_nothing),
        TEST(test_a_file_that_cannot_be_opened_changes_nothing),
        TEST(test_the_newest_delivery_counts),
        TEST(test_the_end_while_a_delivery_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
