// SPDX-License-Identifier: Apache-2.0
// Names for files from elsewhere: the first line is a Content-Disposition, the rest a URL.
#include <assert.h>
#include <string.h>

#include "http_fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KG_AUTO_FREE char *header = kg_strndup((const char *)data, size);
    char *url = strchr(header, '\n');
    if (url)
        *url++ = '\0';
    KG_AUTO_FREE char *name = http_fetch_name(url ? header : NULL, url ? url : header);
    size_t len = strlen(name);
    assert(len >= 1 && len <= FETCH_NAME_MAX && name[0] != '.');
    assert(!strpbrk(name, "/\\"));
    const unsigned char *end = (const unsigned char *)name + len;
    for (const unsigned char *at = (const unsigned char *)name; at < end;) {
        size_t character = utf8_valid_len(at, end);
        assert(character > 0 && *at >= ' ' && *at != 0x7f);
        at += character;
    }
    struct kg_error err = {0};
    assert(file_path_check(name, true, &err) == 0);
    return 0;
}
