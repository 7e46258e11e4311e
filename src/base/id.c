// SPDX-License-Identifier: Apache-2.0
// Random ids.

#include <pthread.h>
#include <sodium.h>

#include "base.h"

// Random bytes for the next ids: one system call serves many ids.
static _Thread_local struct {
    unsigned char bytes[256];
    size_t left; // unused ones, at the end of `bytes`
} drawn;

// A child must not draw what its parent draws.
static void
forget(void)
{
    drawn.left = 0;
}

static void
forget_in_children(void)
{
    pthread_atfork(NULL, NULL, forget);
}

static unsigned char
next_byte(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (drawn.left == 0) {
        pthread_once(&once, forget_in_children);
        randombytes_buf(drawn.bytes, sizeof drawn.bytes);
        drawn.left = sizeof drawn.bytes;
    }
    unsigned char *at = &drawn.bytes[sizeof drawn.bytes - drawn.left--];
    unsigned char byte = *at;
    *at = 0; // an id can be used as a key, so it is not kept
    return byte;
}

// Each character from a random byte: the alphabets' sizes are powers of two.
static void
fill(char *ret, size_t len, const char *alphabet, unsigned mask)
{
    for (size_t i = 0; i < len; i++)
        ret[i] = alphabet[next_byte() & mask];
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
