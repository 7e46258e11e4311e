// SPDX-License-Identifier: Apache-2.0
// A kernel for the agent's tests: listens as its connection file says and, on every connection,
// says the channel's name and a newline, then echoes.
//   inside_kernel echo FILE     serves until a signal; SIGINT ends it with 42
//   inside_kernel leave FILE    the same, and leaves an orphan of a session of its own behind,
//                               whose pid it writes to the file left.pid in its working folder
//   inside_kernel exit FILE     says something and ends with 3
#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *const channels[] = {"shell", "iopub", "stdin", "control", "hb"};
enum { N_CHANNELS = 5, LIFE_S = 60 };

static void
on_interrupt(int signum)
{
    (void)signum;
    _exit(42);
}

static int
listen_channel(const json_t *file, const char *channel)
{
    const char *ip = json_string_value(json_object_get(file, "ip"));
    char name[32];
    int fd;

    snprintf(name, sizeof name, "%s_port", channel);
    int port = (int)json_integer_value(json_object_get(file, name));
    if (strcmp(json_string_value(json_object_get(file, "transport")), "tcp") == 0) {
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        inet_pton(AF_INET, ip, &addr.sin_addr);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(fd, (const struct sockaddr *)&addr, sizeof addr) != 0)
            exit(5);
    } else {
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        snprintf(addr.sun_path, sizeof addr.sun_path, "%s-%d", ip, port);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(fd, (const struct sockaddr *)&addr, sizeof addr) != 0)
            exit(5);
    }
    listen(fd, 16);
    return fd;
}

static _Noreturn void
echo(int fd, const char *channel)
{
    static char chunk[65536];
    ssize_t n;

    dprintf(fd, "%s\n", channel);
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        for (ssize_t sent = 0; sent < n;) {
            ssize_t m = write(fd, chunk + sent, (size_t)(n - sent));
            if (m <= 0)
                _exit(0);
            sent += m;
        }
    }
    _exit(0);
}

static void
leave_an_orphan(void)
{
    if (fork() != 0)
        return;
    setsid();
    pid_t parent = getpid();
    if (fork() != 0)
        _exit(0);
    alarm(LIFE_S);
    while (getppid() == parent) // an orphan is a child of the agent
        poll(NULL, 0, 1);
    int fd = open("left.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dprintf(fd, "%d\n", getpid());
    close(fd);
    rename("left.tmp", "left.pid");
    for (;;)
        pause();
}

int
main(int argc, char **argv)
{
    struct pollfd polls[N_CHANNELS];
    json_t *file = argc == 3 ? json_load_file(argv[2], 0, NULL) : NULL;

    if (!file)
        return 4;
    alarm(LIFE_S);
    printf("hello from the kernel, TEST_VALUE=%s\n", getenv("TEST_VALUE"));
    fflush(stdout);
    if (strcmp(argv[1], "exit") == 0)
        _exit(3);
    signal(SIGINT, on_interrupt);
    signal(SIGCHLD, SIG_IGN);
    if (strcmp(argv[1], "leave") == 0)
        leave_an_orphan();
    for (int i = 0; i < N_CHANNELS; i++)
        polls[i] = (struct pollfd){.fd = listen_channel(file, channels[i]), .events = POLLIN};
    for (;;) {
        poll(polls, N_CHANNELS, -1);
        for (int i = 0; i < N_CHANNELS; i++) {
            int fd = polls[i].revents ? accept(polls[i].fd, NULL, NULL) : -1;
            if (fd >= 0 && fork() == 0)
                echo(fd, channels[i]);
            close(fd);
        }
    }
}
