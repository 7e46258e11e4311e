// SPDX-License-Identifier: Apache-2.0
// The one table of error codes, and the value that carries an error.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base.h"

static const struct kg_code_info code_infos[KG_N_CODES] = {
    [KG_OK] = {200, "ok", "OK", false},
    [KG_INVALID] = {400, "invalid_request", "Invalid request", false},
    [KG_INVALID_SESSION_ID] = {400, "invalid_session_id", "Invalid session id", false},
    [KG_INVALID_PATH] = {400, "invalid_path", "Invalid path", false},
    [KG_INVALID_CONTENT] = {400, "invalid_content", "Invalid content", false},
    [KG_UNAUTHORIZED] = {401, "unauthorized", "Unauthorized", false},
    [KG_FORBIDDEN_ORIGIN] = {403, "forbidden_origin", "Forbidden origin", false},
    [KG_FORBIDDEN_HOST] = {403, "forbidden_host", "Forbidden host", false},
    [KG_FORBIDDEN_LINK] = {403, "forbidden_link", "Forbidden link", false},
    [KG_ADMINISTRATORS_ONLY] = {403, "administrators_only", "Administrators only", false},
    [KG_CSRF_TOKEN] = {403, "csrf_token_required", "CSRF token required", false},
    [KG_TOKEN_SCOPE] = {403, "token_scope", "Outside the token's scope", false},
    [KG_REGISTRATION_CLOSED] = {403, "registration_closed", "Registration closed", false},
    [KG_PORT_PRIVATE] = {403, "port_private", "Private port", false},
    [KG_PORT_FORBIDDEN] = {403, "port_forbidden", "Port not available", false},
    [KG_SESSION_NOT_FOUND] = {404, "session_not_found", "Session not found", false},
    [KG_NOT_FOUND] = {404, "not_found", "Not found", false},
    [KG_UNKNOWN_KERNEL] = {404, "unknown_kernel", "Unknown kernel", false},
    [KG_METHOD_NOT_ALLOWED] = {405, "method_not_allowed", "Method not allowed", false},
    [KG_FILE_EXISTS] = {409, "file_exists", "File exists", false},
    [KG_COMMAND_EXISTS] = {409, "command_exists", "Command exists", false},
    [KG_NAME_EXISTS] = {409, "name_exists", "Name exists", false},
    [KG_NO_INPUT_REQUEST] = {409, "no_input_request", "No input is asked for", false},
    [KG_TOOL_CALL_ENDED] = {409, "tool_call_ended", "Tool call ended", false},
    [KG_KERNEL_BUSY] = {409, "kernel_busy", "Kernel busy", false},
    [KG_TOO_MANY_SAVEPOINTS] = {409, "too_many_savepoints", "Too many savepoints", false},
    [KG_CODE_TOO_LARGE] = {413, "code_too_large", "Code too large", false},
    [KG_UPLOAD_TOO_LARGE] = {413, "upload_too_large", "Upload too large", false},
    [KG_ARTIFACT_TOO_LARGE] = {413, "artifact_too_large", "Artifact too large", false},
    [KG_UNSUPPORTED_CODING] = {415, "unsupported_coding", "Unsupported content coding", false},
    [KG_SESSION_BUSY] = {429, "session_busy", "Session busy", true},
    [KG_MAX_SESSIONS] = {429, "max_sessions", "Too many sessions", true},
    [KG_RATE_LIMITED] = {429, "rate_limited", "Too many requests", true},
    [KG_INTERNAL] = {500, "internal", "Internal error", false},
    [KG_SAVEPOINT_FAILED] = {500, "savepoint_failed", "Savepoint failed", false},
    [KG_UNSUPPORTED] = {501, "not_supported", "Not supported", false},
    [KG_PORT_CLOSED] = {502, "port_closed", "Nothing listens on the port", true},
    [KG_SERVER_DOWN] = {502, "server_down", "Server of tools down", true},
    [KG_PORT_ANSWER] = {502, "port_answer", "Invalid answer of a port", false},
    [KG_PROVISIONER_UNAVAILABLE] = {503, "provisioner_unavailable", "Provisioner unavailable",
                                    true},
    [KG_ACCOUNTS_UNAVAILABLE] = {503, "accounts_unavailable", "Accounts unavailable", true},
    [KG_DRAINING] = {503, "draining", "Shutting down", true},
    [KG_KERNEL_START_TIMEOUT] = {504, "kernel_start_timeout", "Kernel did not start", true},
    [KG_PORT_TIMEOUT] = {504, "port_timeout", "The port did not answer", true},
    [KG_DISK_FULL] = {507, "disk_full", "Disk full", false},
};

const struct kg_code_info *
kg_code_info(enum kg_code code)
{
    assert(code >= 0 && code < KG_N_CODES && code_infos[code].name);
    return &code_infos[code];
}

enum kg_code
kg_code_find(const char *name)
{
    enum kg_code code = KG_OK;
    while (code < KG_N_CODES && strcmp(code_infos[code].name, name) != 0)
        code++;
    return code;
}

// Removes bytes that are not UTF-8 from `text`: characters that a bound has cut in two, and
// untrusted bytes. Returns the rest.
static size_t
keep_utf8(char *text)
{
    const char *end = text + strlen(text);
    char *to = text;
    for (const char *at = text; at < end;) {
        size_t len = utf8_valid_len((const unsigned char *)at, (const unsigned char *)end);
        memmove(to, at, len);
        to += len;
        at += len ? len : 1;
    }
    *to = '\0';
    return (size_t)(to - text);
}

int
kg_error_set(struct kg_error *err, enum kg_code code, int sys_errno, const char *fmt, ...)
{
    if (!err)
        return -1;
    // Formatted in a temporary, so that an error may quote the message it replaces.
    char message[sizeof err->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    size_t len = keep_utf8(message);
    if (sys_errno != 0 && len + 4 < sizeof message)
        snprintf(message + len, sizeof message - len, ": %s", strerrordesc_np(sys_errno));
    err->code = code;
    err->sys_errno = sys_errno;
    err->retry_after_s = 0;
    memcpy(err->message, message, sizeof message);
    return -1;
}
