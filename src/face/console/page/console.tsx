// SPDX-License-Identifier: Apache-2.0
// The console of a session: an editor, and the cells that were run.

import type { EditorView } from "@codemirror/view";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Kernelspec } from "./api";
import type { Cell, Cells } from "./cells";
import { Editor } from "./editor";
import { shortDuration } from "./format";
import { highlight } from "./language";
import { Outputs } from "./output";
import { usePolled } from "./polling";

const STATUS: Record<string, string> = {
    error: "failed",
    timeout: "time limit reached",
    interrupted: "interrupted",
    died: "the kernel ended",
    lost: "lost",
};
const LIMITS = [
    [0, "default time limit"],
    [300, "5 minutes"],
    [3600, "1 hour"],
] as const;

function StatusOf({ cell }: { cell: Cell }) {
    const done = cell.execution.done;
    if (cell.waits && !done) return <span class="status">waiting</span>;
    if (!done)
        return (
            <span class="status is-running" role="status">
                running
            </span>
        );
    const time = done.duration_ms === undefined ? "" : shortDuration(done.duration_ms);
    const what = STATUS[done.status];
    return (
        <span class={`status is-${done.status}`}>
            {[what, time, done.kernel_restarted && "kernel restarted"].filter(Boolean).join(", ")}
        </span>
    );
}

interface CellProps {
    cell: Cell;
    sessionId: string;
    language: string;
    onEdit: () => void;
}

function CellView({ cell, sessionId, language, onEdit }: CellProps) {
    const count = cell.execution.done?.execution_count;
    const pieces = useMemo(() => highlight(cell.code, language), [cell.code, language]);
    return (
        <article class="cell" aria-label={`Cell ${cell.number}`}>
            <div class="code">
                <span class="prompt" aria-hidden="true">
                    {count ?? (cell.execution.done ? "–" : "•")}
                </span>
                <pre tabIndex={0} aria-label={`Code of cell ${cell.number}`}>
                    {pieces.map(({ text, name }, i) => (
                        <span key={i} class={name}>
                            {text}
                        </span>
                    ))}
                </pre>
                <span class="cell-end">
                    <StatusOf cell={cell} />
                    <button class="plain small" onClick={onEdit}>
                        Edit
                    </button>
                </span>
            </div>
            <Outputs execution={cell.execution} sessionId={sessionId} />
        </article>
    );
}

/** Keeps the end in view while it is in view. */
function useFollow() {
    const end = useRef<HTMLDivElement>(null);
    const follows = useRef(true);
    useEffect(() => {
        const observer = new IntersectionObserver(
            ([entry]) => void (follows.current = entry!.isIntersecting),
            { rootMargin: "0px 0px 160px 0px" },
        );
        observer.observe(end.current!);
        return () => observer.disconnect();
    }, []);
    return {
        end,
        follow: (always = false) => {
            if (always || follows.current)
                window.scrollTo(0, document.documentElement.scrollHeight);
        },
    };
}

export function Console({ cells }: { cells: Cells }) {
    const id = cells.sessionId;
    const [, draw] = useState(0);
    const [kernel, setKernel] = useState("");
    const [limit, setLimit] = useState(0);
    const [failure, setFailure] = useState("");
    const editor = useRef<EditorView | null>(null);
    const { end, follow } = useFollow();
    const { value } = usePolled<{ default: string; kernelspecs: Record<string, Kernelspec> }>(
        "api/v1/kernelspecs",
        600_000,
    );
    useEffect(() => {
        cells.onChange = () => {
            draw((count) => count + 1);
            requestAnimationFrame(() => follow());
        };
        return () => void (cells.onChange = () => {});
    }, [cells]);
    const specs = Object.values(value?.kernelspecs ?? {});
    const chosen = kernel || value?.default || "python";
    const languageNamed = (name: string) =>
        value?.kernelspecs[name || value.default]?.language ?? "";
    const onRun = (code: string) => {
        setFailure("");
        cells.run(code, kernel, limit);
        requestAnimationFrame(() => follow(true));
        return true;
    };
    const onInterrupt = () => cells.interrupt().catch((error) => setFailure(error.message));
    const onEdit = (code: string) => {
        const view = editor.current!;
        view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: code } });
        view.focus();
    };
    return (
        <div class="console">
            <div class="cells">
                {cells.cells.map((cell) => (
                    <CellView
                        key={cell.number}
                        cell={cell}
                        sessionId={id}
                        language={languageNamed(cell.kernel)}
                        onEdit={() => onEdit(cell.code)}
                    />
                ))}
                <div ref={end} class="end" />
            </div>
            <section class="composer" aria-label="New cell">
                {failure && (
                    <p role="alert" class="error">
                        {failure}
                    </p>
                )}
                <Editor
                    label="Code. Shift and Enter run it; Escape, then Tab leaves it."
                    hint="Code. Shift+Enter runs it."
                    language={languageNamed(kernel)}
                    onRun={onRun}
                    onBack={() => cells.cells[cells.cells.length - 1]?.code}
                    editor={editor}
                />
                <div class="composer-bar">
                    <select
                        aria-label="Kernel"
                        value={chosen}
                        onChange={(event) => setKernel(event.currentTarget.value)}
                    >
                        {specs.map((spec) => (
                            <option key={spec.name} value={spec.name}>
                                {spec.display_name}
                            </option>
                        ))}
                    </select>
                    <select
                        aria-label="Time limit"
                        value={limit}
                        onChange={(event) => setLimit(Number(event.currentTarget.value))}
                    >
                        {LIMITS.map(([seconds, name]) => (
                            <option key={seconds} value={seconds}>
                                {name}
                            </option>
                        ))}
                    </select>
                    <span class="space" />
                    <button class="plain" onClick={() => cells.clear()}>
                        Clear
                    </button>
                    <button disabled={!cells.running} onClick={onInterrupt}>
                        Interrupt
                    </button>
                    <button
                        class="primary"
                        onClick={() => {
                            const view = editor.current!;
                            const code = view.state.doc.toString();
                            if (code.trim() && onRun(code)) onEdit("");
                        }}
                    >
                        Run
                    </button>
                </div>
            </section>
        </div>
    );
}
