// SPDX-License-Identifier: Apache-2.0
// Several gateways of one installation, its replicas: who holds a session, and where that gateway
// is. With engines and settings that allow one gateway only, provisioner_replica_id() is NULL, and
// nothing else here may be called.
#pragma once

#include "base.h"
#include "loop.h"
#include "provisioner.h"

enum {
    PROVISIONER_REPLICA_ID_LEN = 10,
    PROVISIONER_ADDRESS_MAX = 120,
    PROVISIONER_REPLICAS_MAX = 64
};

// The id of this gateway, of a-z2-7: another one for each start. NULL: there are no others.
const char *provisioner_replica_id(const struct provisioner *provisioner);
// `fn` fires when a gateway has ended that held sandboxes: provisioner_recover() takes them over.
void provisioner_on_lost(struct provisioner *provisioner, loop_fn fn, void *arg);
// Whether this gateway is the one that keeps sandboxes ready for all.
bool provisioner_leads(const struct provisioner *provisioner);
// `fn` fires when that has changed.
void provisioner_on_lead(struct provisioner *provisioner, loop_fn fn, void *arg);
// Sandboxes that other gateways hold for sessions, as far as that is known here: what others have
// just claimed may be missing. `whose`: an owner's, those of all with that budget_name(), or (NULL)
// all.
size_t provisioner_claimed_elsewhere(const struct provisioner *provisioner, const char *whose);
// Whether another gateway holds sandboxes for sessions of that owner, as far as that is known here.
bool provisioner_holds_for(const struct provisioner *provisioner, const char *replica_id,
                           const char *owner);
// The kernel of an unclaimed sandbox of this gateway is ready: others may take it.
void provisioner_offer(struct provisioner *provisioner, const char *id);
// The id of a sandbox that another gateway has offered; NULL: none is known. Borrowed until the
// loop's next turn.
const char *provisioner_free_sandbox(const struct provisioner *provisioner);
// Takes it over, as provisioner_create() makes one, but if this fails, the sandbox is left alone.
// KG_NOT_FOUND: it has been claimed, or taken by another gateway.
KG_MUST_CHECK struct provisioner_op *provisioner_take(struct provisioner *provisioner,
                                                      const char *id, provisioner_done_fn on_done,
                                                      provisioner_exit_fn on_exit, void *arg,
                                                      struct kg_error *err);
// Gives up a sandbox that this gateway holds and no longer uses, so that another one takes it over
// at once. Until the API server has answered, provisioner_is_idle() is false.
void provisioner_hand_over(struct provisioner *provisioner, const char *id);
// Another gateway has a sandbox that this one held, as its agent says. Until it is known which one,
// the sandbox's session is a lost one.
void provisioner_overtaken(struct provisioner *provisioner, const char *id);
// Tells the others that this gateway ends, once it has released its sandboxes. Until the API server
// has answered, provisioner_is_idle() is false.
void provisioner_leave(struct provisioner *provisioner);

enum provisioner_holder {
    HOLDER_NOBODY, // there is no such session, or no such replica
    HOLDER_SELF,
    HOLDER_OTHER, // at `address`
    HOLDER_LOST,  // a replica that has ended, and nobody has taken over yet
};
struct provisioner_place {
    enum provisioner_holder holder;
    char id[PROVISIONER_REPLICA_ID_LEN + 1];
    char address[PROVISIONER_ADDRESS_MAX + 1]; // host:port
};

// Where a replica is, by its id (`len` characters).
struct provisioner_place provisioner_replica_place(const struct provisioner *provisioner,
                                                   const char *id, size_t len);
// Whether a replica does not renew its Lease. One that ends by itself removes it, and so is not
// silent: it still answers what was sent to it.
bool provisioner_replica_is_silent(const struct provisioner *provisioner, const char *id);
// The living replicas, without this one; returns their number.
size_t provisioner_other_replicas(const struct provisioner *provisioner,
                                  struct provisioner_place ret[PROVISIONER_REPLICAS_MAX]);
// Where an owner's session is, as far as that is known here; false: it is not, and a search will
// find it.
bool provisioner_session_place(const struct provisioner *provisioner, const char *owner,
                               const char *session_id, struct provisioner_place *ret);
// Where the session is that has the sandbox of that id, as far as that is known here.
struct provisioner_place provisioner_sandbox_place(const struct provisioner *provisioner,
                                                   const char *id);
// Asks the API server. The callback fires once, never before this returns. With `err` it is not
// known.
struct provisioner_search;
typedef void (*provisioner_place_fn)(const struct provisioner_place *place,
                                     const struct kg_error *err, void *arg);
KG_MUST_CHECK struct provisioner_search *
provisioner_search_start(struct provisioner *provisioner, const char *owner, const char *session_id,
                         provisioner_place_fn fn, void *arg, struct kg_error *err);
void provisioner_search_cancel(struct provisioner_search *search);
