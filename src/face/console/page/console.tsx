// SPDX-License-Identifier: Apache-2.0
// The console of a session: its notebook, and below it the new cell. Keys are those of JupyterLab.

import type { EditorView } from "@codemirror/view";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { type Kernelspec, type Session, session as sessionPath } from "./api";
import { useAssistants } from "./assistants";
import { BranchBar, NewBranch } from "./branch_bar";
import { describeRefusal } from "./branches";
import type { Cell } from "./cell";
import { type CellActions, CellView, type Command } from "./cell_view";
import { keyCommand } from "./command_keys";
import { drawNow } from "./draw_now";
import { Editor, type RunKind } from "./editor";
import { Elsewhere } from "./elsewhere";
import { useFollow } from "./follow";
import { counted, duration } from "./format";
import { mib, useLimits } from "./limits";
import { CELLS_MAX, type Notebook } from "./notebook";
import css from "./notebook.css" with { type: "text" };
import { NotebookBar } from "./notebook_bar";
import { isNotebook } from "./notebook_files";
import { useSaving } from "./notebook_saving";
import { usePolled } from "./polling";
import { useQuestion } from "./question";
import { addSheet } from "./sheet";

addSheet(css);

const NEW = "new"; // the cell that is not yet one
const TIME_LIMITS = [300, 3600]; // seconds
const POLL_MS = 5000;

/** Where the focus is: on a cell, or in its text. */
interface Place {
    id: string;
    edits: boolean;
    moves: boolean; // the focus is to go there
    at?: "start" | "end" | { x: number; y: number };
}

const elementOf = (id: string) => document.getElementById(`cell-${id}`);

function undoing({ cells, branches, runs }: Notebook, cell: Cell) {
    const others = branches.undoneWith(cell).length - 1;
    const { savepoint } = cell.outcome!;
    const lost = branches.savepoints.find((each) => each.savepoint === savepoint)?.lost ?? [];
    const also = others > 0 ? `, and ${counted(others, "cell")} that ran after it ${others === 1 ? "is" : "are"} undone as well` : "";
    return {
        title: `Undo cell ${cells.indexOf(cell) + 1}?`,
        text: [
            `The variables go back to what they were before this cell ran${also}.`,
            "Files are not restored.",
            lost.length > 0 && `The kernel will no longer have what was running in it: ${lost.join(", ")}.`,
            runs.isRunning(branches.shown) && "Running code is stopped.",
        ]
            .filter(Boolean)
            .join(" "),
        yes: "Undo",
    };
}

interface Props {
    notebook: Notebook;
    session: Session | null; // as the gateway has described it
}

export function Console({ notebook, session }: Props) {
    const id = notebook.sessionId;
    const [, draw] = useState(0);
    const [kernel, setKernel] = useState("");
    const [limit, setLimit] = useState(0);
    const [failure, setFailure] = useState("");
    const [place, setPlace] = useState<Place>({ id: NEW, edits: true, moves: true });
    const [over, setOver] = useState(false);
    const [branching, setBranching] = useState(false);
    const editor = useRef<EditorView | null>(null);
    const latest = useRef({ limit, place });
    latest.current = { limit, place };
    const { content, goToEnd } = useFollow(() => {
        const { id, edits } = latest.current.place;
        return edits && id !== NEW;
    });
    const { value } = usePolled<{ default: string; kernelspecs: Record<string, Kernelspec> }>(
        "api/v1/kernelspecs",
        600_000,
    );
    const specs = Object.values(value?.kernelspecs ?? {});
    notebook.specs = specs;
    const { branches } = notebook;
    const branchKernel = branches.specFor(kernel);
    const where = (what: string) => (branchKernel ? sessionPath(id, what) : "");
    usePolled(where("branches"), POLL_MS, branches.readBranches);
    const savepoints = usePolled(where("savepoints"), POLL_MS, branches.readSavepoints);
    const running = notebook.runs.isRunning();
    useEffect(() => void savepoints.refresh(), [running]);
    const [ask, question] = useQuestion();
    const usual = value?.default ?? "python";
    const languageOf = (name: string) => value?.kernelspecs[name || usual]?.language ?? "";
    const assistantOf = useAssistants(notebook, session, languageOf, usual);
    const known = useLimits();
    const memory = session?.usage?.memory_bytes ?? session?.memory_bytes ?? 0;
    branches.memoryUsed = known ? memory / mib(known.limits.memory_mb) : 0;
    const longest = known?.limits.max_timeout ?? Infinity;
    const limitName = (seconds: number) =>
        seconds ? `up to ${duration(seconds * 1000)}`
        : known ? `up to ${duration(known.limits.max_execution_time * 1000)} (default)`
        : "default time limit";
    const files = useSaving(notebook, specs, setFailure);
    useEffect(() => {
        notebook.onChange = () => draw((count) => count + 1);
        return () => void (notebook.onChange = () => {});
    }, [notebook]);

    // ---- Going from cell to cell

    const go = (to: string, edits: boolean, at?: Place["at"]) =>
        drawNow(() => {
            setPlace({ id: to, edits, moves: true, ...(at && { at }) });
            draw((count) => count + 1);
        });
    useLayoutEffect(() => {
        if (!place.moves) return;
        if (place.id === NEW && place.edits) editor.current?.focus();
        else if (!place.edits) elementOf(place.id)?.focus();
    }, [place]);
    const beside = (cell: Cell, by: -1 | 1) => notebook.cells[notebook.indexOf(cell.id) + by]?.id;
    const insert = (index: number, like: Cell | undefined, edits: boolean) => {
        const made = notebook.insert(index, "", like);
        if (made) go(made.id, edits);
    };
    const onFocusIn = (event: FocusEvent) => {
        const target = event.target as HTMLElement;
        const to = target.closest<HTMLElement>("[data-cell]")?.dataset.cell;
        if (!to) return;
        const isCell = target.dataset.cell !== undefined;
        const isText = to === NEW ? target.matches(".editor") : to === place.id && place.edits;
        const edits = !isCell && isText;
        if (to !== place.id || edits !== place.edits) setPlace({ id: to, edits, moves: false });
    };

    // ---- What is done with cells

    const onInterrupt = () => notebook.interrupt().catch((error) => setFailure(error.message));
    const undo = () => {
        const back = notebook.undo();
        if (back) go(back.id, false);
    };
    /** Brings the variables back to what they were before a cell ran. */
    const takeBack = async (cell: Cell) => {
        const whyNot = branches.whyNotUndone(cell);
        if (whyNot === null) return;
        if (whyNot || !(await ask(undoing(notebook, cell)))) return setFailure(whyNot);
        setFailure("");
        try {
            await branches.undo(cell);
        } catch (error) {
            setFailure(describeRefusal(error));
        }
        go(cell.id, false);
    };
    const run = (cell: Cell, kind: RunKind) => {
        setFailure("");
        notebook.run([cell], latest.current.limit);
        if (kind === "insert") return insert(notebook.indexOf(cell.id) + 1, cell, true);
        const next = kind === "stay" ? cell.id : beside(cell, 1);
        go(next ?? NEW, next === undefined);
    };
    const command = (cell: Cell, what: Command) => {
        const index = notebook.indexOf(cell.id);
        switch (what) {
            case "run":
                return run(cell, "stay");
            case "edit":
                return go(cell.id, true);
            case "up":
            case "down":
                notebook.move(cell, what === "up" ? -1 : 1);
                return go(cell.id, false);
            case "above":
            case "below":
                return insert(what === "above" ? index : index + 1, cell, true);
            case "code":
            case "markdown":
                return notebook.setType(cell, what);
            case "take-back":
                return void takeBack(cell);
            case "delete": {
                const next = beside(cell, 1) ?? beside(cell, -1) ?? NEW;
                notebook.remove(cell);
                return go(next, false);
            }
        }
    };
    const actions = useMemo<CellActions>(
        () => ({
            command,
            run,
            edit: (cell, at) => go(cell.id, true, at),
            change: (cell, text) => notebook.setSource(cell, text),
            leave: (cell) => go(cell.id, false),
            edge: (cell, by) => {
                const next = beside(cell, by);
                if (next) go(next, true, by < 0 ? "end" : "start");
                else if (by > 0) go(NEW, true);
            },
            answer: notebook.answer,
        }),
        [notebook],
    );
    const runNew = (kind: RunKind) => {
        const source = editor.current!.state.doc.toString();
        if (!source.trim()) return;
        setFailure("");
        const cell = notebook.runNew(source, kernel, limit);
        if (!cell) return setFailure(`A notebook can have at most ${CELLS_MAX} cells.`);
        past.current = notebook.history.length;
        setText("");
        goToEnd();
        if (kind === "stay") go(cell.id, false);
    };
    const setText = (text: string) => {
        const view = editor.current!;
        view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    };

    // ---- The texts that were run as new cells

    const past = useRef(notebook.history.length);
    const onHistory = (by: -1 | 1): string | null => {
        const { history, draft } = notebook;
        if (draft && draft !== history[past.current]) return null;
        const to = Math.min(past.current + by, history.length);
        if (to < 0 || to === past.current) return null;
        past.current = to;
        return history[to] ?? "";
    };

    // ---- Keys

    const pressed = useRef({ key: "", at: 0 });
    const onKeyDown = (event: KeyboardEvent) => {
        const target = event.target as HTMLElement;
        const on = target.dataset.cell;
        if (on === undefined) {
            // In a text, which has keys of its own, or on a button.
            const leaves = event.key === "Escape" && !event.defaultPrevented && !target.closest("dialog");
            return leaves ? go(place.id, false) : undefined;
        }
        const what = keyCommand(event, pressed.current);
        if (!what) return;
        const cell = notebook.cells.find((each) => each.id === on);
        const index = cell ? notebook.indexOf(on) : notebook.cells.length;
        event.preventDefault();
        switch (what) {
            case "wait":
                return;
            case "previous":
                return go(notebook.cells[index - 1]?.id ?? on, false);
            case "next":
                return go(notebook.cells[index + 1]?.id ?? NEW, false);
            case "undo":
                return undo();
            case "interrupt":
                return void onInterrupt();
            case "paste": {
                const made = notebook.paste(cell ? index + 1 : index);
                return made ? go(made.id, false) : undefined;
            }
        }
        if (!cell) {
            if (what === "edit") go(NEW, true);
            else if (what === "above") insert(index, undefined, false);
            else if (what === "run-next" || what === "stay") runNew(what === "stay" ? "stay" : "next");
            return;
        }
        switch (what) {
            case "run-next":
                return run(cell, "next");
            case "stay":
            case "insert":
                return run(cell, what);
            case "above":
            case "below":
                return insert(what === "above" ? index : index + 1, cell, false);
            case "cut":
            case "copy":
                notebook.copy(cell);
                return what === "cut" ? command(cell, "delete") : undefined;
            default:
                return command(cell, what);
        }
    };
    const { onSave } = files;
    useEffect(() => {
        const onKey = (event: KeyboardEvent) => {
            if (!(event.ctrlKey || event.metaKey) || event.key !== "s" || event.altKey) return;
            event.preventDefault();
            const field = document.activeElement; // the notebook's name may just be written
            if (field instanceof HTMLInputElement) {
                field.blur();
                field.focus();
            }
            if (notebook.cells.length) void onSave();
        };
        addEventListener("keydown", onKey);
        return () => removeEventListener("keydown", onKey);
    });
    const onDrop = (event: DragEvent) => {
        event.preventDefault();
        setOver(false);
        const dropped = [...(event.dataTransfer?.files ?? [])];
        const found = dropped.find((each) => isNotebook(each.name));
        if (found) void files.onFile(found);
        else if (dropped.length) setFailure("This is not a notebook. Upload other files under Files.");
    };
    return (
        <div
            class={over ? "console over" : "console"}
            onFocusIn={onFocusIn}
            onKeyDown={onKeyDown}
            onDragOver={(event) => {
                event.preventDefault();
                setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={onDrop}
        >
            <NotebookBar
                notebook={notebook}
                {...files}
                onRunAll={() => notebook.run(notebook.cells, limit)}
                onUndo={undo}
                onBranch={branchKernel && !branches.list.length ? () => setBranching(true) : undefined}
            />
            {branches.list.length > 0 && (
                <BranchBar
                    notebook={notebook}
                    onNew={() => setBranching(true)}
                    onLeft={() => go(NEW, true)}
                    onError={setFailure}
                />
            )}
            {branching && (
                <NewBranch
                    notebook={notebook}
                    kernel={branchKernel!}
                    onClose={() => {
                        setBranching(false);
                        savepoints.refresh();
                        go(NEW, true);
                    }}
                />
            )}
            <div
                class="cells"
                ref={content}
                id="cells"
                {...(branches.list.length > 0 && {
                    role: "tabpanel",
                    "aria-labelledby": `branch-${branches.shown}`,
                })}
            >
                {!notebook.cells.length && (
                    <div class="hint quiet">
                        <p>Code that you run below becomes a cell here, with its output.</p>
                        <p>
                            Click a cell, or press <kbd>Enter</kbd>, to edit it.{" "}
                            <kbd>Shift</kbd>+<kbd>Enter</kbd> runs it again.
                        </p>
                        <p>
                            <kbd>Tab</kbd> completes a name, <kbd>Shift</kbd>+<kbd>Tab</kbd> shows a
                            function’s parameters.
                        </p>
                    </div>
                )}
                {notebook.cells.map((cell, i) => {
                    const chosen = place.id === cell.id;
                    return (
                        <CellView
                            key={cell.id}
                            cell={cell}
                            number={i + 1}
                            sessionId={id}
                            language={languageOf(cell.kernel)}
                            chosen={chosen}
                            editing={chosen && place.edits}
                            whyNotUndone={branches.whyNotUndone(cell)}
                            {...(chosen && place.at && { at: place.at })}
                            assistant={assistantOf(cell.kernel)}
                            actions={actions}
                        />
                    );
                })}
                <Elsewhere
                    runs={notebook.runs}
                    sessionId={id}
                    session={session}
                    onError={setFailure}
                />
            </div>
            <section
                class="composer"
                id={`cell-${NEW}`}
                data-cell={NEW}
                aria-label="New cell"
                tabIndex={0}
            >
                {failure && (
                    <p role="alert" class="error">
                        {failure}
                    </p>
                )}
                <Editor
                    label="Code. Shift and Enter run it; Escape, then Tab leaves it."
                    hint="Code. Shift+Enter runs it."
                    text={notebook.draft}
                    language={languageOf(kernel)}
                    assistant={assistantOf(kernel)}
                    onChange={(text) => notebook.setDraft(text)}
                    onRun={runNew}
                    onLeave={() => go(NEW, false)}
                    onHistory={onHistory}
                    editor={editor}
                    focus
                />
                <div class="composer-bar">
                    <select
                        aria-label="Kernel"
                        value={kernel || usual}
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
                        {[0, ...TIME_LIMITS.filter((each) => each <= longest)].map((seconds) => (
                            <option key={seconds} value={seconds}>
                                {limitName(seconds)}
                            </option>
                        ))}
                    </select>
                    <span class="space" />
                    <button
                        disabled={!notebook.runs.isRunning(branches.shown)}
                        onClick={() => {
                            void onInterrupt();
                            go(NEW, false); // this button is soon disabled
                        }}
                    >
                        Interrupt
                    </button>
                    <button
                        class="primary"
                        onClick={() => {
                            runNew("next");
                            editor.current?.focus();
                        }}
                    >
                        Run
                    </button>
                </div>
            </section>
            {files.question}
            {question}
        </div>
    );
}
