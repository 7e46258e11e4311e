// SPDX-License-Identifier: Apache-2.0
// The system call filter of seccomp.c as instructions, for processes that enter a sandbox. They are
// made with libseccomp, as an OCI runtime does for the sandbox's init.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provisioner_engine.h"

enum { MAX_ARGS = 6, MAX_FILTER_BYTES = 4096 * sizeof(struct sock_filter) };

static uint32_t
action_of(const json_t *rule)
{
    const char *name = json_string_value(json_object_get(rule, "action"));
    if (strcmp(name, "SCMP_ACT_ALLOW") == 0)
        return SCMP_ACT_ALLOW;
    return SCMP_ACT_ERRNO((uint16_t)json_integer_value(json_object_get(rule, "errnoRet")));
}

static unsigned
read_args(const json_t *rule, struct scmp_arg_cmp *ret)
{
    size_t i;
    json_t *arg;
    unsigned n = 0;
    json_array_foreach(json_object_get(rule, "args"), i, arg) {
        const char *op = json_string_value(json_object_get(arg, "op"));
        if (n == MAX_ARGS)
            break;
        ret[n++] = (struct scmp_arg_cmp){
            .arg = (unsigned)json_integer_value(json_object_get(arg, "index")),
            .op = strcmp(op, "SCMP_CMP_MASKED_EQ") == 0 ? SCMP_CMP_MASKED_EQ
                  : strcmp(op, "SCMP_CMP_GE") == 0      ? SCMP_CMP_GE
                                                        : SCMP_CMP_EQ,
            .datum_a = (scmp_datum_t)json_integer_value(json_object_get(arg, "value")),
            .datum_b = (scmp_datum_t)json_integer_value(json_object_get(arg, "valueTwo")),
        };
    }
    return n;
}

// `ret_last` gets the highest call number in the rules.
static int
add_rules(scmp_filter_ctx filter, const json_t *profile, int *ret_last)
{
    size_t i;
    json_t *rule;
    json_array_foreach(json_object_get(profile, "syscalls"), i, rule) {
        struct scmp_arg_cmp args[MAX_ARGS] = {0};
        unsigned n_args = read_args(rule, args);
        size_t j;
        json_t *name;
        json_array_foreach(json_object_get(rule, "names"), j, name) {
            int number = seccomp_syscall_resolve_name(json_string_value(name));
            if (number == __NR_SCMP_ERROR || number < 0)
                continue; // unknown on this architecture, or to this libseccomp
            *ret_last = number > *ret_last ? number : *ret_last;
            int failed = seccomp_rule_add_array(filter, action_of(rule), number, n_args, args);
            if (failed)
                return failed;
        }
    }
    return 0;
}

// Calls that are newer than the profile fail with ENOSYS, which programs that probe for them
// expect. runc puts the same instructions before the filter.
static void
append_newer_calls(struct buf *ret, int last)
{
    const struct sock_filter newer[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)last, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0), // another ABI: left to the filter
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    buf_append(ret, newer, sizeof newer);
}

static int
append_exported(struct buf *ret, scmp_filter_ctx filter, struct kg_error *err)
{
    KG_AUTO_FD fd = memfd_create("filter", MFD_CLOEXEC);
    int failed = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
    off_t len = failed ? 0 : lseek(fd, 0, SEEK_END);
    if (failed || len <= 0 || len > MAX_FILTER_BYTES)
        return kg_error_set(err, KG_INTERNAL, -failed, "cannot export the system call filter");
    char *to = buf_reserve(ret, (size_t)len);
    if (pread(fd, to, (size_t)len, 0) != len)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot read the system call filter");
    ret->len += (size_t)len;
    return 0;
}

int
provisioner_filter(const struct provisioner *provisioner, struct buf *ret, struct kg_error *err)
{
    json_auto_t *profile = seccomp_profile(provisioner->counts_udp);
    int by_default = (int)json_integer_value(json_object_get(profile, "defaultErrnoRet"));
    int last = 0;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO((uint16_t)by_default));
    if (!filter)
        return kg_error_set(err, KG_INTERNAL, 0, "cannot make the system call filter");
    int failed = add_rules(filter, profile, &last);
    if (!provisioner->denies_newer_calls)
        append_newer_calls(ret, last);
    int result = failed ? kg_error_set(err, KG_INTERNAL, -failed, "libseccomp refuses a rule")
                        : append_exported(ret, filter, err);
    seccomp_release(filter);
    return result;
}
