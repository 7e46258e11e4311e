// SPDX-License-Identifier: Apache-2.0
// Connections to ports: how many there are, those that wait, and the list of what listens.

#include "session_ports.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "session_commands.h"
#include "sessions_priv.h"

enum {
    LINKS_OF_ALL = 2048, // each has two descriptors
    OPEN_MS = 20 * 1000, // the agent itself waits for 10 s
    LIST_MS = 10 * 1000,
    TOUCH_MS = 1000,
    LISTED_MAX = 128,
};

struct session_port {
    TAILQ_ENTRY(session_port) link;
    TAILQ_ENTRY(session_port) in_queue; // while it waits
    struct session *session;
    int port;
    bool waits;
    struct sandbox_call *call; // while it is being opened
    struct budget_hold hold;
    int64_t touched_ms;
    session_port_fn fn;
    void *arg;
};

static void
ports_next(const struct sessions *sessions)
{
    if (!TAILQ_EMPTY(&sessions->ports_waiting))
        loop_timer_start(sessions->ports_step, 0);
}

void
session_port_close(struct session_port *port)
{
    if (!port)
        return;
    struct session *session = port->session;
    struct sessions *sessions = session->sessions;
    if (port->waits)
        TAILQ_REMOVE(&sessions->ports_waiting, port, in_queue);
    else
        session->n_port_links--;
    TAILQ_REMOVE(&session->ports, port, link);
    sandbox_call_cancel(port->call);
    budget_hold_end(&port->hold);
    free(port);
    ports_next(sessions);
}

static void
port_fail(struct session_port *port, const struct kg_error *err)
{
    session_port_fn fn = port->fn;
    void *arg = port->arg;
    session_port_close(port);
    fn(-1, err, arg);
}

void
session_ports_end(struct session *session, const struct kg_error *err)
{
    for (struct session_port *port; (port = TAILQ_FIRST(&session->ports));)
        port_fail(port, err);
}

static void
port_on_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct session_port *port = arg;
    struct kg_error err;
    port->call = NULL;
    if (fd >= 0) {
        port->fn(fd, NULL, port->arg);
        return;
    }
    err = *link_err;
    if (strcmp(err.message, "bad target") == 0)
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the session was started by an older version of kernelgate, whose agent "
                     "cannot reach ports");
    port_fail(port, &err);
}

// Whether one more may be open.
static bool
has_room(const struct session_port *port)
{
    return port->session->n_port_links < SESSION_PORT_LINKS_MAX &&
           budget_hold_has_room(&port->hold, 1);
}

static void
port_dial(struct session_port *port)
{
    struct session *session = port->session;
    struct kg_error err = {0};
    char target[32];
    TAILQ_REMOVE(&session->sessions->ports_waiting, port, in_queue);
    port->waits = false;
    session->n_port_links++;
    budget_hold_set(&port->hold, 1);
    snprintf(target, sizeof target, "port/%d", port->port);
    struct sandbox *sandbox = session_commands_sandbox(session, &err);
    if (sandbox)
        port->call = sandbox_open_link(sandbox, target, OPEN_MS, port_on_link, port, &err);
    if (!port->call)
        port_fail(port, &err);
}

// From the start again after each: one that fails may end others.
static void
sessions_on_ports_step(void *arg)
{
    struct sessions *sessions = arg;
    struct session_port *port = TAILQ_FIRST(&sessions->ports_waiting);
    while (port) {
        if (!has_room(port)) {
            port = TAILQ_NEXT(port, in_queue);
            continue;
        }
        port_dial(port);
        port = TAILQ_FIRST(&sessions->ports_waiting);
    }
}

struct session_port *
session_port_open(struct session *session, int number, session_port_fn fn, void *arg)
{
    struct sessions *sessions = session->sessions;
    struct session_port *port = KG_NEW(struct session_port);
    port->session = session;
    port->port = number;
    port->fn = fn;
    port->arg = arg;
    port->waits = true;
    budget_hold_start(&port->hold, &sessions->ports, session->owner);
    TAILQ_INSERT_TAIL(&session->ports, port, link);
    TAILQ_INSERT_TAIL(&sessions->ports_waiting, port, in_queue);
    loop_timer_start(sessions->ports_step, 0);
    return port;
}

void
session_port_used(struct session_port *port)
{
    int64_t now = clock_mono_ms();
    if (now - port->touched_ms < TOUCH_MS)
        return;
    port->touched_ms = now;
    session_touch(port->session);
}

void
sessions_ports_init(struct sessions *sessions)
{
    TAILQ_INIT(&sessions->ports_waiting);
    budget_init(&sessions->ports, "port_connections", LINKS_OF_ALL, LINKS_OF_ALL);
    budget_set_several_owners(&sessions->ports, sessions->settings.several_owners);
    sessions->ports_step = loop_timer_new(sessions->loop, sessions_on_ports_step, sessions);
}

void
sessions_ports_fini(struct sessions *sessions)
{
    loop_timer_free(sessions->ports_step);
    budget_fini(&sessions->ports);
}

// ---- Public ones ----------------------------------------------------------------------------

bool
session_port_is_public(const struct session *session, int port)
{
    if (session->ports_are_public)
        return true;
    for (size_t i = 0; i < session->n_public_ports; i++) {
        if (session->public_ports[i] == port)
            return true;
    }
    return false;
}

int
session_port_set_public(struct session *session, int port, bool is_public, struct kg_error *err)
{
    size_t i = 0;
    while (i < session->n_public_ports && session->public_ports[i] != port)
        i++;
    bool was_public = i < session->n_public_ports;
    if (was_public && !is_public)
        session->public_ports[i] = session->public_ports[--session->n_public_ports];
    if (was_public || !is_public)
        return 0;
    if (session->n_public_ports == SESSION_PUBLIC_PORTS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "public: a session may have %d public ports",
                            SESSION_PUBLIC_PORTS_MAX);
    session->public_ports[session->n_public_ports++] = port;
    return 0;
}

// ---- What listens ---------------------------------------------------------------------------

struct sandbox_call *
session_port_list(struct session *session, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    struct sandbox *sandbox = session_commands_sandbox(session, err);
    return sandbox ? sandbox_agent_call(sandbox, "ports.list", NULL, LIST_MS, fn, arg, err) : NULL;
}

static bool
is_address(const char *text)
{
    struct in6_addr address;
    return text &&
           (inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1);
}

json_t *
session_port_list_parse(const struct session *session, const json_t *result, struct kg_error *err)
{
    size_t i;
    const json_t *entry, *listed = json_object_get(result, "ports");
    json_auto_t *ports = json_array();
    json_int_t last = 0;
    bool is_valid = json_is_array(listed) && json_array_size(listed) <= LISTED_MAX;
    for (i = 0; is_valid && i < json_array_size(listed); i++) {
        entry = json_array_get(listed, i);
        json_int_t port = json_integer_value(json_object_get(entry, "port"));
        const char *address = json_string_value(json_object_get(entry, "address"));
        is_valid = port >= 1 && port <= SESSION_PORT_MAX && port >= last && is_address(address);
        if (!is_valid || port == last) // it listens on several addresses
            continue;
        last = port;
        json_array_append_new(ports,
                              json_pack("{s:I, s:s, s:b}", "port", port, "address", address,
                                        "public", (int)session_port_is_public(session, (int)port)));
    }
    if (is_valid)
        return KG_STEAL(ports);
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's agent lists no valid ports");
    return NULL;
}
