// SPDX-License-Identifier: Apache-2.0
// Makes a savepoint: the agent expects it, the kernel forks itself, the fork says which process it
// is, and the agent admits that if it is a child of its own that it does not know yet.

#include <string.h>

#include "kernel_priv.h"
#include "savepoint_ask_priv.h"

enum { KEEP_TIMEOUT_MS = 120 * 1000 };
enum { AGENT_TIMEOUT_MS = 10 * 1000, ASK_MS = 10 * 1000, ANSWER_TIMEOUT_MS = 10 * 1000 };
enum { CONNECTION_ID_LEN = 8, MAX_LOST = 8, MAX_LOST_BYTES = 80 };

struct savepoint_making {
    struct kernel *kernel;
    char *name;
    struct sandbox_call *call;
    struct savepoint_ask *ask;
    char *connection_file;
    struct kernel_savepoint savepoint;
    kernel_savepoint_fn fn;
    void *arg;
};

static void
making_free(struct savepoint_making *making)
{
    making->kernel->making = NULL;
    sandbox_call_cancel(making->call);
    savepoint_ask_cancel(making->ask);
    json_decref(making->savepoint.lost);
    free(making->connection_file);
    free(making->name);
    free(making);
}

static struct sandbox *
making_sandbox(const struct savepoint_making *making)
{
    return making->kernel->process.sandbox;
}

static void
making_end(struct savepoint_making *making, const struct kg_error *err)
{
    kernel_savepoint_fn fn = making->fn;
    void *arg = making->arg;
    struct kernel_savepoint savepoint = making->savepoint;
    json_auto_t *lost = json_incref(savepoint.lost);
    making_free(making);
    fn(err ? NULL : &savepoint, err, arg);
}

static void
making_on_admitted(const json_t *body, const struct kg_error *err, void *arg)
{
    struct savepoint_making *making = arg;
    struct kg_error own = {0};
    making->call = NULL;
    if (body) {
        making_end(making, NULL);
        return;
    }
    kg_error_set(&own, KG_SAVEPOINT_FAILED, 0, "the savepoint is not a process of its own: %s",
                 err->message);
    making_end(making, &own);
}

// Short texts for people, as the sandbox says them.
static json_t *
texts_of(const json_t *list)
{
    json_t *texts = json_array();
    size_t i;
    json_t *each;
    json_array_foreach(list, i, each) {
        char text[MAX_LOST_BYTES];
        if (!json_is_string(each) || i == MAX_LOST)
            break;
        utf8_printable(json_string_value(each), json_string_length(each), text, sizeof text);
        json_array_append_new(texts, json_string(text));
    }
    return texts;
}

static void
making_on_answer(const json_t *answer, const struct kg_error *ask_err, void *arg)
{
    struct savepoint_making *making = arg;
    struct kg_error err = {0};
    making->ask = NULL;
    if (!answer) {
        making_end(making, ask_err);
        return;
    }
    json_int_t count = json_integer_value(json_object_get(answer, "execution_count"));
    making->savepoint.execution_count = count > 0 ? count : 0;
    const json_t *memory = json_object_get(answer, "memory_bytes");
    making->savepoint.memory_bytes = json_is_integer(memory) && json_integer_value(memory) >= 0
                                         ? json_integer_value(memory)
                                         : -1;
    making->savepoint.lost = texts_of(json_object_get(answer, "lost"));
    making->savepoint.pid = savepoint_answer_pid(answer);
    json_auto_t *params =
        json_pack("{s:s, s:i}", "name", making->name, "pid", making->savepoint.pid);
    making->call = sandbox_agent_call(making_sandbox(making), "kernels.admit", params,
                                      AGENT_TIMEOUT_MS, making_on_admitted, making, &err);
    if (!making->call)
        making_end(making, &err);
}

// The kernel has answered the request, and forks, or its process has been lost.
void
savepoint_making_on_asked(struct savepoint_making *making, const json_t *content,
                          const char *failure)
{
    const char *status = json_string_value(json_object_get(content, "status"));
    const char *evalue = json_string_value(json_object_get(content, "evalue"));
    if (!failure && (!status || strcmp(status, "ok") != 0))
        failure = evalue ? evalue : "the kernel refused";
    if (failure) {
        savepoint_making_fail(making, failure);
        return;
    }
    json_auto_t *hello = json_object();
    making->ask =
        savepoint_ask_new(making->kernel->process.context->loop, making_sandbox(making),
                          making->name, hello, ANSWER_TIMEOUT_MS, making_on_answer, making);
}

static void
making_on_expected(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct savepoint_making *making = arg;
    struct kernel *kernel = making->kernel;
    struct kg_error err = {0};
    const char *file = json_string_value(json_object_get(body, "connection_file"));
    making->call = NULL;
    if (!body) {
        making_end(making, agent_err);
        return;
    }
    if (!file) {
        kg_error_set(&err, KG_UNSUPPORTED, 0,
                     "this session was started by an older kernelgate, and has no savepoints");
        making_end(making, &err);
        return;
    }
    json_auto_t *plan = json_pack("{s:s}", "connection_file", file);
    KG_AUTO_FREE char *text = json_dumps(plan, JSON_ENSURE_ASCII);
    KG_AUTO_FREE char *code = request_fill_template(kernel_spec(kernel)->savepoint_code, text);
    json_t *content =
        json_pack("{s:s, s:b, s:b, s:{}, s:b, s:b}", "code", code, "silent", 1, "store_history", 0,
                  "user_expressions", "allow_stdin", 0, "stop_on_error", 0);
    if (runner_ask(&kernel->runner, "execute_request", content, ASK_MS, &err) < 0)
        making_end(making, &err);
}

static int
making_expect(struct savepoint_making *making, struct kg_error *err)
{
    char id[CONNECTION_ID_LEN + 1], key[JUPYTER_KEY_LEN + 1];
    id_random(id, CONNECTION_ID_LEN);
    id_random_hex(key, JUPYTER_KEY_LEN);
    json_auto_t *params =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", making->name, "stem",
                  kernel_spec(making->kernel)->name, "id", id, "key", key, "transport", "ipc");
    making->call = sandbox_agent_call(making_sandbox(making), "kernels.expect", params,
                                      AGENT_TIMEOUT_MS, making_on_expected, making, err);
    return making->call ? 0 : -1;
}

static void
making_on_kept(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct savepoint_making *making = arg;
    struct kg_error err = {0};
    making->call = NULL;
    if (!body) {
        making_end(making, agent_err);
        return;
    }
    making->savepoint.files_bytes = json_integer_value(json_object_get(body, "bytes"));
    making->savepoint.files_entries = (int)json_integer_value(json_object_get(body, "entries"));
    if (making_expect(making, &err) < 0)
        making_end(making, &err);
}

static int
making_keep_files(struct savepoint_making *making, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s}", "name", making->name);
    making->call = sandbox_agent_call(making_sandbox(making), "data.keep", params, KEEP_TIMEOUT_MS,
                                      making_on_kept, making, err);
    return making->call ? 0 : -1;
}

struct savepoint_making *
kernel_make_savepoint(struct kernel *kernel, const char *name, bool files, kernel_savepoint_fn fn,
                      void *arg, struct kg_error *err)
{
    const struct kernelspec *spec = kernel_spec(kernel);
    if (!spec->savepoint_code) {
        kg_error_set(err, KG_UNSUPPORTED, 0, "the kernel %s has no savepoints", spec->name);
        return NULL;
    }
    if (kernel->making || kernel->question || kernel_is_busy(kernel) ||
        kernel_state(kernel) != KERNEL_READY) {
        kg_error_set(
            err, KG_KERNEL_BUSY, 0, "the kernel is %s: a savepoint is made between two cells",
            kernel->making ? "making a savepoint" : kernel_state_name(kernel_state(kernel)));
        return NULL;
    }
    struct savepoint_making *making = KG_NEW(struct savepoint_making);
    making->kernel = kernel;
    making->name = kg_strdup(name);
    making->fn = fn;
    making->arg = arg;
    if ((files ? making_keep_files : making_expect)(making, err) == 0) {
        kernel->making = making;
        return making;
    }
    making_free(making);
    return NULL;
}

void
savepoint_making_cancel(struct savepoint_making *making)
{
    if (making)
        making_free(making);
}

void
savepoint_making_fail(struct savepoint_making *making, const char *why)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_SAVEPOINT_FAILED, 0, "%.200s", why);
    if (making)
        making_end(making, &err);
}
