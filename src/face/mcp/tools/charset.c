// SPDX-License-Identifier: Apache-2.0
// Encodings of text files. Unicode and windows-1252 are decoded here; others by iconv(3), which
// gets only names of this table.

#include "charset.h"

#include <ctype.h>
#include <errno.h>
#include <iconv.h>
#include <string.h>

enum { MAX_NAME = 32, REPLACEMENT = 0xfffd };

const struct charset charset_utf_8 = {"utf-8", " utf8 u8 utf8sig ascii usascii ", NULL};
const struct charset charset_windows_1252 = {
    "windows-1252", " windows1252 cp1252 1252 latin1 iso88591 l1 ansi ", NULL};
static const struct charset utf_16le = {"utf-16le", " utf16le utf16 ucs2 unicode ", NULL};
static const struct charset utf_16be = {"utf-16be", " utf16be ", NULL};

static const struct charset others[] = {
    {"gb18030", " gb18030 gbk gb2312 cp936 936 euccn ", "GB18030"},
    {"big5", " big5 cp950 950 big5hkscs ", "BIG5-HKSCS"},
    {"shift_jis", " shiftjis sjis cp932 932 windows31j mskanji ", "CP932"},
    {"euc-jp", " eucjp ", "EUC-JP"},
    {"euc-kr", " euckr cp949 949 uhc ksc5601 windows949 ", "CP949"},
    {"iso-8859-2", " iso88592 latin2 l2 ", "ISO-8859-2"},
    {"iso-8859-7", " iso88597 greek ", "ISO-8859-7"},
    {"iso-8859-9", " iso88599 latin5 l5 ", "ISO-8859-9"},
    {"iso-8859-15", " iso885915 latin9 l9 ", "ISO-8859-15"},
    {"koi8-r", " koi8r ", "KOI8-R"},
    {"mac-roman", " macroman macintosh mac ", "MACINTOSH"},
    {"tis-620", " tis620 cp874 874 windows874 iso885911 ", "CP874"},
    {"windows-1250", " windows1250 cp1250 1250 ", "CP1250"},
    {"windows-1251", " windows1251 cp1251 1251 ", "CP1251"},
    {"windows-1253", " windows1253 cp1253 1253 ", "CP1253"},
    {"windows-1254", " windows1254 cp1254 1254 ", "CP1254"},
    {"windows-1255", " windows1255 cp1255 1255 ", "CP1255"},
    {"windows-1256", " windows1256 cp1256 1256 ", "CP1256"},
};

// ---- Names ----------------------------------------------------------------------------------

static const struct charset *
charset_at(size_t i)
{
    static const struct charset *const own[] = {&charset_utf_8, &utf_16le, &utf_16be,
                                                &charset_windows_1252};
    if (i < KG_ARRAY_LEN(own))
        return own[i];
    i -= KG_ARRAY_LEN(own);
    return i < KG_ARRAY_LEN(others) ? &others[i] : NULL;
}

const struct charset *
charset_find(const char *name)
{
    char bare[MAX_NAME + 3] = " "; // small letters and digits between blanks
    size_t n = 1;
    for (; *name && n <= MAX_NAME; name++) {
        if (isalnum((unsigned char)*name))
            bare[n++] = (char)tolower((unsigned char)*name);
    }
    bare[n] = ' ';
    const struct charset *charset;
    for (size_t i = 0; n > 1 && !*name && (charset = charset_at(i)); i++) {
        if (strstr(charset->spellings, bare))
            return charset;
    }
    return NULL;
}

char *
charset_names(void)
{
    KG_AUTO_BUF names = {0};
    const struct charset *charset;
    for (size_t i = 0; (charset = charset_at(i)); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", charset->name);
    return buf_take(&names);
}

const struct charset *
charset_of_mark(const char *data, size_t len, size_t *ret_mark_len)
{
    *ret_mark_len = 2;
    if (len >= 2 && memcmp(data, "\xff\xfe", 2) == 0)
        return &utf_16le;
    if (len >= 2 && memcmp(data, "\xfe\xff", 2) == 0)
        return &utf_16be;
    *ret_mark_len = 3;
    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
        return &charset_utf_8;
    *ret_mark_len = 0;
    return NULL;
}

// ---- windows-1252 ---------------------------------------------------------------------------

// Of the bytes 0x80 to 0x9f; 0: there is none.
static const unsigned short high_1252[32] = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178,
};

static unsigned
code_1252(unsigned char byte)
{
    unsigned code = byte >= 0x80 && byte < 0xa0 ? high_1252[byte - 0x80] : byte;
    return code ? code : REPLACEMENT;
}

bool
charset_may_be_windows_1252(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)data[i];
        bool is_space = byte >= '\b' && byte <= '\r';
        if (code_1252(byte) == REPLACEMENT || byte == 0x7f ||
            (byte < 0x20 && !is_space && byte != '\x1b'))
            return false;
    }
    return true;
}

// ---- Decoding -------------------------------------------------------------------------------

static void
put(struct buf *ret, unsigned code)
{
    char text[4];
    buf_append(ret, text, utf8_put(code, text));
}

static size_t
decode_windows_1252(const char *data, size_t len, struct buf *ret)
{
    for (size_t i = 0; i < len; i++)
        put(ret, code_1252((unsigned char)data[i]));
    return len;
}

static unsigned
utf_16_unit(const char *data, bool big)
{
    unsigned first = (unsigned char)data[0], second = (unsigned char)data[1];
    return big ? first << 8 | second : second << 8 | first;
}

static size_t
decode_utf_16(const char *data, size_t len, bool big, bool last, struct buf *ret)
{
    size_t i = 0;
    while (i + 2 <= len) {
        unsigned unit = utf_16_unit(data + i, big);
        bool is_high = unit >= 0xd800 && unit < 0xdc00;
        if (is_high && i + 4 > len && !last)
            break;
        unsigned next = is_high && i + 4 <= len ? utf_16_unit(data + i + 2, big) : 0;
        bool is_pair = next >= 0xdc00 && next < 0xe000;
        if (is_pair)
            put(ret, 0x10000 + ((unit - 0xd800) << 10) + (next - 0xdc00));
        else
            put(ret, unit >= 0xd800 && unit < 0xe000 ? REPLACEMENT : unit);
        i += is_pair ? 4 : 2;
    }
    if (last && i < len) {
        put(ret, REPLACEMENT);
        i = len;
    }
    return i;
}

// Where iconv(3) has stopped: it goes on behind what is not valid. False: the rest waits for more.
static bool
pass_over(char **in, size_t *in_len, int error, bool last, struct buf *ret)
{
    if (error == E2BIG)
        return true;
    if (error == EINVAL && !last)
        return false;
    put(ret, REPLACEMENT);
    *in += 1;
    *in_len -= 1;
    return true;
}

// gcc's analyzer takes (iconv_t)-1 for a converter that was opened, and never closed.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static int64_t
decode_by_iconv(const struct charset *charset, const char *data, size_t len, bool last,
                struct buf *ret, struct kg_error *err)
{
    iconv_t converter = iconv_open("UTF-8", charset->converter);
    if (converter == (iconv_t)-1) // NOLINT: how iconv(3) says it
        return kg_error_set(err, KG_INVALID, 0,
                            "encoding %s cannot be read on this gateway: read the file with code, "
                            "open(path, encoding=\"%s\")",
                            charset->name, charset->name);
    char *in = (char *)(uintptr_t)data;
    size_t in_len = len;
    bool goes_on = true;
    while (in_len > 0 && goes_on) {
        char chunk[1024], *out = chunk;
        size_t out_len = sizeof chunk;
        size_t n = iconv(converter, &in, &in_len, &out, &out_len);
        int error = n == (size_t)-1 ? errno : 0;
        buf_append(ret, chunk, (size_t)(out - chunk));
        goes_on = !error || pass_over(&in, &in_len, error, last, ret);
    }
    char chunk[64], *out = chunk;
    size_t out_len = sizeof chunk;
    (void)iconv(converter, NULL, NULL, &out, &out_len); // a letter that waited for an accent
    buf_append(ret, chunk, (size_t)(out - chunk));
    iconv_close(converter);
    return (int64_t)(len - in_len);
}

bool
charset_has_marks(const struct charset *charset)
{
    return charset == &charset_utf_8 || charset == &utf_16le || charset == &utf_16be;
}

int64_t
charset_unit(const struct charset *charset)
{
    return charset == &utf_16le || charset == &utf_16be ? 2 : 1;
}

static int64_t
decode(const struct charset *charset, const char *data, size_t len, bool last, struct buf *ret,
       struct kg_error *err)
{
    if (charset->converter)
        return decode_by_iconv(charset, data, len, last, ret, err);
    if (charset == &charset_windows_1252)
        return (int64_t)decode_windows_1252(data, len, ret);
    if (charset == &charset_utf_8)
        return (int64_t)(len - utf8_append(ret, data, len, last));
    return (int64_t)decode_utf_16(data, len, charset == &utf_16be, last, ret);
}

int64_t
charset_decode(const struct charset *charset, const char *data, size_t len, bool last,
               struct buf *ret, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    int64_t n = decode(charset, data, len, last, &text, err);
    for (size_t i = 0, n_good; i < text.len; i += n_good + 1) {
        n_good = strnlen(text.data + i, text.len - i);
        buf_append(ret, text.data + i, n_good);
        if (i + n_good < text.len)
            put(ret, REPLACEMENT);
    }
    return n;
}
