// SPDX-License-Identifier: Apache-2.0
// The first line of a link, as the agent reads it.
#include "target.h"

#include <stdlib.h>
#include <string.h>

#include "rpc.h"

static const char *const channel_names[TARGET_SAVEPOINT + 1] = {
    [TARGET_RPC] = RPC_TARGET, [TARGET_SHELL] = "shell",     [TARGET_IOPUB] = "iopub",
    [TARGET_STDIN] = "stdin",  [TARGET_CONTROL] = "control", [TARGET_HB] = "hb",
    [TARGET_SAVEPOINT] = "savepoint",
};

const char *
target_channel_name(enum target_channel channel)
{
    return channel_names[channel];
}

bool
target_kernel_name_valid(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= TARGET_NAME_MAX && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

static int
parse_channel(const char *name, struct target *ret)
{
    for (enum target_channel c = TARGET_SHELL; c <= TARGET_SAVEPOINT; c++) {
        if (strcmp(name, channel_names[c]) == 0) {
            ret->channel = c;
            return 0;
        }
    }
    return -1;
}

// False: it names no port. A kernel may be called "port": its channels are not numbers.
static bool
parse_port(const char *text, struct target *ret)
{
    static const char prefix[] = "port/";
    enum { DIGITS_MAX = 5, PORT_MAX = 65535 };
    const char *digits = text + strlen(prefix);

    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return false;
    size_t len = strspn(digits, "0123456789");
    if (len == 0 || len > DIGITS_MAX || digits[len] || digits[0] == '0' || atoi(digits) > PORT_MAX)
        return false;
    *ret = (struct target){.channel = TARGET_PORT, .port = atoi(digits)};
    return true;
}

int
target_parse(const char *line, size_t len, struct target *ret, struct kg_error *err)
{
    char text[TARGET_LINE_MAX + 1];

    if (len > TARGET_LINE_MAX || memchr(line, '\0', len))
        return kg_error_set(err, KG_INVALID, 0, "bad target");
    memcpy(text, line, len);
    text[len] = '\0';
    *ret = (struct target){.channel = TARGET_RPC};
    if (strcmp(text, channel_names[TARGET_RPC]) == 0)
        return 0;
    if (parse_port(text, ret))
        return 0;
    char *slash = strchr(text, '/');
    if (!slash)
        return kg_error_set(err, KG_INVALID, 0, "bad target");
    *slash = '\0';
    if (!target_kernel_name_valid(text) || parse_channel(slash + 1, ret) != 0)
        return kg_error_set(err, KG_INVALID, 0, "bad target");
    memcpy(ret->kernel, text, strlen(text) + 1);
    return 0;
}
