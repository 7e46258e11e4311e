// SPDX-License-Identifier: Apache-2.0
// Markdown and formulas as HTML, for a frame. Loaded when the first output needs it.

import katex from "katex";
import { Marked } from "marked";

const formula = (text: string, displayMode: boolean) =>
    katex.renderToString(text, { output: "mathml", displayMode, throwOnError: false, maxExpand: 500 });

const marked = new Marked({
    gfm: true,
    extensions: [
        {
            name: "block formula",
            level: "block",
            start: (source) => source.indexOf("$$"),
            tokenizer(source) {
                const found = /^\$\$([\s\S]+?)\$\$/.exec(source);
                return found
                    ? { type: "block formula", raw: found[0], text: found[1] }
                    : undefined;
            },
            renderer: (token) => formula(token.text, true),
        },
        {
            name: "formula",
            level: "inline",
            start: (source) => source.indexOf("$"),
            tokenizer(source) {
                const found = /^\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)/.exec(source);
                return found ? { type: "formula", raw: found[0], text: found[1] } : undefined;
            },
            renderer: (token) => formula(token.text, false),
        },
    ],
});

export const markdownToHtml = (text: string) => marked.parse(text, { async: false });

export function latexToHtml(text: string): string {
    const found = /^\s*(\$\$?|\\\[|\\\()([\s\S]*?)(\$\$?|\\\]|\\\))\s*$/.exec(text);
    return formula(found ? found[2]! : text, !found || found[1] !== "$");
}
