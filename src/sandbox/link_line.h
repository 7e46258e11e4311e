// SPDX-License-Identifier: Apache-2.0
// Parsers of the first lines on a link. They are untrusted: the other side may be the tenant.
#pragma once

#include "base.h"

#define LINK_HELLO "KGLINK 1\n"
#define LINK_HELLO_DIAL "KGDIAL 1\n" // all are as long as the first
#define LINK_HELLO_TOOLS "KGTOOL 1\n"
enum { LINK_HELLO_LEN = sizeof LINK_HELLO - 1, LINK_TARGET_MAX = 128, LINK_ANSWER_MAX = 256 };

enum link_hello {
    LINK_HELLO_BAD,
    LINK_HELLO_MORE,
    LINK_HELLO_DONE,       // an idle link
    LINK_HELLO_DIAL_DONE,  // a connection out of the sandbox; the sandbox sends next
    LINK_HELLO_TOOLS_DONE, // code that calls tools (tool_link.h); the same
};

// Classifies the first bytes of a link.
enum link_hello link_hello_check(const char *data, size_t len);
// Whether `target` can be asked for: printable, 1 to LINK_TARGET_MAX characters, no space.
bool link_target_valid(const char *target);
// The agent's answer to the target of a link.
enum link_answer {
    LINK_ANSWER_OK,
    LINK_ANSWER_REFUSED,
    LINK_ANSWER_OVERTAKEN, // over TCP: a gateway with a higher epoch holds the sandbox
};

// Parses the agent's answer (without its newline). An answer other than OK sets `err`, which quotes
// the agent's text as far as it is printable.
KG_MUST_CHECK enum link_answer link_answer_parse(const char *line, size_t len,
                                                 struct kg_error *err);
