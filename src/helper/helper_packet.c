// SPDX-License-Identifier: Apache-2.0
#include "helper_packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ID_CHARACTERS "abcdefghijklmnopqrstuvwxyz234567"

// An agent may wait for a link for a day, and a sandbox have 16 TiB.
#define IDLE_MAX_S (24 * 3600)
#define MEMORY_MAX_MB (INT64_C(1) << 24)
#define ZYGOTES_MAX 1000
#define SERVERS_MOST 1000

// Of a member of `size` bytes, all of which are looked at: a text of 0 or `least` to `most`
// characters, then zeros.
static bool
packet_text_is_valid(const char *text, size_t size, size_t least, size_t most)
{
    size_t len = strnlen(text, size);
    if (len < least || len > most)
        return false;
    for (size_t i = len; i < size; i++) {
        if (text[i])
            return false;
    }
    return strspn(text, ID_CHARACTERS) == len;
}

// What each verb uses.
static const struct {
    bool id, flag;
    size_t fork_len;
    int64_t number_min, number_max;
} verbs[] = {
    [HELPER_CREATE] = {.id = true, .flag = true, .number_max = IDLE_MAX_S},
    [HELPER_DESTROY] = {.id = true},
    [HELPER_LIST] = {.flag = true},
    [HELPER_LIMIT] = {.id = true, .number_min = 1, .number_max = MEMORY_MAX_MB},
    [HELPER_FORK] = {.id = true, .fork_len = HELPER_FORK_LEN, .number_max = ZYGOTES_MAX},
    [HELPER_WARM] = {0},
    [HELPER_COOL] = {0},
    [HELPER_DIAL] = {.id = true},
    [HELPER_SERVER] = {.number_max = SERVERS_MOST},
};

bool
helper_request_is_valid(const void *packet, size_t len)
{
    struct helper_request request;
    if (len != sizeof request)
        return false;
    memcpy(&request, packet, sizeof request);
    if (request.verb < HELPER_CREATE || request.verb >= KG_ARRAY_LEN(verbs))
        return false;
    size_t id_max = verbs[request.verb].id ? HELPER_ID_MAX : 0;
    size_t fork_len = verbs[request.verb].fork_len;
    return packet_text_is_valid(request.id, sizeof request.id, id_max > 0, id_max) &&
           packet_text_is_valid(request.fork, sizeof request.fork, fork_len, fork_len) &&
           request.flag <= verbs[request.verb].flag &&
           request.number >= verbs[request.verb].number_min &&
           request.number <= verbs[request.verb].number_max;
}

bool
helper_reply_is_valid(const void *packet, size_t len)
{
    struct helper_reply reply;
    if (len != sizeof reply)
        return false;
    memcpy(&reply, packet, sizeof reply);
    return reply.event >= HELPER_STARTED && reply.event <= HELPER_FILE && reply.code < KG_N_CODES &&
           packet_text_is_valid(reply.id, sizeof reply.id, 0, HELPER_ID_MAX) &&
           memchr(reply.message, '\0', sizeof reply.message);
}

void
helper_reply_set_error(struct helper_reply *reply, const struct kg_error *err)
{
    reply->code = err->code;
    reply->sys_errno = err->sys_errno;
    // Behind the NUL are bytes of this process's stack, which the other one is not to see.
    memset(reply->message, 0, sizeof reply->message);
    memcpy(reply->message, err->message, strnlen(err->message, sizeof reply->message - 1));
}

bool
helper_reply_error(const struct helper_reply *reply, struct kg_error *ret)
{
    if (reply->code == KG_OK)
        return false;
    if (ret) {
        *ret = (struct kg_error){.code = reply->code, .sys_errno = reply->sys_errno};
        memcpy(ret->message, reply->message, sizeof ret->message);
    }
    return true;
}

// ---- Sending and receiving ------------------------------------------------------------------

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int
helper_send(int socket, const void *packet, size_t len, int fd, int flags)
{
    union control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = len};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &header, MSG_NOSIGNAL | flags);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len ? 0 : -1;
}

ssize_t
helper_receive(int socket, void *packet, size_t max, int flags, int *ret_fd)
{
    union control control = {0};
    struct iovec part = {.iov_base = packet, .iov_len = max};
    // In CMSG_SPACE() there is room for a second descriptor, which Linux would use.
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_LEN(sizeof *ret_fd)};
    *ret_fd = -1;
    ssize_t n;
    do
        n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof *ret_fd))
        memcpy(ret_fd, CMSG_DATA(rights), sizeof *ret_fd);
    return header.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? (ssize_t)max + 1 : n;
}
