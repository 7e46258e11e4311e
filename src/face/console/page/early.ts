// SPDX-License-Identifier: Apache-2.0
// Requests for what the first view shows, sent at the same time as the one that checks the login.

import { ask } from "./api";

interface Early {
    answer: Promise<unknown>;
    value?: unknown; // once it is there
}

const early = new Map<string, Early>();

/** Asks now; the first to want this answer gets it. */
export function askEarly(where: string): Promise<unknown> {
    const each: Early = { answer: ask(where) };
    early.set(where, each);
    each.answer.then(
        (value) => (each.value = value),
        () => early.get(where) === each && early.delete(where),
    );
    return each.answer;
}

/** An answer, which is not kept any longer. */
export function takeEarly(where: string): Early | undefined {
    const found = early.get(where);
    early.delete(where);
    return found;
}

/** For another key or login these are not the answers. */
export function forgetEarly() {
    early.clear();
}
