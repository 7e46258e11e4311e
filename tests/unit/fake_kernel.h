// SPDX-License-Identifier: Apache-2.0
// A kernel made of plain ZeroMQ sockets in the test's own loop. Its language has these words:
//   print      writes "hello\n" to stdout           raise      ends with a NameError
//   hang       runs until it is interrupted          stubborn   runs for ever
//   deaf       like hang, but misses the first interrupt
//   no reply   says idle and never replies           no idle    replies and never says idle
//   error, no reply    raises, says idle, never replies
//   die, oom   the process ends by SIGKILL (oom: for want of memory)
//   pages      replies with 150 pages of a pager
//   exit       asks to end, as IPython's exit() does; the process ends when the test says so
//   ask        asks for input, and writes what it gets to stdout
//   abort      ends well, and the next execute_request is aborted
// Every other request on shell gets a reply with the same content; any other message there is said
// again on iopub, with its content.
// Of the silent requests, "bad" fails and "slow" is answered, well, at the next interrupt.
#pragma once

#include "base.h"
#include "jupyter.h"
#include "loop.h"

struct fake_kernel;

struct fake_kernel_events {
    // A word was read ("run print", "silent bad", "interrupt_request").
    void (*on_request)(const char *what, void *arg);
    // The process ends; the kernel may be freed from inside.
    void (*on_exit)(int signal, bool oom, void *arg);
};

// Binds its endpoints in `dir`, where no other fake kernel of that `pid` does. With `mute` it does
// not answer kernel_info_request.
struct fake_kernel *fake_kernel_new(struct loop *loop, const char *dir, int pid, const char *key,
                                    bool mute, const struct fake_kernel_events *events, void *arg);
void fake_kernel_free(struct fake_kernel *kernel);
// A link to one of its channels, the caller's.
int fake_kernel_connect(const struct fake_kernel *kernel, enum jupyter_channel channel);
// It does not answer kernel_info_request any more.
void fake_kernel_mute(struct fake_kernel *kernel);
// SIGINT.
void fake_kernel_interrupt(struct fake_kernel *kernel);
// Writes to stdout, as a child of the request that came last.
void fake_kernel_print(struct fake_kernel *kernel, const char *text);
// Sends any message, as a child of that request; takes `content`.
void fake_kernel_say(struct fake_kernel *kernel, enum jupyter_channel channel, const char *type,
                     json_t *content);
