// SPDX-License-Identifier: Apache-2.0
// A command that root has started becomes three processes: the gateway, which keeps the process id
// and gives up root's rights, a starter and a helper (src/helper).
#pragma once

#include "core.h"
#include "privileges.h"

struct split_settings {
    struct core *core;        // after core_prepare()
    bool keeps_user;          // the process stays root, without most capabilities
    const char *user;         // the setting; NULL: its default
    const char *const *files; // the helper watches: see helper_server.h
    size_t n_files;
    int network; // of this machine, for what must not be in the helper's own: split_start()
    struct privileges_user for_user; // split_start() sets it, for the helper
};

// Does nothing where root has not started it. Otherwise forks the helper, which core->link is then
// of, and divides the state folder. Call it before anything is bound, and with one thread.
KG_MUST_CHECK int split_start(struct split_settings *settings, struct privileges_user *ret,
                              struct kg_error *err);
// Gives up what `user` (of split_start()) need not have. For good; everything that only root can
// open must be open.
KG_MUST_CHECK int split_drop(const struct split_settings *settings,
                             const struct privileges_user *user, struct kg_error *err);
