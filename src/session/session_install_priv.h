// SPDX-License-Identifier: Apache-2.0
// One installation, for the files that do it. Each uses those below it only:
//
//     session_installs.c      the queue, and the wheels of what is missing
//     session_install_set.c   gives the session a set of packages that it only has to see
//     session_install_pip.c   runs pip in the session, where no folder is shared with it
//     session_install.c       what is said of an installation, and its result
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
    char *set;                          // the new one; or NULL
    struct packages_delivery *delivery; // of the wheels, or their removal
    struct kg_error err;                // how the installation ended, while they are removed
    void (*on_checked)(struct session_install *install); // `missing` and `satisfied` are known
};

// ---- session_install.c ----------------------------------------------------------------------

struct packages *install_packages_of(const struct session_install *install);
// Sends a line to its client, if that is still there.
void install_say(const struct session_install *install, const char *type, const char *text,
                 size_t len);
void install_say_progress(const struct session_install *install, const char *text);
// The version of what has `wanted` as its `key` in a list of such objects, borrowed; NULL: none.
const char *install_version_in(const json_t *list, const char *key, const char *wanted);
// What the session says of a package; `version` and `message` may be NULL.
void install_set_state(struct session *session, const char *requirement, const char *status,
                       const char *version, const char *message);
// Tells its client the result, and frees it. `err` may be NULL.
void install_end(struct session_install *install, const struct kg_error *err);
// Frees it without a word.
void install_free(struct session_install *install);

// ---- session_install_set.c, session_install_pip.c -------------------------------------------

// Find out what is missing, and then call on_checked().
void install_set_check(struct session_install *install);
KG_MUST_CHECK int install_pip_check(struct session_install *install, struct kg_error *err);
// Install the wheels of the resolution, and then end the installation.
void install_set(struct session_install *install);
void install_pip(struct session_install *install);
