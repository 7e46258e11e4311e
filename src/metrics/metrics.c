// SPDX-License-Identifier: Apache-2.0
// The table of metrics, their series, and how they are written.

#include "metrics.h"

#include <assert.h>
#include <string.h>
#include <sys/queue.h>

enum { MAX_LABELS = 3, MAX_VALUES = 8, MAX_SERIES = 1000 };

enum metric_type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };

struct metric_row {
    const char *name;
    enum metric_type type;
    const char *help;
    const char *labels[MAX_LABELS];
    const char *values[MAX_VALUES]; // of the only label, where they are known beforehand
};

// A metric of each type; what follows its help are further members.
#define COUNTER(...) METRIC_(TYPE_COUNTER, __VA_ARGS__)
#define GAUGE(...) METRIC_(TYPE_GAUGE, __VA_ARGS__)
#define HISTOGRAM(...) METRIC_(TYPE_HISTOGRAM, __VA_ARGS__)
#define METRIC_(type_, name_, help_, ...)                                                          \
    {                                                                                              \
        .type = (type_), .name = (name_), .help = (help_), __VA_ARGS__                             \
    }

static const struct metric_row table[METRIC_N] = {
    [METRIC_BUILD_INFO] = GAUGE("kernelgate_build_info", "Always 1.", .labels = {"version"}),
    [METRIC_HTTP_REQUESTS] =
        COUNTER("kernelgate_http_requests_total",
                "Requests whose response is complete, or whose client has disconnected.",
                .labels = {"route", "method", "status"}),
    [METRIC_HTTP_PROBLEMS] = COUNTER("kernelgate_http_problems_total",
                                     "Problem documents sent, by their code.", .labels = {"code"}),
    [METRIC_SESSIONS] = GAUGE("kernelgate_sessions",
                              "Open sessions; of several replicas, those that this one holds."),
    [METRIC_INSTALLATION_SESSIONS] =
        GAUGE("kernelgate_installation_sessions",
              "Open sessions of all replicas together, which max-sessions bounds."),
    [METRIC_MAX_SESSIONS] = GAUGE("kernelgate_max_sessions",
                                  "Sessions that there may be at a time, of all replicas together: "
                                  "max-sessions, or what the engine has memory for."),
    [METRIC_SESSION_OPEN_SECONDS] =
        HISTOGRAM("kernelgate_session_open_seconds",
                  "Time from a request for a new session until its kernel is ready."),
    [METRIC_POOL_TARGET] =
        GAUGE("kernelgate_pool_target", "Desired number of ready sandboxes: pool-size; of several "
                                        "replicas, 0 for those that do not fill the pool."),
    [METRIC_POOL_READY] = GAUGE("kernelgate_pool_ready", "Ready sandboxes with a warm kernel."),
    [METRIC_POOL_STARTING] =
        GAUGE("kernelgate_pool_starting",
              "Sandboxes that are being created, or whose kernel is being started."),
    [METRIC_POOL_FAILED_STARTS] = COUNTER("kernelgate_pool_failed_starts_total",
                                          "Sandboxes or kernels that did not become ready."),
    [METRIC_SANDBOXES_LOST] =
        COUNTER("kernelgate_sandboxes_lost_total",
                "Sandboxes that could not be created, or ended by themselves."),
    [METRIC_PROVISIONER_CALL_SECONDS] =
        HISTOGRAM("kernelgate_provisioner_call_seconds",
                  "Duration of an operation of the engine (create, claim, destroy, "
                  "recover), including the time in the queue.",
                  .labels = {"operation"}, .values = {"create", "claim", "destroy", "recover"}),
    [METRIC_PROVISIONER_ERRORS] =
        COUNTER("kernelgate_provisioner_errors_total", "Failed operations of the engine.",
                .labels = {"operation"}, .values = {"create", "claim", "destroy", "recover"}),
    [METRIC_EXECUTIONS] = COUNTER(
        "kernelgate_executions_total", "Ended executions, by the status of their done line.",
        .labels = {"status"}, .values = {"ok", "error", "timeout", "interrupted", "died"}),
    [METRIC_EXECUTION_FIRST_LINE_SECONDS] =
        HISTOGRAM("kernelgate_execution_first_line_seconds",
                  "Time from the request for an execution to its first line, including the "
                  "time in the queue."),
    [METRIC_EXECUTION_SECONDS] =
        HISTOGRAM("kernelgate_execution_seconds",
                  "Time from the request for an execution to its end, including the time in "
                  "the queue."),
    [METRIC_OUTPUT_BYTES] = COUNTER("kernelgate_output_bytes_total",
                                    "Bytes in the lines of executions, whether read or not."),
    [METRIC_OUTPUT_DROPPED_LINES] =
        COUNTER("kernelgate_output_dropped_lines_total",
                "Lines lost by readers; each reader counts separately."),
    [METRIC_OUTPUT_DROPPED_BYTES] = COUNTER("kernelgate_output_dropped_bytes_total",
                                            "Bytes in the lines lost by readers, where known."),
    [METRIC_COMMANDS] = COUNTER(
        "kernelgate_commands_total",
        "Ended commands; cancelled: the client disconnected; failed: the command "
        "could not be started, or its sandbox ended; kept: it was started to live on.",
        .labels = {"status"}, .values = {"ok", "error", "timeout", "cancelled", "failed", "kept"}),
    [METRIC_COMMAND_SECONDS] =
        HISTOGRAM("kernelgate_command_seconds",
                  "Time from the request for a command to its end, for commands that ran to "
                  "their end."),
    [METRIC_COMMANDS_RUNNING] = GAUGE("kernelgate_commands_running",
                                      "Commands that run, without terminals, as the sandboxes "
                                      "of the open sessions last reported."),
    [METRIC_TERMINALS] = GAUGE("kernelgate_terminals",
                               "Terminals that are open, as the sandboxes of the open sessions "
                               "last reported."),
    [METRIC_SAVEPOINTS] = GAUGE("kernelgate_savepoints", "Savepoints of the open sessions."),
    [METRIC_SAVEPOINTS_MEMORY_BYTES] =
        GAUGE("kernelgate_savepoints_memory_bytes",
              "Memory that savepoints share with no other process, as the sandboxes last "
              "reported."),
    [METRIC_BRANCHES] =
        GAUGE("kernelgate_branches",
              "Branches of the open sessions, and other kernels beside their main ones."),
    [METRIC_BRANCHES_MEMORY_BYTES] =
        GAUGE("kernelgate_branches_memory_bytes",
              "Memory that these kernels share with no other process, as the sandboxes last "
              "reported."),
    [METRIC_KERNEL_START_SECONDS] =
        HISTOGRAM("kernelgate_kernel_start_seconds",
                  "Time from the decision to start a kernel until it answered, by the way it was "
                  "started.",
                  .labels = {"way"}, .values = {"exec", "fork"}),
    [METRIC_KERNEL_FORKS_FAILED] =
        COUNTER("kernelgate_kernel_forks_failed_total",
                "Kernels that could not be forked, and were started by exec instead."),
    [METRIC_KERNEL_DEATHS] = COUNTER(
        "kernelgate_kernel_deaths_total",
        "Kernels that ended or had to be killed while their container survived.",
        .labels = {"cause"}, .values = {"exit", "signal", "oom", "timeout", "interrupt", "lost"}),
    [METRIC_KERNEL_BAD_MESSAGES] =
        COUNTER("kernelgate_kernel_bad_messages_total",
                "Kernel messages dropped because of a bad signature or format."),
    [METRIC_KERNEL_LATE_MESSAGES] =
        COUNTER("kernelgate_kernel_late_messages_total",
                "Kernel outputs dropped because their execution had ended."),
    [METRIC_TOOL_CALLS] = COUNTER(
        "kernelgate_tool_calls_total",
        "Calls of clients' tools that code has made; refused: wrong arguments, or too many calls.",
        .labels = {"outcome"}, .values = {"ok", "error", "timeout", "cancelled", "refused"}),
    [METRIC_UPSTREAM_CALLS] =
        COUNTER("kernelgate_mcp_server_calls_total",
                "Calls of MCP servers' tools that code has made; the tool is unknown if the server "
                "offers none of its name.",
                .labels = {"server", "tool", "outcome"}),
    [METRIC_UPSTREAM_CALL_SECONDS] =
        HISTOGRAM("kernelgate_mcp_server_call_seconds",
                  "Time from a call of an MCP server's tool to its end.", .labels = {"server"}),
    [METRIC_UPSTREAM_UP] =
        GAUGE("kernelgate_mcp_server_up",
              "Whether the connection with an MCP server is up: 1 or 0.", .labels = {"server"}),
    [METRIC_UPSTREAM_TOOLS] =
        GAUGE("kernelgate_mcp_server_tools", "Tools that an MCP server offers to code.",
              .labels = {"server"}),
    [METRIC_EGRESS_CONNECTIONS] =
        COUNTER("kernelgate_egress_connections_total",
                "Connections requested by sandboxes (network egress, and package "
                "downloads): made, refused by a rule, or failed.",
                .labels = {"outcome"}, .values = {"ok", "refused", "failed"}),
    [METRIC_MCP_SESSIONS] = GAUGE("kernelgate_mcp_sessions", "Open MCP sessions over HTTP."),
    [METRIC_MCP_CALLS] = GAUGE("kernelgate_mcp_calls",
                               "JSON-RPC requests of MCP clients that have not been answered yet."),
    [METRIC_MCP_REQUESTS] =
        COUNTER("kernelgate_mcp_requests_total",
                "JSON-RPC requests of MCP clients, by method; unknown for a method that "
                "does not exist.",
                .labels = {"method"}),
    [METRIC_FILE_BYTES] =
        COUNTER("kernelgate_file_bytes_total", "Bytes of uploaded and downloaded files.",
                .labels = {"direction"}, .values = {"in", "out"}),
    [METRIC_ARTIFACTS] =
        COUNTER("kernelgate_artifacts_total",
                "Files that executions created or changed, as reported in lines of type "
                "file."),
    [METRIC_PACKAGE_INSTALLS] =
        COUNTER("kernelgate_package_installs_total", "Ended requests to install packages.",
                .labels = {"outcome"}, .values = {"ok", "failed"}),
    [METRIC_PACKAGE_INSTALL_SECONDS] =
        HISTOGRAM("kernelgate_package_install_seconds",
                  "Duration of a request to install packages, including downloads."),
    [METRIC_PACKAGE_DOWNLOADS] = COUNTER("kernelgate_package_downloads_total",
                                         "Sandboxes that queried the index and downloaded wheels.",
                                         .labels = {"outcome"}, .values = {"ok", "failed"}),
    [METRIC_DOWNLOADS] =
        COUNTER("kernelgate_downloads_total", "Files fetched for sessions (file_urls).",
                .labels = {"outcome"}, .values = {"ok", "failed"}),
    [METRIC_BUDGET_HELD] = GAUGE("kernelgate_budget_held",
                                 "Bytes or places that requests hold of what all clients share.",
                                 .labels = {"budget"}),
    [METRIC_BUDGET_MAX] =
        GAUGE("kernelgate_budget_max", "Bytes or places that there are, of what all clients share.",
              .labels = {"budget"}),
    [METRIC_LOOP_LAG_SECONDS] =
        HISTOGRAM("kernelgate_loop_lag_seconds",
                  "Delay of a timer in the event loop, measured ten times a second while "
                  "there is anything to do."),
    [METRIC_PROCESS_CPU_SECONDS] =
        COUNTER("process_cpu_seconds_total", "CPU time of the gateway itself."),
    [METRIC_PROCESS_RESIDENT_BYTES] =
        GAUGE("process_resident_memory_bytes", "The gateway's resident memory."),
    [METRIC_PROCESS_OPEN_FDS] = GAUGE("process_open_fds", "The gateway's open file descriptors."),
    [METRIC_PROCESS_MAX_FDS] =
        GAUGE("process_max_fds", "Limit on the gateway's open file descriptors."),
    [METRIC_PROCESS_START_SECONDS] =
        GAUGE("process_start_time_seconds", "Start time of the gateway, as Unix time."),
};

// One for all histograms: from a turn of the loop to the longest execution.
static const double bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                0.5,    1,     2.5,    5,     10,   30,    60,   300, 3600};
enum { N_BUCKETS = KG_ARRAY_LEN(bounds) + 1 };

// The numbers of one metric for one combination of label values.
struct series {
    TAILQ_ENTRY(series) link;
    char *labels[MAX_LABELS];
    double value;       // of a histogram: the sum
    uint64_t buckets[]; // of a histogram: N_BUCKETS, each without those below it
};

static struct {
    TAILQ_HEAD(, series) series;
    int n_series;
} metrics[METRIC_N];

// ---- Series ---------------------------------------------------------------------------------

static int
n_labels(const struct metric_row *row)
{
    int n = 0;
    while (n < MAX_LABELS && row->labels[n])
        n++;
    return n;
}

static struct series *
metrics_find(enum metric metric, const char *const *labels, int n)
{
    struct series *series;
    TAILQ_FOREACH(series, &metrics[metric].series, link) {
        int i = 0;
        while (i < n && strcmp(series->labels[i], labels[i]) == 0)
            i++;
        if (i == n)
            return series;
    }
    return NULL;
}

static struct series *
metrics_add(enum metric metric, const char *const *labels, int n)
{
    size_t n_buckets = table[metric].type == TYPE_HISTOGRAM ? N_BUCKETS : 0;
    struct series *series = kg_calloc(1, sizeof *series + n_buckets * sizeof series->buckets[0]);
    for (int i = 0; i < n; i++)
        series->labels[i] = kg_strdup(labels[i]);
    if (metrics[metric].n_series++ == 0)
        TAILQ_INIT(&metrics[metric].series);
    TAILQ_INSERT_TAIL(&metrics[metric].series, series, link);
    return series;
}

static struct series *
series_for(enum metric metric, const char *const *labels)
{
    static const char *const other[MAX_LABELS] = {"other", "other", "other"};
    int n = n_labels(&table[metric]);
    for (int i = 0; i < n; i++)
        assert(labels[i]);
    assert(!labels[n]);
    struct series *series = metrics_find(metric, labels, n);
    if (series)
        return series;
    if (metrics[metric].n_series < MAX_SERIES)
        return metrics_add(metric, labels, n);
    series = metrics_find(metric, other, n);
    return series ? series : metrics_add(metric, other, n);
}

void
metric_add_(enum metric metric, double amount, const char *const *labels)
{
    assert(table[metric].type == TYPE_GAUGE || (table[metric].type == TYPE_COUNTER && amount >= 0));
    series_for(metric, labels)->value += amount;
}

void
metric_set_(enum metric metric, double value, const char *const *labels)
{
    assert(table[metric].type != TYPE_HISTOGRAM);
    series_for(metric, labels)->value = value;
}

void
metric_observe_(enum metric metric, double seconds, const char *const *labels)
{
    assert(table[metric].type == TYPE_HISTOGRAM);
    struct series *series = series_for(metric, labels);
    size_t bucket = 0;
    while (bucket < KG_ARRAY_LEN(bounds) && seconds > bounds[bucket])
        bucket++;
    series->buckets[bucket]++;
    series->value += seconds;
}

// ---- Writing --------------------------------------------------------------------------------

static void
make_known_series(enum metric metric)
{
    const struct metric_row *row = &table[metric];
    if (!row->labels[0])
        series_for(metric, METRIC_LABELS_());
    for (int i = 0; i < MAX_VALUES && row->values[i]; i++)
        series_for(metric, METRIC_LABELS_(row->values[i]));
}

static void
write_escaped(struct buf *buf, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            buf_append_str(buf, "\\n");
        else
            buf_printf(buf, *value == '\\' || *value == '"' ? "\\%c" : "%c", *value);
    }
}

// `le` is the bound of a bucket, or NULL.
static void
write_sample(struct buf *buf, const struct metric_row *row, const struct series *series,
             const char *suffix, const char *le, double value)
{
    buf_printf(buf, "%s%s", row->name, suffix);
    const char *separator = "{";
    for (int i = 0; i < n_labels(row); i++, separator = ",") {
        buf_printf(buf, "%s%s=\"", separator, row->labels[i]);
        write_escaped(buf, series->labels[i]);
        buf_append_str(buf, "\"");
    }
    if (le)
        buf_printf(buf, "%sle=\"%s\"", separator, le);
    bool any = le || n_labels(row) > 0;
    buf_printf(buf, "%s %.15g\n", any ? "}" : "", value);
}

static void
write_histogram(struct buf *buf, const struct metric_row *row, const struct series *series)
{
    uint64_t count = 0;
    for (size_t i = 0; i < N_BUCKETS; i++) {
        KG_AUTO_FREE char *le =
            i < KG_ARRAY_LEN(bounds) ? kg_asprintf("%g", bounds[i]) : kg_strdup("+Inf");
        count += series->buckets[i];
        write_sample(buf, row, series, "_bucket", le, (double)count);
    }
    write_sample(buf, row, series, "_sum", NULL, series->value);
    write_sample(buf, row, series, "_count", NULL, (double)count);
}

static void
write_metric(struct buf *buf, enum metric metric)
{
    static const char *const types[] = {
        [TYPE_COUNTER] = "counter", [TYPE_GAUGE] = "gauge", [TYPE_HISTOGRAM] = "histogram"};
    const struct metric_row *row = &table[metric];
    buf_printf(buf, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name,
               types[row->type]);
    const struct series *series;
    TAILQ_FOREACH(series, &metrics[metric].series, link) {
        if (row->type == TYPE_HISTOGRAM)
            write_histogram(buf, row, series);
        else
            write_sample(buf, row, series, "", NULL, series->value);
    }
}

void
metrics_write(struct buf *buf)
{
    metric_set(METRIC_BUILD_INFO, 1, KG_VERSION);
    for (enum metric metric = 0; metric < METRIC_N; metric++) {
        make_known_series(metric);
        write_metric(buf, metric);
    }
}
