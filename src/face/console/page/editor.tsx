// SPDX-License-Identifier: Apache-2.0
// The editor of a cell. It is in a shadow tree, where its styles need no exception from the policy.

import {
    acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionStatus, startCompletion,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, type Extension, Prec } from "@codemirror/state";
import { drawSelection, EditorView, keymap, placeholder } from "@codemirror/view";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import type { Assistant } from "./completion";
import { closeHelp, help, openHelp } from "./editor_help";
import { HIGHLIGHTED, languageOf } from "./language";

export type EditorRef = { current: EditorView | null };

const highlighting = HighlightStyle.define(
    HIGHLIGHTED.map(({ tag, name }) => ({ tag, color: `var(--${name})` })),
);

const look = EditorView.theme({
    "&": { backgroundColor: "transparent", color: "var(--text)", fontSize: "var(--code-size)" },
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
    ".cm-tooltip": {
        backgroundColor: "var(--raised)",
        border: "1px solid var(--line)",
        borderRadius: "7px",
        boxShadow: "0 4px 16px rgb(0 0 0 / 0.14)",
        overflow: "hidden",
    },
    ".cm-tooltip.cm-tooltip-autocomplete > ul": {
        fontFamily: "var(--mono)",
        fontSize: "13px",
        maxHeight: "14em",
        minWidth: "200px",
    },
    ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 10px", lineHeight: "1.5" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": {
        background: "var(--selection)",
        color: "var(--text)",
    },
    ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
    ".cm-completionIcon": { display: "none" },
    ".cm-help": {
        padding: "8px 12px",
        maxWidth: "min(680px, 90vw)",
        maxHeight: "16em",
        overflow: "auto",
        whiteSpace: "pre-wrap",
        font: "12.5px/1.5 var(--mono)",
    },
    ".cm-help .c1, .cm-help .c9": { color: "var(--c1)" },
    ".cm-help .c4, .cm-help .c12": { color: "var(--c4)" },
    ".cm-help .c2, .cm-help .c10": { color: "var(--c2)" },
});

function languageExtension(name: string): Extension {
    const known = languageOf(name);
    return [known ?? [], name === "python" ? indentUnit.of("    ") : []];
}

/** What has the focus after a cell was run: the next cell, the same one, or a new one below. */
export type RunKind = "next" | "stay" | "insert";

interface Props {
    label: string;
    hint?: string;
    text: string; // in the beginning
    language: string;
    /** Where the cursor is in the beginning; by default at the end. */
    at?: "start" | "end" | { x: number; y: number };
    assistant: Assistant | null;
    onChange: (text: string) => void;
    onRun: (kind: RunKind) => void;
    onLeave: () => void; // by Escape
    onEdge?: (by: -1 | 1) => void; // an arrow key, at the first or last line
    onHistory?: (by: -1 | 1) => string | null; // a text that takes the place of this one
    editor?: EditorRef;
    focus: boolean;
}

/** Whether a text is before the cursor in its line, so that Tab asks for its end. */
function isInText({ state }: EditorView): boolean {
    const { head, empty } = state.selection.main;
    const line = state.doc.lineAt(head);
    return empty && /[^\s]$/.test(state.sliceDoc(line.from, head));
}

function isAtEdge({ state }: EditorView, by: -1 | 1): boolean {
    const { head, empty } = state.selection.main;
    const line = state.doc.lineAt(head).number;
    return empty && line === (by < 0 ? 1 : state.doc.lines);
}

function setText(view: EditorView, text: string) {
    view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        selection: { anchor: text.length },
        scrollIntoView: true,
    });
}

/** The keys that are those of a notebook. `latest` has the properties of the last drawing. */
function notebookKeys(latest: { current: Props }) {
    const run = (kind: RunKind) => () => {
        latest.current.onRun(kind);
        return true;
    };
    const arrow = (by: -1 | 1) => (view: EditorView) => {
        const { onHistory, onEdge } = latest.current;
        if (!isAtEdge(view, by)) return false;
        const text = onHistory?.(by) ?? null;
        if (text !== null) setText(view, text);
        else onEdge?.(by);
        return text !== null || onEdge !== undefined;
    };
    return [
        { key: "Shift-Enter", run: run("next") },
        { key: "Mod-Enter", run: run("stay") },
        { key: "Alt-Enter", run: run("insert") },
        {
            key: "Escape",
            run: (view: EditorView) => {
                if (!closeHelp(view)) latest.current.onLeave();
                return true;
            },
        },
        { key: "ArrowUp", run: arrow(-1) },
        { key: "ArrowDown", run: arrow(1) },
        {
            key: "Tab",
            run: (view: EditorView) => {
                if (completionStatus(view.state) === "active") return acceptCompletion(view);
                return latest.current.assistant && isInText(view) ? startCompletion(view) : indentMore(view);
            },
        },
        {
            key: "Shift-Tab",
            run: (view: EditorView) => {
                const { assistant } = latest.current;
                if (!assistant || !isInText(view)) return indentLess(view);
                void openHelp(view, assistant);
                return true;
            },
        },
    ];
}

export function Editor(props: Props) {
    const host = useRef<HTMLDivElement>(null);
    const own = useRef<EditorView | null>(null);
    const latest = useRef(props);
    latest.current = props;
    const language = useRef(new Compartment());
    useLayoutEffect(() => {
        const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
        const { text, at, hint, label } = latest.current;
        const view = new EditorView({
            root,
            parent: root,
            state: EditorState.create({
                doc: text,
                selection: { anchor: at === "start" ? 0 : text.length },
                extensions: [
                    autocompletion({
                        activateOnTyping: false,
                        icons: false,
                        override: [(context) => latest.current.assistant?.complete(context) ?? null],
                    }),
                    Prec.highest(keymap.of(notebookKeys(latest))),
                    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
                    history(),
                    drawSelection(),
                    closeBrackets(),
                    bracketMatching(),
                    indentOnInput(),
                    help,
                    syntaxHighlighting(highlighting),
                    look,
                    EditorView.lineWrapping,
                    hint ? placeholder(hint) : [],
                    // Tab goes past it: Enter leads into it, from its cell.
                    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "-1" }),
                    EditorView.updateListener.of(({ docChanged, state }) => {
                        if (docChanged) latest.current.onChange(state.doc.toString());
                    }),
                    language.current.of(languageExtension(latest.current.language)),
                ],
            }),
        });
        own.current = view;
        if (latest.current.editor) latest.current.editor.current = view;
        if (latest.current.focus) view.focus();
        if (typeof at === "object") {
            const position = view.posAtCoords(at);
            if (position !== null) view.dispatch({ selection: { anchor: position } });
        }
        return () => {
            if (latest.current.editor) latest.current.editor.current = null;
            view.destroy();
        };
    }, []);
    useEffect(() => {
        const effects = language.current.reconfigure(languageExtension(props.language));
        own.current?.dispatch({ effects });
    }, [props.language]);
    return <div class="editor" ref={host} />;
}
