// SPDX-License-Identifier: Apache-2.0
// The one table of settings: SETTING(type, field of struct config, name, members of struct
// setting). config.h includes it for the fields, settings.c for the table; so it has no include
// guard. Numbers are int64_t or double; strings are NULL if there is neither a value nor a
// fallback; lists are comma-separated strings, see config_split_list().

// clang-format off
SETTING(STRING, host, "host", .fallback = "127.0.0.1", .commands = LISTEN,
        .aliases = {{"HOST"}, {"SANDBOX_HTTP_HOST"}},
        .help = "address to listen on")
SETTING(INTEGER, port, "port", .fallback = "16010", .min = 0, .max = 65535, .commands = LISTEN,
        .aliases = {{"PORT"}, {"SANDBOX_HTTP_PORT"}},
        .help = "port to listen on; 0 takes a free one")
SETTING(STRING, api_key, "api-key", .secret = true, .commands = SERVE, .aliases = {{"API_KEY"}},
        .help = "the key that clients send; its owner is `default`")
SETTING(STRING, api_keys_file, "api-keys-file", .commands = LISTEN,
        .help = "file with one `name:key` or `name:sha256:<hex>` a line")
SETTING(STRING, accounts_file, "accounts-file", .commands = LISTEN | CONFIG_ACCOUNTS | CONFIG_DOCTOR,
        .help = "database of users and their keys, created if it does not exist; docs/accounts.md")
SETTING(CHOICE, registration, "registration", .fallback = "closed", .choices = registrations, .commands = LISTEN,
        .help = "open: anybody can create an account with a password; closed: only administrators can create accounts")
SETTING(INTEGER, max_registered_users, "max-registered-users", .fallback = "1000", .min = 0, .max = 1000000, .commands = LISTEN,
        .help = "how many accounts people can create themselves; 0: no limit")
SETTING(INTEGER, unused_accounts_days, "unused-accounts-days", .fallback = "30", .min = 0, .max = 3650, .commands = LISTEN,
        .help = "days after which an account that somebody registered and never used again may be removed; 0: never")
SETTING(INTEGER, account_changes_per_minute, "account-changes-per-minute", .fallback = "60", .min = 0, .max = 10000, .commands = LISTEN,
        .help = "keys, and as many logins, that a user can create per minute; for all registered users together ten times as many; 0: no limit")
SETTING(FLAG, insecure, "insecure", .fallback = "false", .commands = LISTEN,
        .help = "listen beyond loopback even without an API key")
SETTING(STRING, allowed_origins, "allowed-origins", .commands = LISTEN,
        .help = "origins of web pages that may call the API, comma-separated")
SETTING(STRING, allowed_hosts, "allowed-hosts", .commands = LISTEN,
        .help = "host names that requests may use besides those of loopback, comma-separated; `*` allows any")
SETTING(STRING, ports_domain, "ports-domain", .fallback = "localhost", .commands = LISTEN,
        .help = "domain of the host names of sessions' ports, <port>-<id>.<domain>; it needs a wildcard name that leads to the gateway, which browsers have for localhost; empty: ports have no host names")
SETTING(STRING, trusted_proxies, "trusted-proxies", .commands = LISTEN,
        .help = "addresses and networks of proxies, comma-separated, whose X-Forwarded-For is trusted, besides those on loopback; `private`: RFC 1918 and RFC 4193")
SETTING(STRING, user, "user", .commands = LISTEN | CONFIG_DOCTOR,
        .help = "the user as which the gateway runs if root starts it: a name, or UID:GID; by default kernelgate if there is such a user, else 61160:61160; root: it stays root, without most capabilities")
SETTING(CHOICE, provisioner, "provisioner", .fallback = "auto", .choices = provisioners,
        .commands = BOTH, .aliases = {{"BACKEND"}},
        .help = "what makes the sandboxes; auto: oci where it works, else docker")
SETTING(STRING, image, "image", .fallback = "host", .commands = BOTH,
        .aliases = {{"SANDBOX_IMAGE"}, {"CONTAINER_IMAGE"}},
        .help = "`host` (oci: this machine's /usr, read-only; docker, kubernetes: kernelgate-kernel:latest); "
                "else a root filesystem's folder (oci) or an image's name")
SETTING(STRING, oci_runtime, "oci-runtime", .fallback = "auto", .commands = BOTH,
        .help = "runc, crun, runsc (gVisor), a path, or auto: runc, else crun")
SETTING(STRING, docker_host, "docker-host", .fallback = "unix:///var/run/docker.sock",
        .commands = BOTH, .aliases = {{"DOCKER_HOST"}},
        .help = "where the Docker Engine listens: unix:///path or tcp://host:port")
SETTING(STRING, kubeconfig, "kubeconfig", .commands = BOTH,
        .help = "kubectl's configuration file; its current context names the API server, its authority, the credential and the namespace")
SETTING(STRING, kubernetes_pod_template, "kubernetes-pod-template", .commands = BOTH,
        .help = "YAML file of a Pod whose labels, annotations, scheduling and runtime class the sandboxes' pods get; docs/kubernetes.md")
SETTING(STRING, kubernetes_server, "kubernetes-server", .commands = BOTH,
        .help = "URL of the API server; in a pod, by default the one of its cluster, with the service account's certificate, token and namespace")
SETTING(STRING, kubernetes_ca_file, "kubernetes-ca-file", .commands = BOTH,
        .help = "certificate authority of the API server, PEM")
SETTING(STRING, kubernetes_token_file, "kubernetes-token-file", .commands = BOTH,
        .help = "file with the token for the API server; it is read for each request")
SETTING(STRING, kubernetes_certificate_file, "kubernetes-certificate-file", .commands = BOTH,
        .help = "client certificate for the API server, PEM, instead of a token")
SETTING(STRING, kubernetes_key_file, "kubernetes-key-file", .commands = BOTH,
        .help = "private key of that certificate, PEM")
SETTING(STRING, kubernetes_namespace, "kubernetes-namespace", .commands = BOTH,
        .help = "namespace of the sandboxes' pods; by default that of the service account, else default")
SETTING(STRING, kubernetes_agent_image, "kubernetes-agent-image", .fallback = "kernelgate:latest",
        .commands = BOTH,
        .help = "the gateway's own image, from which the sandboxes' pods copy the agent")
SETTING(STRING, kubernetes_installation, "kubernetes-installation", .commands = BOTH,
        .help = "a name in the labels of the pods, by which a gateway finds them again if its state folder is lost")
SETTING(STRING, kubernetes_replica_address, "kubernetes-replica-address", .commands = LISTEN | CONFIG_DOCTOR,
        .help = "host:port at which other replicas of this installation reach this one; it turns on replicas, which need keep-sandboxes, link-key-file and kubernetes-installation")
SETTING(FLAG, unenforced_network, "unenforced-network", .fallback = "false", .commands = BOTH,
        .help = "be ready even if the cluster lets sandboxes reach more than loopback; docs/kubernetes.md")
SETTING(STRING, link_key_file, "link-key-file", .commands = SERVE,
        .help = "file with the key by which sandboxes know this gateway, where it dials them: 64 hexadecimal digits; by default link.key in the state folder")
SETTING(CHOICE, network, "network", .fallback = "none", .choices = networks, .commands = BOTH,
        .aliases = {{"ENABLE_NETWORK_ACCESS", ALIAS_EGRESS}},
        .help = "none, or egress: out through a proxy, never to private addresses or this machine")
SETTING(STRING, fetch_allow, "fetch-allow", .commands = SERVE,
        .help = "private networks (10.0.0.0/8) and hosts that may be reached all the same, comma-separated")
SETTING(STRING, state_dir, "state-dir", .commands = BOTH | CONFIG_PACKAGES,
        .help = "folder for the sandboxes and the gateway's own state; $XDG_RUNTIME_DIR/kernelgate, else /run/kernelgate")
SETTING(FLAG, keep_sandboxes, "keep-sandboxes", .fallback = "false", .commands = LISTEN,
        .help = "keep the sandboxes at shutdown, for the next gateway")
SETTING(STRING, kernelspec_dir, "kernelspec-dir", .commands = BOTH,
        .help = "folder of kernelspecs; by default ../share/kernelgate/kernelspec beside kernelgate")
SETTING(STRING, kernels_dir, "kernels-dir", .commands = BOTH,
        .help = "folder of the kernels' environments, one for each kernelspec, as script/setup makes them; by default ../share/kernelgate/kernels")
SETTING(STRING, agent, "agent", .commands = BOTH,
        .help = "path of the agent's binary; by default ../libexec/kernelgate/kernelgate-agent beside kernelgate")
SETTING(FLAG, console, "console", .fallback = "true", .commands = LISTEN | CONFIG_DOCTOR,
        .help = "serve the console, a page for people, at /console/; docs/console.md")
SETTING(STRING, console_dir, "console-dir", .commands = LISTEN,
        .help = "folder of the console's files, as script/setup builds it; by default ../share/kernelgate/console")
SETTING(STRING, default_kernel, "default-kernel", .fallback = "python", .commands = BOTH,
        .aliases = {{"CONTAINER_LANGUAGE"}},
        .help = "kernelspec of requests that do not name one")
SETTING(INTEGER, max_sessions, "max-sessions", .fallback = "0", .min = 0, .max = 10000,
        .commands = BOTH, .aliases = {{"MAX_KERNELS"}, {"SANDBOX_MAX_SESSIONS"}},
        .help = "sessions at a time, of all replicas together; 0: with the engine oci, one for each 512 MiB (or memory-mb, if that is more) of the memory that all sandboxes together may use, at least 10 and at most 512; with other engines 10")
SETTING(INTEGER, max_sessions_per_owner, "max-sessions-per-owner", .fallback = "0", .min = 0,
        .max = 10000, .commands = SERVE,
        .help = "sessions of one owner at a time, of all replicas together; 0: half of max-sessions while the keys have several owners, else no limit")
SETTING(CHOICE, evict, "evict", .fallback = "none", .choices = evictions, .commands = SERVE,
        .help = "at the limit of sessions: none refuses a new one with 429, idle ends the one that has been idle longest")
SETTING(REAL, max_requests_per_second, "max-requests-per-second", .fallback = "0", .min = 0,
        .max = 1e6, .commands = LISTEN,
        .help = "requests of one owner, in bursts of up to two seconds' worth; 0: no limit")
SETTING(INTEGER, pool_size, "pool-size", .fallback = "-1", .min = -1, .max = 1000, .commands = BOTH,
        .aliases = {{"SESSION_POOL_SIZE"}},
        .help = "sandboxes with a warm kernel that are kept ready for new sessions; -1: 2, or, where kernels are forked, one for each 512 MiB of the machine's memory, at least 2, at most four for each processor, and at most max-sessions (10 if that is 0)")
SETTING(INTEGER, pool_bare, "pool-bare", .fallback = "-1", .min = -1, .max = 1000, .commands = BOTH,
        .help = "sandboxes without a kernel that are also kept ready, where kernels are forked; -1: twice pool-size, but no more than pool-size leaves of max-sessions (10 if that is 0)")
SETTING(INTEGER, idle_timeout_s, "idle-timeout", .unit = "s", .fallback = "1800", .min = 1,
        .max = 31536000, .commands = SERVE,
        .aliases = {{"KERNEL_TIMEOUT"}, {"SANDBOX_SESSION_TTL_M", ALIAS_MINUTES}},
        .help = "a session ends after this time without activity")
SETTING(INTEGER, max_session_lifetime_s, "max-session-lifetime", .unit = "s", .fallback = "0", .min = 0,
        .max = 31536000, .commands = SERVE,
        .help = "a session ends this long after its creation, even if it is busy; a client can ask for less; 0: no limit")
SETTING(INTEGER, max_savepoints, "max-savepoints", .fallback = "8", .min = 0, .max = 32,
        .commands = BOTH,
        .help = "savepoints of a session; a new one replaces the oldest that has no name; 0: none")
SETTING(INTEGER, tool_call_timeout_s, "tool-call-timeout", .unit = "s", .fallback = "60", .min = 1, .max = 86400,
        .commands = SERVE,
        .help = "how long code waits for the answer to one call of a tool")
SETTING(INTEGER, max_tool_calls, "max-tool-calls", .fallback = "1000", .min = 1, .max = 1000000,
        .commands = SERVE,
        .help = "calls of tools that one execution may make")
SETTING(INTEGER, max_tool_result_bytes, "max-tool-result", .unit = "bytes", .fallback = "1048576", .min = 1024,
        .max = 4194304, .commands = SERVE,
        .help = "size of a tool's result as JSON that code gets as a value; a larger one becomes a file")
SETTING(STRING, mcp_servers, "mcp-servers", .commands = BOTH,
        .help = "JSON file of MCP servers whose tools code may call, in the form that MCP clients use; docs/tools.md")
SETTING(INTEGER, max_execution_time_s, "max-execution-time", .unit = "s", .fallback = "30",
        .min = 1, .max = 86400, .commands = SERVE,
        .aliases = {{"MAX_EXECUTION_TIME"}, {"SANDBOX_EXEC_TIMEOUT_S"}},
        .help = "timeout of an execution whose request has none")
SETTING(INTEGER, max_timeout_s, "max-timeout", .unit = "s", .fallback = "3600", .min = 1,
        .max = 86400, .commands = SERVE,
        .help = "the longest timeout that a request may ask for, and the longest time in all for which an execution's limit rests while it waits for tools")
SETTING(INTEGER, kernel_start_timeout_s, "kernel-start-timeout", .unit = "s", .fallback = "60",
        .min = 1, .max = 600, .commands = SERVE,
        .help = "how long a kernel may take to become ready")
SETTING(CHOICE, kernel_start, "kernel-start", .fallback = "auto", .choices = kernel_starts,
        .commands = BOTH,
        .help = "how kernels start: auto: by fork from a warm process where the kernelspec and the engine support it, else by exec; fork: an error where that is not possible; exec: as new programs")
SETTING(INTEGER, drain_timeout_s, "drain-timeout", .unit = "s", .fallback = "10", .min = 0,
        .max = 3600, .commands = LISTEN,
        .help = "how long executions may continue after SIGTERM")
SETTING(STRING, pass_through_env, "pass-through-env", .commands = SERVE,
        .aliases = {{"PASSTHROUGH_ENV"}},
        .help = "environment variables of the gateway that kernels and commands get, comma-separated")
SETTING(STRING, pypi_index_url, "pypi-index-url", .commands = BOTH,
        .help = "package index; pip's own by default")
SETTING(STRING, packages, "packages", .commands = SERVE,
        .help = "packages for all sessions, in addition to those of `kernelgate packages add`, comma-separated")
SETTING(FLAG, install_from_code, "install-from-code", .fallback = "true", .commands = SERVE,
        .help = "`pip install` in cells and commands installs packages as the API does; docs/api.md")
SETTING(STRING, upload_root, "upload-root", .commands = SERVE,
        .help = "folder of this machine whose files MCP clients of the profile mcp-sandbox may upload; over stdio, any file if it is not set")
SETTING(INTEGER, memory_mb, "memory-mb", .unit = "MiB", .fallback = "512", .min = 64,
        .max = 1048576, .commands = BOTH,
        .aliases = {{"MAX_MEMORY_MB"}, {"SANDBOX_MEMORY_LIMIT", ALIAS_MEMORY}},
        .help = "memory of a sandbox's processes")
SETTING(REAL, cpus, "cpus", .fallback = "1.0", .min = 0.05, .max = 1024, .commands = BOTH,
        .aliases = {{"SANDBOX_CPU_LIMIT"}},
        .help = "processors of a sandbox")
SETTING(INTEGER, pids, "pids", .fallback = "256", .min = 16, .max = 65536, .commands = BOTH,
        .help = "processes and threads of a sandbox")
SETTING(INTEGER, disk_mb, "disk-mb", .unit = "MiB", .fallback = "256", .min = 1, .max = 1048576,
        .commands = BOTH,
        .help = "size of a sandbox's /mnt/data")
SETTING(INTEGER, max_connections, "max-connections", .fallback = "2048", .min = 16, .max = 65536,
        .commands = LISTEN,
        .help = "client connections at a time; beyond that, each new one closes one that is idle")
SETTING(INTEGER, max_code_bytes, "max-code-bytes", .unit = "bytes", .fallback = "1048576", .min = 1,
        .max = 64 * MIB, .commands = SERVE, .aliases = {{"SANDBOX_MAX_CODE_BYTES"}},
        .help = "code of one request")
SETTING(INTEGER, max_upload_bytes, "max-upload-bytes", .unit = "bytes", .fallback = "52428800",
        .min = 1, .max = 4096 * MIB, .commands = SERVE, .aliases = {{"SANDBOX_MAX_UPLOAD_BYTES"}},
        .help = "one uploaded file")
SETTING(INTEGER, max_output_bytes, "max-output-bytes", .unit = "bytes", .fallback = "10485760",
        .min = 65536, .max = 1024 * MIB, .commands = SERVE,
        .aliases = {{"SANDBOX_MAX_OUTPUT_BYTES"}},
        .help = "output of an execution that is kept until it is read")
SETTING(INTEGER, max_buffered_bytes, "max-buffered-bytes", .unit = "bytes", .fallback = "67108864",
        .min = MIB, .max = 65536 * MIB, .commands = SERVE,
        .help = "output kept for all running executions; above it the execution with the most loses its oldest output")
SETTING(INTEGER, mcp_max_image_side, "mcp-max-image-side", .unit = "pixels", .fallback = "2000",
        .min = 0, .max = 100000, .commands = BOTH,
        .help = "maximum width and height of images in MCP results; larger ones are scaled down, or left out and named; 0: no limit")
SETTING(INTEGER, mcp_evict_idle_s, "mcp-evict-idle", .unit = "s", .fallback = "300", .min = 0,
        .max = 31536000, .commands = LISTEN,
        .help = "at the limit of sessions, one that an MCP client created and left gives way to another one of the same key, once it and its client have been silent for this time and no stream is open; 0: not before idle-timeout")
SETTING(FLAG, jupyter_api, "jupyter-api", .fallback = "true", .commands = LISTEN | CONFIG_DOCTOR,
        .help = "serve Jupyter's API for notebooks, too; docs/jupyter.md")
SETTING(INTEGER, jupyter_replay_time_s, "jupyter-replay-time", .unit = "s", .fallback = "3600",
        .min = 0, .max = 604800, .commands = LISTEN,
        .help = "how long messages are kept for a Jupyter client that is disconnected; 0: not at all")
SETTING(INTEGER, jupyter_hold_time_s, "jupyter-hold-time", .unit = "s", .fallback = "86400",
        .min = 0, .max = 31536000, .commands = LISTEN,
        .help = "how long a connected Jupyter client keeps a kernel to which nothing is sent; after that idle-timeout applies; 0: forever")
SETTING(FLAG, jupyter_id_as_key, "jupyter-id-as-key", .fallback = "false", .commands = LISTEN,
        .help = "let a kernel's id be enough to connect to it, for Jupyter clients that send no key; docs/jupyter.md describes the risk")
SETTING(STRING, jupyter_api_prefix, "jupyter-api-prefix", .commands = LISTEN,
        .help = "a path below which Jupyter's API is also served, for clients whose URL has one: `/jupyter`")
SETTING(STRING, profile, "profile", .commands = CONFIG_MCP,
        .help = "for `kernelgate mcp`: use the tool names and result shapes of another system; docs/mcp.md lists them")
SETTING(STRING, connect, "connect", .commands = CONFIG_MCP,
        .help = "for `kernelgate mcp`: URL of a running gateway that handles all requests")
SETTING(CHOICE, log_level, "log-level", .fallback = "info", .choices = log_levels, .commands = BOTH,
        .aliases = {{"SANDBOX_LOG_LEVEL", ALIAS_LOWER}, {"DEBUG", ALIAS_DEBUG}},
        .help = "log lines of this level and above")
SETTING(CHOICE, log_format, "log-format", .fallback = "console", .choices = log_formats,
        .commands = BOTH, .aliases = {{"SANDBOX_LOG_FORMAT", ALIAS_LOWER}},
        .help = "how lines are logged")
// clang-format on
