// SPDX-License-Identifier: Apache-2.0
// Reads /proc/net/tcp and tcp6, which show the network namespace of the agent.
#include "port_list.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { LISTENING = 10, LINE_SIZE = 512 };

// Four bytes of an address are one number in the machine's order.
static bool
parse_address(const char *hex, bool is_v6, char *ret, size_t size)
{
    uint32_t words[4] = {0};
    const size_t n = is_v6 ? 4 : 1;

    if (strspn(hex, "0123456789ABCDEFabcdef") != 8 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char digits[9] = {0};
        memcpy(digits, hex + 8 * i, 8);
        words[i] = (uint32_t)strtoul(digits, NULL, 16);
    }
    return inet_ntop(is_v6 ? AF_INET6 : AF_INET, words, ret, (socklen_t)size) != NULL;
}

// In the order of the ports. A port that several processes share is listed once.
static void
add(json_t *list, int port, const char *address)
{
    size_t at = 0;
    for (; at < json_array_size(list); at++) {
        const json_t *entry = json_array_get(list, at);
        json_int_t other = json_integer_value(json_object_get(entry, "port"));
        if (other > port)
            break;
        if (other == port &&
            strcmp(json_string_value(json_object_get(entry, "address")), address) == 0)
            return;
    }
    json_array_insert_new(list, at, json_pack("{s:i, s:s}", "port", port, "address", address));
}

void
port_list_read(json_t *list, FILE *file, bool is_v6, port_hidden_fn hidden, void *arg)
{
    char line[LINE_SIZE], local[64], address[INET6_ADDRSTRLEN];
    unsigned port, state;

    while (json_array_size(list) < PORT_LIST_MAX && fgets(line, sizeof line, file)) {
        if (sscanf(line, " %*u: %40[0-9A-Fa-f]:%4X %*40[0-9A-Fa-f]:%*4X %2X", local, &port,
                   &state) != 3 ||
            state != LISTENING || port == 0 || hidden((int)port, arg) ||
            !parse_address(local, is_v6, address, sizeof address))
            continue;
        add(list, (int)port, address);
    }
}

json_t *
port_list(port_hidden_fn hidden, void *arg)
{
    static const char *const paths[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    json_t *list = json_array();

    for (size_t i = 0; i < KG_ARRAY_LEN(paths); i++) {
        FILE *file = fopen(paths[i], "re");
        if (!file)
            continue; // a machine without IPv6
        port_list_read(list, file, i == 1, hidden, arg);
        fclose(file);
    }
    return list;
}
