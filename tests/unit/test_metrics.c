// SPDX-License-Identifier: Apache-2.0
// Counters, gauges and histograms as they are written. What one test counts, the next one finds:
// each looks at differences, or at metrics that are its own.

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "budget.h"
#include "metrics.h"

// The value of the sample whose line starts with `series` and a blank; NAN: there is none.
static double
sample(const char *series)
{
    KG_AUTO_BUF text = {0};
    metrics_write(&text);
    size_t len = strlen(series);
    for (const char *line = text.data; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, series, len) == 0 && line[len] == ' ')
            return strtod(line + len, NULL);
    }
    return NAN;
}

#define assert_sample(series, expected) assert_true(sample(series) == (expected))

// ---- Values ---------------------------------------------------------------------------------

static void
test_counters_add(void **state)
{
    (void)state;
    assert_sample("kernelgate_output_bytes_total", 0);
    metric_add(METRIC_OUTPUT_BYTES, 5);
    metric_add(METRIC_OUTPUT_BYTES, 12345678901);
    assert_sample("kernelgate_output_bytes_total", 12345678906.0);
}

static void
test_gauges_are_set_and_fall(void **state)
{
    (void)state;
    metric_set(METRIC_SESSIONS, 4);
    assert_sample("kernelgate_sessions", 4);
    metric_add(METRIC_SESSIONS, -3);
    assert_sample("kernelgate_sessions", 1);
}

static void
test_budgets_are_read(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_hold hold = {0};
    budget_init(&budget, "test_bytes", 100, 50);
    budget_hold_start(&hold, &budget, "ann");
    budget_hold_set(&hold, 30);
    metrics_read_budgets();
    assert_sample("kernelgate_budget_held{budget=\"test_bytes\"}", 30);
    assert_sample("kernelgate_budget_max{budget=\"test_bytes\"}", 100);
    budget_hold_end(&hold);
    metrics_read_budgets();
    assert_sample("kernelgate_budget_held{budget=\"test_bytes\"}", 0);
    budget_fini(&budget);
}

static void
test_known_series_are_there_before_their_first_event(void **state)
{
    (void)state;
    assert_sample("kernelgate_executions_total{status=\"timeout\"}", 0);
    assert_sample("kernelgate_kernel_deaths_total{cause=\"oom\"}", 0);
    assert_sample("kernelgate_provisioner_call_seconds_count{operation=\"destroy\"}", 0);
    assert_sample("kernelgate_build_info{version=\"" KG_VERSION "\"}", 1);
}

static void
test_labels_tell_series_apart(void **state)
{
    (void)state;
    char ok[] = "ok"; // compared as text, and copied
    metric_add(METRIC_EXECUTIONS, 1, ok);
    metric_add(METRIC_EXECUTIONS, 1, "ok");
    metric_add(METRIC_EXECUTIONS, 1, "error");
    ok[0] = 'x';
    assert_sample("kernelgate_executions_total{status=\"ok\"}", 2);
    assert_sample("kernelgate_executions_total{status=\"error\"}", 1);
    assert_sample("kernelgate_executions_total{status=\"died\"}", 0);
}

static void
test_several_labels(void **state)
{
    (void)state;
    metric_add(METRIC_HTTP_REQUESTS, 1, "/a/{id}", "GET", "2xx");
    metric_add(METRIC_HTTP_REQUESTS, 2, "/a/{id}", "GET", "4xx");
    metric_add(METRIC_HTTP_REQUESTS, 3, "/a/{id}", "POST", "2xx");
    assert_sample("kernelgate_http_requests_total{route=\"/a/{id}\",method=\"GET\",status=\"2xx\"}",
                  1);
    assert_sample("kernelgate_http_requests_total{route=\"/a/{id}\",method=\"GET\",status=\"4xx\"}",
                  2);
    assert_sample(
        "kernelgate_http_requests_total{route=\"/a/{id}\",method=\"POST\",status=\"2xx\"}", 3);
}

static void
test_label_values_are_escaped(void **state)
{
    (void)state;
    metric_add(METRIC_HTTP_REQUESTS, 1, "q\"b\\n\n", "GET", "2xx");
    assert_sample("kernelgate_http_requests_total"
                  "{route=\"q\\\"b\\\\n\\n\",method=\"GET\",status=\"2xx\"}",
                  1);
}

static void
test_buckets_are_cumulative_and_hold_their_bound(void **state)
{
    (void)state;
    metric_observe(METRIC_EXECUTION_SECONDS, 0.0001);
    metric_observe(METRIC_EXECUTION_SECONDS, 0.25);
    metric_observe(METRIC_EXECUTION_SECONDS, 0.26);
    metric_observe(METRIC_EXECUTION_SECONDS, 4000);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"0.0005\"}", 1);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"0.1\"}", 1);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"0.25\"}", 2);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"0.5\"}", 3);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"3600\"}", 3);
    assert_sample("kernelgate_execution_seconds_bucket{le=\"+Inf\"}", 4);
    assert_sample("kernelgate_execution_seconds_count", 4);
    assert_sample("kernelgate_execution_seconds_sum", 4000.5101);
}

static void
test_a_histogram_with_a_label(void **state)
{
    (void)state;
    int64_t start_us = clock_mono_us() - 2000000;
    metric_observe_since(METRIC_PROVISIONER_CALL_SECONDS, start_us, "create");
    assert_sample("kernelgate_provisioner_call_seconds_bucket{operation=\"create\",le=\"1\"}", 0);
    assert_sample("kernelgate_provisioner_call_seconds_bucket{operation=\"create\",le=\"300\"}", 1);
    assert_sample("kernelgate_provisioner_call_seconds_count{operation=\"create\"}", 1);
    assert_true(sample("kernelgate_provisioner_call_seconds_sum{operation=\"create\"}") >= 2);
}

static void
test_series_are_bounded(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    for (int i = 0; i < MANY; i++) {
        KG_AUTO_FREE char *route = kg_asprintf("/many/%d", i);
        metric_add(METRIC_HTTP_REQUESTS, 1, route, "PUT", "5xx");
    }
    KG_AUTO_BUF text = {0};
    metrics_write(&text);
    double total = 0;
    int n_series = 0;
    for (const char *at = text.data; (at = strstr(at, "method=\"PUT\"")); at++)
        n_series++;
    total = n_series + sample("kernelgate_http_requests_total"
                              "{route=\"other\",method=\"other\",status=\"other\"}");
    assert_in_range(n_series, 100, 1000);
    assert_true(total == MANY);
}

// ---- The format -----------------------------------------------------------------------------

// Every metric has its two comment lines, and below them nothing but samples of its name.
static void
test_samples_stand_below_their_type(void **state)
{
    (void)state;
    KG_AUTO_BUF text = {0};
    metrics_write(&text);
    assert_int_equal(text.data[text.len - 1], '\n');
    char name[100] = "";
    char type[20];
    int n_metrics = 0;
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n")) && rest;) {
        if (sscanf(line, "# HELP %99s", name) == 1)
            n_metrics++;
        else if (line[0] == '#')
            assert_int_equal(sscanf(line, "# TYPE %*s %19s", type), 1);
        else
            assert_memory_equal(line, name, strlen(name));
    }
    assert_int_equal(n_metrics, METRIC_N);
}

// ---- The process ----------------------------------------------------------------------------

static void
test_the_process(void **state)
{
    (void)state;
    metrics_read_process();
    double fds = sample("process_open_fds");
    assert_true(fds >= 3 && fds <= sample("process_max_fds"));
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    metrics_read_process();
    assert_sample("process_open_fds", fds + 1);
    close(fd);
    double age_s = (double)time(NULL) - sample("process_start_time_seconds");
    assert_true(age_s > -2 && age_s < 3600);
    assert_true(sample("process_resident_memory_bytes") > 1 << 20);
    assert_true(sample("process_cpu_seconds_total") > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_add),
        cmocka_unit_test(test_gauges_are_set_and_fall),
        cmocka_unit_test(test_budgets_are_read),
        cmocka_unit_test(test_known_series_are_there_before_their_first_event),
        cmocka_unit_test(test_labels_tell_series_apart),
        cmocka_unit_test(test_several_labels),
        cmocka_unit_test(test_label_values_are_escaped),
        cmocka_unit_test(test_buckets_are_cumulative_and_hold_their_bound),
        cmocka_unit_test(test_a_histogram_with_a_label),
        cmocka_unit_test(test_series_are_bounded),
        cmocka_unit_test(test_samples_stand_below_their_type),
        cmocka_unit_test(test_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
