// SPDX-License-Identifier: Apache-2.0
// Challenges and signed hellos, as both sides of a link over TCP write and read them.
#include "link_hello.h"

#include <sodium.h>
#include <string.h>

static const unsigned char challenge_magic[] = {'K', 'G', 'N', 'O', 'N', 'C', 'E', '1'};
static const unsigned char hello_magic[] = {'K', 'G', 'H', 'E', 'L', 'L', 'O', '1'};
static const char label[] = "kernelgate link over TCP, version 1";

enum {
    MAGIC_LEN = 8,
    SANDBOX_AT = MAGIC_LEN,
    EPOCH_AT = SANDBOX_AT + LINK_SANDBOX_MAX,
    TARGET_AT = EPOCH_AT + 8,
    TARGET_LEN = LINK_SIGNED_LEN - TARGET_AT,
    MESSAGE_LEN = sizeof label + LINK_CHALLENGE_LEN + LINK_SIGNED_LEN,
};

void
link_key_from_seed(const unsigned char seed[LINK_KEY_LEN], struct link_key *ret)
{
    _Static_assert(crypto_sign_SEEDBYTES == LINK_KEY_LEN, "a seed");
    _Static_assert(crypto_sign_PUBLICKEYBYTES == LINK_KEY_LEN, "a public key");
    _Static_assert(crypto_sign_SECRETKEYBYTES == sizeof ret->secret_key, "a secret key");
    (void)crypto_sign_seed_keypair(ret->public_key, ret->secret_key, seed);
}

int
link_key_parse(const char *text, size_t len, unsigned char ret[LINK_KEY_LEN])
{
    for (size_t i = 0; i < len && len == 2 * LINK_KEY_LEN; i += 2) {
        int high = hex_value(text[i]), low = hex_value(text[i + 1]);
        if (high < 0 || low < 0)
            return -1;
        ret[i / 2] = (unsigned char)(high << 4 | low);
    }
    return len == 2 * LINK_KEY_LEN ? 0 : -1;
}

void
link_key_format(const unsigned char key[LINK_KEY_LEN], char ret[2 * LINK_KEY_LEN + 1])
{
    sodium_bin2hex(ret, 2 * LINK_KEY_LEN + 1, key, LINK_KEY_LEN);
}

bool
link_challenge_check(const unsigned char *data, size_t len)
{
    return len <= LINK_CHALLENGE_LEN &&
           memcmp(data, challenge_magic, len < MAGIC_LEN ? len : MAGIC_LEN) == 0;
}

void
link_challenge_make(unsigned char ret[LINK_CHALLENGE_LEN])
{
    memcpy(ret, challenge_magic, MAGIC_LEN);
    randombytes_buf(ret + MAGIC_LEN, LINK_CHALLENGE_LEN - MAGIC_LEN);
}

static void
signed_message(const unsigned char *challenge, const unsigned char *hello,
               unsigned char ret[MESSAGE_LEN])
{
    memcpy(ret, label, sizeof label);
    memcpy(ret + sizeof label, challenge, LINK_CHALLENGE_LEN);
    memcpy(ret + sizeof label + LINK_CHALLENGE_LEN, hello, LINK_SIGNED_LEN);
}

void
link_hello_sign(const struct link_hello_tcp *hello,
                const unsigned char challenge[LINK_CHALLENGE_LEN], const struct link_key *key,
                unsigned char ret[LINK_HELLO_TCP_LEN])
{
    unsigned char message[MESSAGE_LEN];

    memset(ret, 0, LINK_HELLO_TCP_LEN);
    memcpy(ret, hello_magic, MAGIC_LEN);
    memcpy(ret + SANDBOX_AT, hello->sandbox, strnlen(hello->sandbox, LINK_SANDBOX_MAX));
    for (int i = 0; i < 8; i++)
        ret[EPOCH_AT + i] = (unsigned char)(hello->epoch >> (56 - 8 * i));
    memcpy(ret + TARGET_AT, hello->target, strnlen(hello->target, TARGET_LEN));
    signed_message(challenge, ret, message);
    (void)crypto_sign_detached(ret + LINK_SIGNED_LEN, NULL, message, sizeof message,
                               key->secret_key);
}

// Printable characters without blanks, at least one, then only NULs.
static int
read_text(const unsigned char *data, size_t size, char *ret)
{
    size_t len = 0;

    while (len < size && data[len] > ' ' && data[len] < 0x7f)
        len++;
    for (size_t i = len; i < size; i++) {
        if (data[i] != 0)
            return -1;
    }
    memcpy(ret, data, len);
    ret[len] = '\0';
    return len > 0 ? 0 : -1;
}

int
link_hello_open(const unsigned char data[LINK_HELLO_TCP_LEN],
                const unsigned char challenge[LINK_CHALLENGE_LEN],
                const unsigned char public_key[LINK_KEY_LEN], struct link_hello_tcp *ret)
{
    unsigned char message[MESSAGE_LEN];

    if (memcmp(data, hello_magic, MAGIC_LEN) != 0 ||
        read_text(data + SANDBOX_AT, LINK_SANDBOX_MAX, ret->sandbox) != 0 ||
        read_text(data + TARGET_AT, TARGET_LEN, ret->target) != 0)
        return -1;
    ret->epoch = 0;
    for (int i = 0; i < 8; i++)
        ret->epoch = ret->epoch << 8 | data[EPOCH_AT + i];
    signed_message(challenge, data, message);
    return crypto_sign_verify_detached(data + LINK_SIGNED_LEN, message, sizeof message, public_key);
}
