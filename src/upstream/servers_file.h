// SPDX-License-Identifier: Apache-2.0
// The operator's file of MCP servers (setting mcp-servers), in the form that MCP clients use:
//
//     {"mcpServers": {NAME: {"url", "headers"} or {"command", "args", "env"}}}
//
// and for each server, if wanted, "allow" and "deny" (names of tools, with * for any characters),
// "owners" (who may use it; "*": anybody), "timeout" (seconds of a call), "per_session" (a
// connection for each session). A value of "headers" or "env" may contain ${VARIABLE}, which is
// taken from the environment of this process.
#pragma once

#include "base.h"

enum {
    SERVERS_MAX = 24,
    SERVER_NAME_MAX = 32,
};

// Lists end with NULL.
struct server_spec {
    char name[SERVER_NAME_MAX + 1]; // a letter, then letters, digits, _ and -
    char *url;                      // NULL: a program is started, which speaks on stdin and stdout
    char **headers;                 // "Name: value", for a url
    char **argv;                    // for a program
    char **env;                     // "NAME=value", the same
    char **allow;                   // NULL: none is named
    char **deny;                    // the same
    char **owners;                  // NULL: the owners of the settings' keys
    int64_t timeout_ms;             // 0: the setting tool-call-timeout
    bool per_session;
    char **values;  // what headers and env have, in parts, or what variables have put there
    char **secrets; // those of them that are credentials, by the names of headers and variables
};

struct servers_file {
    struct server_spec *servers;
    size_t n;
};

// KG_INVALID names the server and the field. Warns where others may read the file.
KG_MUST_CHECK struct servers_file *servers_file_load(const char *path, struct kg_error *err);
// The same of a text; `get_env` is getenv(3)'s kind.
KG_MUST_CHECK struct servers_file *servers_file_parse(const char *text, size_t len,
                                                      const char *(*get_env)(const char *name),
                                                      struct kg_error *err);
void servers_file_free(struct servers_file *file); // NULL is fine
KG_DEFINE_AUTO(servers_file, servers_file_free)

// Whether one of the patterns fits; * stands for any characters.
bool server_pattern_fits(const char *const *patterns, const char *name);
// Puts *** in the place of all values of headers and env, in an error that the server has sent.
void server_hide_values(const struct server_spec *server, char *text);
// The same of credentials, in anything that it has sent. Other values may be ordinary words.
bool server_says_secret(const struct server_spec *server, const char *text, size_t len);
void server_hide_secrets(const struct server_spec *server, char *text, size_t len);
