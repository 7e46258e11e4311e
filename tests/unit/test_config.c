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
    "KERNELGATE_PORT",        "PORT", "DEBUG",   "SANDBOX_MEMORY_LIMIT",
    "SANDBOX_SESSION_TTL_M",  "HOST", "API_KEY", "BACKEND",
    "KERNELGATE_MAX_SESSION",
};

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
    const char *text = "# comment\nexport PORT = '1004' \nKERNELGATE_POOL_SIZE=7\n";
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
    assert_int_equal(config.n_warnings, 3);
    assert_string_equal(config.warnings[0],
                        "BACKEND: its value makes no sense for setting provisioner");
    config_fini(&config);
}

// Expects these warnings of the variable alone, or of none where it is NULL.
static void
expect_warning(const char *name, const char *value, const char *warning)
{
    struct config config;
    struct kg_error err = {0};
    setenv(name, value, 1);
    assert_int_equal(LOAD(&config, &err, NULL), 0);
    unsetenv(name);
    assert_int_equal(config.n_warnings, warning ? 1 : 0);
    if (warning)
        assert_string_equal(config.warnings[0], warning);
    assert_int_equal(config.port, 16010);
    config_fini(&config);
}

static void
test_misspelled_names_are_reported(void **state)
{
    (void)state;
    expect_warning("KERNELGATE_MAX_SESSION", "4",
                   "KERNELGATE_MAX_SESSION: there is no such setting; did you mean "
                   "KERNELGATE_MAX_SESSIONS?");
    expect_warning("kernelgate_port", "1",
                   "kernelgate_port: there is no such setting; did you mean KERNELGATE_PORT?");
    expect_warning("KERNELGATE_MAX_KERNELS", "4",
                   "KERNELGATE_MAX_KERNELS: there is no such setting; did you mean "
                   "KERNELGATE_MAX_SESSIONS?");
    expect_warning("KERNELGATE_MEMORY", "4",
                   "KERNELGATE_MEMORY: there is no such setting; did you mean "
                   "KERNELGATE_MEMORY_MB?");
    expect_warning("KERNELGATE_COLOUR", "red",
                   "KERNELGATE_COLOUR: there is no such setting; `kernelgate serve --help` lists "
                   "them");
    expect_warning("KERNELGATE_MAX_SESSION", "", NULL);
    expect_warning("KERNELGATE_MEMORY_MB", "512", NULL);
    expect_warning("KERNELGATED", "1", NULL);
}

// Kubernetes sets these for a service of the same namespace: kernelgate, or kernelgate-web.
static void
test_links_of_services_are_not_settings(void **state)
{
    (void)state;
    expect_warning("KERNELGATE_PORT", "tcp://10.0.0.1:16010", NULL);
    expect_warning("KERNELGATE_SERVICE_HOST", "10.0.0.1", NULL);
    expect_warning("KERNELGATE_SERVICE_PORT", "16010", NULL);
    expect_warning("KERNELGATE_SERVICE_PORT_HTTP", "16010", NULL);
    expect_warning("KERNELGATE_PORT_16010_TCP", "tcp://10.0.0.1:16010", NULL);
    expect_warning("KERNELGATE_PORT_16010_TCP_PROTO", "tcp", NULL);
    expect_warning("KERNELGATE_PORT_16010_UDP_ADDR", "10.0.0.1", NULL);
    expect_warning("KERNELGATE_WEB_PORT", "sctp://10.0.0.1:1", NULL);
    expect_warning("KERNELGATE_WEB_PORT_80_SCTP_PORT", "80", NULL);
    expect_warning("KERNELGATE_PORT_16010", "80",
                   "KERNELGATE_PORT_16010: there is no such setting; `kernelgate serve --help` "
                   "lists them");
}

// ---- .env -----------------------------------------------------------------------------------

static int
load_file(struct config *config, const char *text, size_t len, struct kg_error *err)
{
    char path[] = "/tmp/kg-env-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    close(fd);
    int result = LOAD(config, err, path);
    if (result < 0 && strncmp(err->message, path, strlen(path)) == 0)
        memmove(err->message, err->message + strlen(path), strlen(err->message + strlen(path)) + 1);
    unlink(path);
    return result;
}

static void
expect_malformed(const char *text, const char *message)
{
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(load_file(&config, text, strlen(text), &err), -1);
    if (!strstr(err.message, message))
        fail_msg("%s", err.message);
    assert_null(strstr(err.message, "secret"));
    config_fini(&config);
}

static void
test_malformed_lines_are_refused_with_their_number(void **state)
{
    (void)state;
    expect_malformed("A=1\n\nPORT 1\n",
                     ", line 3: there is no \"=\" in it; a line is NAME=value or NAME=\"value\", "
                     "or starts with #");
    expect_malformed("secret", ", line 1: there is no \"=\" in it");
    expect_malformed("API KEY=secret\n", ", line 1: what is before \"=\" is not the name of a");
    expect_malformed("=secret\n", ", line 1: what is before");
    expect_malformed("1A=secret\n", ", line 1: what is before");
    expect_malformed("#\nAPI_KEY=\"secret\n", ", line 2: the quote is not closed");
    expect_malformed("API_KEY='secret' # mine\n", ", line 1: there is text after the closing");
    struct config config;
    struct kg_error err = {0};
    static const char wide[] = "P\0O\0R\0T\0=\0001\0";
    assert_int_equal(load_file(&config, wide, sizeof wide, &err), -1);
    assert_string_equal(err.message, " has a NUL byte: save it as UTF-8");
    config_fini(&config);
}

static void
expect_port(const char *text, int port, size_t n_warnings)
{
    struct config config;
    struct kg_error err = {0};
    if (load_file(&config, text, strlen(text), &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(config.port, port);
    assert_int_equal(config.n_warnings, n_warnings);
    config_fini(&config);
}

static void
test_lines_that_are_well_formed(void **state)
{
    (void)state;
    expect_port("\xef\xbb\xbfPORT=1\r\n\r\n  # 2\r\n", 1, 0);
    expect_port("export  PORT = '1' ", 1, 0);
    expect_port("exported=2\nPORT=1", 1, 0);
    expect_port("kernelgate.colour=2\nother-name=3\nPORT=1", 1, 0);
    // Other programs write values of several lines; they hide no setting.
    expect_port("A=\"1\nPORT=1\n2 3\n4\"\n", 1, 0);
    expect_port("A='1\nPORT=1\n", 1, 0);
    expect_malformed("A='1\nPORT 1\n", ", line 2: there is no \"=\" in it");
    expect_malformed("A='1\n2'\nPORT 1\n", ", line 3: there is no \"=\" in it");
    // What Kubernetes sets is in no file.
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(load_file(&config, "KERNELGATE_PORT=tcp://1:1", 25, &err), -1);
    assert_string_equal(err.message, "setting port, from KERNELGATE_PORT in .env: invalid value "
                                     "\"tcp://1:1\"; allowed: a whole number, 0 to 65535");
    config_fini(&config);
    expect_port("KERNELGATE_MAX_SESSION=1\nPORT=1\n", 1, 1);
}

static void
test_a_folder_called_env_is_none_of_ours(void **state)
{
    (void)state;
    struct config config;
    struct kg_error err = {0};
    assert_int_equal(LOAD(&config, &err, "/tmp"), 0);
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
    expect_refusal("--prot", "1", "unknown flag --prot; did you mean --port? See --help");
    expect_refusal("--max-session", "1",
                   "unknown flag --max-session; did you mean --max-sessions? See --help");
    expect_refusal("--prot=1", "x", "unknown flag --prot=1; did you mean --port? See --help");
    expect_refusal("--nonsense", "1", "unknown flag --nonsense; see --help");
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
        TEST(test_misspelled_names_are_reported),
        TEST(test_links_of_services_are_not_settings),
        TEST(test_malformed_lines_are_refused_with_their_number),
        TEST(test_lines_that_are_well_formed),
        TEST(test_a_folder_called_env_is_none_of_ours),
        TEST(test_out_of_bounds_names_setting_value_and_bounds),
        TEST(test_split_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
