// SPDX-License-Identifier: Apache-2.0
// Where a request is answered: here, or by the replica that has what the request concerns. Tries
// the rules of its route (struct http_concern) one after the other.
#include <assert.h>
#include <string.h>

#include "replicas_priv.h"
#include "sessions.h"

enum { INLINE_BODY_BYTES = 64 << 10, RULES_MAX = 8 };

struct placing {
    struct replicas *replicas;
    struct http_request *request;
    bool is_forwarded;
    const struct http_concern *rules;
    size_t next; // the rule that is tried next
    bool has_read;
    char *names[RULES_MAX]; // in the body, by rule; or NULL
    struct loop_work *work; // reads them, if the body is large
    struct http_body *body; // the request's, while they are read
};

enum step {
    STEP_NEXT,  // the rule does not apply
    STEP_HERE,  // this replica answers
    STEP_TAKEN, // the request is answered elsewhere, or later
};

static bool walk(struct placing *placing);

static void
placing_free(void *arg)
{
    struct placing *placing = arg;
    for (size_t i = 0; i < RULES_MAX; i++)
        free(placing->names[i]);
    http_body_free(placing->body);
    free(placing);
}

static void
walk_or_handle(struct placing *placing)
{
    struct http_request *request = placing->request;
    http_request_disown(request);
    if (!walk(placing))
        http_request_handle(request);
}

// ---- Names in bodies ------------------------------------------------------------------------

// The body may be anything; the request's handler checks it.
char *
place_read_body(const struct http_concern *rule, const char *body, size_t body_len)
{
    const char *text = body;
    size_t len = body_len;
    for (const char *at = rule->within; text && at && *at; at += strcspn(at, "/")) {
        at++; // the slash
        KG_AUTO_FREE char *member = kg_strndup(at, strcspn(at, "/"));
        text = json_member(text, len, member, &len);
    }
    text = text ? json_member(text, len, rule->name, &len) : NULL;
    // Only a name is decoded: each of its bytes takes at most six characters ("\u0061").
    bool is_name = text && len <= 6 * PLACE_NAME_MAX + 2 && *text == '"';
    json_auto_t *value = is_name ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const char *name = json_string_value(value);
    return name && strlen(name) <= PLACE_NAME_MAX ? kg_strdup(name) : NULL;
}

static void
read_names(struct placing *placing, const char *body, size_t len)
{
    for (size_t i = placing->next; placing->rules[i].kind; i++) {
        if (placing->rules[i].part == HTTP_IN_BODY)
            placing->names[i] = place_read_body(&placing->rules[i], body, len);
    }
    placing->has_read = true;
}

static void
on_worker(void *arg)
{
    struct placing *placing = arg;
    size_t len;
    const char *body = http_body_data(placing->body, &len);
    read_names(placing, body, len);
}

static void
on_names_read(void *arg)
{
    struct placing *placing = arg;
    placing->work = NULL;
    http_request_give_body(placing->request, KG_STEAL(placing->body));
    walk_or_handle(placing);
}

static void
placing_cancel(void *arg)
{
    const struct placing *placing = arg;
    loop_work_cancel(placing->work, placing_free);
}

// True: a worker reads the names, and the walk goes on then.
static bool
read_body(struct placing *placing)
{
    size_t len;
    struct http_request *request = placing->request;
    const char *body = http_request_body(request, &len);
    const char *owner = http_request_owner(request);
    if (len <= INLINE_BODY_BYTES) {
        read_names(placing, body, len);
        return false;
    }
    placing->body = http_request_take_body(request);
    placing->work =
        loop_work_start(placing->replicas->settings.loop, loop_lane_of(owner ? owner : ""),
                        on_worker, on_names_read, placing);
    http_request_own(request, placing, placing_cancel);
    return true;
}

// The name that a rule finds, to be freed; NULL: none. Of a path that goes on only the first
// segment counts.
static char *
find_name(const struct placing *placing, const struct http_concern *rule)
{
    struct http_request *request = placing->request;
    const char *name = NULL;
    switch (rule->part) {
    case HTTP_IN_NOTHING:
        break;
    case HTTP_IN_PATH:
        name = http_request_param(request, rule->name);
        return kg_strndup(name, strcspn(name, "/"));
    case HTTP_IN_QUERY:
        name = http_request_query(request, rule->name);
        break;
    case HTTP_IN_HEADER:
        name = http_request_header(request, rule->name);
        break;
    case HTTP_IN_BODY:
        name = placing->names[rule - placing->rules];
        break;
    }
    return name ? kg_strdup(name) : NULL;
}

// ---- Rules ----------------------------------------------------------------------------------

static struct provisioner_place
place_of_made(const struct replicas *replicas, const char *id)
{
    const size_t own_len = PROVISIONER_REPLICA_ID_LEN;
    size_t len = strlen(id);
    if (len <= own_len)
        return (struct provisioner_place){.holder = HOLDER_NOBODY};
    return provisioner_replica_place(replicas->settings.provisioner, id + len - own_len, own_len);
}

// A request comes to the gateway of its MCP session once, and then goes on to what its message
// names.
static enum step
follow_made(const struct placing *placing, const struct http_concern *rule, const char *id)
{
    const struct provisioner_place place = place_of_made(placing->replicas, id);
    bool was_there = placing->is_forwarded && rule->part != HTTP_IN_NOTHING;
    if (was_there || place.holder != HOLDER_OTHER)
        return STEP_NEXT;
    replicas_send(placing->replicas, placing->request, &place, NULL);
    return STEP_TAKEN;
}

// The owner in a signed link counts, not the owner of the key that is sent with it. The holder
// checks the signature.
static enum step
follow_session(const struct placing *placing, const struct http_concern *rule, const char *id)
{
    struct http_request *request = placing->request;
    const char *owner = rule->owner ? http_request_query(request, rule->owner) : NULL;
    if (!owner)
        owner = http_request_owner(request);
    return lookup_start(placing->replicas, request, owner, id) ? STEP_TAKEN : STEP_HERE;
}

// The cache has all sandboxes of sessions.
static enum step
follow_sandbox(const struct placing *placing, const char *id)
{
    struct replicas *replicas = placing->replicas;
    const struct provisioner_place place =
        provisioner_sandbox_place(replicas->settings.provisioner, id);
    if (sessions_find_by_sandbox(replicas->settings.sessions, id))
        return STEP_HERE;
    if (place.holder == HOLDER_OTHER)
        replicas_send(replicas, placing->request, &place, NULL);
    else if (place.holder == HOLDER_LOST)
        replicas_reply_lost(placing->request);
    else
        return STEP_HERE;
    return STEP_TAKEN;
}

// Of the answers of the others, the place of the first entry of which that member is the name.
static const struct provisioner_place *
find_entry(const struct fan_out_answer *answers, size_t n, const char *member, const char *name)
{
    const json_t *entry;
    size_t j;
    for (size_t i = 0; i < n; i++)
        json_array_foreach(answers[i].body, j, entry) {
            const char *text = json_string_value(json_object_get(entry, member));
            if (text && strcmp(text, name) == 0)
                return &answers[i].place;
        }
    return NULL;
}

static void
on_entries(struct http_request *request, const struct fan_out_answer *answers, size_t n, void *arg)
{
    struct placing *placing = arg;
    const struct http_concern *rule = &placing->rules[placing->next++];
    KG_AUTO_FREE char *name = find_name(placing, rule);
    const struct provisioner_place *place = find_entry(answers, n, rule->member, name);
    if (!place) {
        walk_or_handle(placing);
        return;
    }
    replicas_send(placing->replicas, request, place, NULL);
    placing_free(placing);
}

// The collection that the route's path is in, with the query of the request. To be freed.
static char *
collection_of(const struct http_request *request)
{
    const char *route = http_request_route(request);
    const char *param = strstr(route, "/{");
    const char *query = strchr(http_request_target(request), '?');
    size_t len = param ? (size_t)(param - route) : strlen(route);
    return kg_asprintf("%.*s%s", (int)len, route, query ? query : "");
}

// Takes the walk, which goes on when the others have answered.
static enum step
follow_entry(struct placing *placing)
{
    struct http_request *request = placing->request;
    if (placing->is_forwarded || placing->replicas->left) {
        enum step step = placing->is_forwarded ? STEP_HERE : STEP_TAKEN;
        if (step == STEP_TAKEN)
            replicas_reply_lost(request);
        placing_free(placing);
        return step;
    }
    KG_AUTO_FREE char *target = collection_of(request);
    const struct fan_out_asker asker = {on_entries, placing_free, placing};
    fan_out_start(placing->replicas, request, target, &asker);
    return STEP_TAKEN;
}

// What all replicas have together. One that has left has nothing any more.
static enum step
list_all(const struct placing *placing, const char *target)
{
    struct http_request *request = placing->request;
    if (placing->replicas->left)
        replicas_reply_lost(request);
    else if (placing->is_forwarded && !target)
        return STEP_HERE; // another one asks
    else
        fan_out_list(placing->replicas, request, target ? target : http_request_target(request));
    return STEP_TAKEN;
}

// Takes the walk, unless the next rule is to be tried.
static enum step
apply(struct placing *placing, const struct http_concern *rule, const char *name)
{
    enum step step = STEP_NEXT;
    switch (rule->kind) {
    case HTTP_CONCERNS_END:
    case HTTP_CONCERNS_ASKED:
        break;
    case HTTP_CONCERNS_SESSION:
        step = name ? follow_session(placing, rule, name) : STEP_NEXT;
        break;
    case HTTP_CONCERNS_SANDBOX:
        step = name ? follow_sandbox(placing, name) : STEP_NEXT;
        break;
    case HTTP_CONCERNS_MADE:
        step = name ? follow_made(placing, rule, name) : STEP_NEXT;
        break;
    case HTTP_CONCERNS_ENTRY:
        return name ? follow_entry(placing) : STEP_NEXT;
    case HTTP_CONCERNS_ALL:
        step = list_all(placing, rule->target);
        break;
    case HTTP_CONCERNS_EACH:
        fan_out_tell(placing->replicas, placing->request, rule->headers);
        step = STEP_HERE;
        break;
    case HTTP_CONCERNS_HERE:
        step = STEP_HERE;
        break;
    }
    if (step != STEP_NEXT)
        placing_free(placing);
    return step;
}

static enum step
try_rule(struct placing *placing, const struct http_concern *rule)
{
    struct http_concern asked = {.kind = HTTP_CONCERNS_END};
    KG_AUTO_FREE char *name = NULL;
    if (rule->kind == HTTP_CONCERNS_ASKED)
        rule->ask(placing->request, &asked, &name, http_request_arg(placing->request));
    else
        name = find_name(placing, rule);
    return apply(placing, rule->kind == HTTP_CONCERNS_ASKED ? &asked : rule, name);
}

// False: this replica answers. Takes the walk in any case.
static bool
walk(struct placing *placing)
{
    for (; placing->rules[placing->next].kind; placing->next++) {
        const struct http_concern *rule = &placing->rules[placing->next];
        if (rule->part == HTTP_IN_BODY && !placing->has_read && read_body(placing))
            return true;
        enum step step = try_rule(placing, rule);
        if (step != STEP_NEXT)
            return step == STEP_TAKEN;
    }
    struct replicas *replicas = placing->replicas;
    struct http_request *request = placing->request;
    placing_free(placing);
    return lookup_start(replicas, request, NULL, NULL);
}

bool
place_start(struct replicas *replicas, struct http_request *request, bool is_forwarded)
{
    const struct http_concern *rules = http_request_concerns(request);
    if (!rules)
        return lookup_start(replicas, request, NULL, NULL);
    for (size_t n = 0; rules[n].kind; n++)
        assert(n < RULES_MAX);
    struct placing *placing = KG_NEW(struct placing);
    placing->replicas = replicas;
    placing->request = request;
    placing->is_forwarded = is_forwarded;
    placing->rules = rules;
    return walk(placing);
}
