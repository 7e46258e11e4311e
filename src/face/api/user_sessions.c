// SPDX-License-Identifier: Apache-2.0
// DELETE /api/v1/users/{id}/sessions: an administrator ends all sessions of a user.

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"
#include "session.h"
#include "sessions.h"

// Waits until the sandboxes are gone.
struct ending {
    struct account_request *request;
    size_t left;
    size_t ended;
};

static void
ending_step(struct ending *ending)
{
    if (--ending->left > 0)
        return;
    struct account_request *request = ending->request;
    request->answer =
        json_pack("{s:s, s:I}", "message", "Sessions ended", "ended", (json_int_t)ending->ended);
    free(ending);
    account_request_reply(request);
}

static void
on_ended(void *arg)
{
    ending_step(arg);
}

static void
end_sessions(struct account_request *self)
{
    struct sessions *sessions = self->context->face->sessions;
    struct ending *ending = KG_NEW(struct ending);
    *ending = (struct ending){.request = self, .left = 1};
    json_auto_t *ids = sessions_ids(sessions, self->subject);
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id) {
        struct session *session =
            sessions_find(sessions, self->subject, json_string_value(id), NULL);
        if (!session) // it ended because another one did
            continue;
        ending->left++;
        ending->ended++;
        session_end(session, "the session was ended by an administrator", on_ended, ending);
    }
    ending_step(ending);
}

static int
check_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_user_check_administrator(store, self->owner, err) < 0)
        return -1;
    return account_user_check(store, self->subject, err);
}

void
handle_user_sessions_end(struct http_request *request, void *arg)
{
    struct account_request *self =
        account_request_new(request, "sessions ended", http_request_param(request, "id"));
    self->then = end_sessions;
    account_request_start(self, arg, check_run);
}
