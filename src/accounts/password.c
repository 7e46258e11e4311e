// SPDX-License-Identifier: Apache-2.0
// Passwords: hashes, and a queue of jobs that make or compare them.

#include "password.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>
#include <sys/queue.h>

// What OWASP recommends at the least. More memory would delay the loop: to give it back, as
// libsodium does after each hash, keeps the whole process from allocating.
enum { PASSES = 2, MEMORY_BYTES = 19456 << 10 };

// ---- Hashes ---------------------------------------------------------------------------------

// Of a password that nobody knows, with the costs below: names without a user take as long.
static const char nobodys[] = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$"
                              "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

int
password_check(const char *password, struct kg_error *err)
{
    size_t len = strlen(password);
    if (len < PASSWORD_MIN || len > PASSWORD_MAX)
        return kg_error_set(err, KG_INVALID, 0, "the password must have %d to %d bytes",
                            PASSWORD_MIN, PASSWORD_MAX);
    if (utf8_valid_prefix(password, len) != len)
        return kg_error_set(err, KG_INVALID, 0, "the password must be UTF-8");
    return 0;
}

int
password_hash(const char *password, char ret_hash[ACCOUNT_HASH_SIZE], struct kg_error *err)
{
    static_assert(ACCOUNT_HASH_SIZE == crypto_pwhash_STRBYTES, "");
    if (crypto_pwhash_str(ret_hash, password, strlen(password), PASSES, MEMORY_BYTES) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "no memory to hash the password");
    return 0;
}

bool
password_matches(const char *password, const char *hash)
{
    const char *known = *hash ? hash : nobodys;
    return crypto_pwhash_str_verify(known, password, strlen(password)) == 0 && *hash;
}

// ---- The queue ------------------------------------------------------------------------------

struct password_job {
    TAILQ_ENTRY(password_job) link;
    struct passwords *passwords;
    struct loop_work *work; // NULL: it waits
    char *password;
    char hash[ACCOUNT_HASH_SIZE];
    bool compare;
    bool matches;
    bool failed;
    struct kg_error err;
    password_fn done;
    void *arg;
};

struct passwords {
    struct loop *loop;
    TAILQ_HEAD(password_queue, password_job) jobs; // the first one is with a worker
    struct password_place {
        bool taken;
        char who[PASSWORD_WHO_SIZE];
    } places[2 * PASSWORD_PLACES_MAX]; // those of strangers first
    struct password_job *abandoned;    // was cancelled, and is with a worker
};

static void
job_free(void *arg)
{
    struct password_job *job = arg;
    sodium_memzero(job->password, strlen(job->password));
    sodium_memzero(job->hash, sizeof job->hash);
    free(job->password);
    free(job);
}

static void
job_run(void *arg)
{
    struct password_job *job = arg;
    if (job->compare)
        job->matches = password_matches(job->password, job->hash);
    else
        job->failed = password_hash(job->password, job->hash, &job->err) < 0;
}

static void job_done(void *arg);

static void
start_next(struct passwords *passwords)
{
    struct password_job *job = TAILQ_FIRST(&passwords->jobs);
    if (job && !job->work && !passwords->abandoned)
        job->work = loop_work_start(passwords->loop, LOOP_LANE_GATEWAY, job_run, job_done, job);
}

static void
remove_job(struct password_job *job)
{
    TAILQ_REMOVE(&job->passwords->jobs, job, link);
}

static void
job_done(void *arg)
{
    struct password_job *job = arg;
    remove_job(job);
    start_next(job->passwords);
    job->done(job->compare || job->failed ? NULL : job->hash, job->matches,
              job->failed ? &job->err : NULL, job->arg);
    job_free(job);
}

int
passwords_enter(struct passwords *passwords, enum password_clients clients, const char *who,
                struct kg_error *err)
{
    const int begin = clients == PASSWORD_STRANGERS ? 0 : PASSWORD_PLACES_MAX;
    int free_place = -1, n_own = 0;
    assert(strlen(who) < PASSWORD_WHO_SIZE);
    for (int i = begin; i < begin + PASSWORD_PLACES_MAX; i++) {
        if (!passwords->places[i].taken)
            free_place = i;
        else if (*who && strcmp(passwords->places[i].who, who) == 0)
            n_own++;
    }
    if (free_place < 0 || n_own >= PASSWORD_SHARE_MAX)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "too many passwords wait to be checked%s: try again in a second",
                            n_own >= PASSWORD_SHARE_MAX ? " for you" : "");
    passwords->places[free_place].taken = true;
    strcpy(passwords->places[free_place].who, who);
    return free_place;
}

void
passwords_leave(struct passwords *passwords, int place)
{
    assert(passwords->places[place].taken);
    passwords->places[place].taken = false;
}

struct password_job *
passwords_start(struct passwords *passwords, const char *password, const char *hash,
                password_fn done, void *arg)
{
    struct password_job *job = KG_NEW(struct password_job);
    *job = (struct password_job){
        .passwords = passwords,
        .password = kg_strdup(password),
        .compare = hash != NULL,
        .done = done,
        .arg = arg,
    };
    if (hash)
        strcpy(job->hash, hash);
    TAILQ_INSERT_TAIL(&passwords->jobs, job, link);
    start_next(passwords);
    return job;
}

// When the worker has ended with it.
static void
on_discarded(void *arg)
{
    struct password_job *job = arg;
    struct passwords *passwords = job->passwords;
    job_free(job);
    if (passwords) {
        passwords->abandoned = NULL;
        start_next(passwords);
    }
}

void
password_job_cancel(struct password_job *job)
{
    remove_job(job);
    if (!job->work) {
        job_free(job);
        return;
    }
    job->passwords->abandoned = job;
    loop_work_cancel(job->work, on_discarded);
}

// ---- Life -----------------------------------------------------------------------------------

struct passwords *
passwords_new(struct loop *loop)
{
    struct passwords *passwords = KG_NEW(struct passwords);
    passwords->loop = loop;
    TAILQ_INIT(&passwords->jobs);
    return passwords;
}

void
passwords_free(struct passwords *passwords)
{
    if (!passwords)
        return;
    assert(TAILQ_EMPTY(&passwords->jobs));
    if (passwords->abandoned)
        passwords->abandoned->passwords = NULL;
    free(passwords);
}
