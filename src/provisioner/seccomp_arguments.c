// SPDX-License-Identifier: Apache-2.0
// The arguments that a sandbox may use: sockets, their options, ioctls, fcntls and the like. Listed
// is what programs need and what Linux either counts as memory of the sandbox's control group or
// gives away in small numbers. What is not listed fails as on a Linux that does not have it.
#include "seccomp_priv.h"

#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

// Newer than some C libraries.
#define FCNTL_DUPFD_QUERY 1027
#define FCNTL_CREATED_QUERY 1028
#define OPTION_RCVTIMEO_NEW 66
#define OPTION_SNDTIMEO_NEW 67

// Other families, types and protocols load modules of the host's kernel (SOCK_DCCP does so with
// protocol 0), or reach parts of it that are not needed here. -1: any.
static const struct {
    int family;
    int type;
    int protocol;
} sockets[] = {
    {AF_UNIX, -1, -1},
    {AF_INET, SOCK_STREAM, 0},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP},
    {AF_INET6, SOCK_STREAM, 0},
    {AF_INET6, SOCK_STREAM, IPPROTO_TCP},
};
static const int udp_families[] = {AF_INET, AF_INET6};
#define SOCKET_TYPE_MASK 0xf // the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK

// clang-format off
// Not: filters (they are compiled into memory of the whole machine); error queues, where also time
// stamps and the ends of zero copies are (nobody counts them); SO_REUSEPORT (its groups of sockets
// are not counted); SO_PASSPIDFD and others that are new. SO_RCVLOWAT raises the buffer of
// what was not accepted yet.
static const uint32_t socket_options[] = {
    SO_REUSEADDR, SO_DONTROUTE, SO_BROADCAST, SO_SNDBUF, SO_KEEPALIVE, SO_OOBINLINE,
    SO_PRIORITY, SO_LINGER, SO_PASSCRED, SO_RCVTIMEO, SO_SNDTIMEO, SO_PEEK_OFF,
    OPTION_RCVTIMEO_NEW, OPTION_SNDTIMEO_NEW,
};
// It does nothing: connections that were not accepted yet have the listener's buffer, which is
// not charged to any control group. Accepted ones have buffers that grow by themselves. libzmq aborts on an error.
static const uint32_t ignored_option = SO_RCVBUF;
// Not: error queues, memberships and sources of multicasts, IP options.
static const uint32_t ip_options[] = {
    IP_TOS, IP_TTL, IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVTTL, IP_RECVTOS, IP_FREEBIND,
    IP_BIND_ADDRESS_NO_PORT, IP_MULTICAST_IF, IP_MULTICAST_TTL, IP_MULTICAST_LOOP,
};
// Nor flow labels, of which the machine has 4096, nor headers.
static const uint32_t ipv6_options[] = {
    IPV6_UNICAST_HOPS, IPV6_MULTICAST_IF, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_V6ONLY,
    IPV6_MTU_DISCOVER, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, IPV6_TCLASS,
};
// Not: TCP_MD5SIG, TCP_ULP and TCP_CONGESTION (keys and modules), TCP_SAVE_SYN (saved packets),
// TCP_FASTOPEN (a cache of the machine).
static const uint32_t tcp_options[] = {
    TCP_NODELAY, TCP_MAXSEG, TCP_CORK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_SYNCNT,
    TCP_LINGER2, TCP_DEFER_ACCEPT, TCP_WINDOW_CLAMP, TCP_QUICKACK, TCP_USER_TIMEOUT,
    TCP_NOTSENT_LOWAT, TCP_INQ,
};
// It maps received pages, which then count as nobody's.
static const uint32_t tcp_unreadable[] = {TCP_ZEROCOPY_RECEIVE};

// Terminals, what every file has, and the names of interfaces. Not: TIOCSETD (loads modules), TIOCSTI,
// TIOCLINUX and TIOCCONS (input and output of others).
static const uint32_t ioctls[] = {
    TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETA, TCSETA, TCSETAW, TCSETAF, TCSBRK, TCXONC, TCFLSH,
    TIOCEXCL, TIOCNXCL, TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ, TIOCGWINSZ, TIOCSWINSZ, TIOCMGET,
    TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCGSOFTCAR, TIOCSSOFTCAR, FIONREAD, TIOCPKT, FIONBIO, TIOCNOTTY,
    TIOCGETD, TCSBRKP, TIOCSBRK, TIOCCBRK, TIOCGSID, TIOCGPTPEER, FIONCLEX, FIOCLEX, FIOASYNC,
    SIOCATMARK, SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR,
    SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX,
};
// The allowed ones whose numbers also have a direction and a size. All are of type 'T'.
static const uint32_t sized_ioctls[] = {
    TIOCGPTN, TIOCSPTLCK, TCGETS2, TCSETS2, TCSETSW2, TCSETSF2,
};

// Not: leases (others wait for them) and F_NOTIFY.
static const uint32_t fcntls[] = {
    F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_SETOWN, F_GETOWN,
    __F_SETSIG, __F_GETSIG, F_SETOWN_EX, F_GETOWN_EX, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW,
    FCNTL_DUPFD_QUERY, FCNTL_CREATED_QUERY, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ,
    F_ADD_SEALS, F_GET_SEALS,
};

// Not: filters (see above), core scheduling, merged memory, names of memory.
static const uint32_t prctls[] = {
    PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_GET_KEEPCAPS,
    PR_SET_KEEPCAPS, PR_GET_TIMING, PR_SET_TIMING, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP,
    PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_GET_TSC, PR_SET_TSC, PR_GET_SECUREBITS, PR_SET_TIMERSLACK,
    PR_GET_TIMERSLACK, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS,
    PR_GET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_CAP_AMBIENT,
    PR_SVE_SET_VL, PR_SVE_GET_VL, PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL,
    PR_PAC_RESET_KEYS, PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL,
};
// clang-format on

// The limit of core files stays 1: the kernel ignores 0 where core_pattern is a pipe.
static const uint32_t core[] = {RLIMIT_CORE};

json_t *
seccomp_equals(int index, json_int_t value)
{
    return json_pack("{s:i, s:I, s:s}", "index", index, "value", value, "op", "SCMP_CMP_EQ");
}

json_t *
seccomp_masked(int index, json_int_t mask, json_int_t value)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", index, "value", mask, "valueTwo", value, "op",
                     "SCMP_CMP_MASKED_EQ");
}

void
seccomp_add(json_t *rules, const char *name, int error, json_t *conditions)
{
    json_t *rule = json_pack("{s:[s], s:s}", "names", name, "action",
                             error ? "SCMP_ACT_ERRNO" : "SCMP_ACT_ALLOW");
    if (error)
        json_object_set_new(rule, "errnoRet", json_integer(error == SECCOMP_IGNORED ? 0 : error));
    if (conditions)
        json_object_set_new(rule, "args", conditions);
    json_array_append_new(rules, rule);
}

// ---- Lists of values ------------------------------------------------------------------------

#define NO_RULE (-1) // the profile's default action, or another list's rules

// An argument of a call, with which the call fails by `listed`, by `others` below 2^`bits`, or by
// `beyond` from there on (0: it is allowed).
struct argument {
    const char *call;
    int index;
    const uint32_t *values;
    size_t n_values;
    int bits;
    int listed;
    int others;
    int beyond;
    json_t *also;            // a condition on another argument, or NULL
    const uint32_t *ignored; // with this value the call does nothing; or NULL
};

static void
add_rule(json_t *rules, const struct argument *arg, int error, json_t *condition)
{
    json_t *conditions = json_pack("[o]", condition);
    if (arg->also)
        json_array_append(conditions, arg->also);
    seccomp_add(rules, arg->call, error, conditions);
}

static size_t
count_with_prefix(const struct argument *arg, uint32_t prefix, int bits)
{
    size_t n = 0;
    for (size_t i = 0; i < arg->n_values; i++)
        n += arg->values[i] >> bits == prefix >> bits;
    return n;
}

// Adds rules for the values whose bits above the lowest `bits` are those of `prefix`. A filter has
// no "else", so what is not listed has rules, too: one for each shortest prefix that no listed
// value has. No two rules apply to the same value, so their order does not matter. (JSON's numbers
// have 63 bits here; the highest one of an argument makes no difference to Linux.)
static void
add_values(json_t *rules, const struct argument *arg, uint32_t prefix, int bits)
{
    size_t n = count_with_prefix(arg, prefix, bits);
    bool ignored = arg->ignored && *arg->ignored >> bits == prefix >> bits;
    if (bits > 0 && (ignored || (n > 0 && n < UINT32_C(1) << bits))) {
        add_values(rules, arg, prefix, bits - 1);
        add_values(rules, arg, prefix | UINT32_C(1) << (bits - 1), bits - 1);
        return;
    }
    int error = ignored ? SECCOMP_IGNORED : n ? arg->listed : arg->others;
    if (error != NO_RULE)
        add_rule(rules, arg, error,
                 seccomp_masked(arg->index, INT64_MAX >> bits << bits, (json_int_t)prefix));
}

static void
add_argument(json_t *rules, const struct argument *arg)
{
    add_values(rules, arg, 0, arg->bits);
    if (arg->beyond == NO_RULE)
        return;
    json_t *condition = json_pack("{s:i, s:I, s:s}", "index", arg->index, "value",
                                  (json_int_t)1 << arg->bits, "op", "SCMP_CMP_GE");
    add_rule(rules, arg, arg->beyond, condition);
}

// Some C libraries extend the sign of a number with the highest bit, so only 32 bits are compared.
static void
add_sized_ioctls(json_t *rules)
{
    const uint32_t all = 0xffffffff, direction = 0xc0000000, type = 0xff00;
    for (size_t i = 0; i < KG_ARRAY_LEN(sized_ioctls); i++)
        seccomp_add(rules, "ioctl", 0, json_pack("[o]", seccomp_masked(1, all, sized_ioctls[i])));
    // Those of another type differ in one of its bits. Others of this type fail with EPERM.
    for (uint32_t bit = 0x100; bit & type; bit <<= 1) {
        uint32_t other = ~sized_ioctls[0] & bit;
        for (uint32_t to = 0x40000000; to; to <<= 1)
            seccomp_add(rules, "ioctl", ENOTTY,
                        json_pack("[o]", seccomp_masked(1, direction | bit, to | other)));
    }
    seccomp_add(rules, "ioctl", ENOTTY, json_pack("[o]", seccomp_masked(1, direction, direction)));
}

// ---- Options of sockets ---------------------------------------------------------------------

struct options {
    uint32_t level;
    const uint32_t *values;
    size_t n_values;
    const uint32_t *ignored;
};

static const struct options settable[] = {
    {SOL_SOCKET, socket_options, KG_ARRAY_LEN(socket_options), &ignored_option},
    {IPPROTO_IP, ip_options, KG_ARRAY_LEN(ip_options), NULL},
    {IPPROTO_IPV6, ipv6_options, KG_ARRAY_LEN(ipv6_options), NULL},
    {IPPROTO_TCP, tcp_options, KG_ARRAY_LEN(tcp_options), NULL},
};
static const struct options unreadable[] = {
    {IPPROTO_TCP, tcp_unreadable, KG_ARRAY_LEN(tcp_unreadable), NULL},
};

// The listed options fail by `listed`, others of all levels by `others` (0: they are allowed).
// Numbers that no Linux has are refused, as only their low bits count.
static void
add_options(json_t *rules, const char *call, const struct options *options, size_t n, int listed,
            int others)
{
    uint32_t levels[KG_ARRAY_LEN(settable)];
    for (size_t i = 0; i < n; i++) {
        levels[i] = options[i].level;
        json_auto_t *level = seccomp_equals(1, levels[i]);
        const struct argument option = {
            .call = call,
            .index = 2,
            .values = options[i].values,
            .n_values = options[i].n_values,
            .listed = listed,
            .others = others,
            .bits = 7,
            .beyond = ENOPROTOOPT,
            .also = level,
            .ignored = options[i].ignored,
        };
        add_argument(rules, &option);
    }
    const struct argument level = {
        call, 1, levels, n, 6, NO_RULE, others, ENOPROTOOPT, NULL, NULL,
    };
    add_argument(rules, &level);
}

// ---- Sockets --------------------------------------------------------------------------------

static void
add_socket(json_t *rules, int family, int type, int protocol)
{
    json_t *conditions = json_pack("[o]", seccomp_equals(0, family));
    if (type >= 0)
        json_array_append_new(conditions, seccomp_masked(1, SOCKET_TYPE_MASK, type));
    if (protocol >= 0)
        json_array_append_new(conditions, seccomp_equals(2, protocol));
    seccomp_add(rules, "socket", 0, conditions);
}

static void
add_sockets(json_t *rules, bool udp)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(sockets); i++)
        add_socket(rules, sockets[i].family, sockets[i].type, sockets[i].protocol);
    for (size_t i = 0; i < KG_ARRAY_LEN(udp_families); i++) {
        if (udp) {
            add_socket(rules, udp_families[i], SOCK_DGRAM, 0);
            add_socket(rules, udp_families[i], SOCK_DGRAM, IPPROTO_UDP);
        } else {
            seccomp_add(rules, "socket", EPROTONOSUPPORT,
                        json_pack("[o, o]", seccomp_equals(0, udp_families[i]),
                                  seccomp_masked(1, SOCKET_TYPE_MASK, SOCK_DGRAM)));
        }
    }
    // Its queues are nobody's memory. libzmq aborts on EPERM, and does without it on this error.
    seccomp_add(rules, "socket", EOPNOTSUPP, json_pack("[o]", seccomp_equals(0, AF_NETLINK)));
    seccomp_add(rules, "socketpair", 0, json_pack("[o]", seccomp_equals(0, AF_UNIX)));
}

// ---- All ------------------------------------------------------------------------------------

void
seccomp_add_arguments(json_t *rules, bool udp)
{
    // Its own limits only: the agent has the same user, and could not work without descriptors.
    json_auto_t *own = seccomp_equals(0, 0);
    const struct argument arguments[] = {
        {"ioctl", 1, ioctls, KG_ARRAY_LEN(ioctls), 16, 0, ENOTTY, NO_RULE, NULL, NULL},
        {"fcntl", 1, fcntls, KG_ARRAY_LEN(fcntls), 11, 0, EINVAL, EINVAL, NULL, NULL},
        {"prctl", 0, prctls, KG_ARRAY_LEN(prctls), 7, 0, EINVAL, EINVAL, NULL, NULL},
        {"setrlimit", 0, core, 1, 4, NO_RULE, 0, NO_RULE, NULL, NULL},
        {"prlimit64", 1, core, 1, 4, NO_RULE, 0, NO_RULE, own, NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(arguments); i++)
        add_argument(rules, &arguments[i]);
    add_sized_ioctls(rules);
    add_sockets(rules, udp);
    add_options(rules, "setsockopt", settable, KG_ARRAY_LEN(settable), 0, ENOPROTOOPT);
    add_options(rules, "getsockopt", unreadable, KG_ARRAY_LEN(unreadable), ENOPROTOOPT, 0);
}
