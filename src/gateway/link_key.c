// SPDX-License-Identifier: Apache-2.0
// The key by which agents that are dialled over TCP know this installation's gateways: a seed of 64
// hexadecimal digits in a file.

#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"

enum { MAX_FILE_BYTES = 256 };

static int
make_file(const char *path, struct kg_error *err)
{
    unsigned char seed[LINK_KEY_LEN];
    char text[2 * LINK_KEY_LEN + 1];
    randombytes_buf(seed, sizeof seed);
    link_key_format(seed, text);
    int result = file_write_atomic(path, text, strlen(text), 0600, err);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(text, sizeof text);
    return result;
}

int
link_key_load(const char *configured, const char *state_dir, struct link_key *ret,
              struct kg_error *err)
{
    KG_AUTO_FREE char *path =
        configured ? kg_strdup(configured) : kg_asprintf("%s/link.key", state_dir);
    KG_AUTO_BUF text = {0};
    unsigned char seed[LINK_KEY_LEN];
    if (!configured && access(path, F_OK) < 0 && make_file(path, err) < 0)
        return -1;
    if (file_read(path, MAX_FILE_BYTES, &text, err) < 0)
        return -1;
    const char *hex = text.len ? text.data : "";
    if (link_key_parse(hex, strcspn(hex, "\r\n"), seed) < 0)
        return kg_error_set(err, KG_INVALID, 0, "%s does not hold 64 hexadecimal digits", path);
    link_key_from_seed(seed, ret);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(text.data, text.len);
    return 0;
}
