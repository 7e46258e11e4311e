// SPDX-License-Identifier: Apache-2.0
// A question to a kernel between two cells, and its answer.

#include "kernel_priv.h"

struct kernel_question {
    struct kernel *kernel;
    kernel_answer_fn fn; // NULL: nobody wants to know any more
    void *arg;
};

static void
question_end(struct kernel_question *question, const json_t *content, const struct kg_error *err)
{
    kernel_answer_fn fn = question->fn;
    void *arg = question->arg;
    question->kernel->question = NULL;
    free(question);
    if (fn)
        fn(content, err, arg);
}

void
kernel_question_fail(struct kernel_question *question, const char *why)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_BUSY, 0, "%.200s", why);
    if (question)
        question_end(question, NULL, &err);
}

void
kernel_question_on_answer(struct kernel_question *question, const json_t *content,
                          const char *failure)
{
    if (failure)
        kernel_question_fail(question, failure);
    else
        question_end(question, content, NULL);
}

struct kernel_question *
kernel_ask(struct kernel *kernel, const char *msg_type, json_t *content, int64_t timeout_ms,
           kernel_answer_fn fn, void *arg, struct kg_error *err)
{
    if (kernel->making || kernel->question || kernel_is_busy(kernel) ||
        kernel_state(kernel) != KERNEL_READY) {
        json_decref(content);
        kg_error_set(err, KG_KERNEL_BUSY, 0, "the kernel is %s: it answers between two cells",
                     kernel->making || kernel->question
                         ? "busy with another question"
                         : kernel_state_name(kernel_state(kernel)));
        return NULL;
    }
    if (runner_ask(&kernel->runner, msg_type, content, timeout_ms, err) < 0)
        return NULL;
    struct kernel_question *question = KG_NEW(struct kernel_question);
    question->kernel = kernel;
    question->fn = fn;
    question->arg = arg;
    kernel->question = question;
    return question;
}

// The kernel still answers, and is asked nothing else until then.
void
kernel_question_cancel(struct kernel_question *question)
{
    if (question)
        question->fn = NULL;
}
