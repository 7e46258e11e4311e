// SPDX-License-Identifier: Apache-2.0
// What may follow in a code, and what a function takes: by the kernel, which knows its variables, and
// where it is not to be asked, by the code itself.

import type {
    Completion, CompletionContext, CompletionResult, CompletionSource,
} from "@codemirror/autocomplete";
import { localCompletionSource as javascriptNames } from "@codemirror/lang-javascript";
import { globalCompletion, localCompletionSource as pythonNames } from "@codemirror/lang-python";

import { ask, session } from "./api";

const OPTIONS_MAX = 300;
const HELP_MAX = 20_000; // characters
const SYNTAX: Record<string, CompletionSource[]> = {
    python: [pythonNames, globalCompletion],
    javascript: [javascriptNames],
    typescript: [javascriptNames],
};
// IPython's names of kinds, as the editor calls them.
const KINDS: Record<string, string> = {
    instance: "variable",
    module: "namespace",
    param: "property",
    statement: "variable",
    magic: "function",
    path: "text",
};

/** Of one editor. */
export interface Assistant {
    complete: CompletionSource;
    /** What the kernel says of the name at a position, as text with colours; null: nothing. */
    inspect: (code: string, position: number) => Promise<string | null>;
}

// Jupyter counts characters, and the editor UTF-16's units.
const toCharacters = (code: string, position: number) => [...code.slice(0, position)].length;
const toPosition = (code: string, characters: number) =>
    [...code].slice(0, characters).join("").length;

async function bySyntax(language: string, context: CompletionContext) {
    const options: Completion[] = [];
    let from = context.pos;
    for (const source of SYNTAX[language] ?? []) {
        const found = await source(context);
        if (!found) continue;
        from = found.from;
        options.push(...found.options);
    }
    const unique = [...new Map(options.map((option) => [option.label, option])).values()];
    return unique.length ? { from, options: unique, validFor: /^\w*$/ } : null;
}

interface Completed {
    matches: string[];
    types: { text: string; type: string }[];
    cursor_start: number;
}
interface Inspected {
    found: boolean;
    data: Record<string, string>;
}

function optionsOf(reply: Completed): Completion[] {
    const kinds = new Map<string, string>();
    for (const { text, type } of reply.types) kinds.set(text, type);
    return reply.matches
        .slice(0, OPTIONS_MAX)
        .map((label, i) => {
            const kind = kinds.get(label) ?? "";
            return { label, type: KINDS[kind] ?? kind, boost: -i / OPTIONS_MAX };
        });
}

/** `kernel` says which kernel the cell has; null: it is not to be asked. */
export function assist(
    sessionId: string,
    language: () => string,
    kernel: () => { kernel: string } | { branch: string } | null,
): Assistant {
    // A kernel that is busy, or too slow, refuses.
    const request = async <T>(what: string, content: Record<string, unknown>) => {
        const asked = kernel();
        if (!asked) return null;
        const body = { ...content, ...asked };
        return ask<T>(session(sessionId, what), { method: "POST", body }).catch(() => null);
    };
    const byKernel = async (context: CompletionContext): Promise<CompletionResult | null> => {
        const code = context.state.doc.toString();
        const reply = await request<Completed>("complete", {
            code,
            cursor_pos: toCharacters(code, context.pos),
        });
        const options = reply ? optionsOf(reply) : [];
        if (!options.length || context.aborted) return null;
        const from = toPosition(code, reply!.cursor_start);
        return { from: Math.min(from, context.pos), options, validFor: /^[\w.]*$/ };
    };
    return {
        complete: async (context) =>
            (await byKernel(context)) ?? (context.aborted ? null : bySyntax(language(), context)),
        inspect: async (code, position) => {
            const cursor_pos = toCharacters(code, position);
            const reply = await request<Inspected>("inspect", { code, cursor_pos });
            const text = reply?.found ? reply.data["text/plain"] : null;
            return text ? text.slice(0, HELP_MAX) : null;
        },
    };
}
