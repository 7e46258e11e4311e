// SPDX-License-Identifier: Apache-2.0
// What an editor shows of the name at the cursor: a function's signature and its text.

import { type Extension, StateEffect, StateField } from "@codemirror/state";
import { type EditorView, showTooltip, type Tooltip } from "@codemirror/view";

import { parseAnsi } from "./ansi";
import type { Assistant } from "./completion";

const show = StateEffect.define<Tooltip | null>();

const shown = StateField.define<Tooltip | null>({
    create: () => null,
    update(tooltip, transaction) {
        for (const effect of transaction.effects) if (effect.is(show)) return effect.value;
        return transaction.docChanged || transaction.selection ? null : tooltip;
    },
    provide: (field) => showTooltip.from(field),
});

export const help: Extension = shown;

/** Returns false if there is none. */
export function closeHelp(view: EditorView): boolean {
    if (!view.state.field(shown)) return false;
    view.dispatch({ effects: show.of(null) });
    return true;
}

function draw(text: string): HTMLElement {
    const box = document.createElement("div");
    box.className = "cm-help";
    box.setAttribute("role", "status");
    for (const { text: piece, classes } of parseAnsi(text)) {
        const span = document.createElement("span");
        span.textContent = piece;
        span.className = classes;
        box.append(span);
    }
    return box;
}

export async function openHelp(view: EditorView, assistant: Assistant) {
    const { state } = view;
    const position = state.selection.main.head;
    const text = await assistant.inspect(state.doc.toString(), position);
    if (view.state.doc !== state.doc || !view.dom.isConnected) return; // something was typed meanwhile
    const tooltip = text === null ? null : { pos: position, above: true, create: () => ({ dom: draw(text) }) };
    view.dispatch({ effects: show.of(tooltip) });
}
