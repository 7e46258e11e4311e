// SPDX-License-Identifier: Apache-2.0
// The sizes of images.

#include "image_size.h"

#include <sodium.h>
#include <string.h>

// What comes before the size in a JPEG is seldom more: a segment has at most 64 KiB.
enum { HEAD_BYTES = 96 << 10, HEAD_DIGITS = HEAD_BYTES / 3 * 4 };

static int
big_16(const unsigned char *at)
{
    return at[0] << 8 | at[1];
}

static int
little_16(const unsigned char *at)
{
    return at[1] << 8 | at[0];
}

static int
little_24(const unsigned char *at)
{
    return at[2] << 16 | at[1] << 8 | at[0];
}

// A larger number than an int has is the largest int.
static int
big_32(const unsigned char *at)
{
    return at[0] > 0x7f ? INT32_MAX : at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static bool
read_png(const unsigned char *data, size_t len, struct image_size *ret)
{
    if (len < 24 || memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0 || memcmp(data + 12, "IHDR", 4) != 0)
        return false;
    *ret = (struct image_size){"image/png", big_32(data + 16), big_32(data + 20)};
    return true;
}

static bool
read_gif(const unsigned char *data, size_t len, struct image_size *ret)
{
    if (len < 10 || (memcmp(data, "GIF87a", 6) != 0 && memcmp(data, "GIF89a", 6) != 0))
        return false;
    *ret = (struct image_size){"image/gif", little_16(data + 6), little_16(data + 8)};
    return true;
}

static bool
read_webp(const unsigned char *data, size_t len, struct image_size *ret)
{
    if (len < 30 || memcmp(data, "RIFF", 4) != 0 || memcmp(data + 8, "WEBPVP8", 7) != 0)
        return false;
    struct image_size size = {.mime = "image/webp"};
    if (data[15] == 'X') {
        size.width = little_24(data + 24) + 1;
        size.height = little_24(data + 27) + 1;
    } else if (data[15] == 'L' && data[20] == 0x2f) {
        size.width = (data[21] | (data[22] & 0x3f) << 8) + 1;
        size.height = (data[22] >> 6 | data[23] << 2 | (data[24] & 0xf) << 10) + 1;
    } else if (data[15] == ' ' && memcmp(data + 23, "\x9d\x01\x2a", 3) == 0) {
        size.width = little_16(data + 26) & 0x3fff;
        size.height = little_16(data + 28) & 0x3fff;
    } else {
        return false;
    }
    *ret = size;
    return true;
}

// Whether a marker begins a frame, whose header has the size: SOF0 to SOF15 without DHT, JPG and
// DAC.
static bool
begins_frame(unsigned char marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool
read_jpeg(const unsigned char *data, size_t len, struct image_size *ret)
{
    if (len < 4 || memcmp(data, "\xff\xd8\xff", 3) != 0)
        return false;
    for (size_t at = 2; at + 9 <= len && data[at] == 0xff;) {
        unsigned char marker = data[at + 1];
        if (begins_frame(marker)) {
            *ret = (struct image_size){"image/jpeg", big_16(data + at + 7), big_16(data + at + 5)};
            return true;
        }
        at += marker == 0xff ? 1 : 2 + (size_t)big_16(data + at + 2); // 0xff: a fill byte
    }
    return false;
}

bool
image_size_read(const void *data, size_t len, struct image_size *ret)
{
    return read_png(data, len, ret) || read_jpeg(data, len, ret) || read_gif(data, len, ret) ||
           read_webp(data, len, ret);
}

bool
image_size_read_base64(const char *text, size_t len, bool escaped, struct image_size *ret)
{
    KG_AUTO_BUF digits = {0};
    for (size_t i = 0; i < len && digits.len < HEAD_DIGITS; i++) {
        if (escaped && text[i] == '\\')
            i++;
        else if (text[i] != '\r' && text[i] != '\n' && text[i] != '=')
            buf_append(&digits, text + i, 1);
    }
    KG_AUTO_FREE unsigned char *head = kg_calloc(HEAD_BYTES, 1);
    size_t head_len = 0;
    if (digits.len == 0 ||
        sodium_base642bin(head, HEAD_BYTES, digits.data, digits.len, NULL, &head_len, NULL,
                          sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0)
        return false;
    return image_size_read(head, head_len, ret);
}
