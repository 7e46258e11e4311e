// SPDX-License-Identifier: Apache-2.0
// Kernelspecs; then the other parts.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char dir[32];

static int
make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/kg-specs-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int
remove_dir(void **state)
{
    (void)state;
    return path_remove_tree(dir, NULL);
}

static void
write_spec(const char *name, const char *json)
{
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", dir, name);
    KG_AUTO_FREE char *path = kg_asprintf("%s/kernel.json", folder);
    assert_int_equal(dir_make(folder, 0700, NULL), 0);
    assert_int_equal(file_write_atomic(path, json, strlen(json), 0600, NULL), 0);
}

#define MINIMAL "{\"argv\":[\"x\"],\"language\":\"x\"}"

static void
test_load(void **state)
{
    (void)state;
    struct kg_error err = {0};
    write_spec("ruby", MINIMAL);
    write_spec("python",
               "{\"argv\":[\"python\",\"-f\",\"{connection_file}\"],\"display_name\":\"Python 3\","
               "\"language\":\"python\",\"interrupt_mode\":\"message\",\"env\":{\"A\":\"1\"},"
               "\"metadata\":{\"debugger\":true,\"kernelgate\":{\"transport\":\"ipc\","
               "\"aliases\":[\"python3\",\"py\"],\"variables\":\"v {json}\"}}}");
    KG_AUTO_FREE char *other = kg_asprintf("%s/not a kernelspec", dir);
    assert_int_equal(mkdir(other, 0700), 0);

    KG_AUTO(kernelspecs) specs = kernelspecs_load(dir, &err);
    assert_non_null(specs);
    assert_int_equal(kernelspecs_count(specs), 2);
    const struct kernelspec *python = kernelspecs_at(specs, 0);
    assert_string_equal(python->name, "python");
    assert_string_equal(python->display_name, "Python 3");
    assert_string_equal(python->transport, "ipc");
    assert_true(python->interrupt_by_message);
    assert_string_equal(python->variables_code, "v {json}");
    assert_null(python->env_code);
    assert_int_equal(json_array_size(python->argv), 3);
    const struct kernelspec *ruby = kernelspecs_at(specs, 1);
    assert_string_equal(ruby->display_name, "ruby");
    assert_string_equal(ruby->transport, "tcp");
    assert_false(ruby->interrupt_by_message);

    assert_ptr_equal(kernelspecs_find(specs, "python", &err), python);
    assert_ptr_equal(kernelspecs_find(specs, "py", &err), python);
    assert_ptr_equal(kernelspecs_find(specs, "ruby", &err), ruby);
    assert_ptr_equal(kernelspecs_find(specs, "PY", &err), python);
    assert_ptr_equal(kernelspecs_find(specs, "Ruby", &err), ruby);
    assert_null(kernelspecs_find(specs, "rub", &err));
    assert_int_equal(err.code, KG_UNKNOWN_KERNEL);
    assert_string_equal(err.message, "there is no kernel \"rub\"; there are: python, ruby");
}

static void
test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *json;
        const char *message; // a part of it
    } bad[] = {
        {"x", "", "line 1"},
        {"x", "[]", "Expected object"},
        {"x", "{\"argv\":[\"x\"],\"argv\":[\"x\"],\"language\":\"x\"}", "duplicate"},
        {"x", "{\"language\":\"x\"}", "argv"},
        {"x", "{\"argv\":[\"x\"]}", "language"},
        {"x", "{\"argv\":\"x\",\"language\":\"x\"}", "argv must be a list of strings"},
        {"x", "{\"argv\":[],\"language\":\"x\"}", "argv must be a list of strings"},
        {"x", "{\"argv\":[\"x\",1],\"language\":\"x\"}", "argv must be a list of strings"},
        {"x", "{\"argv\":[\"x\"],\"language\":5}", "Expected string"},
        {"x", "{\"argv\":[\"x\"],\"language\":\"x\",\"env\":[]}", "env must be an object"},
        {"x", "{\"argv\":[\"x\"],\"language\":\"x\",\"env\":{\"A\":1}}", "env must be an object"},
        {"x", "{\"argv\":[\"x\"],\"language\":\"x\",\"metadata\":[]}", "Expected object"},
        {"x",
         "{\"argv\":[\"x\"],\"language\":\"x\",\"metadata\":{\"kernelgate\":{\"aliases\":[1]}}}",
         "aliases"},
        {"x",
         "{\"argv\":[\"x\"],\"language\":\"x\",\"metadata\":{\"kernelgate\":{\"transport\":\"u"
         "dp\"}}}",
         "transport must be ipc or tcp"},
        {"x",
         "{\"argv\":[\"x\"],\"language\":\"x\",\"metadata\":{\"kernelgate\":{\"zygote\":{"
         "\"argv\":[\"x\"],\"prepare\":[]}}}}",
         "and prepare, a string"},
        {"Big", MINIMAL, "is named with 1 to 32 of a-z0-9_-"},
        {"a b", MINIMAL, "is named with"},
        {"a23456789012345678901234567890123", MINIMAL, "is named with"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        write_spec("good", MINIMAL);
        write_spec(bad[i].name, bad[i].json);
        KG_AUTO(kernelspecs) specs = kernelspecs_load(dir, &err);
        if (specs || err.code != KG_INVALID || !strstr(err.message, bad[i].message))
            fail_msg("%s %s: \"%s\"", bad[i].name, bad[i].json, err.message);
        KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", dir, bad[i].name);
        assert_int_equal(path_remove_tree(folder, NULL), 0);
    }
}

static void
test_no_kernelspec(void **state)
{
    (void)state;
    struct kg_error err = {0};
    assert_null(kernelspecs_load(dir, &err));
    assert_non_null(strstr(err.message, "no kernelspec"));
    KG_AUTO_FREE char *missing = kg_asprintf("%s/missing", dir);
    assert_null(kernelspecs_load(missing, &err));
    assert_non_null(strstr(err.message, "No such file"));
}

static void
test_too_many(void **state)
{
    (void)state;
    struct kg_error err = {0};
    for (int i = 0; i <= 64; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        write_spec(name, MINIMAL);
    }
    assert_null(kernelspecs_load(dir, &err));
    assert_non_null(strstr(err.message, "more than 64 kernelspecs"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_load, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_malformed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_no_kernelspec, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_too_many, make_dir, remove_dir),
    };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    int failed = cmocka_run_group_tests_name("kernel: kernelspecs", tests, NULL, NULL);
    failed += test_kernel_log() + test_kernel_output();
    jupyter_init();
    failed += test_kernel_start() + test_kernel_run() + test_kernel_stop() +
              test_kernel_artifacts() + test_kernel_tap() + test_kernel_tap_runs() +
              test_kernel_tools();
    jupyter_fini();
    return failed;
}
