// SPDX-License-Identifier: Apache-2.0
// Wire messages: what parses must hold the promises of struct jupyter_message, and its JSON must
// mean what it means to jansson.
//
// The input is cut into frames at each 0xfe; a frame of 0xfd stands for a right signature.

#include <assert.h>
#include <string.h>

#include "json_priv.h"
#include "signer_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { END_OF_FRAME = 0xfe, RIGHT_SIGNATURE = 0xfd };

static size_t
cut(const uint8_t *data, size_t size, struct jupyter_frame frames[JUPYTER_MAX_FRAMES])
{
    size_t n = 0;
    while (n < JUPYTER_MAX_FRAMES) {
        const uint8_t *end = size > 0 ? memchr(data, END_OF_FRAME, size) : NULL;
        size_t len = end != NULL ? (size_t)(end - data) : size;
        frames[n++] = (struct jupyter_frame){.data = data, .len = len};
        if (end == NULL)
            break;
        data = end + 1;
        size -= len + 1;
    }
    return n;
}

static void
sign(struct jupyter_signer *signer, struct jupyter_frame *frames, size_t n, char *signature)
{
    for (size_t i = 0; i + SIGNER_SIGNED_FRAMES < n; i++) {
        if (frames[i].len != 1 || *(const uint8_t *)frames[i].data != RIGHT_SIGNATURE)
            continue;
        signer_sign(signer, &frames[i + 1], signature);
        frames[i] = (struct jupyter_frame){.data = signature, .len = SIGNER_SIGNATURE_LEN};
        return;
    }
}

// What jansson reads must read the same here, without a repair; and whatever is read here is legal:
// jansson can write and read it again.
static void
check_json(const void *text, size_t len)
{
    struct kg_error err;
    bool repaired = false;
    json_auto_t *ours = kernel_json_load(text, len, "text", NULL, &repaired, &err);
    // jansson overlooks a NUL byte behind a number.
    bool has_nul = len > 0 && memchr(text, '\0', len) != NULL;
    json_auto_t *theirs = has_nul ? NULL : json_loadb(text, len, JSON_ALLOW_NUL, NULL);

    assert(!has_nul || ours == NULL);
    assert(ours == NULL || repaired == (theirs == NULL));
    if (json_is_object(theirs))
        assert(json_equal(ours, theirs));
    if (ours == NULL)
        return;
    KG_AUTO_FREE char *written = json_dumps(ours, JSON_COMPACT);
    json_auto_t *again = json_loads(written, JSON_ALLOW_NUL, NULL);
    assert(again != NULL && json_equal(ours, again));
}

// A bundle's structured members are what they would have been as values.
static void
check_structured(const void *text, size_t len)
{
    struct kg_error err;
    bool repaired = false, repaired_too = false;
    json_t *structured = NULL;
    json_auto_t *whole = kernel_json_load(text, len, "text", NULL, &repaired, &err);
    json_auto_t *rest = kernel_json_load(text, len, "text", &structured, &repaired_too, &err);
    json_auto_t *owned = structured;
    const char *mime;
    json_t *value;

    assert((whole == NULL) == (rest == NULL));
    json_object_foreach(owned, mime, value) {
        json_t *part =
            json_loadb(json_string_value(value), json_string_length(value), JSON_ALLOW_NUL, NULL);
        assert(json_is_array(part) || json_is_object(part));
        json_object_set_new_nocheck(json_object_get(rest, "data"), mime, part);
    }
    if (rest != NULL)
        assert(json_equal(whole, rest) && repaired == repaired_too);
}

// Strings are what they would have been as values, and what is left out is checked all the same.
static void
check_strings(const void *text, size_t len)
{
    struct kg_error err;
    bool repaired = false, repaired_too = false;
    struct kernel_json_string strings[] = {{"msg_id", NULL}, {"a", NULL}};
    json_auto_t *whole = kernel_json_load(text, len, "text", NULL, &repaired, &err);
    if (whole == NULL && err.code == KG_ARTIFACT_TOO_LARGE)
        return; // what is left out takes no memory
    int result = kernel_json_strings(text, len, "text", strings, 2, &repaired_too, &err);
    assert((whole == NULL) == (result != 0));
    for (size_t i = 0; i < 2; i++) {
        const char *value = json_string_value(json_object_get(whole, strings[i].name));
        if (result == 0)
            assert((value == NULL) == (strings[i].value == NULL) &&
                   (value == NULL || strcmp(value, strings[i].value) == 0));
        free(strings[i].value);
    }
    assert(result != 0 || repaired == repaired_too);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jupyter_frame frames[JUPYTER_MAX_FRAMES];
    char signature[SIGNER_SIGNATURE_LEN + 1];
    struct kg_error err;
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new("key");

    size_t n = cut(data, size, frames);
    for (size_t i = 0; i < n; i++) {
        check_json(frames[i].data, frames[i].len);
        check_structured(frames[i].data, frames[i].len);
        check_strings(frames[i].data, frames[i].len);
    }
    sign(signer, frames, n, signature);
    KG_AUTO(jupyter_message) message = jupyter_message_parse(signer, frames, n, &err);
    if (message == NULL) {
        assert(err.code == KG_UNAUTHORIZED || err.code == KG_INVALID_CONTENT);
        return 0;
    }
    assert(message->msg_type[0] != '\0' && message->msg_id != NULL && message->parent_id != NULL);
    assert(json_is_object(message->content));
    return 0;
}
