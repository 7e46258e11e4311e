// SPDX-License-Identifier: Apache-2.0
// What the tools share.
#pragma once

#include "job.h"

// ---- Tables ---------------------------------------------------------------------------------

enum param_type {
    PARAM_STRING,
    PARAM_NUMBER,
    PARAM_INTEGER,
    PARAM_BOOLEAN,
    PARAM_STRINGS,
    PARAM_OBJECT
};

// A parameter: from this come both the schema and the check. Descriptions of tools and parameters
// may hold {timeout}, {max_timeout}, {kernels} and {network}.
struct param {
    const char *name;
    enum param_type type;
    bool required;
    const char *description;
    const char *fallback; // what it is by default, as JSON; NULL: nothing to say
    const char *choices;  // of a string, separated by |; "{kernels}": the kernelspecs' names
};

// TOOL_RUNS: what a model wrote, so that it reaches as far as the sandbox does.
enum { TOOL_READ_ONLY = 1, TOOL_DESTRUCTIVE = 2, TOOL_IDEMPOTENT = 4, TOOL_RUNS = 8 };

struct tool {
    const char *name;
    const char *title;
    const char *description;
    const struct param *params; // up to one without a name
    int hints;
    const char *language; // offered only where there is such a kernel; NULL: always
    void (*run)(struct job *job);
};

struct profile {
    const char *name;
    const char *instructions;
    const struct tool *tools; // up to one without a name
    job_error_fn error_result;
    // Resources, prompts and completions; what is NULL it has none of.
    const struct mcp_provider *more;
};

extern const struct profile kernelgate_profile;
extern const struct profile code_sandbox_profile;
extern const struct profile mcp_code_sandbox_profile;
extern const struct profile mcp_sandbox_profile;
extern const struct profile sandbox_mcp_profile;

// ---- The provider (tools.c) -----------------------------------------------------------------

// A session that no client may come back to: the client does not know its id, or has gone. It is
// ended if a new session needs its place.
struct orphaned_session {
    TAILQ_ENTRY(orphaned_session) link;
    char id[SESSION_MAX_ID_LEN + 1];
    char owner[];
};
TAILQ_HEAD(orphaned_sessions, orphaned_session);

struct mcp_tools {
    struct mcp_tools_settings settings;
    json_t *lists; // {profile: tools}
    TAILQ_HEAD(, job) jobs;
    json_t *names; // {owner/session: name}, for a profile whose sandboxes have names
    struct orphaned_sessions orphans;
    size_t n_orphans;
    TAILQ_HEAD(output_texts, output_text) outputs; // read lately, the newest first
    struct loop_timer *forget_outputs;
};

// ---- Parameters (params.c) ------------------------------------------------------------------

// {name, title, description, inputSchema, annotations}
json_t *tool_describe(const struct mcp_tools *tools, const struct tool *tool);
// Takes optional strings out that are empty.
KG_MUST_CHECK int tool_check(const struct mcp_tools *tools, const struct tool *tool, json_t *args,
                             struct kg_error *err);
// Replaces {timeout} and its like. To be freed.
char *fill_in(const struct mcp_tools *tools, const char *text);

// ---- Orphaned sessions (orphans.c) ----------------------------------------------------------

void orphan_add(struct mcp_tools *tools, const char *owner, const char *id);
void orphan_remove(struct mcp_tools *tools, const char *owner, const char *id);
// Ends the oldest idle one of an owner; false: there is none.
bool orphan_evict(struct mcp_tools *tools, const char *owner);
void orphans_fini(struct mcp_tools *tools);

// ---- What can be read (uri.c, output.c) -----------------------------------------------------

// kernelgate://<session>/<path>: a file. To be freed.
char *file_uri(const char *session_id, const char *path);
// Takes one apart; both to be freed. False: it is none.
bool file_uri_parse(const char *uri, char **ret_session_id, char **ret_path);
// kernelgate-output://<execution>: all that an execution wrote. To be freed.
char *output_uri(const struct execution *execution);
// The id in one; NULL: it is none.
const char *output_uri_id(const char *uri);
// Gathers what an execution wrote until now, in many turns of the loop. `fn` fires once, with a
// text of at most 8 MiB that it borrows. KG_NOT_FOUND: it is not kept any more.
struct output_read;
typedef void (*output_read_fn)(const char *data, size_t len, void *arg);
KG_MUST_CHECK struct output_read *output_read_start(struct mcp_tools *tools, const char *owner,
                                                    const char *id, output_read_fn fn, void *arg,
                                                    struct kg_error *err);
// Takes a struct output_read, whose `fn` has not fired; it will not then.
void output_read_cancel(void *read);
// What is kept for the next reads of an execution that has ended.
void outputs_init(struct mcp_tools *tools);
void outputs_fini(struct mcp_tools *tools);

// ---- Results (result.c) ---------------------------------------------------------------------

// What a model reads of an execution or a command: text, then images, then links to files.
json_t *result_of_run(struct job *job);
json_t *result_of_command(const struct job *job);
// Text alone; `structured` is taken, and may be NULL.
json_t *result_of_text(const struct job *job, const char *text, json_t *structured);
// An error of the gateway: "Error session_not_found: …".
json_t *result_of_error(struct job *job, const struct kg_error *err);
// Appends the images of the outcome; returns how many.
size_t append_images(json_t *content, struct job *job);
// An item's image as a string of the answer. A new reference.
json_t *image_string(struct job *job, struct outcome_item *item);
// For profiles: the JSON as text, and the images of the outcome after it. Takes `value`.
json_t *result_of_json(struct job *job, json_t *value);
// The same for a value that must not be shared; it is encoded together with the answer, on a worker
// where it is large.
json_t *result_of_own_json(struct job *job, json_t *value);

// ---- Resources, prompts, completions (resources.c, prompts.c) --------------------------------

json_t *kernelgate_list_prompts(const char *profile, void *arg);
bool kernelgate_get_prompt(struct mcp_call *call, void *arg);
bool kernelgate_complete(struct mcp_call *call, void *arg);
extern const struct mcp_provider kernelgate_more;

// ---- Tools, one file a subject --------------------------------------------------------------

extern const struct tool kernelgate_tools[];
void tool_run_code(struct job *job);
void tool_run_python_code(struct job *job);
void tool_run_js_code(struct job *job);
void tool_create_session(struct job *job);
void tool_list_sessions(struct job *job);
void tool_close_session(struct job *job);
void tool_interrupt_session(struct job *job);
void tool_run_command(struct job *job);
void tool_install_packages(struct job *job);
void tool_list_files(struct job *job);
void tool_read_file(struct job *job);
void tool_write_file(struct job *job);
