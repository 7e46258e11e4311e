// SPDX-License-Identifier: Apache-2.0
// A cell as it is shown: its text, which becomes an editor, its outputs, and what can be done with it.

import { useMemo } from "preact/hooks";

import type { Line } from "./api";
import { type Cell, isRunning, type Outcome } from "./cell";
import type { Assistant } from "./completion";
import { Editor, type RunKind } from "./editor";
import { shortDuration } from "./format";
import { InputLine } from "./input_line";
import { highlight } from "./language";
import { Outputs, Rendered } from "./output";

const LINES_SCROLLED = 24; // so many may be more than a cell shows at once
const STATUS: Record<string, string> = {
    error: "failed",
    timeout: "time limit reached",
    interrupted: "interrupted",
    died: "the kernel ended",
    lost: "output lost",
    skipped: "not run",
};

/** What is done with a cell, by its buttons or by keys. */
export type Command =
    | "run" | "edit" | "up" | "down" | "above" | "below" | "code" | "markdown" | "delete" | "take-back";

export interface CellActions {
    command: (cell: Cell, command: Command) => void;
    edit: (cell: Cell, at?: Props["at"]) => void;
    change: (cell: Cell, text: string) => void;
    run: (cell: Cell, kind: RunKind) => void;
    leave: (cell: Cell) => void;
    edge: (cell: Cell, by: -1 | 1) => void;
    answer: (cell: Cell, request: Line, value: string) => Promise<void>;
}

interface Props {
    cell: Cell;
    number: number;
    sessionId: string;
    language: string;
    editing: boolean;
    at?: "start" | "end" | { x: number; y: number };
    chosen: boolean;
    whyNotUndone: string | null; // "": it can be undone; null: nothing is to be said of it
    assistant: Assistant;
    actions: CellActions;
}

function StatusOf({ outcome }: { outcome: Outcome | null }) {
    const done = outcome?.execution.done;
    if (!outcome || done?.status === "saved") return null;
    if (outcome.waits && !done) return <span class="status">waiting</span>;
    if (!done)
        return (
            <span class="status is-running" role="status">
                {outcome.execution.input ? "waiting for input" : "running"}
            </span>
        );
    if (outcome.undone) return <span class="status is-undone">undone</span>;
    const time = done.duration_ms === undefined ? "" : shortDuration(done.duration_ms);
    return (
        <span class={`status is-${done.status}`}>
            {[STATUS[done.status], time, done.kernel_restarted && "kernel restarted"]
                .filter(Boolean)
                .join(", ")}
        </span>
    );
}

/** The images that a Markdown cell brings with it, in place of their names. */
function withAttachments(cell: Cell): string {
    if (!cell.attachments) return cell.source;
    return cell.source.replace(/attachment:([^)\s"]+)/g, (whole, name: string) => {
        const bundle = cell.attachments![name] ?? cell.attachments![decodeURIComponent(name)];
        const [type, data] = Object.entries(bundle ?? {}).find(([t]) => /^image\//.test(t)) ?? [];
        return type && data ? `data:${type};base64,${data.replace(/\s/g, "")}` : whole;
    });
}

function Code({ cell, number, language, onClick }: {
    cell: Cell;
    number: number;
    language: string;
    onClick: (event: MouseEvent) => void;
}) {
    const pieces = useMemo(() => highlight(cell.source, language), [cell.source, language]);
    const long = pieces.filter(({ text }) => text === "\n").length > LINES_SCROLLED;
    return (
        <pre
            class={long ? "long" : ""}
            tabIndex={long ? 0 : undefined}
            role={long ? "region" : undefined}
            aria-label={long ? `Code of cell ${number}` : undefined}
            onClick={onClick}
        >
            {pieces.map(({ text, name }, i) => (
                <span key={i} class={name}>
                    {text}
                </span>
            ))}
            {!cell.source && <span class="quiet">Empty</span>}
        </pre>
    );
}

function Tools({ cell, number, chosen, onCommand }: {
    cell: Cell;
    number: number;
    chosen: boolean;
    onCommand: (command: Command) => void;
}) {
    const isCode = cell.type === "code";
    const tools: [Command, string, string, string?][] = [
        ...(isCode ? [["run", "Run", "Run", "Ctrl+Enter"] as [Command, string, string, string]] : []),
        ["edit", "Edit", "Edit", "Enter"],
        ["up", "\u2191", "Move up", "Ctrl+Shift+Up"],
        ["down", "\u2193", "Move down", "Ctrl+Shift+Down"],
        ["below", "+", "Insert below", "B"],
        isCode ? ["markdown", "Markdown", "Make Markdown", "M"] : ["code", "Code", "Make code", "Y"],
        ["delete", "Delete", "Delete", "D, D"],
    ];
    return (
        <div class="cell-tools" role="group" aria-label={`Cell ${number}`}>
            {tools.map(([command, label, name, key]) => (
                <button
                    key={command}
                    class="plain small"
                    tabIndex={chosen ? 0 : -1}
                    aria-label={label === name ? undefined : name}
                    title={key && `${name} (${key})`}
                    onClick={() => onCommand(command)}
                >
                    {label}
                </button>
            ))}
        </div>
    );
}

/** It can be reached although it does nothing: then it says why. */
function Undo({ number, whyNot, chosen, onUndo }: {
    number: number;
    whyNot: string;
    chosen: boolean;
    onUndo: () => void;
}) {
    return (
        <button
            class="plain small undo"
            tabIndex={chosen ? 0 : -1}
            aria-label={`Undo cell ${number}`}
            aria-disabled={whyNot !== ""}
            title={whyNot || "Brings the variables back to what they were before this cell ran (U)"}
            onClick={onUndo}
        >
            Undo
        </button>
    );
}

function Source({ cell, number, language, editing, at, assistant, actions }: Props) {
    const onClick = (event: MouseEvent) => {
        if (!getSelection()?.isCollapsed) return; // some of it was selected, for copying
        actions.edit(cell, { x: event.clientX, y: event.clientY });
    };
    if (editing)
        return (
            <Editor
                label={`${cell.type === "code" ? "Code" : "Text"} of cell ${number}`}
                text={cell.source}
                language={cell.type === "code" ? language : ""}
                {...(at && { at })}
                assistant={cell.type === "code" ? assistant : null}
                onChange={(text) => actions.change(cell, text)}
                onRun={(kind) => actions.run(cell, kind)}
                onLeave={() => actions.leave(cell)}
                onEdge={(by) => actions.edge(cell, by)}
                focus
            />
        );
    if (cell.type === "markdown" && cell.source.trim())
        return (
            <div class="text-cell">
                <Rendered text={withAttachments(cell)} as="markdownToHtml" />
            </div>
        );
    return <Code cell={cell} number={number} language={cell.type === "code" ? language : ""} onClick={onClick} />;
}

function View(props: Props) {
    const { cell, number, sessionId, chosen, editing, whyNotUndone, actions } = props;
    const { outcome } = cell;
    const execution = outcome?.execution;
    const count = execution?.count;
    const prompt = cell.type !== "code" ? "" : (count ?? (isRunning(cell) ? "\u2022" : "\u2013"));
    return (
        <article
            class={["cell", editing && "editing", outcome?.undone && "undone"].filter(Boolean).join(" ")}
            id={`cell-${cell.id}`}
            data-cell={cell.id}
            tabIndex={0}
            aria-label={`Cell ${number}`}
        >
            <Tools
                cell={cell}
                number={number}
                chosen={chosen}
                onCommand={(command) => actions.command(cell, command)}
            />
            <div class="code">
                <span class="prompt" aria-hidden="true">
                    {prompt}
                </span>
                <Source {...props} />
                <span class="cell-end">
                    {whyNotUndone !== null && (
                        <Undo
                            number={number}
                            whyNot={whyNotUndone}
                            chosen={chosen}
                            onUndo={() => actions.command(cell, "take-back")}
                        />
                    )}
                    <StatusOf outcome={outcome} />
                </span>
            </div>
            {execution && <Outputs execution={execution} sessionId={sessionId} />}
            {execution?.input && (
                <InputLine
                    request={execution.input}
                    onAnswer={(value) => actions.answer(cell, execution.input!, value)}
                />
            )}
        </article>
    );
}

/** It is drawn anew only when something of it has changed: a notebook may have many cells. */
export function CellView(props: Props) {
    const { cell, number, sessionId, language, editing, at, chosen, whyNotUndone, assistant, actions } = props;
    return useMemo(
        () => <View {...props} />,
        [cell, cell.version, number, sessionId, language, editing, at, chosen, whyNotUndone, assistant, actions],
    );
}
