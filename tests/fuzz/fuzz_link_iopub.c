// SPDX-License-Identifier: Apache-2.0
// Messages of iopub in the bytes of a link: what is left of whole messages is those that are not
// needless, in their order; anything else is left as it is.

#include <assert.h>
#include <string.h>

#include "link_iopub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KG_AUTO_BUF expected = {0};
    const char *bytes = (const char *)data;
    bool all_can_linger = size > 0, whole = true;
    for (size_t at = 0, n; at < size && whole; at += n) {
        enum iopub_kind kind = IOPUB_OTHER;
        n = iopub_message(bytes + at, size - at, &kind);
        assert(n <= size - at);
        whole = n > 0;
        all_can_linger &= kind != IOPUB_OTHER;
        if (kind != IOPUB_NEEDLESS)
            buf_append(&expected, bytes + at, n);
    }
    assert(iopub_can_linger(bytes, size) == (whole && all_can_linger));
    KG_AUTO_FREE char *copy = kg_calloc(size + 1, 1); // of the input, which must not change
    if (size > 0)
        memcpy(copy, data, size);
    size_t left = iopub_sift(copy, size);
    if (!whole)
        assert(left == size && memcmp(copy, data, size) == 0);
    else
        assert(left == expected.len && (left == 0 || memcmp(copy, expected.data, left) == 0));
    return 0;
}
