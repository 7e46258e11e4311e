// SPDX-License-Identifier: Apache-2.0
// Pending opens: requests that wait for a session's sandbox or kernel.
//
// A callback may do anything to the session: cancel other opens, open it again, end it. So opens
// that are due are marked first, and after each callback the list is searched from its start:
// cancelled opens are no longer in it, and new ones are not marked.

#include "metrics.h"
#include "sessions_priv.h"

static struct session_open *
first_due(const struct session *session)
{
    struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link) {
        if (open->due)
            return open;
    }
    return NULL;
}

static void
opens_answer(struct session_open *open, struct kernel *kernel, const struct kg_error *err)
{
    struct session *session = open->session;
    session_open_fn fn = open->fn;
    void *arg = open->arg;
    TAILQ_REMOVE(&session->opens, open, link);
    if (open->asked_us && !err)
        metric_observe_since(METRIC_SESSION_OPEN_SECONDS, open->asked_us);
    free(open);
    fn(err ? NULL : session, kernel, err, arg);
}

void
session_opens_fail(struct session *session, const struct kernelspec *spec,
                   const struct kg_error *err)
{
    struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link)
        open->due = !spec || open->spec == spec;
    while ((open = first_due(session)))
        opens_answer(open, NULL, err);
}

void
session_opens_answer(struct session *session)
{
    struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link) {
        const struct kernel *kernel = session_find_kernel(session, open->spec);
        open->due = kernel && kernel_has_started(kernel);
    }
    while ((open = first_due(session)))
        opens_answer(open, session_find_kernel(session, open->spec), NULL);
}
