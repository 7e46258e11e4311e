// SPDX-License-Identifier: Apache-2.0
// Allocation that aborts on failure, and the cleanup of descriptors.

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

static void *
check(void *ptr)
{
    if (!ptr) {
        fputs("kernelgate: out of memory\n", stderr);
        abort();
    }
    return ptr;
}

void *
kg_calloc(size_t n, size_t size)
{
    return check(calloc(n ? n : 1, size ? size : 1));
}

void *
kg_realloc(void *ptr, size_t size)
{
    return check(realloc(ptr, size ? size : 1));
}

char *
kg_strdup(const char *s)
{
    return check(strdup(s));
}

char *
kg_strndup(const char *s, size_t n)
{
    return check(strndup(s, n));
}

char *
kg_memdup0(const void *data, size_t len)
{
    char *copy = kg_realloc(NULL, len + 1);
    if (len > 0)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

char *
kg_asprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    return check(len < 0 ? NULL : text);
}

void
kg_fd_auto_(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
