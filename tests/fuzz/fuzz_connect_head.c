// SPDX-License-Identifier: Apache-2.0
// The head of a request to the sandboxes' proxy.
#include <assert.h>
#include <string.h>

#include "connect_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_complete(const struct connect_head *head, size_t size)
{
    assert(head->len >= 4 && head->len <= size && head->len <= CONNECT_HEAD_MAX);
    assert(head->port >= 1 && head->port <= 65535);
    size_t len = strlen(head->host);
    assert(len >= 1 && len <= CONNECT_HOST_MAX);
    assert(strspn(head->host,
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:") == len);
    if (head->request.len == 0)
        return;
    // One head, which ends where it says that it ends.
    const char *end = memmem(head->request.data, head->request.len, "\r\n\r\n", 4);
    assert(end == head->request.data + head->request.len - 4);
    assert(memmem(head->request.data, head->request.len, "\r\nConnection: close\r\n\r\n", 23));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct kg_error err = {0};
    struct connect_head head;
    int result = connect_head_parse(text, size, &head, &err);
    if (result > 0)
        check_complete(&head, size);
    else if (result < 0)
        assert(err.code == KG_INVALID);
    connect_head_fini(&head);
    // What is complete is so whatever follows, and nothing shorter is.
    if (result > 0) {
        struct connect_head again;
        assert(connect_head_parse(text, head.len, &again, &err) == 1 && again.len == head.len);
        connect_head_fini(&again);
        assert(connect_head_parse(text, head.len - 1, &again, &err) == 0);
        connect_head_fini(&again);
    }
    return 0;
}
