// SPDX-License-Identifier: Apache-2.0
// Client addresses: how many connections of each have had no valid key so far, and how many wrong
// keys each has sent.

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#include "http_priv.h"

enum {
    FAILURES_MAX = 10, // within a minute; further ones are slowed
    WINDOW_MS = 60 * 1000,
    STRANGERS_MAX = 64,
    REMEMBERED_MAX = 1024, // addresses without a connection
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
    const struct ip_network network = peer_network(from);
    size_t slot = peer_slot(&network);
    struct http_peer *peer;
    LIST_FOREACH(peer, &peers->slots[slot], slot_link) {
        if (memcmp(peer->network.bytes, network.bytes, IP_ADDRESS_LEN) == 0)
            break;
    }
    spared |= peers->spare_local && ip_address_is_loopback(network.bytes);
    if (peer && !spared && peer->n_strangers >= peers->max_strangers)
        return NULL;
    if (!peer) {
        peer = KG_NEW(struct http_peer);
        peer->network = network;
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
    char buffer[IP_NETWORK_TEXT_SIZE];
    const char *text = ip_network_format(&peer->network, buffer);
    log_warning("a request came with a wrong key", LOG_STR("address", text));
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
