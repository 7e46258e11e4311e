// SPDX-License-Identifier: Apache-2.0
// What every face of the gateway (REST, MCP, notebooks) works on, and the limits of what clients
// may ask for. The gateway fills it in once, for all faces.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct executions;
struct file_links;
struct kernelspec;
struct kernelspecs;
struct ports;
struct sessions;
struct terminals;

// All borrowed.
struct face_context {
    struct sessions *sessions;
    struct executions *executions;
    const struct kernelspecs *specs;
    const struct kernelspec *default_spec; // of requests that name none
    const struct file_links *links;
    struct terminals *terminals;
    struct ports *ports;
    int64_t default_timeout_ms; // of code and commands that name none
    int64_t max_timeout_ms;
    int64_t max_lifetime_s; // of a session; 0: no limit
    size_t max_code_bytes;
    size_t max_upload_bytes; // of one file, up or down
    size_t max_output_bytes; // of one answer
};
