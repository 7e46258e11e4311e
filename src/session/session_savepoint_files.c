// SPDX-License-Identifier: Apache-2.0
// What the agent keeps of /mnt/data for savepoints, and when it drops that.

#include "session_savepoints.h"
#include "sessions_priv.h"

enum { DROP_TIMEOUT_MS = 60 * 1000 };

static void
files_on_dropped(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    session->files_drop = NULL;
    if (!body) // an older agent keeps none
        log_debug("files of savepoints were not dropped", LOG_STR("session", session->id),
                  LOG_ERR(err));
    bool again = session->drops_files_again;
    session->drops_files_again = false;
    if (again)
        session_savepoint_files_drop(session);
}

void
session_savepoint_files_drop(struct session *session)
{
    const struct session_savepoint *savepoint;
    session->drops_files_again = session->files_drop;
    if (session->files_drop || session->state != SESSION_READY)
        return;
    json_auto_t *except = json_array();
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (savepoint->has_files)
            json_array_append_new(except, json_string(savepoint->id));
    }
    json_auto_t *params = json_pack("{s:O}", "except", except);
    session->files_drop = sandbox_agent_call(session->sandbox, "data.drop", params, DROP_TIMEOUT_MS,
                                             files_on_dropped, session, NULL);
}

// The files end with the sandbox.
void
session_savepoint_files_end(struct session *session)
{
    sandbox_call_cancel(KG_STEAL(session->files_drop));
}
