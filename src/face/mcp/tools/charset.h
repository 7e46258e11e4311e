// SPDX-License-Identifier: Apache-2.0
// Encodings of text files: which one the bytes show, and their text as UTF-8. The bytes are
// untrusted.
#pragma once

#include "base.h"

struct charset {
    const char *name;      // as models and Python know it
    const char *spellings; // others, in small letters and without marks: " utf8 u8 "
    const char *converter; // for iconv(3); NULL: decoded here
};

extern const struct charset charset_utf_8;
extern const struct charset charset_windows_1252;

// By its name or another usual spelling of it. NULL: it is not one that can be read here.
const struct charset *charset_find(const char *name);
// "utf-8, utf-16le, …"; to be freed.
char *charset_names(void);
// The encoding that a byte order mark at the start of a file shows. NULL: there is none.
const struct charset *charset_of_mark(const char *data, size_t len, size_t *ret_mark_len);
// Whether files of it may begin with such a mark.
bool charset_has_marks(const struct charset *charset);
// Whether bytes that are not UTF-8 can be text of windows-1252: without control characters, and
// without bytes that it does not have.
bool charset_may_be_windows_1252(const char *data, size_t len);
// How many bytes a part of a file must be aligned to.
int64_t charset_unit(const struct charset *charset);
// Appends the text to `ret`; what is not valid becomes U+FFFD, and so does NUL. A character that is
// cut at the end is left out unless this is the `last` part. Returns how many bytes were decoded,
// or -1.
KG_MUST_CHECK int64_t charset_decode(const struct charset *charset, const char *data, size_t len,
                                     bool last, struct buf *ret, struct kg_error *err);
