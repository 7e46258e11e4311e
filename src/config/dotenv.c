// SPDX-License-Identifier: Apache-2.0
// The file .env: one NAME=value a line.

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "config_priv.h"

enum { MAX_BYTES = 1 << 20 };

struct line {
    char *name, *value; // NULL: there is none
    char open;          // the quote that the value begins with and does not end with, or NUL
    const char *wrong;  // or NULL
};

static bool
is_name(const char *name)
{
    static const char others[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return *name && !isdigit((unsigned char)*name) && name[strspn(name, others)] == '\0';
}

static void
strip_end(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
}

static void
take_value(char *value, struct line *ret)
{
    value += strspn(value, " \t");
    size_t len = strlen(value);
    bool quoted = *value == '"' || *value == '\'';
    if (quoted && len >= 2 && value[len - 1] == *value) {
        value[len - 1] = '\0';
        value++;
    } else if (quoted) {
        ret->wrong = strchr(value + 1, *value) ? "there is text after the closing quote"
                                               : "the quote is not closed";
        ret->open = *value;
    }
    ret->value = value;
}

// Takes a line apart, in place.
static struct line
split_line(char *text)
{
    static const char export[] = "export";
    struct line line = {0};
    text += strspn(text, " \t");
    strip_end(text);
    if (!*text || *text == '#')
        return line;
    if (strncmp(text, export, strlen(export)) == 0 && isblank((unsigned char)text[strlen(export)]))
        text += strlen(export) + strspn(text + strlen(export), " \t");
    char *equals = strchr(text, '=');
    if (!equals) {
        line.wrong = "there is no \"=\" in it";
        return line;
    }
    *equals = '\0';
    strip_end(text);
    if (!is_name(text)) {
        line.wrong = "what is before \"=\" is not the name of a variable";
        return line;
    }
    line.name = text;
    take_value(equals + 1, &line);
    return line;
}

// ---- The file -------------------------------------------------------------------------------

static bool
ends_with(const char *line, size_t len, char quote)
{
    while (len > 0 && isspace((unsigned char)line[len - 1]))
        len--;
    return len > 0 && line[len - 1] == quote;
}

// The number of lines from the beginning of `rest` to the one that ends with the quote; 0: none
// does.
static size_t
lines_until(const char *rest, char quote)
{
    for (size_t n = 1; rest; n++) {
        size_t len = strcspn(rest, "\n");
        if (ends_with(rest, len, quote))
            return n;
        rest = rest[len] ? rest + len + 1 : NULL;
    }
    return 0;
}

static int
check(const char *path, const char *contents, struct kg_error *err)
{
    KG_AUTO_FREE char *text = kg_strdup(contents);
    char *rest = text;
    size_t quoted = 0; // lines that are part of another program's value
    int number = 1;
    for (char *each; (each = strsep(&rest, "\n")); number++) {
        struct line line = split_line(each);
        bool is_ours = line.name && names_is_known(line.name);
        if (quoted > 0 && !is_ours) {
            quoted--;
            continue;
        }
        if (line.open && !is_ours)
            quoted = rest ? lines_until(rest, line.open) : 0;
        else if (line.wrong)
            return kg_error_set(
                err, KG_INVALID, 0,
                "%s, line %d: %s; a line is NAME=value or NAME=\"value\", or starts "
                "with #",
                path, number, line.wrong);
        else
            quoted -= quoted > 0;
    }
    return 0;
}

int
dotenv_read(const char *path, struct buf *ret, struct kg_error *err)
{
    static const char mark[] = "\xef\xbb\xbf"; // of UTF-8, as some editors write it
    struct stat st;
    if (stat(path, &st) < 0 || S_ISDIR(st.st_mode)) // a folder is somebody else's
        return 0;
    KG_AUTO_BUF text = {0};
    buf_append_str(&text, "");
    if (file_read(path, MAX_BYTES, &text, err) < 0)
        return -1;
    if (strlen(text.data) != text.len)
        return kg_error_set(err, KG_INVALID, 0, "%s has a NUL byte: save it as UTF-8", path);
    bool marked = strncmp(text.data, mark, strlen(mark)) == 0;
    buf_append_str(ret, text.data + (marked ? strlen(mark) : 0));
    return check(path, ret->data, err);
}

char *
dotenv_get(const char *contents, const char *name)
{
    KG_AUTO_FREE char *text = kg_strdup(contents);
    char *found = NULL;
    char *rest = text;
    for (char *each; (each = strsep(&rest, "\n"));) {
        struct line line = split_line(each);
        if (line.name && strcmp(line.name, name) == 0 && *line.value) {
            free(found);
            found = kg_strdup(line.value);
        }
    }
    return found;
}

void
dotenv_each(const char *contents, void (*fn)(const char *name, const char *value, void *arg),
            void *arg)
{
    KG_AUTO_FREE char *text = kg_strdup(contents);
    char *rest = text;
    for (char *each; (each = strsep(&rest, "\n"));) {
        struct line line = split_line(each);
        if (line.name)
            fn(line.name, line.value, arg);
    }
}
