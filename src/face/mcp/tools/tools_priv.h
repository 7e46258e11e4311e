// SPDX-License-Identifier: Apache-2.0
// What the files of the tools share.
#pragma once

#include "image_size.h"
#include "job.h"

// ---- Tables ---------------------------------------------------------------------------------

enum param_type {
    PARAM_STRING,
    PARAM_NUMBER,
    PARAM_INTEGER,
    PARAM_BOOLEAN,
    PARAM_STRINGS,
    PARAM_OBJECT,
    PARAM_OBJECTS,
};

// A parameter: its schema and its check are made from this. Descriptions of tools and parameters
// may contain {timeout}, {max_timeout}, {kernels} and {network}.
struct param {
    const char *name;
    enum param_type type;
    bool required;
    const char *description;
    const char *fallback; // the default, as JSON; NULL: not said
    const char *choices;  // for a string, separated by |; "{kernels}": the kernelspecs' names
};

// TOOL_RUNS: it runs code of the model, which can use the network if the sandbox can.
// TOOL_LISTS_SESSIONS: those of all gateways (mcp_call_elsewhere()).
enum {
    TOOL_READ_ONLY = 1,
    TOOL_DESTRUCTIVE = 2,
    TOOL_IDEMPOTENT = 4,
    TOOL_RUNS = 8,
    TOOL_LISTS_SESSIONS = 16
};

struct tool {
    const char *name;
    const char *title;
    const char *description;
    const struct param *params; // the last one has no name
    int hints;
    const char *language; // offered only if there is such a kernel; NULL: always
    void (*run)(struct job *job);
};

struct profile {
    const char *name;
    const char *instructions;
    const struct tool *tools; // the last one has no name
    job_error_fn error_result;
    // Resources, prompts and completions; NULL members: none.
    const struct mcp_provider *more;
};

extern const struct profile kernelgate_profile;
extern const struct profile code_sandbox_profile;
extern const struct profile mcp_code_sandbox_profile;
extern const struct profile mcp_sandbox_profile;
extern const struct profile sandbox_mcp_profile;

// ---- The provider (tools.c) -----------------------------------------------------------------

// What decides whether a session ends if a new one needs its place (made_sessions.c).
struct made_session_traits {
    const struct mcp_session *client; // of the MCP session that has used it last; NULL: none, or it
                                      // has ended
    bool is_named;                    // since it was made, or by the call that made it
    bool of_profile;                  // by a profile, for a call that named none
    bool is_chosen;                   // the client has chosen its id
    bool has_own_timeout;             // the client has said how long it is kept
};

// A session that an MCP call has made.
struct made_session {
    TAILQ_ENTRY(made_session) link;
    struct made_session_traits traits;
    char id[SESSION_MAX_ID_LEN + 1];
    char owner[];
};
TAILQ_HEAD(made_sessions, made_session);

struct mcp_tools {
    struct mcp_tools_settings settings;
    json_t *lists; // {profile: tools}
    TAILQ_HEAD(, job) jobs;
    json_t *names;             // {owner/session: name}, for the profile mcp-sandbox
    struct made_sessions made; // the one that was named longest ago first
    size_t n_made;
    TAILQ_HEAD(output_texts, output_text) outputs; // read recently, the newest first
    struct loop_timer *forget_outputs;
};

// ---- Parameters (params.c) ------------------------------------------------------------------

// {name, title, description, inputSchema, annotations}
json_t *tool_describe(const struct mcp_tools *tools, const struct tool *tool);
// Checks the arguments. Before that it removes those that are "" and may be absent, and replaces
// text that stands for a value of the right type, such as "20".
KG_MUST_CHECK int tool_check(const struct mcp_tools *tools, const struct tool *tool, json_t *args,
                             struct kg_error *err);
// Replaces {timeout} and so on; to be freed.
char *fill_in(const struct mcp_tools *tools, const char *text);

// ---- Sessions that calls have made (made_sessions.c) ------------------------------------------

void made_session_add(struct mcp_tools *tools, const char *owner, const char *id,
                      const struct made_session_traits *traits);
void made_session_remove(struct mcp_tools *tools, const char *owner, const char *id);
// A client (NULL: without an MCP session) names this session, which may be one of them.
void made_session_touch(struct mcp_tools *tools, const char *owner, const char *id,
                        const struct mcp_session *client);
// The MCP session ends; `own_id` is the session that its calls used by default.
void made_sessions_leave(struct mcp_tools *tools, const struct mcp_session *client,
                         const char *own_id);
// Ends an idle one of an owner, if one may end. False: there is none.
bool made_session_evict(struct mcp_tools *tools, const char *owner);
void made_sessions_fini(struct mcp_tools *tools);

// ---- URIs and output (uri.c, output.c) ------------------------------------------------------

// The URI of a file, kernelgate://<session>/<path>; to be freed.
char *file_uri(const char *session_id, const char *path);
// The parts of such a URI, to be freed. False: it is not one.
bool file_uri_parse(const char *uri, char **ret_session_id, char **ret_path);
// The URI of the output of an execution, kernelgate-output://<execution>; to be freed.
char *output_uri(const struct execution *execution);
// The id in such a URI. NULL: it is not one.
const char *output_uri_id(const char *uri);
// Gathers the output of an execution until now, in several turns of the loop. `fn` is called once,
// and borrows a text of at most 8 MiB. KG_NOT_FOUND: the execution is not kept any more.
struct output_read;
typedef void (*output_read_fn)(const char *data, size_t len, void *arg);
KG_MUST_CHECK struct output_read *output_read_start(struct mcp_tools *tools, const char *owner,
                                                    const char *id, output_read_fn fn, void *arg,
                                                    struct kg_error *err);
// Takes a struct output_read whose `fn` has not been called, and will not be called.
void output_read_cancel(void *read);
// The texts that are kept for further reads.
void outputs_init(struct mcp_tools *tools);
void outputs_fini(struct mcp_tools *tools);

// ---- Results (result.c) ---------------------------------------------------------------------

// The result of an execution or a command: text, then images, then links to files.
json_t *result_of_run(struct job *job);
json_t *result_of_command(const struct job *job);
// The result is a text. Takes `structured` (may be NULL).
json_t *result_of_text(const struct job *job, const char *text, json_t *structured);
// The result is an error of the gateway: "Error session_not_found: …".
json_t *result_of_error(struct job *job, const struct kg_error *err);
// Whether an image of this size may be shown to a model.
bool image_fits(const struct job *job, const struct image_size *size);
// Appends the images of the outcome, and returns their number.
size_t append_images(json_t *content, struct job *job);
// The image of an item as a string for the answer. A new reference.
json_t *image_string(struct job *job, struct outcome_item *item);
// For profiles: JSON as text, then the images of the outcome. Takes `value`.
json_t *result_of_json(struct job *job, json_t *value);
// The same with isError.
json_t *result_of_error_json(struct job *job, json_t *value);
// The same, but a large value is encoded with the answer, on a worker. The caller must not keep
// references to it.
json_t *result_of_own_json(struct job *job, json_t *value);

// ---- Resources, prompts, completions (resources.c, prompts.c) --------------------------------

json_t *kernelgate_list_prompts(const char *profile, void *arg);
bool kernelgate_get_prompt(struct mcp_call *call, void *arg);
bool kernelgate_complete(struct mcp_call *call, void *arg);
extern const struct mcp_provider kernelgate_more;

// ---- Tools ----------------------------------------------------------------------------------

extern const struct tool kernelgate_tools[];
void tool_run_code(struct job *job);
void tool_continue_execution(struct job *job);
void tool_run_python_code(struct job *job);
void tool_run_js_code(struct job *job);
void tool_create_session(struct job *job);
void tool_list_sessions(struct job *job);
void tool_close_session(struct job *job);
void tool_interrupt_session(struct job *job);
void tool_create_savepoint(struct job *job);
void tool_restore_savepoint(struct job *job);
void tool_run_command(struct job *job);
void tool_install_packages(struct job *job);
void tool_list_files(struct job *job);
void tool_read_file(struct job *job);
void tool_write_file(struct job *job);
