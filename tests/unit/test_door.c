// SPDX-License-Identifier: Apache-2.0
// Both kinds of door against what is not an agent, and the agent's side of the TCP door against
// what is not a gateway.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_process.h"
#include "door.h"
#include "link_hello.h"
#include "rpc.h"
#include "virtual_clock.h"

static const char sandbox[] = "abcdefghij";

struct fixture {
    struct loop *loop;
    struct agent_place place;
    struct door *door;
    struct link_key key;
    uint64_t epoch;
    int port;
    pid_t agent;
    int n_links, n_failed;
    int link; // the last one
    struct kg_error err;
    int out; // the last connection out
    int n_overtaken;
    int n_tools; // connections of code that calls tools
};

static int
setup(void **state)
{
    static const unsigned char seed[LINK_KEY_LEN] = {7};
    struct fixture *f = KG_NEW(struct fixture);

    f->loop = loop_new();
    agent_place_make(&f->place);
    link_key_from_seed(seed, &f->key);
    f->epoch = 1;
    f->link = f->out = -1;
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    door_free(f->door);
    if (f->agent)
        (void)agent_process_end(f->agent, SIGKILL);
    if (f->link >= 0)
        close(f->link);
    if (f->out >= 0)
        close(f->out);
    loop_free(f->loop);
    agent_place_remove(&f->place);
    free(f);
    return 0;
}

static void
on_link(int fd, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;

    if (fd < 0) {
        f->n_failed++;
        f->err = *err;
        return;
    }
    if (f->link >= 0)
        close(f->link);
    f->link = fd;
    f->n_links++;
}

static void
on_way_out(int fd, void *arg)
{
    struct fixture *f = arg;
    f->out = fd;
}

static void
on_tools(int fd, void *arg)
{
    struct fixture *f = arg;
    f->n_tools++;
    close(fd);
}

static void
on_overtaken(void *arg)
{
    struct fixture *f = arg;
    f->n_overtaken++;
    door_free(KG_STEAL(f->door));
}

// Whether the other side has closed: what it sent before is read away.
static bool
is_closed(int fd)
{
    char bytes[256];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

static size_t
count_open(const int *fds, size_t n)
{
    size_t n_open = 0;
    for (size_t i = 0; i < n; i++)
        n_open += !is_closed(fds[i]);
    return n_open;
}

static void
close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static struct door_call *
open_link(struct fixture *f, const char *target)
{
    return door_open(f->door, target, PATIENCE_MS, on_link, f);
}

// ---- The agent dials ------------------------------------------------------------------------

static char *
open_unix(struct fixture *f, bool way_out)
{
    const struct door_events events = {.on_way_out = way_out ? on_way_out : NULL,
                                       .on_tools = on_tools,
                                       .on_overtaken = on_overtaken,
                                       .arg = f};
    struct kg_error err;
    char *path = kg_asprintf("%s/door", f->place.dir);

    f->door = door_unix_new(f->loop, path, &events, &err);
    assert_non_null(f->door);
    return path;
}

static int
dial(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) == 0)
        return fd;
    assert_int_equal(errno, EAGAIN);
    close(fd);
    return -1;
}

static void
test_unix(void **state)
{
    struct fixture *f = *state;
    const struct door_events events = {.on_overtaken = on_overtaken, .arg = f};
    struct kg_error err;
    char text[16] = {0};

    KG_AUTO_FREE char *path = open_unix(f, false);
    KG_AUTO_FD good = dial(path), wrong = dial(path), chatty = dial(path);
    assert_int_equal(write(wrong, "GET / HTTP/1.1\r\n", 16), 16);
    assert_int_equal(write(good, "KGLI", 4), 4);
    assert_int_equal(write(chatty, "KGLINK 1\n!", 10), 10); // nobody asked
    LET_TIME_RUN_UNTIL(f, is_closed(wrong) && is_closed(chatty));
    (void)open_link(f, "agent");
    assert_int_equal(write(good, "NK 1\n", 5), 5);
    LET_TIME_RUN_UNTIL(f, read(good, text, sizeof text) == 6);
    assert_string_equal(text, "agent\n");
    assert_int_equal(write(good, "OK\nx", 4), 4);
    LET_TIME_RUN_UNTIL(f, f->n_links == 1);
    assert_int_equal(read(f->link, text, sizeof text), 1);

    // One that says nothing is closed after a while.
    KG_AUTO_FD silent = dial(path);
    virtual_clock_advance(f->loop, 1999);
    assert_false(is_closed(silent));
    virtual_clock_advance(f->loop, 1);
    assert_true(is_closed(silent));

    // A path may be longer than an address.
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%0110d", f->place.dir, 1);
    KG_AUTO_FREE char *long_path = kg_asprintf("%s/door", folder);
    assert_null(door_unix_new(f->loop, long_path, &events, &err));
    assert_non_null(strstr(err.message, "cannot open"));
    assert_int_equal(mkdir(folder, 0700), 0);
    struct door *door = door_unix_new(f->loop, long_path, &events, &err);
    assert_non_null(door);
    assert_int_equal(access(long_path, F_OK), 0);
    door_free(door);
    assert_int_equal(rmdir(folder), 0);
}

// The agent's text comes with the refusal, and a link that ends is replaced by the next one.
static void
test_unix_answers(void **state)
{
    struct fixture *f = *state;
    char text[16] = {0};

    KG_AUTO_FREE char *path = open_unix(f, false);
    (void)open_link(f, "python/shell");
    int lost = dial(path);
    assert_int_equal(write(lost, "KGLINK 1\n", 9), 9);
    LET_TIME_RUN_UNTIL(f, read(lost, text, sizeof text) == 13);
    close(lost);
    KG_AUTO_FD next = dial(path);
    assert_int_equal(write(next, "KGLINK 1\n", 9), 9);
    LET_TIME_RUN_UNTIL(f, read(next, text, sizeof text) == 13);
    assert_int_equal(write(next, "ERR not found: python\n", 22), 22);
    LET_TIME_RUN_UNTIL(f, f->n_failed == 1);
    assert_int_equal(f->err.code, KG_NOT_FOUND);
    assert_int_equal(f->n_links, 0);
}

// Connections out are their taker's from the first byte after the hello; and nobody's where the
// sandbox has no way out.
static void
test_unix_way_out(void **state)
{
    struct fixture *f = *state;
    char text[16] = {0};

    free(open_unix(f, false));
    door_free(f->door);
    KG_AUTO_FREE char *without = open_unix(f, false);
    KG_AUTO_FD early = dial(without);
    assert_int_equal(write(early, "KGDIAL 1\n", 9), 9);
    LET_TIME_RUN_UNTIL(f, is_closed(early));
    door_free(f->door);
    KG_AUTO_FREE char *path = open_unix(f, true);
    KG_AUTO_FD late = dial(path);
    assert_int_equal(write(late, "KGDIAL 1\nCONNECT", 16), 16);
    LET_TIME_RUN_UNTIL(f, f->out >= 0);
    assert_int_equal(read(f->out, text, sizeof text), 7);
    assert_string_equal(text, "CONNECT");
}

static void
test_unix_is_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[40];

    KG_AUTO_FREE char *path = open_unix(f, false);
    for (size_t i = 0; i < KG_ARRAY_LEN(fds); i++) {
        LET_TIME_RUN_UNTIL(f, (fds[i] = dial(path)) >= 0);
        assert_int_equal(send(fds[i], "KGLINK 1\n", 9, MSG_NOSIGNAL), 9);
    }
    LET_TIME_RUN_UNTIL(f, count_open(fds, KG_ARRAY_LEN(fds)) == 16);
    close_all(fds, KG_ARRAY_LEN(fds));
}

// They need no idle link's place, and have the pace of all links.
static void
test_unix_tools(void **state)
{
    struct fixture *f = *state;
    int idle[16], fds[60];

    KG_AUTO_FREE char *path = open_unix(f, false);
    for (size_t i = 0; i < KG_ARRAY_LEN(idle); i++) {
        LET_TIME_RUN_UNTIL(f, (idle[i] = dial(path)) >= 0);
        assert_int_equal(send(idle[i], "KGLINK 1\n", 9, MSG_NOSIGNAL), 9);
    }
    virtual_clock_advance(f->loop, 10 * 1000);
    for (size_t i = 0; i < KG_ARRAY_LEN(fds); i++) {
        if ((fds[i] = dial(path)) >= 0)
            assert_int_equal(send(fds[i], "KGTOOL 1\n", 9, MSG_NOSIGNAL), 9);
        if (i % 16 == 15 || i == KG_ARRAY_LEN(fds) - 1)
            virtual_clock_advance(f->loop, 0);
    }
    assert_int_equal(f->n_tools, 50);
    virtual_clock_advance(f->loop, 100);
    assert_int_equal(f->n_tools, 55);
    virtual_clock_advance(f->loop, 100);
    assert_int_equal(f->n_tools, 60);
    assert_int_equal(count_open(idle, KG_ARRAY_LEN(idle)), KG_ARRAY_LEN(idle));
    close_all(fds, KG_ARRAY_LEN(fds));
    close_all(idle, KG_ARRAY_LEN(idle));
}

// Another process dials with a socket of ours; it has done so when this returns.
static pid_t
dial_elsewhere(const char *path, int fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int dialled[2];
    char byte;

    memcpy(addr.sun_path, path, strlen(path) + 1);
    assert_int_equal(pipe(dialled), 0);
    pid_t child = fork();
    if (child == 0) {
        if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) == 0 &&
            write(dialled[1], "!", 1) == 1)
            pause();
        _exit(1);
    }
    close(dialled[1]);
    assert_int_equal(read(dialled[0], &byte, 1), 1);
    close(dialled[0]);
    return child;
}

static void
end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

// Whoever holds its socket is not the agent, which is still to come.
static void
test_a_dialler_that_has_ended(void **state)
{
    struct fixture *f = *state;
    int unread;
    char text[16] = {0};

    KG_AUTO_FREE char *path = open_unix(f, false);
    struct door_call *call = open_link(f, "agent");
    KG_AUTO_FD early = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    KG_AUTO_FD late = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    // It ends before it is accepted.
    pid_t child = dial_elsewhere(path, early);
    assert_int_equal(send(early, "KGLINK 1\n", 9, MSG_NOSIGNAL), 9);
    end_child(child);
    LET_TIME_RUN_UNTIL(f, is_closed(early));
    // It ends before it has said hello.
    child = dial_elsewhere(path, late);
    assert_int_equal(send(late, "KGLI", 4, MSG_NOSIGNAL), 4);
    LET_TIME_RUN_UNTIL(f, ioctl(late, SIOCOUTQ, &unread) == 0 && unread == 0);
    end_child(child);
    assert_int_equal(send(late, "NK 1\n", 5, MSG_NOSIGNAL), 5);
    LET_TIME_RUN_UNTIL(f, is_closed(late));

    KG_AUTO_FD agent = dial(path);
    assert_int_equal(write(agent, "KGLINK 1\n", 9), 9);
    LET_TIME_RUN_UNTIL(f, read(agent, text, sizeof text) == 6); // the first that was asked
    door_call_cancel(call);
}

// ---- The gateway dials: what is not an agent -------------------------------------------------

static int
dial_port(uint64_t *ret_epoch, void *arg)
{
    const struct fixture *f = arg;
    *ret_epoch = f->epoch;
    return f->port ? agent_dial(f->port) : -1;
}

static void
open_tcp(struct fixture *f, bool way_out)
{
    const struct door_events events = {
        .on_way_out = way_out ? on_way_out : NULL, .on_overtaken = on_overtaken, .arg = f};
    const struct door_tcp_settings settings = {
        .sandbox = sandbox, .key = &f->key, .dial = dial_port, .arg = f};
    f->door = door_tcp_new(f->loop, &settings, &events);
}

static int
listen_here(struct fixture *f)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    f->port = ntohs(addr.sin_port);
    return fd;
}

static int
take(struct fixture *f, int listener)
{
    int fd = -1;
    LET_TIME_RUN_UNTIL(f, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    return fd;
}

// Reads a gateway's hello, and answers it.
static void
greet(struct fixture *f, int fd, const char *target, const char *answer)
{
    unsigned char challenge[LINK_CHALLENGE_LEN], hello[LINK_HELLO_TCP_LEN];
    struct link_hello_tcp said;

    link_challenge_make(challenge);
    assert_int_equal(write(fd, challenge, 5), 5); // it may come in pieces
    loop_turn(f->loop);
    assert_int_equal(write(fd, challenge + 5, sizeof challenge - 5), sizeof challenge - 5);
    LET_TIME_RUN_UNTIL(f, recv(fd, hello, sizeof hello, MSG_PEEK) == (ssize_t)sizeof hello);
    assert_int_equal(read(fd, hello, sizeof hello), sizeof hello);
    assert_int_equal(link_hello_open(hello, challenge, f->key.public_key, &said), 0);
    assert_string_equal(said.sandbox, sandbox);
    assert_string_equal(said.target, target);
    assert_int_equal(said.epoch, f->epoch);
    assert_int_equal(write(fd, answer, strlen(answer)), strlen(answer));
}

static void
test_tcp(void **state)
{
    struct fixture *f = *state;
    char text[8] = {0};

    f->epoch = UINT64_C(0x0102030405060708);
    open_tcp(f, false);
    (void)open_link(f, "python/shell"); // before there is an agent
    loop_turn(f->loop);
    KG_AUTO_FD listener = listen_here(f);
    KG_AUTO_FD fd = take(f, listener);
    greet(f, fd, "python/shell", "OK\nx");
    LET_TIME_RUN_UNTIL(f, f->n_links == 1);
    assert_int_equal(read(f->link, text, sizeof text), 1);
    (void)open_link(f, "agent");
    KG_AUTO_FD second = take(f, listener);
    greet(f, second, "agent", "ERR not found: it\n");
    LET_TIME_RUN_UNTIL(f, f->n_failed == 1);
    assert_int_equal(f->err.code, KG_NOT_FOUND);
}

static void
test_tcp_strangers(void **state)
{
    struct fixture *f = *state;

    KG_AUTO_FD listener = listen_here(f);
    open_tcp(f, false);
    struct door_call *cancelled = open_link(f, "python/shell");
    KG_AUTO_FD wrong = take(f, listener);
    assert_int_equal(write(wrong, "HTTP/1.1", 8), 8);
    LET_TIME_RUN_UNTIL(f, is_closed(wrong));
    int gone = take(f, listener); // it tries again
    close(gone);
    KG_AUTO_FD unused = take(f, listener);
    door_call_cancel(cancelled);
    (void)open_link(f, "agent"); // takes the connection of the one that has left
    greet(f, unused, "agent", "OK\n");
    LET_TIME_RUN_UNTIL(f, f->n_links == 1);
    (void)open_link(f, "agent");
    KG_AUTO_FD flood = take(f, listener);
    char junk[300];
    memset(junk, 'x', sizeof junk);
    greet(f, flood, "agent", "");
    (void)!write(flood, junk, sizeof junk);
    LET_TIME_RUN_UNTIL(f, f->n_failed == 1);
    assert_string_equal(f->err.message, "the agent's answer is malformed");
    struct door_call *left = open_link(f, "agent");
    door_free(KG_STEAL(f->door));
    assert_int_equal(f->n_failed, 1);
    door_call_cancel(left);
}

static void
test_tcp_way_out(void **state)
{
    struct fixture *f = *state;
    char text[16] = {0};
    int ways[8];

    KG_AUTO_FD listener = listen_here(f);
    open_tcp(f, true);
    (void)open_link(f, "agent");
    KG_AUTO_FD fd = take(f, listener);
    greet(f, fd, "agent", "OK\n");
    for (size_t i = 0; i < KG_ARRAY_LEN(ways); i++) {
        ways[i] = take(f, listener);
        greet(f, ways[i], "egress", "OK\n");
    }
    assert_int_equal(write(ways[2], "KGDIAL 1\nCONNECT", 16), 16);
    LET_TIME_RUN_UNTIL(f, f->out >= 0);
    assert_int_equal(read(f->out, text, sizeof text), 7);
    assert_string_equal(text, "CONNECT");
    KG_AUTO_FD another = take(f, listener); // in its place
    greet(f, another, "egress", "OK\n");
    close_all(ways, KG_ARRAY_LEN(ways));
}

static void
test_tcp_overtaken(void **state)
{
    struct fixture *f = *state;

    KG_AUTO_FD listener = listen_here(f);
    open_tcp(f, false);
    struct door_call *call = open_link(f, RPC_TARGET);
    KG_AUTO_FD fd = take(f, listener);
    greet(f, fd, RPC_TARGET, "ERR overtaken: by another\n");
    LET_TIME_RUN_UNTIL(f, f->n_overtaken == 1);
    assert_int_equal(f->n_failed, 0);
    door_call_cancel(call);
}

// ---- The gateway dials: what is not a gateway ------------------------------------------------

static void
start_agent(struct fixture *f)
{
    char key[2 * LINK_KEY_LEN + 1];

    link_key_format(f->key.public_key, key);
    f->port = agent_free_port();
    f->agent = agent_process_listen(&f->place, f->port, sandbox, key, 60);
    open_tcp(f, false);
    (void)open_link(f, RPC_TARGET);
    LET_TIME_RUN_UNTIL(f, f->n_links == 1);
}

static int
connect_agent(struct fixture *f, unsigned char challenge[LINK_CHALLENGE_LEN])
{
    int fd = agent_dial(f->port);
    LET_TIME_RUN_UNTIL(f, recv(fd, challenge, LINK_CHALLENGE_LEN, 0) == LINK_CHALLENGE_LEN);
    assert_true(link_challenge_check(challenge, LINK_CHALLENGE_LEN));
    return fd;
}

static void
say(int fd, const unsigned char hello[LINK_HELLO_TCP_LEN])
{
    assert_int_equal(send(fd, hello, LINK_HELLO_TCP_LEN, MSG_NOSIGNAL), LINK_HELLO_TCP_LEN);
}

static void
test_agent_refuses_strangers(void **state)
{
    static const unsigned char other_seed[LINK_KEY_LEN] = {8};
    struct fixture *f = *state;
    unsigned char challenge[LINK_CHALLENGE_LEN], hello[LINK_HELLO_TCP_LEN];
    struct link_hello_tcp right = {.epoch = 1, .target = RPC_TARGET};
    struct link_key other;

    start_agent(f);
    memcpy(right.sandbox, sandbox, sizeof sandbox);
    link_key_from_seed(other_seed, &other);
    KG_AUTO_FD wrong_key = connect_agent(f, challenge);
    link_hello_sign(&right, challenge, &other, hello);
    say(wrong_key, hello);
    LET_TIME_RUN_UNTIL(f, is_closed(wrong_key));

    KG_AUTO_FD replayed = connect_agent(f, challenge);
    KG_AUTO_FD good = connect_agent(f, challenge);
    link_hello_sign(&right, challenge, &f->key, hello);
    say(replayed, hello); // signed for another challenge
    LET_TIME_RUN_UNTIL(f, is_closed(replayed));
    say(good, hello);
    char answer[4] = {0};
    LET_TIME_RUN_UNTIL(f, recv(good, answer, 3, 0) == 3);
    assert_string_equal(answer, "OK\n");

    struct link_hello_tcp elsewhere = right;
    elsewhere.sandbox[0] = 'z';
    KG_AUTO_FD wrong_sandbox = connect_agent(f, challenge);
    link_hello_sign(&elsewhere, challenge, &f->key, hello);
    say(wrong_sandbox, hello);
    LET_TIME_RUN_UNTIL(f, is_closed(wrong_sandbox));
}

// Those that say nothing keep nobody out, and are closed.
static void
test_agent_is_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[60];

    start_agent(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(fds); i++)
        fds[i] = agent_dial(f->port);
    (void)open_link(f, RPC_TARGET);
    LET_TIME_RUN_UNTIL(f, f->n_links == 2);
    LET_TIME_RUN_UNTIL(f, count_open(fds, KG_ARRAY_LEN(fds)) <= 32);
    agent_clock_advance(&f->place, 5000); // they have said nothing
    LET_TIME_RUN_UNTIL(f, count_open(fds, KG_ARRAY_LEN(fds)) == 0);
    close_all(fds, KG_ARRAY_LEN(fds));
}

// The links of a gateway that was overtaken end at once, and it gets no new ones.
static void
test_agent_keeps_the_highest_epoch(void **state)
{
    struct fixture *f = *state;

    f->epoch = 3;
    start_agent(f);
    KG_AUTO_FD old = KG_STEAL_FD(f->link);
    assert_false(is_closed(old));
    f->epoch = 4;
    (void)open_link(f, RPC_TARGET);
    LET_TIME_RUN_UNTIL(f, f->n_links == 2);
    LET_TIME_RUN_UNTIL(f, is_closed(old));
    f->epoch = 3;
    struct door_call *refused = open_link(f, RPC_TARGET);
    LET_TIME_RUN_UNTIL(f, f->n_overtaken == 1);
    door_call_cancel(refused);
    assert_false(is_closed(f->link));
}

// ---- Hellos ---------------------------------------------------------------------------------

static void
test_hellos(void **state)
{
    static const unsigned char seed[LINK_KEY_LEN] = {1};
    const struct link_hello_tcp hello = {
        .sandbox = "abcdefghijklmnop", .epoch = UINT64_MAX, .target = "python/iopub"};
    unsigned char challenge[LINK_CHALLENGE_LEN], data[LINK_HELLO_TCP_LEN];
    unsigned char parsed[LINK_KEY_LEN];
    char text[2 * LINK_KEY_LEN + 1];
    struct link_hello_tcp read;
    struct link_key key;
    (void)state;

    link_key_from_seed(seed, &key);
    link_challenge_make(challenge);
    link_hello_sign(&hello, challenge, &key, data);
    assert_int_equal(link_hello_open(data, challenge, key.public_key, &read), 0);
    assert_string_equal(read.sandbox, hello.sandbox);
    assert_string_equal(read.target, hello.target);
    assert_true(read.epoch == hello.epoch);
    // Every bit counts.
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] ^= 1;
        assert_int_not_equal(link_hello_open(data, challenge, key.public_key, &read), 0);
        data[i] ^= 1;
    }
    challenge[LINK_CHALLENGE_LEN - 1] ^= 1;
    assert_int_not_equal(link_hello_open(data, challenge, key.public_key, &read), 0);

    link_key_format(key.public_key, text);
    assert_int_equal(link_key_parse(text, strlen(text), parsed), 0);
    assert_memory_equal(parsed, key.public_key, sizeof parsed);
    assert_int_equal(link_key_parse(text, strlen(text) - 2, parsed), -1);
    text[5] = 'g';
    assert_int_equal(link_key_parse(text, strlen(text), parsed), -1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hellos),
        TEST(test_unix),
        TEST(test_unix_answers),
        TEST(test_unix_way_out),
        TEST(test_unix_is_bounded),
        TEST(test_unix_tools),
        TEST(test_a_dialler_that_has_ended),
        TEST(test_tcp),
        TEST(test_tcp_strangers),
        TEST(test_tcp_way_out),
        TEST(test_tcp_overtaken),
        TEST(test_agent_refuses_strangers),
        TEST(test_agent_is_bounded),
        TEST(test_agent_keeps_the_highest_epoch),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
