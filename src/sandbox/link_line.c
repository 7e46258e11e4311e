// SPDX-License-Identifier: Apache-2.0
// The lines of the link protocol.
#include "link_line.h"

#include <string.h>

enum link_hello
link_hello_check(const char *data, size_t len)
{
    static const struct {
        const char *text;
        enum link_hello done;
    } hellos[] = {{LINK_HELLO, LINK_HELLO_DONE},
                  {LINK_HELLO_DIAL, LINK_HELLO_DIAL_DONE},
                  {LINK_HELLO_TOOLS, LINK_HELLO_TOOLS_DONE}};
    for (size_t i = 0; len <= LINK_HELLO_LEN && i < KG_ARRAY_LEN(hellos); i++) {
        if (memcmp(data, hellos[i].text, len) == 0)
            return len == LINK_HELLO_LEN ? hellos[i].done : LINK_HELLO_MORE;
    }
    return LINK_HELLO_BAD;
}

bool
link_target_valid(const char *target)
{
    size_t len = strlen(target);

    for (size_t i = 0; i < len; i++) {
        if (target[i] <= ' ' || target[i] >= 0x7f)
            return false;
    }
    return len >= 1 && len <= LINK_TARGET_MAX;
}

// By what the text begins with, as the agent's links.c writes it.
static void
set_refusal(const char *text, struct kg_error *err)
{
    static const struct {
        const char *prefix;
        enum kg_code code;
        bool drops; // the prefix is not part of the message
    } kinds[] = {{"not found", KG_NOT_FOUND, false},
                 {"closed: ", KG_PORT_CLOSED, true},
                 {"timeout: ", KG_PORT_TIMEOUT, true},
                 {"forbidden: ", KG_PORT_FORBIDDEN, true}};
    for (size_t i = 0; i < KG_ARRAY_LEN(kinds); i++) {
        size_t len = strlen(kinds[i].prefix);
        if (strncmp(text, kinds[i].prefix, len) != 0)
            continue;
        (void)kg_error_set(err, kinds[i].code, 0, "%s", text + (kinds[i].drops ? len : 0));
        return;
    }
    (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s", text);
}

enum link_answer
link_answer_parse(const char *line, size_t len, struct kg_error *err)
{
    static const char refused[] = "ERR ";
    static const char overtaken[] = "overtaken";
    enum { REFUSED_LEN = sizeof refused - 1 };
    char text[160];

    if (len == 2 && memcmp(line, "OK", 2) == 0)
        return LINK_ANSWER_OK;
    if (len < REFUSED_LEN || memcmp(line, refused, REFUSED_LEN) != 0) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent's answer is malformed");
        return LINK_ANSWER_REFUSED;
    }
    utf8_printable(line + REFUSED_LEN, len - REFUSED_LEN, text, sizeof text);
    set_refusal(text, err);
    return strncmp(text, overtaken, strlen(overtaken)) == 0 ? LINK_ANSWER_OVERTAKEN
                                                            : LINK_ANSWER_REFUSED;
}
