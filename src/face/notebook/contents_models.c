// SPDX-License-Identifier: Apache-2.0
// The JSON of files and folders. It is written as text, since JSON values would take many times the
// memory.

#include <inttypes.h>
#include <string.h>

#include "contents_priv.h"

enum contents_type
contents_type_parse(const char *name)
{
    if (!name || !*name)
        return CONTENTS_ANY;
    if (strcmp(name, "directory") == 0)
        return CONTENTS_DIRECTORY;
    return strcmp(name, "notebook") == 0 ? CONTENTS_NOTEBOOK : CONTENTS_FILE;
}

// `len` bytes of a text; NULL: null.
static void
append_member(struct buf *ret, const char *name, const char *text, size_t len)
{
    buf_printf(ret, "\"%s\":", name);
    if (text)
        json_append_string(ret, text, len);
    else
        buf_append_str(ret, "null");
    buf_append_str(ret, ",");
}

static void
append_text(struct buf *ret, const char *name, const char *text)
{
    append_member(ret, name, text, text ? strlen(text) : 0);
}

void
contents_model_begin(struct buf *ret, const struct contents_model *model)
{
    static const char *const types[] = {
        [CONTENTS_DIRECTORY] = "directory",
        [CONTENTS_FILE] = "file",
        [CONTENTS_NOTEBOOK] = "notebook",
    };
    const char *slash = strrchr(model->path, '/');
    buf_append_str(ret, "{");
    append_text(ret, "name", slash ? slash + 1 : model->path);
    append_text(ret, "path", model->path);
    append_text(ret, "type", types[model->type]);
    buf_printf(ret, "\"writable\":%s,", model->is_writable ? "true" : "false");
    append_text(ret, "created", model->created);
    append_text(ret, "last_modified", model->last_modified);
    if (model->size >= 0)
        buf_printf(ret, "\"size\":%" PRId64 ",", model->size);
    else
        buf_append_str(ret, "\"size\":null,");
    append_member(ret, "mimetype", model->mimetype,
                  model->mimetype ? strcspn(model->mimetype, ";") : 0);
    append_text(ret, "hash", model->hash);
    append_text(ret, "hash_algorithm", model->hash ? "sha256" : NULL);
    append_text(ret, "format", model->format);
    buf_append_str(ret, "\"content\":");
}
