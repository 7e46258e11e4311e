// SPDX-License-Identifier: Apache-2.0
// What proxies say of their clients: whether a request comes from another machine, which any header
// may say, and from which network, for which only proxies that are trusted are believed.

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "http_priv.h"
#include "ip_network.h"

// ---- Addresses in headers -------------------------------------------------------------------

// An address in the forms that proxies write: 127.0.0.1, ::1, ::ffff:127.0.0.1, with a port
// 127.0.0.1:80 or [::1]:80, in a Forwarded header maybe in quotation marks.
static bool
parse_address(const char *text, size_t len, unsigned char ret[IP_ADDRESS_LEN])
{
    char address[INET6_ADDRSTRLEN];
    const char *begin = text + strspn(text, " \t\"");
    bool bracketed = *begin == '[';
    begin += bracketed;
    size_t n = strcspn(begin, bracketed ? "]" : " \t\",;");
    const char *colon = memchr(begin, ':', n);
    if (!bracketed && colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - begin)))
        n = (size_t)(colon - begin); // a single colon begins a port
    if (begin + n + bracketed > text + len || n >= sizeof address)
        return false;
    memcpy(address, begin, n);
    address[n] = '\0';
    struct ip_network network;
    if (strchr(address, '/') || !ip_network_parse(address, &network))
        return false;
    memcpy(ret, network.bytes, IP_ADDRESS_LEN);
    return true;
}

// ---- From elsewhere -------------------------------------------------------------------------

// Whether all addresses in a list are; of a Forwarded header (RFC 7239) those after "for=".
static bool
are_loopback(const char *list, bool is_forwarded)
{
    for (const char *item = list; *item; item += *item != '\0') {
        unsigned char address[IP_ADDRESS_LEN];
        item += strspn(item, " \t");
        size_t len = strcspn(item, is_forwarded ? ",;" : ",");
        size_t skip = 0;
        if (is_forwarded)
            skip = strncasecmp(item, "for=", 4) == 0 ? 4 : len;
        if (skip < len &&
            !(parse_address(item + skip, len - skip, address) && ip_address_is_loopback(address)))
            return false;
        item += len;
    }
    return true;
}

bool
proxies_say_elsewhere(const struct http_request *request)
{
    for (size_t i = 0; i < request->head.n_headers; i++) {
        const struct http_header *header = &request->head.headers[i];
        bool is_forwarded = strcasecmp(header->name, "Forwarded") == 0;
        if ((is_forwarded || strcasecmp(header->name, "X-Forwarded-For") == 0 ||
             strcasecmp(header->name, "X-Real-IP") == 0) &&
            !are_loopback(header->value, is_forwarded))
            return true;
    }
    return false;
}

// The first value comes from the proxy nearest to the client.
bool
http_request_is_https(const struct http_request *request)
{
    const char *schemes = http_request_header(request, "X-Forwarded-Proto");
    return schemes && strcspn(schemes, " ,") == strlen("https") &&
           strncasecmp(schemes, "https", strlen("https")) == 0;
}

// ---- Trusted proxies ------------------------------------------------------------------------

static const char *const private_networks[] = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
                                               "fc00::/7", NULL};

static void
add_network(struct http_proxies *proxies, const struct ip_network *network)
{
    proxies->networks =
        kg_realloc(proxies->networks, (proxies->n + 1) * sizeof proxies->networks[0]);
    proxies->networks[proxies->n++] = *network;
}

int
proxies_init(struct http_proxies *proxies, const char *const *trusted, struct kg_error *err)
{
    struct ip_network network;
    for (; trusted && *trusted; trusted++) {
        if (strcmp(*trusted, "private") == 0) {
            if (proxies_init(proxies, private_networks, err) < 0)
                return -1;
        } else if (ip_network_parse(*trusted, &network)) {
            add_network(proxies, &network);
        } else {
            return kg_error_set(err, KG_INVALID, 0,
                                "trusted-proxies: \"%.80s\" is neither an address nor a network "
                                "(10.0.0.0/8), nor the word private",
                                *trusted);
        }
    }
    return 0;
}

void
proxies_fini(struct http_proxies *proxies)
{
    free(proxies->networks);
}

static bool
is_trusted(const struct http_proxies *proxies, const unsigned char address[IP_ADDRESS_LEN])
{
    for (size_t i = 0; i < proxies->n; i++) {
        if (ip_network_has(&proxies->networks[i], address))
            return true;
    }
    return ip_address_is_loopback(address);
}

// All lines of X-Forwarded-For as one, to be freed.
static char *
forwarded_for(const struct http_request *request)
{
    KG_AUTO_BUF list = {0};
    buf_append_str(&list, "");
    for (size_t i = 0; i < request->head.n_headers; i++) {
        const struct http_header *header = &request->head.headers[i];
        if (strcasecmp(header->name, "X-Forwarded-For") == 0)
            buf_printf(&list, ",%s", header->value);
    }
    return buf_take(&list);
}

// Each proxy adds the address that it sees, so the list is read from its end, as long as those who
// have written it are trusted.
static void
find_client(const struct http_proxies *proxies, const struct http_request *request,
            unsigned char address[IP_ADDRESS_LEN])
{
    KG_AUTO_FREE char *list = forwarded_for(request);
    char *comma;
    while (is_trusted(proxies, address) && (comma = strrchr(list, ','))) {
        if (!parse_address(comma + 1, strlen(comma + 1), address))
            return;
        *comma = '\0';
    }
}

bool
http_request_network(const struct http_request *request, char ret[IP_NETWORK_TEXT_SIZE])
{
    const struct http_connection *conn = request->conn;
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof from;
    unsigned char address[IP_ADDRESS_LEN];
    struct ip_network network;
    ret[0] = '\0';
    if (!conn || getpeername(conn->fd, (struct sockaddr *)&from, &from_len) != 0 ||
        !ip_address_of((struct sockaddr *)&from, address))
        return false;
    find_client(&conn->server->proxies, request, address);
    ip_network_of_client(address, &network);
    ip_network_format(&network, ret);
    return !ip_address_is_loopback(address);
}
