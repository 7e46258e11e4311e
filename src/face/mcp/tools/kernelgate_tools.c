// SPDX-License-Identifier: Apache-2.0
// The default profile: the tools of kernelgate itself.

#include "tools_priv.h"

#define SESSION_PARAM                                                                              \
    {                                                                                              \
        .name = "session_id",                                                                      \
        .description = "The session to use: an id from create_session or an earlier result; if a " \
                       "result names a new session, pass its id. Without it, the session of this " \
                       "conversation."                                                             \
    }
#define TIMEOUT_PARAM                                                                              \
    {                                                                                              \
        .name = "timeout", .type = PARAM_NUMBER,                                                   \
        .description =                                                                             \
            "Seconds until it is stopped: {timeout} by default, at most {max_timeout}. "           \
            "Pass more for downloads, training, large data."                                       \
    }
#define BRANCH_PARAM                                                                               \
    {                                                                                              \
        .name = "branch",                                                                          \
        .description = "Runs the code in a copy of the session's variables of that name, which "   \
                       "is made if it is not there. To try something without changing them."       \
    }
#define TOOLS_PARAM                                                                                \
    {                                                                                              \
        .name = "tools", .type = PARAM_OBJECTS,                                                    \
        .description = "For programs that answer the calls themselves; otherwise leave it out. "   \
                       "[{name, description, input_schema}]: functions that the code may call "    \
                       "(import tools; tools.NAME(...)). When it does, the result's "              \
                       "structuredContent has status \"tool_calls\", and continue_execution "      \
                       "answers."                                                                  \
    }
#define CODE_NOTES                                                                                 \
    "State persists: variables, imports and functions of earlier calls exist (unless a note in "   \
    "the result says that the session was created again). "

static const struct param run_code_params[] = {
    {.name = "code", .required = true, .description = "The code to run."},
    {.name = "language",
     .description = "The kernel to run it in. A session can have one of each.",
     .choices = "{kernels}"},
    BRANCH_PARAM,
    SESSION_PARAM,
    TIMEOUT_PARAM,
    TOOLS_PARAM,
    {0},
};

static const struct param run_python_params[] = {
    {.name = "code", .required = true, .description = "The code to run."},
    BRANCH_PARAM,
    SESSION_PARAM,
    TIMEOUT_PARAM,
    TOOLS_PARAM,
    {0},
};

static const struct param run_language_params[] = {
    {.name = "code", .required = true, .description = "The code to run."},
    SESSION_PARAM,
    TIMEOUT_PARAM,
    TOOLS_PARAM,
    {0},
};

static const struct param continue_params[] = {
    {.name = "execution_id", .required = true, .description = "As the result has it."},
    {.name = "results",
     .type = PARAM_OBJECTS,
     .required = true,
     .description = "[{call_id, result}] or [{call_id, error}] of calls that wait, in any order."},
    {0},
};

static const struct param command_params[] = {
    {.name = "command", .required = true, .description = "A command line for `bash -c`."},
    {.name = "cwd", .description = "Where to run it: absolute, or relative to /mnt/data."},
    SESSION_PARAM,
    TIMEOUT_PARAM,
    {0},
};

static const struct param package_params[] = {
    {.name = "packages",
     .type = PARAM_STRINGS,
     .required = true,
     .description = "Requirements as for pip: [\"polars\", \"requests==2.32.3\"]."},
    SESSION_PARAM,
    {0},
};

static const struct param list_files_params[] = {
    {.name = "path", .description = "A folder below /mnt/data; without it, all files."},
    {.name = "after", .description = "For the next page: the last path of the previous one."},
    SESSION_PARAM,
    {0},
};

static const struct param read_file_params[] = {
    {.name = "path",
     .required = true,
     .description = "Relative to /mnt/data, or the URI of a link that a result gave: "
                    "kernelgate://… or kernelgate-output://…."},
    {.name = "offset",
     .type = PARAM_INTEGER,
     .description = "The byte to begin at.",
     .fallback = "0"},
    {.name = "limit",
     .type = PARAM_INTEGER,
     .description = "How many bytes, 4 to 20000; text comes in whole characters.",
     .fallback = "20000"},
    {.name = "encoding",
     .description =
         "Of text that is not UTF-8: windows-1252, utf-16le, gb18030, shift_jis, euc-kr, "
         "big5, windows-1251, … Without it, a byte order mark or the bytes show it."},
    SESSION_PARAM,
    {0},
};

static const struct param write_file_params[] = {
    {.name = "path", .required = true, .description = "Relative to /mnt/data; folders are made."},
    {.name = "content", .required = true, .description = "The whole content."},
    {.name = "encoding",
     .description = "What content is; base64 for binary data.",
     .fallback = "\"utf-8\"",
     .choices = "utf-8|base64"},
    {.name = "overwrite",
     .type = PARAM_BOOLEAN,
     .description = "Whether to replace an existing file.",
     .fallback = "true"},
    SESSION_PARAM,
    {0},
};

static const struct param create_session_params[] = {
    {.name = "session_id",
     .description = "A name of your own: 1 to 64 of A-Z, a-z, 0-9, _ and -. Without it, a random "
                    "one. An existing session is returned as it is."},
    {.name = "language",
     .description = "The kernel to start; others can be used later.",
     .choices = "{kernels}"},
    {.name = "idle_timeout",
     .type = PARAM_NUMBER,
     .description = "Seconds without use after which it ends by itself."},
    {0},
};

static const struct param create_savepoint_params[] = {
    {.name = "name",
     .description = "A name for it; a savepoint without one makes room for newer ones."},
    {.name = "files",
     .type = PARAM_BOOLEAN,
     .description = "Whether it keeps the files in /mnt/data, too. Each such savepoint takes as "
                    "much of the session's disk as they do. Default: false."},
    {.name = "branch", .description = "Of this branch, instead of the session's main kernel."},
    SESSION_PARAM,
    {0},
};

static const struct param restore_savepoint_params[] = {
    {.name = "savepoint", .description = "Its id: sp_…. Without it, the newest."},
    SESSION_PARAM,
    {0},
};

static const struct param session_params[] = {SESSION_PARAM, {0}};
static const struct param no_params[] = {{0}};

const struct tool kernelgate_tools[] = {
    {
        .name = "run_python_code",
        .title = "Run Python",
        .description =
            "Runs Python code in a sandbox and returns what it printed, the value of the last "
            "expression, figures as images, and links to files that it wrote. " CODE_NOTES
            "The working folder is /mnt/data. numpy, pandas, matplotlib and more are installed; "
            "install_packages adds others; in the sandbox {network}. Show a figure with "
            "plt.show(). `!command` runs a shell command, top-level `await` works.",
        .params = run_python_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_RUNS,
        .language = "python",
        .run = tool_run_python_code,
    },
    {
        .name = "run_js_code",
        .title = "Run JavaScript",
        .description = "Runs JavaScript or TypeScript in a sandbox (Deno) and returns what it "
                       "logged and the value of the last expression. " CODE_NOTES
                       "The working folder is /mnt/data. Top-level `await` works.",
        .params = run_language_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_RUNS,
        .language = "javascript",
        .run = tool_run_js_code,
    },
    {
        .name = "run_code",
        .title = "Run code",
        .description = "Runs code in a sandbox, in one of these kernels: {kernels}. Returns "
                       "its output, the last value, figures as images, and links to files that it "
                       "wrote. " CODE_NOTES "The working folder is /mnt/data.",
        .params = run_code_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_RUNS,
        .run = tool_run_code,
    },
    {
        .name = "continue_execution",
        .title = "Continue an execution",
        .description = "Gives code that was run with `tools` the results of its calls, and returns "
                       "its output since, until it has ended or calls again. For programs that "
                       "answer the calls themselves.",
        .params = continue_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_RUNS,
        .run = tool_continue_execution,
    },
    {
        .name = "run_command",
        .title = "Run a command",
        .description = "Runs a shell command (bash) in the sandbox, also while code runs, and "
                       "returns its output and exit code. The working folder is /mnt/data. Each "
                       "call has its own shell, without input; in the sandbox {network}.",
        .params = command_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_RUNS,
        .run = tool_run_command,
    },
    {
        .name = "install_packages",
        .title = "Install packages",
        .description = "Installs Python packages from PyPI for the session, so that code can "
                       "import them at once, as `%pip install` does in code. Only wheels: packages "
                       "that need a compiler fail.",
        .params = package_params,
        .hints = TOOL_IDEMPOTENT,
        .run = tool_install_packages,
    },
    {
        .name = "list_files",
        .title = "List files",
        .description = "Lists the files below /mnt/data with their sizes.",
        .params = list_files_params,
        .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
        .run = tool_list_files,
    },
    {
        .name = "read_file",
        .title = "Read a file",
        .description = "Returns a file below /mnt/data: text (20000 bytes per call; continue with "
                       "offset), or an image; of other kinds (PDF, XLSX, Parquet, …) the code that "
                       "reads them. Also the complete output of an execution.",
        .params = read_file_params,
        .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
        .run = tool_read_file,
    },
    {
        .name = "write_file",
        .title = "Write a file",
        .description = "Writes a file below /mnt/data, for code and commands.",
        .params = write_file_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
        .run = tool_write_file,
    },
    {
        .name = "create_session",
        .title = "Create a session",
        .description = "Creates a sandbox with a new kernel and returns its session_id, for the "
                       "other tools. Needed only for a second, separate state, or if results "
                       "say that each call got a new session.",
        .params = create_session_params,
        .hints = TOOL_IDEMPOTENT,
        .run = tool_create_session,
    },
    {
        .name = "list_sessions",
        .title = "List sessions",
        .description = "Lists the sessions, the state of their kernels, and when they expire.",
        .params = no_params,
        .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_LISTS_SESSIONS,
        .run = tool_list_sessions,
    },
    {
        .name = "close_session",
        .title = "Close a session",
        .description = "Ends a session; its variables and files are lost. Close sessions that you "
                       "do not need any more: their number is limited.",
        .params = session_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
        .run = tool_close_session,
    },
    {
        .name = "interrupt_session",
        .title = "Interrupt a session",
        .description = "Stops the code that runs in a session, and waiting code. "
                       "Variables and files are kept. For code that hangs or takes too long.",
        .params = session_params,
        .hints = TOOL_IDEMPOTENT,
        .run = tool_interrupt_session,
    },
    {
        .name = "create_savepoint",
        .title = "Create a savepoint",
        .description = "Keeps the Python variables of a session as they are, within a fraction of "
                       "a second, so that restore_savepoint can undo what later code does to "
                       "them. Use it before code that may spoil data that took long to load. "
                       "Files are part of it only with files=true.",
        .params = create_savepoint_params,
        .language = "python",
        .run = tool_create_savepoint,
    },
    {
        .name = "restore_savepoint",
        .title = "Restore a savepoint",
        .description = "Undo: brings the variables back to a savepoint, which stays. What "
                       "happened since is lost, except files, unless the savepoint has kept them.",
        .params = restore_savepoint_params,
        .hints = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
        .language = "python",
        .run = tool_restore_savepoint,
    },
    {0},
};

const struct profile kernelgate_profile = {
    .name = "",
    .instructions =
        "kernelgate runs code in sandboxes. Use run_python_code for calculations, data analysis "
        "and figures; state persists from call to call in the session of this conversation. If "
        "a result names a new session_id, pass it in later calls. Files are in /mnt/data. "
        "Errors are results with a code, such as session_not_found or max_sessions.",
    .tools = kernelgate_tools,
    .error_result = result_of_error,
    .more = &kernelgate_more,
};
