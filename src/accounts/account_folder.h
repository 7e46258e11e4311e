// SPDX-License-Identifier: Apache-2.0
// The folder of a database of accounts, which must belong to who opens the database.
#pragma once

#include "base.h"

// As root, before a gateway becomes that user: the files of the database at `path` that are root's
// become the user's, and so does their folder if it is root's and has nothing else in it. `user`
// may be root. Fails with what the operator can do if the folder stays another's, or if the user
// cannot reach it.
KG_MUST_CHECK int account_folder_hand_over(const char *path, unsigned user, unsigned group,
                                           struct kg_error *err);
// Whether that would succeed; changes nothing.
KG_MUST_CHECK int account_folder_check(const char *path, unsigned user, struct kg_error *err);
// Whether the database at `path` is in this folder.
KG_MUST_CHECK bool account_folder_is(const char *path, const char *folder);
// Who owns the folder; false: there is none.
KG_MUST_CHECK bool account_folder_owner(const char *path, unsigned *ret_user, unsigned *ret_group);
