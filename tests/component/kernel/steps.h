// SPDX-License-Identifier: Apache-2.0
// The steps of a cell, one a line. A line that is empty or begins with # does nothing. A step that
// does not exist, and one whose arguments are wrong, ends the cell with a StepError.
//
// TEXT is the rest of the line; `print`, `stderr` and `append` add a newline. Where it begins with
// a quotation mark it is a JSON string, which is sent exactly as it is, without a newline: it can
// have escapes, also those of lone surrogates. BUNDLE is a JSON object of MIME types and data.
// {1000*ab} anywhere in a line is ab a thousand times.
//
// Output
//   print TEXT, stderr TEXT     a stream message
//   result TEXT                 execute_result with text/plain
//   result BUNDLE
//   display MIME TEXT           display_data; if MIME ends with json, TEXT is JSON
//   display BUNDLE
//   display-id ID BUNDLE        display_data with a display_id
//   update-display ID BUNDLE    update_display_data
//   clear, clear wait           clear_output
//   error NAME VALUE            iopub error and the reply's error; the cell ends
//   flood N SIZE                N stream messages of SIZE bytes
//
// Time
//   wait NAME                   until there is a file NAME, which the test writes
//   take NAME                   the same; then removes it
//   hang                        until an interrupt
//   sleep SECONDS               a bet on time: `wait` is better
//   busy SECONDS                the same, with the processor
//   catch                       from here on an interrupt ends only the step that waits, and the
//                               cell goes on; otherwise it raises KeyboardInterrupt
//   deaf, hear                  from here on interrupts are lost; no longer
//   background                  replies, says idle, and goes on after the end of the cell
//   input PROMPT                asks on stdin, and prints the answer
//   password PROMPT             the same, with `password`
//
// State
//   set NAME JSON               a variable
//   get NAME                    prints it as JSON; a NameError if there is none
//   add NAME NUMBER             adds to it; it is 0 if there is none
//   delete NAME
//   getenv NAME                 prints an environment variable, or None
//   set-variables, set-env, restore-env: what the kernelspec's metadata asks for
//   repeat N STEP               the step N times, with {i} replaced by 0 to N-1
//
// Files and processes
//   write NAME TEXT, append NAME TEXT, read NAME, remove NAME, mkdir NAME
//   exists NAME                 prints True or False
//   file-size NAME BYTES        a file of so many x
//   png NAME                    a file with a picture of one pixel
//   sh COMMAND                  runs it and prints its output when it has ended; until then the
//                               kernel does nothing else. A CalledProcessError if it fails
//   spawn COMMAND               runs it, and leaves it behind
//   pid                         prints the process id
//   allocate BYTES              memory that is really used, and kept
//   memory BYTES                what the agent reports as the sandbox's memory
//   exit                        replies with ask_exit, says idle, and ends
//   die CODE                    ends the process when the system has all that was said
//   kill SIGNAL                 sends itself a signal, at once
//   oom                         SIGKILL, as by the limit of the control group
//
// Faults of the protocol
//   reply, reply JSON           now instead of at the end
//   no-reply                    not at all
//   again JSON                  one more execute_reply
//   idle, no-idle               now instead of at the end; not at all
//   parent last                 from here on messages have the header of the cell before as their
//                               parent, until `parent own` or the end, whose reply and idle have
//                               the right one
//   parent TEXT                 the same with that text
//   bad-signature               of the next message
//   metadata JSON               of the next message
//   send CHANNEL TYPE TEXT      any message; its content is TEXT as it is
//   frames CHANNEL [TEXT, …]    frames as they are
#pragma once

#include "kernel.h"

struct step {
    const char *name;
    void (*run)(struct cell *cell, char *rest);
};

// Each list ends with an entry without a name.
extern const struct step steps_output[], steps_state[], steps_process[], steps_wire[];

void step_run(struct cell *cell, char *line);
// Ends the cell with a StepError.
void step_fail(struct cell *cell, const char *why);
// Splits off the first word; "" at the end.
char *step_word(char **rest);
// A word as a number; a StepError if it is none.
double step_number(struct cell *cell, char **rest);
// TEXT as a JSON literal, with `end` appended if it was not one already. The caller frees it.
char *step_literal(const char *text, const char *end);
// TEXT as it is in a file or a variable. The caller frees it.
char *step_text(const char *text, const char *end, size_t *ret_len);
// All steps' names that begin so.
json_t *step_names(const char *prefix);

// Prints a text as a stream message of stdout.
void print_text(struct cell *cell, const char *text);
