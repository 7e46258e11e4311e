// SPDX-License-Identifier: Apache-2.0
// Where a setting's value may stand, in which order, and what is refused.

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config.h"

static const char *const names[] = {
    "KERNELGATE_PORT",       "PORT", "DEBUG",   "SANDBOX_MEMORY_LIMIT",
    "SANDBOX_SESSION_TTL_M", "HOST", "API_KEY", "BACKEND"};

static int
clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        unsetenv(names[i]);
    return 0;
}

#define LOAD(config, err, dotenv, ...)                                                             \
    ({                                                                                             \
        const char *argv_[] = {"serve", ##__VA_ARGS__, NULL};                                      \
        config_load(config, CONFIG_SERVE, (int)KG_ARRAY_LEN(argv_) - 1, (char **)(uintptr_t)argv_, \
                    dotenv, err);                                                                  \
    })

static void
test_defaults(void **state)
{
    (void)state;
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, NULL), 0);
    assert_string_equal(config.host, "127.0.0.1");
    assert_int_equal(config.port, 16010);
    assert_null(config.api_key);
    assert_int_equal(config.memory_mb, 512);
    assert_false(config.insecure);
    assert_int_equal(config.max_output_bytes, 10 << 20);
    config_fini(&config);
}

static void
test_flag_beats_environment_beats_alias_beats_dotenv(void **state)
{
    (void)state;
    char path[] = "/tmp/kg-dotenv-XXXXXX";
    int fd = mkstemp(path);
    const char *text = "# comment\nexport PORT = '1004' \nKERNELGATE_POOL_SIZE=7\nbroken line\n";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, path), 0);
    assert_int_equal(config.port, 1004);
    assert_int_equal(config.pool_size, 7);
    config_fini(&config);
    setenv("PORT", "1003", 1);
    assert_int_equal(LOAD(&config, &err, path), 0);
    assert_int_equal(config.port, 1003);
    config_fini(&config);
    setenv("KERNELGATE_PORT", "1002", 1);
    assert_int_equal(LOAD(&config, &err, path), 0);
    assert_int_equal(config.port, 1002);
    config_fini(&config);
    assert_int_equal(LOAD(&config, &err, path, "--port", "1001", "--insecure"), 0);
    assert_int_equal(config.port, 1001);
    assert_true(config.insecure);
    config_fini(&config);
    unlink(path);
}

static void
test_aliases_are_translated(void **state)
{
    (void)state;
    setenv("SANDBOX_MEMORY_LIMIT", "1g", 1);
    setenv("SANDBOX_SESSION_TTL_M", "5", 1);
    setenv("DEBUG", "true", 1);
    setenv("ENABLE_NETWORK_ACCESS", "True", 1);
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, NULL), 0);
    assert_int_equal(config.memory_mb, 1024);
    assert_int_equal(config.idle_timeout_s, 300);
    assert_int_equal(config_log_level(&config), LOG_LEVEL_DEBUG);
    assert_string_equal(config.network, "egress");
    config_fini(&config);
    setenv("SANDBOX_MEMORY_LIMIT", "256MiB", 1);
    assert_int_equal(LOAD(&config, &err, NULL), 0);
    assert_int_equal(config.memory_mb, 256);
    config_fini(&config);
}

static void
test_alias_without_sense_is_ignored(void **state)
{
    (void)state;
    setenv("DEBUG", "app:*", 1);
    setenv("BACKEND", "firecracker", 1);
    setenv("SANDBOX_MEMORY_LIMIT", "lots", 1);
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, NULL), 0);
    assert_string_equal(config.log_level, "info");
    assert_string_equal(config.provisioner, "auto");
    assert_int_equal(config.memory_mb, 512);
    config_fini(&config);
}

static void
expect_refusal(const char *flag, const char *value, const char *message)
{
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, NULL, flag, value), -1);
    assert_string_equal(err.message, message);
    config_fini(&config);
}

static void
test_out_of_bounds_names_setting_value_and_bounds(void **state)
{
    (void)state;
    expect_refusal("--port", "70000",
                   "setting port, from --port: invalid value \"70000\"; allowed: a whole number, "
                   "0 to 65535");
    expect_refusal("--idle-timeout", "0.5",
                   "setting idle-timeout, from --idle-timeout: invalid value \"0.5\"; allowed: a "
                   "whole number, 1 to 31536000 s");
    expect_refusal("--cpus", "nan",
                   "setting cpus, from --cpus: invalid value \"nan\"; allowed: 0.05 to 1024");
    expect_refusal("--log-level", "loud",
                   "setting log-level, from --log-level: invalid value \"loud\"; allowed: debug, "
                   "info, warning, error");
    expect_refusal("--prot", "1", "unknown flag --prot; see --help");
    expect_refusal("stray", "1", "unexpected argument stray; see --help");
    setenv("PORT", "99999", 1);
    expect_refusal("--host", "::1",
                   "setting port, from PORT: invalid value \"99999\"; allowed: a whole number, "
                   "0 to 65535");
}

static void
test_split_list(void **state)
{
    (void)state;
    KG_AUTO_FREE char **list = config_split_list(" a, b ,,c");
    assert_string_equal(list[0], "a");
    assert_string_equal(list[1], "b");
    assert_string_equal(list[2], "c");
    assert_null(list[3]);
    KG_AUTO_FREE char **none = config_split_list(NULL);
    assert_null(none[0]);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_flag_beats_environment_beats_alias_beats_dotenv),
        TEST(test_aliases_are_translated),
        TEST(test_alias_without_sense_is_ignored),
        TEST(test_out_of_bounds_names_setting_value_and_bounds),
        TEST(test_split_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
