// SPDX-License-Identifier: Apache-2.0
// The Connect protocol: error codes, messages in requests, answers.
#include "connect.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// ---- Codes ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    int status;
} codes[CONNECT_N_CODES] = {
    [CONNECT_OK] = {"ok", 200},
    [CONNECT_CANCELED] = {"canceled", 499},
    [CONNECT_UNKNOWN] = {"unknown", 500},
    [CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CONNECT_NOT_FOUND] = {"not_found", 404},
    [CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
    [CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
    [CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CONNECT_ABORTED] = {"aborted", 409},
    [CONNECT_OUT_OF_RANGE] = {"out_of_range", 400},
    [CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
    [CONNECT_INTERNAL] = {"internal", 500},
    [CONNECT_UNAVAILABLE] = {"unavailable", 503},
    [CONNECT_DATA_LOSS] = {"data_loss", 500},
    [CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};

const char *
connect_code_name(enum connect_code code)
{
    return codes[code].name;
}

int
connect_code_status(enum connect_code code)
{
    return codes[code].status;
}

// By the HTTP status that the code has elsewhere. A sandbox that has ended is not a thing that was
// not found in it.
enum connect_code
connect_code_of(enum kg_code code)
{
    if (code == KG_SESSION_NOT_FOUND)
        return CONNECT_UNAVAILABLE;
    switch (kg_code_info(code)->http_status) {
    case 400:
        return CONNECT_INVALID_ARGUMENT;
    case 401:
        return CONNECT_UNAUTHENTICATED;
    case 403:
        return CONNECT_PERMISSION_DENIED;
    case 404:
        return CONNECT_NOT_FOUND;
    case 405:
    case 415:
        return CONNECT_UNIMPLEMENTED;
    case 409:
        return CONNECT_ALREADY_EXISTS;
    case 413:
    case 429:
    case 507:
        return CONNECT_RESOURCE_EXHAUSTED;
    case 502:
    case 503:
        return CONNECT_UNAVAILABLE;
    case 504:
        return CONNECT_DEADLINE_EXCEEDED;
    default:
        return CONNECT_INTERNAL;
    }
}

json_t *
connect_error(enum connect_code code, const char *message)
{
    return json_pack("{s:s, s:s}", "code", connect_code_name(code), "message", message);
}

// ---- Unary answers --------------------------------------------------------------------------

void
connect_reply(struct http_request *request, json_t *message)
{
    http_reply_json(request, 200, message);
}

void
connect_refuse(struct http_request *request, enum connect_code code, const char *fmt, ...)
{
    char message[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    http_reply_json(request, connect_code_status(code), connect_error(code, message));
}

// ---- Requests -------------------------------------------------------------------------------

static bool
header_is(const struct http_request *request, const char *name, const char *value)
{
    const char *text = http_request_header(request, name);
    size_t len = text ? strcspn(text, "; \t") : 0;
    return len == strlen(value) && strncasecmp(text, value, len) == 0;
}

static bool
check_codec(struct http_request *request, const char *type, const char *encoding)
{
    const char *coding = http_request_header(request, encoding);
    if (!header_is(request, "Content-Type", type)) {
        KG_AUTO_FREE char *text = kg_asprintf("Content-Type must be %s", type);
        http_reply_json(request, 415, connect_error(CONNECT_UNIMPLEMENTED, text));
        return false;
    }
    if (coding && strcasecmp(coding, "identity") != 0) {
        connect_refuse(request, CONNECT_UNIMPLEMENTED,
                       "%s must be identity: messages are not compressed", encoding);
        return false;
    }
    return true;
}

json_t *
connect_unary_message(struct http_request *request)
{
    struct kg_error err = {0};
    if (!check_codec(request, "application/json", "Content-Encoding"))
        return NULL;
    json_t *message = http_request_json(request, &err);
    if (message && !json_is_object(message)) {
        (void)kg_error_set(&err, KG_INVALID, 0, "the message must be a JSON object");
        json_decref(message);
        message = NULL;
    }
    if (!message)
        http_reply_error(request, &err);
    return message;
}

bool
connect_check_stream(struct http_request *request)
{
    return check_codec(request, CONNECT_STREAM_TYPE, "Connect-Content-Encoding");
}

int
connect_timeout_ms(const struct http_request *request, int64_t *ret, struct kg_error *err)
{
    enum { DIGITS_MAX = 10 }; // of the protocol
    const char *text = http_request_header(request, "Connect-Timeout-Ms");
    size_t len = text ? strlen(text) : 0;
    *ret = 0;
    if (!text)
        return 0;
    if (len == 0 || len > DIGITS_MAX || strspn(text, "0123456789") != len)
        return kg_error_set(err, KG_INVALID, 0,
                            "Connect-Timeout-Ms must be a number of at most %d digits", DIGITS_MAX);
    *ret = strtoll(text, NULL, 10);
    return 0;
}
