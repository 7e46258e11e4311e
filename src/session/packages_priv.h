// SPDX-License-Identifier: Apache-2.0
// What the parts of packages share: the installs of a session (packages.c) wait for downloads
// (wheel_job.c) into the cache (wheels.c).
#pragma once

#include <sys/queue.h>

#include "session_priv.h"
#include "wheels.h"

#define PACKAGES_INSIDE "/opt/kernelgate/packages" // where sandboxes see wheels_shared_dir()
#define PACKAGES_SCRIPT PACKAGES_INSIDE "/packages.py"

enum { PIP_OUTPUT_MAX = 2 << 20 }; // bytes of all that one run says

struct wheel_job;

struct packages {
    struct loop *loop;
    const struct sandbox_context *sandboxes;
    char *python;    // of the kernelspec that has packages, inside; NULL: none has
    char *index_url; // or NULL: pip's own
    bool has_authorities;
    struct wheels *wheels;
    TAILQ_HEAD(, wheel_job) jobs; // oldest first
    size_t n_jobs;
    size_t n_running; // have a sandbox
    bool several_owners;
    char *last_owner; // whose job was started last; or NULL
    bool stopped;
};

// ---- Downloads (wheel_job.c) ----------------------------------------------------------------

// Waits for the wheels of `requirements` (in their normal form) to be in the cache. Those who want
// the same wait for one download, which counts as that of the first one's owner.
struct wheel_wait;
struct wheel_wait_events {
    void (*on_text)(const char *text, size_t len, void *arg); // what pip says
    // Once; `resolution` is borrowed, NULL where `err` is set.
    void (*on_done)(const json_t *resolution, const struct kg_error *err, void *arg);
};
KG_MUST_CHECK struct wheel_wait *wheel_wait_start(struct packages *packages, const char *owner,
                                                  const json_t *requirements,
                                                  const struct wheel_wait_events *events, void *arg,
                                                  struct kg_error *err);
// The download goes on, where it has begun.
void wheel_wait_cancel(struct wheel_wait *wait);
// Ends all downloads; their sandboxes are being destroyed.
void wheel_jobs_stop(struct packages *packages);

// ---- What pip says (pip_output.c) -----------------------------------------------------------

// Of a run of the script: the result that it wrote, and why it failed, as far as its words tell.
struct pip_output {
    struct buf result; // bounded
    struct buf line;   // the last, as far as it has come
    char failure[200]; // the last error
};
void pip_output_take(struct pip_output *output, enum sandbox_stream stream, const char *text,
                     size_t len);
void pip_output_clear(struct pip_output *output);
// 0, or how the run failed.
KG_MUST_CHECK int pip_output_check(const struct pip_output *output,
                                   const struct sandbox_command_result *result,
                                   const struct kg_error *end_err, struct kg_error *err);
// The script's command line, up to NULL: `action` and the strings of `args`. To be freed with
// pip_argv_free().
char **pip_argv(const struct packages *packages, const char *action, const json_t *args);
void pip_argv_free(char **argv);
