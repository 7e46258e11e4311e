// SPDX-License-Identifier: Apache-2.0
// kernelgate-agent: options, signals, the loop.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent.h"
#include "prepare.h"
#include "reach.h"

enum { IDLE_TIMEOUT_MAX_S = 365 * 24 * 3600, PORT_MAX = 65535, AGENT_LOG_MAX = 256 << 10 };

static const char usage[] =
    "kernelgate-agent --door SOCKET --idle-timeout SECONDS\n"
    "kernelgate-agent --listen PORT --sandbox ID --gateway-key HEX --idle-timeout SECONDS\n"
    "                 [--egress-port PORT]\n"
    "                 [--limit CORE|MSGQUEUE|NOFILE|SIGPENDING=NUMBER]...\n"
    "                 [--data-dir DIR] [--tmp-dir DIR] [--cgroup-root DIR] [--tenant-socket NAME]\n"
    "                 [--no-log] [--version]\n"
    "kernelgate-agent --prepare [ROOT [PATH OPTIONS]...]\n"
    "kernelgate-agent --reach NAME=ADDRESS:PORT [--reach ...]\n"
    "PID 1 of a kernelgate sandbox; the gateway starts it.\n";

static int
parse_number(const char *text, long max, int *ret)
{
    char *end;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < 1 || value > max)
        return -1;
    *ret = (int)value;
    return 0;
}

// Limits of the agent and of the processes that it starts. Limits that are already lower are kept.
static int
lower_limit(const char *text)
{
    static const struct {
        const char *name;
        int resource;
    } limits[] = {{"CORE=", RLIMIT_CORE},
                  {"MSGQUEUE=", RLIMIT_MSGQUEUE},
                  {"NOFILE=", RLIMIT_NOFILE},
                  {"SIGPENDING=", RLIMIT_SIGPENDING}};
    struct rlimit limit;
    char *end;

    for (size_t i = 0; i < KG_ARRAY_LEN(limits); i++) {
        size_t len = strlen(limits[i].name);
        if (strncmp(text, limits[i].name, len) != 0 || text[len] < '0' || text[len] > '9')
            continue;
        errno = 0;
        rlim_t most = strtoul(text + len, &end, 10);
        if (errno || *end || getrlimit(limits[i].resource, &limit) != 0)
            return -1;
        if (most < limit.rlim_max)
            limit.rlim_max = most;
        limit.rlim_cur = limit.rlim_max;
        return setrlimit(limits[i].resource, &limit);
    }
    return -1;
}

static int
parse_numeric(int option, struct agent_settings *settings)
{
    if (option == 'i')
        return parse_number(optarg, IDLE_TIMEOUT_MAX_S, &settings->idle_timeout_s);
    if (option == 'l')
        return parse_number(optarg, PORT_MAX, &settings->listen_port);
    return option == 'e' ? parse_number(optarg, PORT_MAX, &settings->egress_port) : -1;
}

static int
parse_text(int option, struct agent_settings *settings)
{
    if (option == 'd')
        settings->door_path = optarg;
    else if (option == 's')
        settings->sandbox = optarg;
    else if (option == 'k')
        return link_key_parse(optarg, strlen(optarg), settings->gateway_key);
    else if (option == 'D')
        settings->data_dir = optarg;
    else if (option == 'T')
        settings->tmp_dir = optarg;
    else if (option == 'C')
        settings->cgroup_root = optarg;
    else if (option == 'N')
        settings->tenant_name = optarg;
    else if (option == 'L')
        return lower_limit(optarg);
    else if (option == 'n')
        settings->no_log = true;
    else
        return parse_numeric(option, settings);
    return 0;
}

// A key of zeros means that none was given: no secret key belongs to it.
static bool
is_complete(const struct agent_settings *settings)
{
    static const unsigned char none[LINK_KEY_LEN];
    bool listens = settings->listen_port && settings->sandbox &&
                   memcmp(settings->gateway_key, none, sizeof none) != 0;
    bool dials = settings->door_path && !settings->listen_port;
    return (dials || (listens && !settings->door_path)) && settings->idle_timeout_s;
}

// Returns an exit status, -1 to go on.
static int
parse_options(int argc, char **argv, struct agent_settings *settings)
{
    static const struct option options[] = {
        {"door", required_argument, NULL, 'd'},
        {"listen", required_argument, NULL, 'l'},
        {"sandbox", required_argument, NULL, 's'},
        {"gateway-key", required_argument, NULL, 'k'},
        {"idle-timeout", required_argument, NULL, 'i'},
        {"egress-port", required_argument, NULL, 'e'},
        {"limit", required_argument, NULL, 'L'},
        {"data-dir", required_argument, NULL, 'D'},
        {"tmp-dir", required_argument, NULL, 'T'},
        {"cgroup-root", required_argument, NULL, 'C'},
        {"tenant-socket", required_argument, NULL, 'N'},
        {"no-log", no_argument, NULL, 'n'},
        {"version", no_argument, NULL, 'v'},
        {"reach", required_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    const char *targets[REACH_MAX];
    int n_targets = 0, option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'v') {
            puts("kernelgate-agent " KG_VERSION);
            return 0;
        }
        if (option == 'r' && n_targets == REACH_MAX)
            return 2;
        if (option == 'r')
            targets[n_targets++] = optarg;
        else if (parse_text(option, settings) != 0)
            return 2;
    }
    if (n_targets > 0)
        return optind == argc ? reach_main(targets, n_targets) : 2;
    return optind == argc && is_complete(settings) ? -1 : 2;
}

// A tenant may signal PID 1 of its own sandbox: only what comes from outside it, or on a host,
// ends the agent.
static void
on_signal(int fd, int events, void *arg)
{
    struct signalfd_siginfo info;
    (void)events;

    if (read(fd, &info, sizeof info) == (ssize_t)sizeof info &&
        (getpid() != 1 || info.ssi_pid == 0))
        loop_stop(arg);
}

static int
open_signals(struct kg_error *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot block signals");
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd >= 0 ? fd : kg_error_set(err, KG_INTERNAL, errno, "cannot watch signals");
}

static void
on_end(void *arg)
{
    loop_stop(arg);
}

// gVisor lets the tenant open the agent's descriptors by /proc/1/fd, whatever is dumpable, and
// these are files of the host.
static void
drop_log(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (null_fd < 0 || dup2(null_fd, fd) < 0)
            close(fd);
    }
    if (null_fd > STDERR_FILENO)
        close(null_fd);
}

static int
run(const struct agent_settings *settings, struct kg_error *err)
{
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO_FD signals = open_signals(err);

    if (signals < 0)
        return -1;
    KG_AUTO(loop_fd) watch = loop_fd_new(loop, signals, LOOP_READ, on_signal, loop);
    KG_AUTO(agent) agent = agent_new(loop, settings, on_end, loop, err);
    if (!agent)
        return -1;
    if (settings->no_log)
        drop_log(); // before the first process of the tenant
    loop_run(loop);
    return 0;
}

int
main(int argc, char **argv)
{
    // The socket's name is the tenant's own (tenant.h): clients know it.
    struct agent_settings settings = {.data_dir = "/mnt/data",
                                      .second_name = "home/user",
                                      .root_dir = "/",
                                      .tmp_dir = "/tmp",
                                      .cgroup_root = "/sys/fs/cgroup",
                                      .tenant_name = "kernelgate"};
    struct kg_error err = {0};

    if (argc >= 2 && strcmp(argv[1], "--prepare") == 0)
        return prepare_main(argc > 2 ? argv[2] : NULL, argc > 2 ? argv + 3 : argv + 2);
    // Before anything else: from here on the tenant can neither trace the agent nor open its /proc.
    prctl(PR_SET_DUMPABLE, 0);
    // Orphans come to PID 1 anyway; on a host this makes them come too.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    int status = parse_options(argc, argv, &settings);
    if (status >= 0) {
        if (status == 2)
            fputs(usage, stderr);
        return status;
    }
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_CONSOLE);
    log_limit(AGENT_LOG_MAX); // it goes to a file of the host, outside of the sandbox's limits
    if (run(&settings, &err) != 0) {
        log_error("cannot run", LOG_ERR(&err));
        return 1;
    }
    return 0;
}
