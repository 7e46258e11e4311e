// SPDX-License-Identifier: Apache-2.0
// Builds the content of execute_requests.

#include "request_priv.h"

#include <string.h>

#include "base.h"

// The JSON goes in as a string literal in ASCII, which is one in Python and in JavaScript.
char *
request_fill_template(const char *template, const char *json)
{
    json_auto_t *string = json_string(json);
    KG_AUTO_FREE char *literal = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    KG_AUTO_BUF code = {0};
    static const char mark[] = "{json}";
    for (const char *found; (found = strstr(template, mark)); template = found + strlen(mark)) {
        buf_append(&code, template, (size_t)(found - template));
        buf_append_str(&code, literal);
    }
    buf_append_str(&code, template);
    return buf_take(&code);
}

struct request_code *
request_code_new(const char *template, char *text, bool silent)
{
    struct request_code *request = KG_NEW(struct request_code);
    request->template = template ? kg_strdup(template) : NULL;
    request->text = text;
    request->silent = silent;
    return request;
}

struct request_code *
request_code_copy(const struct request_code *request)
{
    struct request_code *copy =
        request_code_new(request->template, kg_strdup(request->text), request->silent);
    copy->max_image_side = request->max_image_side;
    copy->allow_stdin = request->allow_stdin;
    return copy;
}

void
request_code_free(void *arg)
{
    struct request_code *request = arg;
    if (!request)
        return;
    free(request->template);
    free(request->text);
    free(request);
}

json_t *
request_code_make(void *arg)
{
    const struct request_code *request = arg;
    KG_AUTO_FREE char *filled =
        request->template ? request_fill_template(request->template, request->text) : NULL;
    json_t *content =
        json_pack("{s:s, s:b, s:b, s:{}, s:b, s:b}", "code", filled ? filled : request->text,
                  "silent", request->silent, "store_history", !request->silent, "user_expressions",
                  "allow_stdin", request->allow_stdin, "stop_on_error", 0);
    if (request->max_image_side > 0) // an addition to the protocol
        json_object_set_new(content, "kernelgate",
                            json_pack("{s:i}", "max_image_side", request->max_image_side));
    return content;
}
