// SPDX-License-Identifier: Apache-2.0
// Pseudo-terminals of Linux. Their owner is who opens /dev/ptmx, so grantpt() has nothing to do.
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { CONTROL_D = 4 };

int
terminal_size_check(int64_t cols, int64_t rows, struct terminal_size *ret, struct kg_error *err)
{
    if (cols < 1 || cols > TERMINAL_SIZE_MAX || rows < 1 || rows > TERMINAL_SIZE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "cols and rows must be 1 to %d", TERMINAL_SIZE_MAX);
    *ret = (struct terminal_size){.cols = (int)cols, .rows = (int)rows};
    return 0;
}

int
terminal_resize(int fd, const struct terminal_size *size, struct kg_error *err)
{
    const struct winsize winsize = {.ws_col = (unsigned short)size->cols,
                                    .ws_row = (unsigned short)size->rows};

    if (ioctl(fd, TIOCSWINSZ, &winsize) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot resize a terminal");
    return 0;
}

// Characters of several bytes are erased as one.
static void
terminal_expect_utf8(int fd)
{
    struct termios mode;

    if (tcgetattr(fd, &mode) != 0)
        return;
    mode.c_iflag |= IUTF8;
    (void)tcsetattr(fd, TCSANOW, &mode);
}

int
terminal_open(const struct terminal_size *size, int *ret_master, int *ret_slave,
              struct kg_error *err)
{
    char name[64];
    KG_AUTO_FD master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master < 0 && (errno == ENOSPC || errno == EIO || errno == EAGAIN))
        return kg_error_set(
            err, KG_SESSION_BUSY, 0,
            "the sandbox has no terminal left; end commands that have one, or what they have "
            "left in the background");
    if (master < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open a terminal");
    if (unlockpt(master) != 0 || ptsname_r(master, name, sizeof name) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot unlock a terminal");
    KG_AUTO_FD slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open the terminal %s", name);
    if (terminal_resize(master, size, err) != 0 || fd_set_nonblocking(master, err) != 0)
        return -1;
    terminal_expect_utf8(slave);
    *ret_master = KG_STEAL_FD(master);
    *ret_slave = KG_STEAL_FD(slave);
    return 0;
}

pid_t
terminal_foreground(int fd)
{
    pid_t group = tcgetpgrp(fd);
    return group > 1 ? group : 0;
}

size_t
terminal_end_of_input(int fd, bool line_has_begun, char ret[2])
{
    struct termios mode;

    ret[0] = ret[1] = CONTROL_D;
    if (tcgetattr(fd, &mode) != 0)
        return line_has_begun ? 2 : 1;
    if (mode.c_lflag & ICANON)
        ret[0] = ret[1] = (char)mode.c_cc[VEOF];
    return (mode.c_lflag & ICANON) && line_has_begun ? 2 : 1;
}
