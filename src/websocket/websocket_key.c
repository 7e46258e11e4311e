// SPDX-License-Identifier: Apache-2.0
// The handshake's key (RFC 6455, 4.2.2) and the hash that it needs: SHA-1 (RFC 3174). It proves
// that the server speaks the protocol, and protects nothing.

#include <endian.h>
#include <sodium.h>
#include <string.h>

#include "websocket.h"

enum { KEY_BYTES = 16, KEY_TEXT_LEN = 24, BLOCK = 64, HASH_WORDS = 5 };

static uint32_t
rotate(uint32_t value, unsigned n)
{
    return value << n | value >> (32 - n);
}

static uint32_t
mix(int round, uint32_t b, uint32_t c, uint32_t d)
{
    switch (round / 20) {
    case 0:
        return ((b & c) | (~b & d)) + 0x5a827999;
    case 1:
        return (b ^ c ^ d) + 0x6ed9eba1;
    case 2:
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    default:
        return (b ^ c ^ d) + 0xca62c1d6;
    }
}

static void
hash_block(uint32_t hash[HASH_WORDS], const unsigned char *block)
{
    uint32_t words[80];
    memcpy(words, block, BLOCK);
    for (int i = 0; i < 16; i++)
        words[i] = be32toh(words[i]);
    for (int i = 16; i < 80; i++)
        words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    uint32_t a = hash[0], b = hash[1], c = hash[2], d = hash[3], e = hash[4];
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate(a, 5) + mix(i, b, c, d) + e + words[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    hash[0] += a;
    hash[1] += b;
    hash[2] += c;
    hash[3] += d;
    hash[4] += e;
}

char *
websocket_accept_key(const char *key)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char decoded[KEY_BYTES];
    size_t n;
    const char *end;
    if (strlen(key) != KEY_TEXT_LEN ||
        sodium_base642bin(decoded, sizeof decoded, key, KEY_TEXT_LEN, NULL, &n, &end,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        n != KEY_BYTES || *end)
        return NULL;
    // Key and GUID are 60 bytes: with the padding two blocks.
    unsigned char text[2 * BLOCK] = {0};
    size_t len = KEY_TEXT_LEN + strlen(guid);
    memcpy(text, key, KEY_TEXT_LEN);
    memcpy(text + KEY_TEXT_LEN, guid, sizeof guid);
    text[len] = 0x80;
    const uint64_t bits = htobe64(8 * len);
    memcpy(text + sizeof text - sizeof bits, &bits, sizeof bits);
    uint32_t hash[HASH_WORDS] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    hash_block(hash, text);
    hash_block(hash, text + BLOCK);
    for (size_t i = 0; i < HASH_WORDS; i++)
        hash[i] = htobe32(hash[i]);
    size_t size = sodium_base64_ENCODED_LEN(sizeof hash, sodium_base64_VARIANT_ORIGINAL);
    char *accept = kg_calloc(1, size);
    sodium_bin2base64(accept, size, (const unsigned char *)hash, sizeof hash,
                      sodium_base64_VARIANT_ORIGINAL);
    return accept;
}
