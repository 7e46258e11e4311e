// SPDX-License-Identifier: Apache-2.0
// The prompt that explains how to work in a sandbox, and completions.

#include <string.h>

#include "tools_priv.h"

static const char prompt_name[] = "work_in_sandbox";

json_t *
kernelgate_list_prompts(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return json_pack("[{s:s, s:s, s:s, s:[{s:s, s:s, s:b}, {s:s, s:s, s:b}, {s:s, s:s, s:b}]}]",
                     "name", prompt_name, "title", "Work in a sandbox", "description",
                     "How to solve a task with code that runs in a sandbox: step by step, with "
                     "state, files and figures.",
                     "arguments", "name", "task", "description", "The task.", "required", 1, "name",
                     "language", "description", "The kernel to use.", "required", 0, "name",
                     "session_id", "description", "An existing session.", "required", 0);
}

static const char *
argument(const struct mcp_call *call, const char *name)
{
    const char *value = json_string_value(json_object_get(mcp_call_arguments(call), name));
    return value && *value ? value : NULL;
}

static char *
prompt_text(const struct mcp_tools *tools, const char *task, const char *language,
            const char *session_id)
{
    KG_AUTO_BUF text = {0};
    buf_printf(&text, "Solve this task with code in a kernelgate sandbox:\n\n%s\n\n", task);
    KG_AUTO_FREE char *languages = fill_in(tools, "{kernels}");
    if (language)
        buf_printf(&text, "Use run_code with language=\"%s\".", language);
    else
        buf_printf(&text, "Use run_python_code, or run_code for another language (%s).", languages);
    if (session_id)
        buf_printf(&text, " Pass session_id=\"%s\" with every call.", session_id);
    buf_append_str(
        &text,
        "\n\nHow to work:\n"
        "1. Take small steps and look at each result; variables, imports and files are kept.\n"
        "2. Look at data before you compute with it: its size, its first rows, its types.\n"
        "3. Bring input in with write_file, or look for it with list_files; files are in "
        "/mnt/data.\n"
        "4. A missing package: install_packages.\n"
        "5. Show figures with plt.show(); save what the user should keep to a file.\n"
        "6. Print little; only the beginning and the end of a long output are returned. read_file "
        "reads the rest in parts.\n"
        "7. Pass a timeout for long work. After an error read the traceback, change the code, "
        "and run only the part that failed.\n"
        "8. If a result names a new session_id, pass it with every later call.\n"
        "At the end say what was found and which files were written.\n");
    return buf_take(&text);
}

bool
kernelgate_get_prompt(struct mcp_call *call, void *arg)
{
    if (strcmp(mcp_call_name(call), prompt_name) != 0)
        return false;
    const char *task = argument(call, "task");
    if (!task) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "task is missing");
        return true;
    }
    KG_AUTO_FREE char *text =
        prompt_text(arg, task, argument(call, "language"), argument(call, "session_id"));
    mcp_call_finish(call,
                    json_pack("{s:s, s:[{s:s, s:o}]}", "description", "Work in a sandbox",
                              "messages", "role", "user", "content", mcp_text(text, strlen(text))));
    return true;
}

// ---- Completions ----------------------------------------------------------------------------

static void
offer(json_t *values, const char *value, const char *typed)
{
    if (strncmp(value, typed, strlen(typed)) == 0)
        json_array_append_new(values, json_string(value));
}

static void
offer_kernels(const struct mcp_tools *tools, json_t *values, const char *typed)
{
    for (size_t i = 0; i < kernelspecs_count(tools->settings.face->specs); i++)
        offer(values, kernelspecs_at(tools->settings.face->specs, i)->name, typed);
}

static void
offer_sessions(const struct mcp_tools *tools, const char *owner, json_t *values, const char *typed)
{
    json_auto_t *ids = sessions_ids(tools->settings.face->sessions, owner);
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
        offer(values, json_string_value(id), typed);
}

bool
kernelgate_complete(struct mcp_call *call, void *arg)
{
    const struct mcp_tools *tools = arg;
    const char *name = mcp_call_completed_argument(call);
    const char *typed = mcp_call_completed_value(call);
    json_t *values = json_array();
    if (strcmp(name, "language") == 0)
        offer_kernels(tools, values, typed);
    else if (strcmp(name, "session_id") == 0)
        offer_sessions(tools, mcp_call_owner(call), values, typed);
    mcp_call_finish(call, mcp_completion(values));
    return true;
}
