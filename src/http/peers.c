// SPDX-License-Identifier: Apache-2.0
// Client addresses: how many connections of each have had no valid key so far, and how many wrong
// keys each has sent.

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "http_priv.h"

enum {
    FAILURES_MAX = 10, // within a minute; further ones are slowed
    WINDOW_MS = 60 * 1000,
    STRANGERS_MAX = 64,
    REMEMBERED_MAX = 1024, // addresses without a connection
    BITS_V6 = 64,          // what one customer usually has
};

// FNV-1a modulo the slots.
static size_t
peer_slot(const unsigned char address[HTTP_ADDRESS_LEN])
{
    return hash_fnv1a(address, HTTP_ADDRESS_LEN) % HTTP_PEER_SLOTS;
}

// IPv4 as ::ffff:a.b.c.d, IPv6 by its network.
static void
peer_address(const struct sockaddr *from, unsigned char ret[HTTP_ADDRESS_LEN])
{
    memset(ret, 0, HTTP_ADDRESS_LEN);
    if (from->sa_family == AF_INET) {
        ret[10] = ret[11] = 0xff;
        memcpy(ret + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
        bool whole = IN6_IS_ADDR_V4MAPPED(v6) || IN6_IS_ADDR_LOOPBACK(v6);
        memcpy(ret, v6, whole ? HTTP_ADDRESS_LEN : BITS_V6 / 8);
    }
}

static bool
peer_is_local(const unsigned char address[HTTP_ADDRESS_LEN])
{
    struct in6_addr v6;
    memcpy(&v6, address, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && address[12] == IN_LOOPBACKNET);
}

// What a proxy says of its client; false: nothing that is an address.
static bool
forwarded_address(const struct http_request *request, unsigned char ret[HTTP_ADDRESS_LEN])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const char *text = http_request_header(request, "X-Real-IP");
    const char *list = http_request_header(request, "X-Forwarded-For");
    if (!text && list) {
        const char *comma = strrchr(list, ',');
        text = comma ? comma + 1 + strspn(comma + 1, " ") : list;
    }
    if (text && inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        peer_address((const struct sockaddr *)&v4, ret);
    else if (text && inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        peer_address((const struct sockaddr *)&v6, ret);
    else
        return false;
    return true;
}

bool
http_request_network(const struct http_request *request, unsigned char ret[HTTP_ADDRESS_LEN])
{
    const struct http_connection *conn = request->conn;
    if (!conn)
        return false;
    if (!forwarded_address(request, ret))
        memcpy(ret, conn->peer->address, HTTP_ADDRESS_LEN);
    return !peer_is_local(ret);
}

static void
peer_remove(struct http_peers *peers, struct http_peer *peer)
{
    LIST_REMOVE(peer, slot_link);
    if (peer->n_open == 0) {
        TAILQ_REMOVE(&peers->remembered, peer, remembered_link);
        peers->n_remembered--;
    }
    free(peer);
}

void
peers_init(struct http_peers *peers, int max_strangers)
{
    TAILQ_INIT(&peers->remembered);
    peers->max_strangers = max_strangers ? max_strangers : STRANGERS_MAX;
    peers->spare_local = max_strangers == 0;
}

void
peers_fini(struct http_peers *peers)
{
    while (!TAILQ_EMPTY(&peers->remembered))
        peer_remove(peers, TAILQ_FIRST(&peers->remembered));
}

struct http_peer *
peer_take(struct http_peers *peers, const struct sockaddr *from, bool spared)
{
    unsigned char address[HTTP_ADDRESS_LEN];
    peer_address(from, address);
    size_t slot = peer_slot(address);
    struct http_peer *peer;
    LIST_FOREACH(peer, &peers->slots[slot], slot_link) {
        if (memcmp(peer->address, address, sizeof address) == 0)
            break;
    }
    spared |= peers->spare_local && peer_is_local(address);
    if (peer && !spared && peer->n_strangers >= peers->max_strangers)
        return NULL;
    if (!peer) {
        peer = KG_NEW(struct http_peer);
        memcpy(peer->address, address, sizeof address);
        LIST_INSERT_HEAD(&peers->slots[slot], peer, slot_link);
    } else if (peer->n_open == 0) {
        TAILQ_REMOVE(&peers->remembered, peer, remembered_link);
        peers->n_remembered--;
    }
    peer->n_open++;
    peer->n_strangers++;
    return peer;
}

void
peer_trust(struct http_peer *peer)
{
    peer->n_strangers--;
}

// The list is in the order in which they disconnected, so some are removed a little late.
static void
peers_forget(struct http_peers *peers, int64_t now_ms)
{
    struct http_peer *first;
    while ((first = TAILQ_FIRST(&peers->remembered)) &&
           (peers->n_remembered > REMEMBERED_MAX || now_ms - first->window_ms >= WINDOW_MS))
        peer_remove(peers, first);
}

void
peer_leave(struct http_peers *peers, struct http_peer *peer, bool was_trusted, int64_t now_ms)
{
    assert(peer->n_open > 0);
    peer->n_strangers -= !was_trusted;
    if (--peer->n_open > 0)
        return;
    TAILQ_INSERT_TAIL(&peers->remembered, peer, remembered_link);
    peers->n_remembered++;
    if (peer->n_failures == 0)
        peer_remove(peers, peer);
    peers_forget(peers, now_ms);
}

static void
peer_log(const struct http_peer *peer)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr v6;
    memcpy(&v6, peer->address, sizeof v6);
    bool v4 = IN6_IS_ADDR_V4MAPPED(&v6);
    const char *address =
        inet_ntop(v4 ? AF_INET : AF_INET6, peer->address + (v4 ? 12 : 0), text, sizeof text);
    log_warning("a request came with a wrong key", LOG_STR("address", address));
}

bool
peer_failed(struct http_peer *peer, int64_t now_ms)
{
    if (peer->n_failures == 0 || now_ms - peer->window_ms >= WINDOW_MS) {
        peer->n_failures = 0;
        peer->window_ms = now_ms;
        peer_log(peer); // once a minute
    }
    return ++peer->n_failures > FAILURES_MAX;
}
