// SPDX-License-Identifier: Apache-2.0
// Paths as envd's clients write them: absolute, or relative to the home folder; ~ is the home
// folder, too, which is the working folder of session_files.h. Empty names, "." and ".." are
// resolved as text, before any link.
#pragma once

#include "base.h"

// Both are to be freed.
struct envd_path {
    char *client;  // absolute, as answers have it
    char *session; // as session_files.h takes it; "" for the home folder
};
// KG_INVALID_PATH, also where the session has no file of that path.
KG_MUST_CHECK int envd_path_parse(const char *text, struct envd_path *ret, struct kg_error *err);
void envd_path_fini(struct envd_path *path);
#define ENVD_AUTO_PATH __attribute__((cleanup(envd_path_fini))) struct envd_path
// The last name; "/" of the root. Borrowed.
const char *envd_path_name(const char *client_path);
