// SPDX-License-Identifier: Apache-2.0
// The address policy: its tables, and its use by calls and dials.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_http_util.h"
#include "virtual_clock.h"

static struct address_policy *
policy_of(const char *const *allow)
{
    struct kg_error err = {0};
    struct address_policy *policy = address_policy_new(allow, &err);
    if (!policy)
        fail_msg("%s", err.message);
    return policy;
}

static bool
allows(const struct address_policy *policy, const char *host, const char *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return address_policy_allows(policy, host, (const struct sockaddr *)(const void *)&v4);
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return address_policy_allows(policy, host, (const struct sockaddr *)(const void *)&v6);
}

static const char *const public_addresses[] = {
    "8.8.8.8",          "1.1.1.1",         "100.63.255.255", "100.128.0.0",
    "126.255.255.255",  "128.0.0.1",       "168.63.129.15",  "168.63.129.17",
    "169.253.255.255",  "172.15.255.255",  "172.32.0.0",     "192.167.255.255",
    "192.169.0.0",      "198.17.255.255",  "198.20.0.0",     "223.255.255.255",
    "192.0.2.77",   // documentation, as are the next two
    "198.51.100.1", //
    "203.0.113.7",  //
    "192.88.98.255",    "192.88.100.0",    "2001:1:ffff::1", "2001:2:1::1",
    "2001:db7:ffff::1", "2001:db9::1",     "3ffe:ffff::1",   "3fff:1000::1",
    "5eff:ffff::1",     "5f01::1",         "2606:4700::1",   "::ffff:8.8.8.8",
    "64:ff9b::808:808", "2002:808:808::1", "fbff::1",        "fe00::1",
};

static const char *const forbidden_addresses[] = {
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.170",
    "192.88.99.0",
    "192.88.99.255",
    "2002:c058:6301::1",
    "2001:2::1",
    "2001:2:0:ffff::1",
    "2001:db8::1",
    "2001:db8:ffff::1",
    "3fff::1",
    "3fff:fff:ffff::1",
    "5f00::1",
    "5f00:ffff::1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "::ffff:169.254.169.254",
    "::ffff:0:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::808:808",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378::1",
    "100::1",
    "fc00::1",
    "fdff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
};

static void
test_table(void **state)
{
    (void)state;
    KG_AUTO(address_policy) policy = policy_of(NULL);
    for (size_t i = 0; i < KG_ARRAY_LEN(public_addresses); i++) {
        if (!allows(policy, "host.example", public_addresses[i]))
            fail_msg("%s should be allowed", public_addresses[i]);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(forbidden_addresses); i++) {
        if (allows(policy, "host.example", forbidden_addresses[i]))
            fail_msg("%s should be forbidden", forbidden_addresses[i]);
    }
    struct sockaddr_storage local = {.ss_family = AF_UNIX};
    assert_false(address_policy_allows(policy, "x", (const struct sockaddr *)(const void *)&local));
}

static size_t n_own_reads;

// Replaces the C library's function, and counts its calls.
int
getifaddrs(struct ifaddrs **ret)
{
    union {
        void *symbol;
        int (*fn)(struct ifaddrs **);
    } next = {dlsym(RTLD_NEXT, "getifaddrs")};
    n_own_reads++;
    return next.fn(ret);
}

static void
test_own_addresses_are_not_read_each_time(void **state)
{
    (void)state;
    KG_AUTO(address_policy) policy = policy_of(NULL);
    virtual_clock_move(1000);
    n_own_reads = 0;
    for (int i = 0; i < 10; i++)
        assert_true(allows(policy, "x", "8.8.8.8"));
    assert_int_equal(n_own_reads, 1);
    virtual_clock_move(999);
    assert_true(allows(policy, "x", "8.8.8.8"));
    assert_int_equal(n_own_reads, 1);
    virtual_clock_move(1);
    assert_true(allows(policy, "x", "8.8.8.8"));
    assert_int_equal(n_own_reads, 2);
}

static void
test_allow(void **state)
{
    (void)state;
    static const char *const allow[] = {"10.1.0.0/16", "127.0.0.1", "fd00::/8",
                                        "Index.Corp.example", NULL};
    KG_AUTO(address_policy) policy = policy_of(allow);
    assert_true(allows(policy, "x", "10.1.255.1"));
    assert_true(allows(policy, "x", "::ffff:10.1.0.1"));
    assert_false(allows(policy, "x", "10.2.0.1"));
    assert_true(allows(policy, "x", "127.0.0.1"));
    assert_false(allows(policy, "x", "127.0.0.2"));
    assert_true(allows(policy, "x", "fd12::1"));
    assert_false(allows(policy, "x", "fc12::1"));
    assert_true(allows(policy, "index.corp.EXAMPLE", "192.168.0.1"));
    assert_false(allows(policy, "other.corp.example", "192.168.0.1"));
    assert_true(allows(policy, "x", "8.8.8.8"));
    // A network of all IPv6 addresses does not allow IPv4 ones.
    static const char *const all_v6[] = {"::/0", NULL};
    KG_AUTO(address_policy) v6 = policy_of(all_v6);
    assert_true(allows(v6, "x", "::1"));
    assert_false(allows(v6, "x", "127.0.0.1"));
}

static void
test_bad_allow(void **state)
{
    (void)state;
    static const char *const bad[] = {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "::/129",
                                      "a b",         "-x",        "http://x",    "10.0.0.0/-1"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        const char *const list[] = {bad[i], NULL};
        struct kg_error err = {0};
        assert_null(address_policy_new(list, &err));
        assert_int_equal(err.code, KG_INVALID);
        assert_non_null(strstr(err.message, bad[i]));
    }
}

// ---- Calls and dials ------------------------------------------------------------------------

static void
call_with(struct call *call, const char *url, const struct address_policy *policy)
{
    struct http_call_spec spec = {
        .method = "GET", .url = url, .timeout_ms = 5000, .policy = policy};
    struct kg_error err = {0};
    *call = (struct call){0};
    call->handle = http_call_start(bench.client, &spec, NULL, call_on_done, call, &err);
    assert_non_null(call->handle);
    WAIT(call->done);
}

static void
test_call_asks(void **state)
{
    (void)state;
    KG_AUTO(address_policy) none = policy_of(NULL);
    static const char *const loopback[] = {"127.0.0.0/8", NULL};
    KG_AUTO(address_policy) some = policy_of(loopback);
    KG_AUTO_FREE char *url = kg_asprintf("%s/show/x", bench.url);
    KG_AUTO_CALL allowed = {0};
    call_with(&allowed, url, some);
    assert_int_equal(allowed.status, 200);
    // A call with a policy does not reuse a connection, and no other notation gets around the
    // policy.
    const char *port = strrchr(bench.url, ':');
    static const char *const hosts[] = {"127.0.0.1",  "localhost", "127.1",
                                        "2130706433", "[::1]",     "[::ffff:127.0.0.1]"};
    for (size_t i = 0; i < KG_ARRAY_LEN(hosts); i++) {
        KG_AUTO_FREE char *spelt = kg_asprintf("http://%s%s/show/x", hosts[i], port);
        KG_AUTO_CALL refused = {0};
        call_with(&refused, spelt, none);
        assert_int_equal(refused.status, 0);
        assert_non_null(strstr(refused.error, "not allowed"));
    }
}

struct dial {
    bool done;
    int fd;
    struct kg_error err;
};

static void
on_dialled(int fd, const struct kg_error *err, void *arg)
{
    struct dial *dial = arg;
    assert_false(dial->done);
    dial->done = true;
    dial->fd = fd;
    if (err)
        dial->err = *err;
}

static struct dial
dial_to(const char *host, int port, const struct address_policy *policy)
{
    struct dial dial = {.fd = -1};
    struct kg_error err = {0};
    assert_non_null(
        http_dial_start(bench.client, host, port, policy, 5000, on_dialled, &dial, &err));
    assert_false(dial.done);
    WAIT(dial.done);
    return dial;
}

static void
test_dial(void **state)
{
    (void)state;
    static const char *const loopback[] = {"127.0.0.1", NULL};
    KG_AUTO(address_policy) some = policy_of(loopback);
    KG_AUTO(address_policy) none = policy_of(NULL);
    int port = http_server_port(bench.server);
    struct dial dial = dial_to("127.0.0.1", port, some);
    assert_int_equal(dial.err.code, KG_OK);
    static const char request[] = "GET /show/x HTTP/1.0\r\nHost: localhost\r\n\r\n";
    assert_int_equal(send(dial.fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
    char answer[13] = "";
    WAIT(recv(dial.fd, answer, 12, MSG_PEEK | MSG_DONTWAIT) == 12);
    assert_string_equal(answer + 8, " 200");
    close(dial.fd);

    dial = dial_to("localhost", port, none);
    assert_int_equal(dial.fd, -1);
    assert_int_equal(dial.err.code, KG_INVALID);
    dial = dial_to("127.0.0.1", 1, some); // a closed port
    assert_int_equal(dial.fd, -1);
    assert_int_equal(dial.err.code, KG_INTERNAL);
    struct kg_error err = {0};
    assert_null(http_dial_start(bench.client, "a@b", 80, some, 5000, on_dialled, &dial, &err));
    assert_int_equal(err.code, KG_INVALID);
}

static void
test_dial_cancelled(void **state)
{
    (void)state;
    static const char *const loopback[] = {"127.0.0.1", NULL};
    KG_AUTO(address_policy) some = policy_of(loopback);
    struct dial dial = {.fd = -1};
    struct kg_error err = {0};
    struct http_call *call =
        http_dial_start(bench.client, "127.0.0.1", http_server_port(bench.server), some, 5000,
                        on_dialled, &dial, &err);
    assert_non_null(call);
    http_call_cancel(call);
    KG_AUTO_CALL other = {0};
    call_path(&other, "GET", "/show/x", NULL, NULL);
    assert_false(dial.done);
}

// ---- Names whose servers do not answer ------------------------------------------------------

static pthread_mutex_t name_server = PTHREAD_MUTEX_INITIALIZER; // locked: it does not answer
static atomic_int n_unanswered;

// Replaces the C library's function, in curl's thread: one name resolves when the test allows it.
int
getaddrinfo(const char *restrict name, const char *restrict service,
            const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
    union {
        void *symbol;
        int (*fn)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    } next = {dlsym(RTLD_NEXT, "getaddrinfo")};
    if (!name || strcmp(name, "unanswered.example") != 0)
        return next.fn(name, service, hints, ret);
    atomic_fetch_add(&n_unanswered, 1);
    pthread_mutex_lock(&name_server);
    pthread_mutex_unlock(&name_server);
    atomic_fetch_sub(&n_unanswered, 1);
    return EAI_AGAIN;
}

static size_t
count_threads(void)
{
    struct stat task;
    assert_int_equal(stat("/proc/self/task", &task), 0);
    return task.st_nlink - 2; // one folder for each
}

static void
test_a_name_without_an_answer(void **state)
{
    (void)state;
    size_t n_threads = count_threads();
    KG_AUTO(address_policy) policy = policy_of(NULL);
    struct dial late = {.fd = -1}, left = {.fd = -1};
    struct kg_error err = {0};
    pthread_mutex_lock(&name_server);
    struct http_call *call = http_dial_start(bench.client, "unanswered.example", 80, policy, 60000,
                                             on_dialled, &left, &err);
    assert_non_null(call);
    WAIT(atomic_load(&n_unanswered) == 1);
    // Neither cancelling nor a timeout waits for the name, and no other call does.
    http_call_cancel(call);
    assert_non_null(http_dial_start(bench.client, "unanswered.example", 80, policy, 100, on_dialled,
                                    &late, &err));
    WAIT(late.done);
    assert_int_equal(late.err.code, KG_INTERNAL);
    assert_false(left.done);
    pthread_mutex_unlock(&name_server);
    WAIT(count_threads() <= n_threads); // of the loop they are no concern
    assert_int_equal(atomic_load(&n_unanswered), 0);
}

const struct CMUnitTest http_policy_tests[] = {
    cmocka_unit_test(test_table),
    cmocka_unit_test(test_own_addresses_are_not_read_each_time),
    cmocka_unit_test(test_allow),
    cmocka_unit_test(test_bad_allow),
    cmocka_unit_test_setup_teardown(test_call_asks, bench_set_up, bench_tear_down),
    cmocka_unit_test_setup_teardown(test_dial, bench_set_up, bench_tear_down),
    cmocka_unit_test_setup_teardown(test_dial_cancelled, bench_set_up, bench_tear_down),
    cmocka_unit_test_setup_teardown(test_a_name_without_an_answer, bench_set_up, bench_tear_down),
};
const size_t n_http_policy_tests = KG_ARRAY_LEN(http_policy_tests);
