// SPDX-License-Identifier: Apache-2.0
// The settings: one table (settings.c) behind flags, environment, aliases, .env, --help and docs.
#pragma once

#include <stdio.h>

#include "base.h"

// Every setting's value. Strings are owned by the config; an unset one is NULL.
struct config {
    const char *host;
    int64_t port;
    const char *api_key;
    const char *api_keys_file;
    bool insecure;
    const char *allowed_origins; // comma-separated, as are all lists
    const char *allowed_hosts;

    const char *provisioner;
    const char *image;
    const char *oci_runtime;
    const char *docker_host;
    const char *network;
    const char *state_dir;
    bool keep_sandboxes;
    const char *kernelspec_dir;
    const char *kernels_dir;
    const char *agent;

    const char *default_kernel;
    int64_t max_sessions;
    int64_t max_sessions_per_owner;
    const char *evict;
    double max_requests_per_second;
    int64_t pool_size;
    int64_t idle_timeout_s;
    int64_t max_execution_time_s;
    int64_t max_timeout_s;
    int64_t kernel_start_timeout_s;
    int64_t drain_timeout_s;
    const char *pass_through_env;
    const char *pypi_index_url;
    const char *upload_root;
    const char *fetch_allow;

    int64_t memory_mb;
    double cpus;
    int64_t pids;
    int64_t disk_mb;

    int64_t max_connections;
    int64_t max_code_bytes;
    int64_t max_upload_bytes;
    int64_t max_output_bytes;
    int64_t max_buffered_bytes;

    const char *profile;
    const char *connect;

    const char *log_level;
    const char *log_format;

    char **strings; // what the values above point into
    size_t n_strings;
};

// Which commands a setting belongs to.
enum config_command { CONFIG_SERVE = 1, CONFIG_DOCTOR = 2, CONFIG_MCP = 4 };

// Fills `config` from, in this order: the flags in `argv` (argv[0] is the command itself),
// KERNELGATE_<NAME>, the aliases, `dotenv_path` (may be NULL or missing), the defaults. Fails with
// one line that names the setting, the value and what is allowed. An alias whose value makes no
// sense is ignored with a warning. `config` is to be freed with config_fini() in any case.
KG_MUST_CHECK int config_load(struct config *config, enum config_command command, int argc,
                              char **argv, const char *dotenv_path, struct kg_error *err);
void config_fini(struct config *config);

// Writes the table of one command's settings as the text of --help, or of all as Markdown.
void config_print_help(FILE *out, enum config_command command);
void config_print_markdown(FILE *out);

enum log_level config_log_level(const struct config *config);
enum log_format config_log_format(const struct config *config);

// Splits a comma-separated list (NULL is an empty one) into a NULL-terminated array: one
// allocation, to be freed with free(). Blanks around a name are dropped, and so are empty names.
char **config_split_list(const char *list);
