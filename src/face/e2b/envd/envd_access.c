// SPDX-License-Identifier: Apache-2.0
// Who asks envd, what for, and what errors look like.
#include "envd_priv.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "sessions.h"

// ---- Errors ---------------------------------------------------------------------------------

static char *
credential(const struct http_request *request)
{
    return e2b_sandbox_dialect.credential(request);
}

// Nobody has a sandbox of that id, or it has ended: clients tell this by the status and by the
// words "was not found". The token of one that has ended is not valid any more.
static bool
is_about_sandbox(const struct http_request *request, const struct kg_error *err)
{
    const struct envd *envd = http_request_arg(request);
    const char *id = http_request_header(request, E2B_SANDBOX_HEADER);
    if (err->code != KG_SESSION_NOT_FOUND && (err->code != KG_UNAUTHORIZED || !id))
        return false;
    return !id || !sessions_find_by_sandbox(e2b_face(envd->e2b)->sessions, id);
}

static json_t *
describe_not_found(int *status)
{
    *status = 502;
    return json_pack("{s:i, s:s}", "code", *status, "message", "The sandbox was not found");
}

static json_t *
describe_file_error(struct http_request *request, const struct kg_error *err, int *status)
{
    if (is_about_sandbox(request, err))
        return describe_not_found(status);
    return json_pack("{s:i, s:s}", "code", *status, "message", err->message);
}

static json_t *
describe_call_error(struct http_request *request, const struct kg_error *err, int *status)
{
    if (is_about_sandbox(request, err))
        return describe_not_found(status);
    enum connect_code code = connect_code_of(err->code);
    *status = connect_code_status(code);
    return connect_error(code, err->message);
}

const struct http_dialect envd_file_dialect = {
    .credential = credential, .describe_error = describe_file_error, .prepare = signature_prepare};
const struct http_dialect envd_call_dialect = {.credential = credential,
                                               .describe_error = describe_call_error};

// ---- Who asks -------------------------------------------------------------------------------

int
envd_user_check(const char *name, struct kg_error *err)
{
    if (!name || !*name || strcmp(name, "user") == 0 || strcmp(name, "root") == 0)
        return 0;
    return kg_error_set(err, KG_UNAUTHORIZED, 0,
                        "there is no user %.40s: the sandbox has one user, who is called user or "
                        "root",
                        name);
}

// `Authorization: Basic <base64 of "NAME:">` names the user; there is no password.
static int
check_basic_user(const struct http_request *request, struct kg_error *err)
{
    enum { USER_MAX = 64 };
    static const char scheme[] = "Basic ";
    const char *value = http_request_header(request, "Authorization");
    char name[USER_MAX + 1] = "";
    size_t len = 0;
    if (!value || strncasecmp(value, scheme, sizeof scheme - 1) != 0)
        return 0;
    value += sizeof scheme - 1;
    if (sodium_base642bin((unsigned char *)name, USER_MAX, value, strlen(value), NULL, &len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return kg_error_set(err, KG_UNAUTHORIZED, 0,
                            "Authorization: Basic must have a user's name in base64");
    name[strcspn(name, ":")] = '\0';
    return envd_user_check(name, err);
}

struct session *
envd_sandbox(struct http_request *request, const struct envd *envd, struct kg_error *err)
{
    if (signature_is_wrong(request)) {
        kg_error_set(err, KG_UNAUTHORIZED, 0, "the signature is wrong, or too old");
        return NULL;
    }
    struct session *session = e2b_sandbox(request, envd->e2b, err);
    return session && check_basic_user(request, err) == 0 ? session : NULL;
}

int
envd_query_path(const struct http_request *request, struct envd_path *ret, struct kg_error *err)
{
    const char *path = http_request_query(request, "path");
    *ret = (struct envd_path){0};
    if (envd_user_check(http_request_query(request, "username"), err) < 0)
        return -1;
    return envd_path_parse(path ? path : "", ret, err);
}
