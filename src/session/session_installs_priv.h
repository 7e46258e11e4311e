// SPDX-License-Identifier: Apache-2.0
// One installation, for the files that do it: session_installs.c has the queue, the wheels and the
// result; session_install_set.c gives the session a set of packages that it only has to see;
// session_install_pip.c runs pip in the session, where no folder is shared with it.
#pragma once

#include <sys/queue.h>

#include "packages.h"
#include "pip.h"
#include "session_commands.h"
#include "session_packages.h"
#include "sessions_priv.h"

// queued -> [checking] -> [waiting for wheels] -> by a set or by pip -> done
struct session_install {
    TAILQ_ENTRY(session_install) link;
    struct session *session;
    struct session_install_events events; // empty where its client has left
    void *arg;
    int64_t asked_us;
    json_t *requirements; // in their normal form
    json_t *missing;
    json_t *satisfied;  // by what is there, or beside the wheels
    json_t *resolution; // the wheels to install
    json_t *stale;      // an old resolution from the cache, used if the index does not answer
    json_t *changed;    // [{"name", "from", "to"}]: versions that this installation replaces
    struct session_command *command;
    struct pip_output output;
    struct wheel_wait *wait;
    struct package_set_making *making;
    char *set_before;                   // the session's set until now; or NULL
    struct packages_delivery *delivery; // of the wheels, or their removal
    struct kg_error err;                // how the installation ended, while they are removed
};

// ---- session_installs.c ---------------------------------------------------------------------

struct packages *install_packages_of(const struct session_install *install);
void install_say(const struct session_install *install, const char *type, const char *text,
                 size_t len);
void install_say_progress(const struct session_install *install, const char *text);
// Finds or waits for the wheels of what is missing, and then installs them; ends the installation
// where nothing is missing.
void install_find_wheels(struct session_install *install);
// The version of what satisfies a requirement in a list of {"requirement", "version"}, borrowed.
const char *install_version_in(const json_t *list, const char *key, const char *wanted);
// Frees it. `err` may be NULL.
void install_end(struct session_install *install, const struct kg_error *err);

// ---- session_install_set.c ------------------------------------------------------------------

// Finds out what is missing, and calls install_find_wheels().
void install_set_begin(struct session_install *install);
// Installs the wheels of the resolution.
void install_set(struct session_install *install);

// ---- session_install_pip.c ------------------------------------------------------------------

// The same two.
KG_MUST_CHECK int install_pip_begin(struct session_install *install, struct kg_error *err);
void install_pip(struct session_install *install);
