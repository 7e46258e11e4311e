// SPDX-License-Identifier: Apache-2.0
// Client addresses: how many connections of each have had no valid key so far, and how many wrong
// keys each has sent. A client with many IPv6 addresses owns whole networks: a /64 counts as one
// address, a /56 as two, and a /48 as four.

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#include "http_priv.h"

enum {
    FAILURES_MAX = 10, // within a minute; further ones are slowed
    WINDOW_MS = 60 * 1000,
    STRANGERS_MAX = 64,
    REMEMBERED_MAX = 1024, // addresses without a connection
    WIDENED_BITS = 8,
    WIDEST_BITS = 48,
};

// FNV-1a modulo the slots.
static size_t
peer_slot(const struct ip_network *network)
{
    return hash_fnv1a(network->bytes, IP_ADDRESS_LEN) % HTTP_PEER_SLOTS;
}

static struct ip_network
peer_network(const struct sockaddr *from)
{
    unsigned char address[IP_ADDRESS_LEN] = {0};
    struct ip_network network;
    (void)ip_address_of(from, address);
    ip_network_of_client(address, &network);
    return network;
}

// Makes it the next larger network that is counted. False: there is none.
static bool
peer_widen(struct ip_network *network)
{
    if (network->bits <= WIDEST_BITS || network->bits > IP_CLIENT_BITS)
        return false;
    network->bits -= WIDENED_BITS;
    network->bytes[network->bits / 8] = 0;
    return true;
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

static struct http_peer *
peer_find(struct http_peers *peers, const struct ip_network *network)
{
    struct http_peer *peer;
    LIST_FOREACH(peer, &peers->slots[peer_slot(network)], slot_link) {
        if (peer->network.bits == network->bits &&
            memcmp(peer->network.bytes, network->bytes, IP_ADDRESS_LEN) == 0)
            break;
    }
    return peer;
}

static bool
peers_are_full(struct http_peers *peers, const struct ip_network *client)
{
    struct ip_network network = *client;
    int max = peers->max_strangers;
    do {
        const struct http_peer *peer = peer_find(peers, &network);
        if (peer && peer->n_strangers >= max)
            return true;
        max *= 2;
    } while (peer_widen(&network));
    return false;
}

static struct http_peer *
peer_count(struct http_peers *peers, const struct ip_network *network, int factor)
{
    struct http_peer *peer = peer_find(peers, network);
    struct ip_network wider = *network;
    if (!peer) {
        peer = KG_NEW(struct http_peer);
        peer->network = *network;
        peer->factor = factor;
        LIST_INSERT_HEAD(&peers->slots[peer_slot(network)], peer, slot_link);
    } else if (peer->n_open == 0) {
        TAILQ_REMOVE(&peers->remembered, peer, remembered_link);
        peers->n_remembered--;
    }
    peer->n_open++;
    peer->n_strangers++;
    peer->within = peer_widen(&wider) ? peer_count(peers, &wider, 2 * factor) : NULL;
    return peer;
}

struct http_peer *
peer_take(struct http_peers *peers, const struct sockaddr *from, bool spared)
{
    const struct ip_network network = peer_network(from);
    spared |= peers->spare_local && ip_address_is_loopback(network.bytes);
    if (!spared && peers_are_full(peers, &network))
        return NULL;
    return peer_count(peers, &network, 1);
}

void
peer_trust(struct http_peer *peer)
{
    for (; peer; peer = peer->within)
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
    struct http_peer *within;
    for (; peer; peer = within) {
        within = peer->within;
        assert(peer->n_open > 0);
        peer->n_strangers -= !was_trusted;
        if (--peer->n_open > 0)
            continue;
        TAILQ_INSERT_TAIL(&peers->remembered, peer, remembered_link);
        peers->n_remembered++;
        if (peer->n_failures == 0)
            peer_remove(peers, peer);
    }
    peers_forget(peers, now_ms);
}

static void
peer_log(const struct http_peer *peer)
{
    char buffer[IP_NETWORK_TEXT_SIZE];
    const char *text = ip_network_format(&peer->network, buffer);
    log_warning("a request came with a wrong key", LOG_STR("address", text));
}

bool
peer_failed(struct http_peer *peer, int64_t now_ms)
{
    bool too_many = false;
    for (; peer; peer = peer->within) {
        if (peer->n_failures == 0 || now_ms - peer->window_ms >= WINDOW_MS) {
            peer->n_failures = 0;
            peer->window_ms = now_ms;
            if (peer->factor == 1)
                peer_log(peer); // once a minute
        }
        too_many |= ++peer->n_failures > FAILURES_MAX * peer->factor;
    }
    return too_many;
}
