// SPDX-License-Identifier: Apache-2.0
// Clients that are connected to a session, which is not idle while there is one.

#include "sessions_priv.h"

struct session_client {
    TAILQ_ENTRY(session_client) link;
    struct session *session; // NULL: ended
};

struct session_client *
session_client_new(struct session *session)
{
    struct session_client *client = KG_NEW(struct session_client);
    client->session = session;
    TAILQ_INSERT_TAIL(&session->clients, client, link);
    return client;
}

struct session *
session_client_session(const struct session_client *client)
{
    return client->session;
}

void
session_client_free(struct session_client *client)
{
    if (!client)
        return;
    if (client->session) {
        TAILQ_REMOVE(&client->session->clients, client, link);
        session_touch(client->session);
    }
    free(client);
}

void
session_clients_end(struct session *session)
{
    for (struct session_client *client; (client = TAILQ_FIRST(&session->clients));) {
        TAILQ_REMOVE(&session->clients, client, link);
        client->session = NULL;
    }
}
