// SPDX-License-Identifier: Apache-2.0
// Links to ports, and the list of what listens.
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "port_list.h"
#include "target.h"
#include "test_agent.h"

// Listens on loopback of one family.
static int
listen_on(int family, int *ret_port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    bool is_v6 = family == AF_INET6;
    struct sockaddr *addr = is_v6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t len = is_v6 ? sizeof six : sizeof four;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, addr, len), 0);
    assert_int_equal(listen(fd, 20), 0);
    assert_int_equal(getsockname(fd, addr, &len), 0);
    *ret_port = ntohs(is_v6 ? six.sin6_port : four.sin_port);
    return fd;
}

static int
open_port(struct fixture *f, int port, char answer[128])
{
    char target[32];
    snprintf(target, sizeof target, "port/%d", port);
    return open_target(f, target, answer);
}

void
test_port_targets(void **state)
{
    static const char *const bad[] = {"port/0",     "port/65536", "port/",      "port/1x",
                                      "port/00080", "port/-1",    "port/80/hb", "port/123456"};
    struct target target;
    struct kg_error err;
    (void)state;
    assert_int_equal(target_parse("port/8501", 9, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_PORT);
    assert_int_equal(target.port, 8501);
    assert_int_equal(target_parse("port/65535", 10, &target, &err), 0);
    assert_int_equal(target_parse("port/hb", 7, &target, &err), 0); // of a kernel of that name
    assert_int_equal(target.channel, TARGET_HB);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(target_parse(bad[i], strlen(bad[i]), &target, &err), -1);
}

void
test_port_links(void **state)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct fixture *f = *state;
    char answer[128], line[128];
    for (size_t i = 0; i < KG_ARRAY_LEN(families); i++) {
        int port;
        KG_AUTO_FD listener = listen_on(families[i], &port);
        KG_AUTO_FD link = open_port(f, port, answer);
        KG_AUTO_FD server = accept(listener, NULL, NULL);
        assert_true(link >= 0 && server >= 0);
        assert_int_equal(write(link, "ask\n", 4), 4);
        read_line(server, line, sizeof line);
        assert_string_equal(line, "ask");
        // Each side may end first, and still gets the rest.
        assert_int_equal(shutdown(link, SHUT_WR), 0);
        assert_int_equal(read(server, line, sizeof line), 0);
        assert_int_equal(write(server, "answer\n", 7), 7);
        close(KG_STEAL_FD(server));
        read_line(link, line, sizeof line);
        assert_string_equal(line, "answer");
    }
}

void
test_port_refused(void **state)
{
    struct fixture *f = *state;
    char answer[128], expected[128];
    int port = agent_free_port();
    assert_int_equal(open_port(f, port, answer), -1);
    snprintf(expected, sizeof expected, "ERR closed: nothing listens on port %d", port);
    assert_string_equal(answer, expected);
}

// Nobody accepts, and the queue is full.
void
test_port_silent(void **state)
{
    enum { MOST = 8 };
    struct fixture *f = *state;
    char target[32], answer[128];
    int port, fillers[MOST];
    KG_AUTO_FD listener = listen_on(AF_INET, &port);
    assert_int_equal(listen(listener, 0), 0);
    for (int i = 0; i < MOST; i++)
        fillers[i] = agent_dial(port);
    KG_AUTO_FD link = accept_link(f);
    KG_AUTO_FD left = accept_link(f);
    snprintf(target, sizeof target, "port/%d\n", port);
    assert_int_equal(write(link, target, strlen(target)), strlen(target));
    assert_int_equal(write(left, target, strlen(target)), strlen(target));
    close(KG_STEAL_FD(left)); // while it waits
    do_call(f, "info", "{}", KG_OK);
    agent_clock_advance(&f->place, 11 * 1000);
    read_line(link, answer, sizeof answer);
    assert_int_equal(strncmp(answer, "ERR timeout: ", 13), 0);
    for (int i = 0; i < MOST; i++)
        close(fillers[i]);
}

static bool
lists(struct fixture *f, int port, const char *address)
{
    size_t i;
    const json_t *entry;
    json_auto_t *result = call(f, "ports.list", "{}", KG_OK);
    json_array_foreach(json_object_get(result, "ports"), i, entry) {
        if (number_of(entry, "port") == port && strcmp(text_of(entry, "address"), address) == 0)
            return true;
    }
    return false;
}

void
test_port_call(void **state)
{
    struct fixture *f = *state;
    char answer[128];
    int four, six;
    KG_AUTO_FD listener = listen_on(AF_INET, &four);
    KG_AUTO_FD other = listen_on(AF_INET6, &six);
    assert_true(lists(f, four, "127.0.0.1"));
    assert_true(lists(f, six, "::1"));
    close(KG_STEAL_FD(listener));
    assert_false(lists(f, four, "127.0.0.1"));
    // A kernel's ports are not the tenant's.
    start_kernel(f, "deno", "echo", "tcp");
    close(open_kernel(f, "deno/shell"));
    KG_AUTO_FREE char *pattern = kg_asprintf("cat %s/.kg-deno-*/connection.json", f->place.tmp);
    FILE *file = popen(pattern, "r");
    json_auto_t *connection = json_loadf(file, 0, NULL);
    pclose(file);
    int port = number_of(connection, "shell_port");
    assert_true(port > 0);
    assert_false(lists(f, port, "127.0.0.1"));
    assert_int_equal(open_port(f, port, answer), -1);
    assert_int_equal(strncmp(answer, "ERR forbidden: ", 15), 0);
}

static bool
hide_80(int port, void *arg)
{
    (void)arg;
    return port == 80;
}

void
test_port_list(void **state)
{
    static const char text[] =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:2135 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n"
        "   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n"
        "   2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n"
        "   3: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n"
        "   4: 0100007F:C350 0100007F:2135 01 00000000:00000000 00:00000000 00000000  1000\n"
        "  66: garbage\n"
        "  67: 01:2222 00000000:0000 0A\n";
    static const char six[] =
        " 0: 00000000000000000000000001000000:1538 00000000000000000000000000000000:0000 0A 0\n"
        " 1: 00000000000000000000000000000000:2135 00000000000000000000000000000000:0000 0A 0\n";
    json_auto_t *list = json_array();
    (void)state;
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    port_list_read(list, file, false, hide_80, NULL);
    fclose(file);
    file = fmemopen((void *)(uintptr_t)six, strlen(six), "r");
    port_list_read(list, file, true, hide_80, NULL);
    fclose(file);
    KG_AUTO_FREE char *found = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(found, "[{\"address\":\"::1\",\"port\":5432},"
                               "{\"address\":\"0.0.0.0\",\"port\":8080},"
                               "{\"address\":\"127.0.0.1\",\"port\":8501},"
                               "{\"address\":\"::\",\"port\":8501}]");
}
