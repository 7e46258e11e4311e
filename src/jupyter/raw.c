// SPDX-License-Identifier: Apache-2.0
// The four JSON texts of a message and its buffers, as they are on the wire.

#include <string.h>

#include "json_priv.h"
#include "jupyter.h"

static const char *const part_names[JUPYTER_N_PARTS] = {"header", "parent_header", "metadata",
                                                        "content"};

struct jupyter_raw *
jupyter_raw_new(const struct jupyter_frame parts[JUPYTER_N_PARTS],
                const struct jupyter_frame *buffers, size_t n_buffers)
{
    size_t n_frames = JUPYTER_N_PARTS + n_buffers, bytes = 0;
    for (size_t i = 0; i < n_frames; i++)
        bytes += (i < JUPYTER_N_PARTS ? parts[i] : buffers[i - JUPYTER_N_PARTS]).len;
    struct jupyter_raw *raw = kg_calloc(1, sizeof(*raw) + n_buffers * sizeof(raw->buffers[0]));
    char *p = raw->block = kg_realloc(NULL, bytes + 1);
    raw->bytes = bytes;
    raw->n_buffers = n_buffers;
    for (size_t i = 0; i < n_frames; i++) {
        const struct jupyter_frame *from =
            i < JUPYTER_N_PARTS ? &parts[i] : &buffers[i - JUPYTER_N_PARTS];
        struct jupyter_frame *to =
            i < JUPYTER_N_PARTS ? &raw->parts[i] : &raw->buffers[i - JUPYTER_N_PARTS];
        if (from->len > 0)
            memcpy(p, from->data, from->len);
        *to = (struct jupyter_frame){.data = p, .len = from->len};
        p += from->len;
    }
    return raw;
}

int
jupyter_raw_repair(struct jupyter_raw *raw, struct kg_error *err)
{
    for (size_t i = 0; i < JUPYTER_N_PARTS; i++) {
        bool repaired = false;
        json_auto_t *value = kernel_json_load(raw->parts[i].data, raw->parts[i].len, part_names[i],
                                              NULL, &repaired, err);
        if (value == NULL)
            return -1;
        if (!repaired)
            continue;
        raw->bytes -= raw->parts[i].len;
        free(raw->repaired[i]);
        raw->repaired[i] = json_dumps(value, JSON_COMPACT);
        raw->parts[i] =
            (struct jupyter_frame){.data = raw->repaired[i], .len = strlen(raw->repaired[i])};
        raw->bytes += raw->parts[i].len;
    }
    return 0;
}

void
jupyter_raw_free(struct jupyter_raw *raw)
{
    if (raw == NULL)
        return;
    for (size_t i = 0; i < JUPYTER_N_PARTS; i++)
        free(raw->repaired[i]);
    free(raw->block);
    free(raw);
}
