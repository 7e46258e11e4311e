// SPDX-License-Identifier: Apache-2.0
// Python packages of a session: installing and listing them. See packages.h for the cache.
#pragma once

#include <jansson.h>

#include "base.h"

struct session;

// Fails with KG_INVALID, naming what is wrong, unless requirements_read() takes `requirements`.
KG_MUST_CHECK int session_packages_check(const json_t *requirements, struct kg_error *err);

struct session_install_events {
    // Progress, as lines for a client: {"type": "progress" | "stdout" | "stderr", "text": …}.
    // Borrowed. May be NULL.
    void (*on_line)(const json_t *line, void *arg);
    // Once, the last; then the handle is gone. `result` is {"status": "ok" | "error", "packages":
    // [{"name", "status": "installed" | "failed", "version"?, "message"?}], "changed"?: [{"name",
    // "from", "to"}]}: one entry for each requirement, and the versions in the session that were
    // replaced; NULL if `err` is set, because the session has ended.
    void (*on_end)(const json_t *result, const struct kg_error *err, void *arg);
};

// Installs packages for the session's kernels and commands: from the cache if the same requirements
// were asked for before, else after a sandbox of its own has downloaded them. Installations of one
// session run one after the other, and count as activity.
struct session_install;
KG_MUST_CHECK struct session_install *
session_install_start(struct session *session, const json_t *requirements,
                      const struct session_install_events *events, void *arg, struct kg_error *err);
// No callback fires any more; the installation goes on.
void session_install_leave(struct session_install *install);
// How long the package of this name, in any spelling, has been installing; -1: it is not.
int64_t session_install_elapsed_ms(const struct session *session, const char *name);

// Lists the packages that are installed or were asked for: {"packages": [{"name", "status":
// "installed" | "installing" | "failed", "version"?, "message"?}]}. With `name` set the body is
// that one entry, with the status "not_found" if there is no such package. Borrowed.
struct session_packages;
typedef void (*session_packages_fn)(const json_t *body, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_packages *session_packages_list(struct session *session,
                                                             const char *name,
                                                             session_packages_fn fn, void *arg,
                                                             struct kg_error *err);
void session_packages_cancel(struct session_packages *packages);
