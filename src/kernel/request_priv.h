// SPDX-License-Identifier: Apache-2.0
// The content of the runner's execute_requests ("Execute" in the protocol).
#pragma once

#include <jansson.h>
#include <stdbool.h>

// The code of a request: `text` as it is, or `template` with `text`, which is JSON, in place of
// "{json}".
struct request_code {
    char *template; // NULL: none
    char *text;
    bool silent;
    bool allow_stdin;
    int max_image_side; // pixels, for kernels that make larger images smaller; 0: as they are
};

// The template with `json` in place of "{json}", to be freed.
char *request_fill_template(const char *template, const char *json);
// Takes `text`.
struct request_code *request_code_new(const char *template, char *text, bool silent);
struct request_code *request_code_copy(const struct request_code *request);
void request_code_free(void *request);
// The content of the execute_request, a new reference. A pure function: any thread may call it.
json_t *request_code_make(void *request);
