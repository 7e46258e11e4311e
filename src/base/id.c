// SPDX-License-Identifier: Apache-2.0
// Random ids.

#include <sodium.h>

#include "base.h"

// Each character from a random byte: the alphabets' sizes are powers of two.
static void
fill(char *ret, size_t len, const char *alphabet, unsigned mask)
{
    randombytes_buf(ret, len);
    for (size_t i = 0; i < len; i++)
        ret[i] = alphabet[(unsigned char)ret[i] & mask];
    ret[len] = '\0';
}

void
id_random(char *ret, size_t len)
{
    fill(ret, len, "abcdefghijklmnopqrstuvwxyz234567", 31);
}

void
id_random_hex(char *ret, size_t len)
{
    fill(ret, len, "0123456789abcdef", 15);
}
