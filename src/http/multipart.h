// SPDX-License-Identifier: Apache-2.0
// The body of multipart/form-data (RFC 7578), strictly: what two readers might read differently is
// refused. Every part must be a file.
#pragma once

#include "base.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70, // RFC 2046, section 5.1.1
    MULTIPART_FILES_MAX = 100,
    MULTIPART_HEAD_MAX = 4 << 10, // bytes of a part's headers
};

struct multipart_file {
    char *name;       // its filename, UTF-8
    const char *data; // borrowed from the body
    size_t len;
};
struct multipart {
    struct multipart_file files[MULTIPART_FILES_MAX];
    size_t n;
};

// Reads the boundary that a Content-Type names (NULL: there is none). KG_INVALID: it is of another
// kind, or malformed.
KG_MUST_CHECK int multipart_boundary(const char *content_type, char ret[MULTIPART_BOUNDARY_MAX + 1],
                                     struct kg_error *err);
// Finds the files in a body; on any thread. `ret` is to be freed in any case.
KG_MUST_CHECK int multipart_parse(const char *body, size_t len, const char *boundary,
                                  struct multipart *ret, struct kg_error *err);
void multipart_fini(struct multipart *multipart);
