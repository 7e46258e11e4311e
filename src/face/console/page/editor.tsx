// SPDX-License-Identifier: Apache-2.0
// The editor of code. It is in a shadow tree, where its styles need no exception from the policy.

import {
    autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, type Extension, Prec } from "@codemirror/state";
import { drawSelection, EditorView, keymap, placeholder } from "@codemirror/view";
import { useEffect, useRef } from "preact/hooks";

import { HIGHLIGHTED, languageOf } from "./language";

export type EditorRef = { current: EditorView | null };

const highlighting = HighlightStyle.define(
    HIGHLIGHTED.map(({ tag, name }) => ({ tag, color: `var(--${name})` })),
);

const look = EditorView.theme({
    "&": { backgroundColor: "transparent", color: "var(--text)", fontSize: "14px" },
    "&.cm-focused": { outline: "none" },
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", maxHeight: "50vh" },
    ".cm-content": { padding: "10px 12px", caretColor: "var(--text)" },
    ".cm-line": { padding: "0" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    ".cm-placeholder": { color: "var(--quiet)" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
        backgroundColor: "var(--selection)",
    },
    ".cm-selectionBackground": { backgroundColor: "var(--selection)" },
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)" },
    ".cm-tooltip": { backgroundColor: "var(--raised)", border: "1px solid var(--line)" },
});

function languageExtension(name: string): Extension {
    const known = languageOf(name);
    return [known ?? [], name === "python" ? indentUnit.of("    ") : []];
}

interface Props {
    label: string;
    hint: string;
    language: string;
    onRun: (code: string) => boolean; // whether it was taken: the editor is emptied then
    onBack?: () => string | undefined; // the text before, for Arrow Up in an empty editor
    editor: EditorRef;
}

export function Editor(props: Props) {
    const host = useRef<HTMLDivElement>(null);
    const latest = useRef(props);
    latest.current = props;
    const language = useRef(new Compartment());
    useEffect(() => {
        const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
        const run = (view: EditorView) => {
            const code = view.state.doc.toString();
            if (code.trim() && latest.current.onRun(code))
                view.dispatch({ changes: { from: 0, to: view.state.doc.length } });
            return true;
        };
        const back = (view: EditorView) => {
            const text = view.state.doc.length === 0 ? latest.current.onBack?.() : undefined;
            if (!text) return false;
            view.dispatch({ changes: { from: 0, insert: text }, selection: { anchor: text.length } });
            return true;
        };
        // Tab leaves the editor after Escape, for those who have only a keyboard.
        const keys = [
            { key: "Shift-Enter", run },
            { key: "Mod-Enter", run },
            { key: "ArrowUp", run: back },
        ];
        const view = new EditorView({
            root,
            parent: root,
            state: EditorState.create({
                extensions: [
                    Prec.highest(keymap.of(keys)),
                    keymap.of([
                        ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap,
                        ...completionKeymap, indentWithTab,
                    ]),
                    history(),
                    drawSelection(),
                    closeBrackets(),
                    bracketMatching(),
                    indentOnInput(),
                    autocompletion({ activateOnTyping: false }),
                    syntaxHighlighting(highlighting),
                    look,
                    placeholder(latest.current.hint),
                    EditorView.contentAttributes.of({ "aria-label": latest.current.label }),
                    language.current.of(languageExtension(latest.current.language)),
                ],
            }),
        });
        props.editor.current = view;
        view.focus();
        return () => {
            props.editor.current = null;
            view.destroy();
        };
    }, []);
    useEffect(() => {
        const effects = language.current.reconfigure(languageExtension(props.language));
        props.editor.current?.dispatch({ effects });
    }, [props.language]);
    return <div class="editor" ref={host} />;
}
