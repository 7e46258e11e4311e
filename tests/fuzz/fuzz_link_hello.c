// SPDX-License-Identifier: Apache-2.0
// The beginning of a link over TCP: a hello as the agent reads it, a challenge as the gateway does.
// Of an input whose first byte is odd, the rest is signed, so that what comes after the signature's
// check is reached.
#include <assert.h>
#include <string.h>

#include "link_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_text(const char *text, size_t max)
{
    assert(strlen(text) >= 1 && strlen(text) <= max);
    for (; *text; text++)
        assert(*text > ' ' && *text < 0x7f);
}

static void
check_hello(const unsigned char *hello, const unsigned char *challenge, const struct link_key *key)
{
    unsigned char again[LINK_HELLO_TCP_LEN];
    struct link_hello_tcp read = {0};

    if (link_hello_open(hello, challenge, key->public_key, &read) != 0)
        return;
    check_text(read.sandbox, LINK_SANDBOX_MAX);
    check_text(read.target, sizeof read.target - 1);
    // There is one way to write it.
    link_hello_sign(&read, challenge, key, again);
    assert(memcmp(again, hello, sizeof again) == 0);
}

// What a gateway would ask for is read by the agent as it was meant, or not at all.
static void
check_signed(const uint8_t *data, size_t size, const unsigned char *challenge,
             const struct link_key *key)
{
    unsigned char hello[LINK_HELLO_TCP_LEN];
    struct link_hello_tcp said = {0}, read = {0};

    memcpy(said.sandbox, data, size < LINK_SANDBOX_MAX ? size : LINK_SANDBOX_MAX);
    if (size > LINK_SANDBOX_MAX)
        memcpy(said.target, data + LINK_SANDBOX_MAX,
               size - LINK_SANDBOX_MAX < sizeof said.target - 1 ? size - LINK_SANDBOX_MAX
                                                                : sizeof said.target - 1);
    said.epoch = size;
    link_hello_sign(&said, challenge, key, hello);
    if (link_hello_open(hello, challenge, key->public_key, &read) != 0)
        return;
    assert(strcmp(said.sandbox, read.sandbox) == 0 && strcmp(said.target, read.target) == 0);
    assert(said.epoch == read.epoch);
    check_hello(hello, challenge, key);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char seed[LINK_KEY_LEN] = {1};
    static const unsigned char challenge[LINK_CHALLENGE_LEN] = "KGNONCE1";
    struct link_key key;

    link_key_from_seed(seed, &key);
    bool whole = link_challenge_check(data, size);
    assert(!whole || size <= LINK_CHALLENGE_LEN);
    for (size_t i = 0; whole && i < size; i++)
        assert(link_challenge_check(data, i));
    unsigned char parsed[LINK_KEY_LEN];
    if (link_key_parse((const char *)data, size, parsed) == 0)
        assert(size == 2 * LINK_KEY_LEN);
    if (size == LINK_HELLO_TCP_LEN)
        check_hello(data, challenge, &key);
    if (size > 0 && data[0] % 2)
        check_signed(data + 1, size - 1, challenge, &key);
    return 0;
}
