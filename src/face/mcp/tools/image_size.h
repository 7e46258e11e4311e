// SPDX-License-Identifier: Apache-2.0
// The type and size of an image, from the first bytes of a file: PNG (RFC 2083), JPEG (ITU T.81),
// GIF89a, WebP (RFC 9649). The bytes are untrusted.
#pragma once

#include "base.h"

struct image_size {
    const char *mime;
    int width; // pixels
    int height;
};

// False: not one of these types, or its size is not in `data`; `ret` is unchanged.
bool image_size_read(const void *data, size_t len, struct image_size *ret);
// The same of base64; `escaped`: it is the inside of a JSON string, which may have escaped line
// ends.
bool image_size_read_base64(const char *text, size_t len, bool escaped, struct image_size *ret);
