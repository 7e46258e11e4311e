// SPDX-License-Identifier: Apache-2.0
// What clients of terminals say, in both dialects: what is read points into the message or into a
// value that is the reader's, and sizes are within their bounds.
//
// The first byte: 'j' is terminado's, 't' a text and anything else a binary message of our own.

#include <assert.h>
#include <string.h>

#include "api_priv.h"
#include "terminado_priv.h"
#include "terminals.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_word(const struct terminal_word *word, const char *data, size_t len)
{
    if (word->kind == TERMINAL_RESIZE) {
        assert(word->cols >= 1 && word->cols <= SANDBOX_TERMINAL_SIDE_MAX);
        assert(word->rows >= 1 && word->rows <= SANDBOX_TERMINAL_SIDE_MAX);
    }
    if (word->kind != TERMINAL_INPUT)
        return;
    if (!word->owner)
        assert(word->data == data && word->len == len);
    else
        assert(word->len <= len && word->data[word->len] == '\0');
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct terminal_word word = {0};
    struct kg_error err = {0};
    if (size < 1)
        return 0;
    const struct terminal_dialect *dialect =
        data[0] == 'j' ? &terminado_dialect : &api_terminal_dialect;
    const char *text = (const char *)data + 1;
    bool is_text = data[0] == 'j' || data[0] == 't';
    if (dialect->read(is_text, text, size - 1, &word, &err) == 0)
        check_word(&word, text, size - 1);
    else
        assert(err.code == KG_INVALID && err.message[0]);
    json_decref(word.owner);
    return 0;
}
