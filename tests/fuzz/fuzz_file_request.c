// SPDX-License-Identifier: Apache-2.0
// What a client says about a file: its path, Range, If-None-Match, the query of a link. The first
// byte says which of them follows.
#include <assert.h>
#include <string.h>

#include "file_links.h"
#include "http.h"
#include "range.h"
#include "session_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_path(const char *path)
{
    struct kg_error err = {0};
    if (file_path_check(path, true, &err) < 0) {
        assert(err.code == KG_INVALID_PATH && err.message[0]);
        return;
    }
    KG_AUTO_FREE char *framed = kg_asprintf("/%s/", path);
    assert(strlen(path) <= FILE_PATH_MAX);
    assert(!strstr(framed, "//") && !strstr(framed, "/./") && !strstr(framed, "/../"));
    assert(!strstr(framed, "/" FILE_OWN_PREFIX) && !strpbrk(path, "\n\r\t\x7f"));
    assert(file_path_check(path, false, &err) == 0);
    assert(file_any_path_check(path, true, &err) == 0);
    KG_AUTO_FREE char *whole = kg_asprintf("/%s", path);
    bool is_reserved = strncmp(framed, "/proc/", 6) == 0 || strncmp(framed, "/sys/", 5) == 0 ||
                       strncmp(framed, "/run/kg/", 8) == 0 ||
                       strncmp(framed, "/run/kg-agent/", 14) == 0;
    assert((file_any_path_check(whole, true, &err) == 0) == !is_reserved);
}

static void
check_range(const char *text)
{
    struct session_file_range range = SESSION_FILE_WHOLE;
    if (!range_parse(text, &range))
        return;
    assert(range.first >= -1 && range.last >= -1);
    assert(range.first >= 0 ? range.last == -1 || range.last >= range.first : range.last >= 0);
    assert(strchr(text, '-') && !strchr(text, ','));
}

static void
check_etags(const char *list)
{
    static const char etag[] = "\"1f-8-18b2\"";
    if (http_etag_list_has(list, etag))
        assert(strstr(list, etag) || strchr(list, '*'));
}

// Whatever a query says, it is not our signature; ours passes with the path that it is for.
static void
check_link(char *text)
{
    static struct file_links *links;
    if (!links) {
        char dir[] = "/tmp/kg-fuzz-XXXXXX";
        char *made = mkdtemp(dir);
        assert(made);
        links = file_links_new(dir, NULL);
        int failed = path_remove_tree(dir, NULL);
        assert(links && failed == 0);
    }
    char *signature = strchr(text, '\n');
    if (!signature)
        return;
    *signature++ = '\0';
    assert(!file_links_check(links, "owner", "session", "path", text, signature));
    KG_AUTO_FREE char *url = file_links_make(links, "owner", "session", text);
    char *expires = strstr(url, "&expires=");
    char *ours = strstr(url, "&signature=");
    assert(expires && ours);
    *ours = '\0';
    assert(file_links_check(links, "owner", "session", text, expires + strlen("&expires="),
                            ours + strlen("&signature=")));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    KG_AUTO_FREE char *text = kg_strndup((const char *)data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        check_path(text);
        break;
    case 1:
        check_range(text);
        break;
    case 2:
        check_etags(text);
        break;
    default:
        check_link(text);
    }
    return 0;
}
