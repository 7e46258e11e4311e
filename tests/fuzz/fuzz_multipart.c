// SPDX-License-Identifier: Apache-2.0
// What a client sends as multipart/form-data: a line with the Content-Type, then the body.
#include <assert.h>
#include <string.h>

#include "multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *newline = memchr(data, '\n', size);
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct multipart files;
    struct kg_error err = {0};
    if (!newline)
        return 0;
    KG_AUTO_FREE char *type = kg_strndup(text, (size_t)(newline - text));
    if (multipart_boundary(type, boundary, &err) < 0) {
        assert(err.code == KG_INVALID && err.message[0]);
        return 0;
    }
    assert(strlen(boundary) >= 1 && strlen(boundary) <= MULTIPART_BOUNDARY_MAX);
    // A copy of its own: a byte beyond it is noticed.
    size_t len = (size_t)(text + size - newline - 1);
    KG_AUTO_FREE char *body = kg_calloc(len + (len == 0), 1);
    memcpy(body, newline + 1, len);
    if (multipart_parse(body, len, boundary, &files, &err) == 0) {
        KG_AUTO_FREE char *delimiter = kg_asprintf("\r\n--%s", boundary);
        assert(files.n >= 1 && files.n <= MULTIPART_FILES_MAX);
        for (size_t i = 0; i < files.n; i++) {
            const struct multipart_file *file = &files.files[i];
            assert(file->name && *file->name);
            assert(file->data >= body && file->data + file->len <= body + len);
            assert(!memmem(file->data, file->len, delimiter, strlen(delimiter)));
        }
    } else {
        assert(err.code == KG_INVALID && err.message[0]);
    }
    multipart_fini(&files);
    return 0;
}
