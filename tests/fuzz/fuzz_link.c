// SPDX-License-Identifier: Apache-2.0
// Link lines, as the gateway reads them (hello, answer) and as the agent does (target).
#include <assert.h>
#include <string.h>

#include "link_line.h"
#include "rpc.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_printable(const char *text)
{
    for (; *text; text++)
        assert((unsigned char)*text >= ' ' && *text != 0x7f);
}

// The line that asks for `target`.
static char *
target_line(const struct target *target)
{
    if (target->channel == TARGET_RPC)
        return kg_strdup(RPC_TARGET);
    if (target->channel == TARGET_PORT)
        return kg_asprintf("port/%d", target->port);
    assert(target_kernel_name_valid(target->kernel)); // a savepoint has one, too
    return kg_asprintf("%s/%s", target->kernel, target_channel_name(target->channel));
}

static void
check_target(const char *line, size_t len)
{
    struct target target;
    struct kg_error err = {0};

    if (target_parse(line, len, &target, &err) != 0) {
        assert(err.code == KG_INVALID);
        return;
    }
    // What the agent accepts reads the same when written again, and the gateway can ask for it.
    KG_AUTO_FREE char *again = target_line(&target);
    assert(strlen(again) == len && memcmp(again, line, len) == 0);
    assert(link_target_valid(again));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct kg_error err = {0};

    enum link_hello hello = link_hello_check(text, size);
    bool whole = size == LINK_HELLO_LEN;
    assert((hello == LINK_HELLO_DONE) == (whole && memcmp(text, LINK_HELLO, size) == 0));
    assert((hello == LINK_HELLO_DIAL_DONE) == (whole && memcmp(text, LINK_HELLO_DIAL, size) == 0));
    if (link_answer_parse(text, size, &err) != LINK_ANSWER_OK) {
        assert(err.code == KG_NOT_FOUND || err.code == KG_PROVISIONER_UNAVAILABLE ||
               err.code == KG_PORT_CLOSED || err.code == KG_PORT_TIMEOUT ||
               err.code == KG_PORT_FORBIDDEN);
        check_printable(err.message);
    }
    check_target(text, size);
    return 0;
}
