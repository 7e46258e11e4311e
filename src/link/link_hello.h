// SPDX-License-Identifier: Apache-2.0
// The beginning of a link over TCP, where the agent listens and a gateway dials. Both sides speak
// in messages of a constant size:
//
//   agent    challenge   "KGNONCE1", then 32 random bytes
//   gateway  hello       "KGHELLO1", sandbox id (16), epoch (8, big-endian), target (128),
//                        Ed25519 signature (64); texts are padded with NULs
//   agent    "OK\n" or "ERR <text>\n", as on a link over a Unix socket
//
// The signature covers a label of this protocol, the challenge and the hello up to the signature.
// So a hello opens one link, to one target of one sandbox. The connection itself is neither
// encrypted nor authenticated after that: the network between the two must keep strangers from it.
#pragma once

#include "base.h"

enum {
    LINK_CHALLENGE_LEN = 8 + 32,
    LINK_SIGNED_LEN = 8 + 16 + 8 + 128,
    LINK_HELLO_TCP_LEN = LINK_SIGNED_LEN + 64,
    LINK_SANDBOX_MAX = 16,
    LINK_KEY_LEN = 32, // of a public key, and of the seed of a key pair
};

// What a gateway asks for. Of two gateways that hold one sandbox, the one with the higher epoch
// does so rightfully.
struct link_hello_tcp {
    char sandbox[LINK_SANDBOX_MAX + 1];
    uint64_t epoch;
    char target[128 + 1];
};

// An installation's key pair. The agents know the public one, only gateways the secret one.
struct link_key {
    unsigned char public_key[LINK_KEY_LEN];
    unsigned char secret_key[64];
};

// Makes the pair of a seed; both are functions of it.
void link_key_from_seed(const unsigned char seed[LINK_KEY_LEN], struct link_key *ret);
// Reads 64 hexadecimal digits; -1 where `text` is anything else.
KG_MUST_CHECK int link_key_parse(const char *text, size_t len, unsigned char ret[LINK_KEY_LEN]);
// Writes them, with a NUL.
void link_key_format(const unsigned char key[LINK_KEY_LEN], char ret[2 * LINK_KEY_LEN + 1]);

// Whether the first `len` bytes, at most LINK_CHALLENGE_LEN, can be the beginning of a challenge.
bool link_challenge_check(const unsigned char *data, size_t len);
void link_challenge_make(unsigned char ret[LINK_CHALLENGE_LEN]);

// Writes the hello. Sandbox and target must not be empty.
void link_hello_sign(const struct link_hello_tcp *hello,
                     const unsigned char challenge[LINK_CHALLENGE_LEN], const struct link_key *key,
                     unsigned char ret[LINK_HELLO_TCP_LEN]);
// Reads one: 0 where its signature is right and its texts are printable.
KG_MUST_CHECK int link_hello_open(const unsigned char data[LINK_HELLO_TCP_LEN],
                                  const unsigned char challenge[LINK_CHALLENGE_LEN],
                                  const unsigned char public_key[LINK_KEY_LEN],
                                  struct link_hello_tcp *ret);
