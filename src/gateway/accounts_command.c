// SPDX-License-Identifier: Apache-2.0
// kernelgate user and kernelgate key: the accounts from the shell. A gateway that runs on the same
// file notices what they change.

#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "account_folder.h"
#include "account_store.h"
#include "gateway.h"
#include "password.h"
#include "privileges.h"

enum { BUSY_MS = 5000, MAX_WORDS = 4 };

// One verb: what it needs, and what it does with it.
struct verb {
    const char *name;
    const char *words; // as the usage shows them
    int min_words, max_words;
    int (*run)(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err);
    const char *help;
};

static void
print_time(int64_t ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(ms, text);
    printf("\t%s", ms > 0 ? text : "never");
}

// ---- Users ----------------------------------------------------------------------------------

static int
user_add(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return account_user_add(store, words[0], &(struct account_change){}, err);
}

static void
print_user(const struct account_user *user, void *arg)
{
    (void)arg;
    printf("%s\t%s\t%lld keys", user->name, user->disabled ? "disabled" : "enabled",
           (long long)user->n_keys);
    print_time(user->created_ms);
    printf("\tmax-sessions=%lld\tmax-requests-per-second=%.15g",
           (long long)user->quota.max_sessions, user->quota.max_requests_per_second);
    const char *made_by = user->registered ? "registered" : "user";
    printf("\t%s\tmax-memory-mb=%lld\n", user->administrator ? "administrator" : made_by,
           (long long)user->quota.max_memory_mb);
}

static int
user_list(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    (void)words;
    return account_user_each(store, print_user, NULL, err);
}

static int
set_disabled(struct account_store *store, const char *name, bool disabled, struct kg_error *err)
{
    const struct account_change change = {.disabled = &disabled};
    return account_user_change(store, name, &change, err);
}

static int
user_role(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    bool administrator = strcmp(words[1], "administrator") == 0;
    if (!administrator && strcmp(words[1], "user") != 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "invalid role \"%.40s\": expected administrator or user", words[1]);
    const struct account_change change = {.administrator = &administrator};
    return account_user_change(store, words[0], &change, err);
}

static int
user_disable(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return set_disabled(store, words[0], true, err);
}

static int
user_enable(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return set_disabled(store, words[0], false, err);
}

// The value of a word such as max-sessions=4.
static int
take_limit(const char *word, struct account_quota *quota, struct kg_error *err)
{
    size_t len = strcspn(word, "=");
    bool sessions = len == strlen("max-sessions") && strncmp(word, "max-sessions", len) == 0;
    bool requests = len == strlen("max-requests-per-second") &&
                    strncmp(word, "max-requests-per-second", len) == 0;
    char *end = NULL;
    double number = word[len] ? strtod(word + len + 1, &end) : 0;
    bool memory = len == strlen("max-memory-mb") && strncmp(word, "max-memory-mb", len) == 0;
    bool good = end && end != word + len + 1 && !*end && number >= 0 && number <= INT32_MAX &&
                (requests || number == (double)(int64_t)number);
    if (!good || (!sessions && !requests && !memory))
        return kg_error_set(err, KG_INVALID, 0,
                            "invalid limit \"%.40s\": expected max-sessions=NUMBER, "
                            "max-requests-per-second=NUMBER or max-memory-mb=NUMBER",
                            word);
    if (sessions)
        quota->max_sessions = (int64_t)number;
    else if (memory)
        quota->max_memory_mb = (int64_t)number;
    else
        quota->max_requests_per_second = number;
    return 0;
}

static int
user_quota(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    struct account_quota quota = {0};
    for (int i = 1; i < MAX_WORDS && words[i]; i++) {
        if (take_limit(words[i], &quota, err) < 0)
            return -1;
    }
    const struct account_change change = {
        .max_sessions = &quota.max_sessions,
        .max_requests_per_second = &quota.max_requests_per_second,
        .max_memory_mb = &quota.max_memory_mb,
    };
    return account_user_change(store, words[0], &change, err);
}

// A line from stdin, or as much of it as there is room for; returns its length. `cancel` ends it,
// too, unless it is NUL.
static size_t
read_line(char *ret, size_t size, char cancel)
{
    size_t len = 0;
    ssize_t n;
    while (len < size && (n = read(STDIN_FILENO, ret + len, size - len)) > 0) {
        len += (size_t)n;
        if (memchr(ret, '\n', len) || (cancel && ret[len - 1] == cancel))
            break;
    }
    const char *end = memchr(ret, '\n', len);
    return end ? (size_t)(end - ret) : len;
}

// A terminal shows a prompt, and not what is typed. Ctrl-C ends the line there, and not the
// process, which would leave the terminal without its echo.
static int
read_password(char *ret, size_t size, struct kg_error *err)
{
    struct termios shown;
    char cancel = '\0';
    bool asks = tcgetattr(STDIN_FILENO, &shown) == 0;
    if (asks) {
        struct termios hidden = shown;
        cancel = (char)shown.c_cc[VINTR];
        hidden.c_lflag &= ~(tcflag_t)(ECHO | ISIG);
        hidden.c_cc[VEOL] = shown.c_cc[VINTR];
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden); // which drops what was typed before the prompt
        fputs("New password: ", stderr);
    }
    size_t len = read_line(ret, size - 1, cancel);
    if (asks) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
        fputc('\n', stderr);
    }
    if (cancel && len > 0 && ret[len - 1] == cancel)
        return kg_error_set(err, KG_INVALID, 0, "cancelled: the password stays as it was");
    len -= !asks && len > 0 && ret[len - 1] == '\r'; // of a file from Windows
    ret[len] = '\0';
    if (strlen(ret) != len)
        return kg_error_set(err, KG_INVALID, 0, "the password must be text: it has a NUL byte");
    return 0;
}

static int
user_passwd(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    char hash[ACCOUNT_HASH_SIZE];
    char password[PASSWORD_MAX + 4]; // one that is too long, and the end of its line
    bool hashed = read_password(password, sizeof password, err) == 0 &&
                  password_check(password, err) == 0 && password_hash(password, hash, err) == 0;
    explicit_bzero(password, sizeof password);
    return hashed ? account_password_set(store, words[0], NULL, hash, err) : -1;
}

static int
user_remove(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return account_user_remove(store, words[0], err);
}

static const struct verb user_verbs[] = {
    {"add", " NAME", 1, 1, user_add, "makes a user, who has no key yet"},
    {"list", "", 0, 0, user_list,
     "prints name, state, number of keys, since when it exists, quota, role"},
    {"quota", " NAME [LIMIT…]", 1, 4, user_quota,
     "sets max-sessions=N, max-requests-per-second=N and max-memory-mb=N; without: the "
     "gateway's"},
    {"disable", " NAME", 1, 1, user_disable, "refuses the user's keys until it is enabled again"},
    {"enable", " NAME", 1, 1, user_enable, "accepts them again"},
    {"role", " NAME ROLE", 2, 2, user_role, "makes it an administrator, or a user again"},
    {"passwd", " NAME", 1, 1, user_passwd,
     "reads a password, a line on stdin, for logging in to the console"},
    {"remove", " NAME", 1, 1, user_remove, "removes the user and its keys"},
    {0},
};

// ---- Keys -----------------------------------------------------------------------------------

static int
key_add(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    char key[ACCOUNT_KEY_LEN + 1];
    if (account_key_add(store, words[0], words[1] ? words[1] : "", key, err) < 0)
        return -1;
    puts(key);
    return 0;
}

static void
print_key(const struct account_key *key, void *arg)
{
    (void)arg;
    printf("%s\t%s\t%s", key->id, key->user, key->name);
    print_time(key->created_ms);
    print_time(key->used_ms);
    putchar('\n');
}

static int
key_list(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return account_key_each(store, words[0], print_key, NULL, err);
}

static int
key_revoke(struct account_store *store, char *const words[MAX_WORDS], struct kg_error *err)
{
    return account_key_revoke(store, NULL, words[0], err);
}

static const struct verb key_verbs[] = {
    {"add", " USER [NAME]", 1, 2, key_add, "makes a key and prints it; it is not kept"},
    {"list", " [USER]", 0, 1, key_list,
     "prints id, user, name, and when it was made and used last"},
    {"revoke", " ID", 1, 1, key_revoke, "makes a key invalid at once"},
    {0},
};

// ---- The commands ---------------------------------------------------------------------------

// Of one verb, or of all of a command where `verb` is NULL.
static void
print_usage(FILE *out, const char *command, const struct verb *verb, const struct verb *verbs)
{
    if (verb) {
        fprintf(out, "usage: kernelgate %s %s%s [FLAGS]\n\n%s\n", command, verb->name, verb->words,
                verb->help);
    } else {
        fprintf(out, "usage: kernelgate %s VERB [FLAGS]\n\n", command);
        for (verb = verbs; verb->name; verb++) {
            KG_AUTO_FREE char *words = kg_asprintf("%s%s", verb->name, verb->words);
            fprintf(out, "  %-20s  %s\n", words, verb->help);
        }
    }
    fputc('\n', out);
    config_print_help(out, CONFIG_ACCOUNTS);
}

static const struct verb *
find_verb(const struct verb *verbs, const char *name)
{
    const struct verb *verb = verbs;
    while (verb->name && strcmp(verb->name, name) != 0)
        verb++;
    return verb->name ? verb : NULL;
}

// What root would make in the folder, the gateway could not open; and a gateway that is an
// attacker's could lead root elsewhere.
static int
become_owner(const char *path, struct kg_error *err)
{
    struct privileges_user owner = {0};
    if (geteuid() != 0 || !account_folder_owner(path, &owner.uid, &owner.gid) || owner.uid == 0)
        return 0;
    snprintf(owner.name, sizeof owner.name, "%u", owner.uid);
    return privileges_drop(&owner, err);
}

static int
run_verb(const struct config *config, const struct verb *verb, char *const words[MAX_WORDS],
         struct kg_error *err)
{
    if (!config->accounts_file) {
        config_log_warnings(config); // its name may be misspelled
        return kg_error_set(err, KG_INVALID, 0,
                            "no accounts: set accounts-file to the path of their database");
    }
    if (become_owner(config->accounts_file, err) < 0)
        return -1;
    KG_AUTO(account_store)
    store = account_store_open(config->accounts_file, verb->run == user_add, BUSY_MS, err);
    return store ? verb->run(store, words, err) : -1;
}

// The words follow the verb, and the flags follow the words.
static int
run_command(int argc, char **argv, const struct verb *verbs)
{
    const char *command = argv[0];
    const struct verb *verb = argc > 1 ? find_verb(verbs, argv[1]) : NULL;
    char *words[MAX_WORDS] = {0};
    int n = 0;
    while (verb && n < verb->max_words && 2 + n < argc && argv[2 + n][0] != '-') {
        words[n] = argv[2 + n];
        n++;
    }
    bool asked = config_asks_for_help(argc, argv);
    if (!asked && !verb && argc > 1)
        fprintf(stderr, "kernelgate: there is no command %s %.80s\n\n", command, argv[1]);
    if (asked || !verb || n < verb->min_words) {
        print_usage(asked ? stdout : stderr, command, verb, verbs);
        return asked ? 0 : 2;
    }
    struct kg_error err = {0};
    struct config config;
    int code = 2;
    argv[1 + n] = argv[0]; // whose flags follow
    if (config_load(&config, CONFIG_ACCOUNTS, argc - 1 - n, argv + 1 + n, ".env", &err) == 0)
        code = run_verb(&config, verb, words, &err) < 0 ? 1 : 0;
    if (code != 0)
        fprintf(stderr, "kernelgate: %s\n", err.message);
    config_fini(&config);
    return code;
}

int
command_user(int argc, char **argv)
{
    return run_command(argc, argv, user_verbs);
}

int
command_key(int argc, char **argv)
{
    return run_command(argc, argv, key_verbs);
}
