// SPDX-License-Identifier: Apache-2.0
// The languages that the editor and the cells know.

import { javascriptLanguage, typescriptLanguage } from "@codemirror/lang-javascript";
import { pythonLanguage } from "@codemirror/lang-python";
import { type Language, StreamLanguage } from "@codemirror/language";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { highlightCode, tagHighlighter, tags } from "@lezer/highlight";

const shellLanguage = StreamLanguage.define(shell);
const LANGUAGES: Record<string, Language> = {
    python: pythonLanguage,
    javascript: javascriptLanguage,
    typescript: typescriptLanguage,
    shell: shellLanguage,
    bash: shellLanguage,
};

export const languageOf = (name: string): Language | undefined => LANGUAGES[name];

/** What is highlighted, and the name of its colour: a class in cells, a variable of page.css. */
export const HIGHLIGHTED = [
    { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], name: "code-keyword" },
    { tag: [tags.string, tags.regexp, tags.special(tags.string)], name: "code-string" },
    { tag: [tags.number, tags.bool, tags.null, tags.atom], name: "code-number" },
    { tag: [tags.comment], name: "code-comment" },
    {
        tag: [tags.function(tags.variableName), tags.definition(tags.variableName)],
        name: "code-name",
    },
    { tag: [tags.className, tags.typeName], name: "code-type" },
];
const classes = tagHighlighter(HIGHLIGHTED.map(({ tag, name }) => ({ tag, class: name })));

/** The pieces of a code, each with its class or "". */
export function highlight(code: string, language: string): { text: string; name: string }[] {
    const known = languageOf(language);
    if (!known || code.length > 20_000) return [{ text: code, name: "" }];
    const pieces: { text: string; name: string }[] = [];
    highlightCode(
        code,
        known.parser.parse(code),
        classes,
        (text, name) => pieces.push({ text, name }),
        () => pieces.push({ text: "\n", name: "" }),
    );
    return pieces;
}
