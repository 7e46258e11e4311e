// SPDX-License-Identifier: Apache-2.0
// The notebook of a session: its cells in their order, and what can be done with them. Nothing is
// removed for good: what was deleted last comes back first.

import { getKey, getLogin, type Kernelspec, type Line } from "./api";
import { Branches } from "./branches";
import { type Cell, makeCell, makeOutcome, outcomesOf, runsAnywhere } from "./cell";
import { Execution } from "./execution";
import { type Kept, keep, restore } from "./kept";
import { Runs } from "./runs";

export const CELLS_MAX = 1000;
const UNDO_MAX = 50;
const KEEP_MS = 400;
const DRAW_MS = 30;
const whoIsHere = () => getKey() || getLogin()?.user || "";
export const UNTITLED = "untitled.ipynb";

interface Removed {
    cell: Cell;
    index: number;
}

export class Notebook {
    cells: Cell[] = [];
    name = UNTITLED; // its path in the session's files
    etag = ""; // of the file as it was opened or saved last; "": it was not
    metadata: Record<string, unknown> = {};
    draft = ""; // the text of the new cell
    history: string[] = []; // the texts that were run as new cells, the oldest first
    isKept = true; // for a reload
    changes = 0; // since it was opened or saved
    onChange = () => {};
    specs: Kernelspec[] = []; // the gateway's; none: not known yet
    readonly runs: Runs;
    readonly branches: Branches;
    private removed: Removed[][] = [];
    private cut: Cell | null = null;
    private drawing = false;
    private keeping = 0;
    private stopped = false;
    private of = whoIsHere(); // after a logout nothing is kept

    constructor(readonly sessionId: string) {
        this.branches = new Branches(this);
        this.runs = new Runs(sessionId, {
            onChange: (cell) => {
                cell.version++;
                this.changed();
            },
            onSettle: () => this.keepNow(),
            onDropped: (ids) => this.branches.onDropped(ids),
            placeOf: (cell, branch) => this.branches.placeOf(cell, branch),
        });
        const kept = restore(sessionId);
        if (kept) this.restore(kept);
        addEventListener("pagehide", this.keepNow);
    }

    /** Stops reading; what runs in the session continues. */
    stop() {
        if (this.keeping) this.keepNow();
        this.stopped = true;
        this.runs.stop();
        this.onChange = () => {};
        removeEventListener("pagehide", this.keepNow);
    }

    private restore(kept: Kept) {
        this.name = kept.name;
        this.etag = kept.etag;
        this.draft = kept.draft;
        this.history = kept.history;
        this.metadata = kept.metadata;
        this.branches.restore(kept.branch, kept.branches);
        for (const { outcomes, ...rest } of kept.cells) {
            const cell = makeCell(rest);
            for (const { execution, ...one } of outcomes) {
                const done = execution ? Execution.restore(execution) : new Execution();
                const outcome = makeOutcome({ ...one, execution: done });
                if (outcome.branch === kept.branch) cell.outcome = outcome;
                else cell.others.set(outcome.branch, outcome);
            }
            this.cells.push(cell);
        }
        const all = this.cells.flatMap((cell) => outcomesOf(cell).map((outcome) => ({ cell, outcome })));
        all.sort((a, b) => a.outcome.order - b.outcome.order);
        for (const { cell, outcome } of all) this.runs.join(cell, outcome);
    }

    // ---- Cells

    indexOf = (id: string) => this.cells.findIndex((cell) => cell.id === id);

    /** Inserts a cell at an index; returns null if there are too many. */
    insert(index: number, source = "", like?: Cell): Cell | null {
        if (this.cells.length >= CELLS_MAX) return null;
        const cell = makeCell({ source, kernel: like?.kernel ?? "" });
        this.cells = this.cells.toSpliced(index, 0, cell);
        this.edited();
        return cell;
    }

    setSource(cell: Cell, source: string) {
        cell.source = source;
        this.edited(cell);
    }

    /** What it has shown is not that of another kind of cell. */
    setType(cell: Cell, type: Cell["type"]) {
        if (cell.type === type || runsAnywhere(cell)) return;
        cell.type = type;
        cell.outcome = null;
        cell.others.clear();
        this.edited(cell);
    }

    move(cell: Cell, by: -1 | 1) {
        const from = this.indexOf(cell.id);
        const to = from + by;
        if (from < 0 || to < 0 || to >= this.cells.length) return;
        this.cells = this.cells.toSpliced(from, 1).toSpliced(to, 0, cell);
        this.edited();
    }

    remove(cell: Cell) {
        this.removeAll([cell]);
    }

    /** Removes the cells that do not run. */
    clear() {
        this.removeAll(this.cells.filter((cell) => !runsAnywhere(cell)));
    }

    private removeAll(cells: Cell[]) {
        if (!cells.length) return;
        this.removed.push(cells.map((cell) => ({ cell, index: this.indexOf(cell.id) })));
        this.removed = this.removed.slice(-UNDO_MAX);
        this.cells = this.cells.filter((cell) => !cells.includes(cell));
        this.edited();
    }

    /** How many cells `undo` brings back. */
    get undoable(): number {
        return this.removed[this.removed.length - 1]?.length ?? 0;
    }

    /** Brings back what was deleted last; returns the first of it. */
    undo(): Cell | undefined {
        const last = this.removed.pop();
        if (!last) return;
        for (const { cell, index } of last)
            this.cells = this.cells.toSpliced(Math.min(index, this.cells.length), 0, cell);
        this.edited();
        return last[0]!.cell;
    }

    copy(cell: Cell) {
        this.cut = cell;
    }

    /** A copy of the cell that was cut or copied. */
    paste(index: number): Cell | null {
        if (!this.cut || this.cells.length >= CELLS_MAX) return null;
        const { type, source, kernel, metadata } = this.cut;
        const cell = makeCell({ type, source, kernel, metadata: { ...metadata } });
        this.cells = this.cells.toSpliced(index, 0, cell);
        this.edited();
        return cell;
    }

    /** Shows another notebook in place of this one. */
    replace(opened: { cells: Cell[]; metadata: Record<string, unknown> }, name: string, etag: string) {
        for (const { outcome } of opened.cells) if (outcome) outcome.branch = this.branches.shown;
        this.cells = opened.cells;
        this.metadata = opened.metadata;
        this.name = name;
        this.etag = etag;
        this.removed = [];
        this.edited();
        this.changes = 0;
    }

    saved(etag: string) {
        this.etag = etag;
        this.changes = 0;
        this.changed();
        this.keepNow();
    }

    rename(name: string) {
        this.name = name;
        this.etag = "";
        this.edited();
    }

    setDraft(draft: string) {
        this.draft = draft;
        this.keepSoon();
    }

    // ---- Running

    /** Runs new code, in a cell at the end; returns null if there are too many. `timeout` in seconds;
     * 0: the gateway's default. */
    runNew(source: string, kernel: string, timeout: number): Cell | null {
        const cell = this.insert(this.cells.length, source);
        if (!cell) return null;
        cell.kernel = kernel;
        this.history.push(source);
        this.run([cell], timeout);
        return cell;
    }

    run(cells: Cell[], timeout: number) {
        const code = cells.filter((cell) => cell.type === "code" && cell.source.trim());
        this.branches.told = "";
        this.runs.start(code, this.branches.shown, timeout);
        this.edited();
    }

    interrupt = () => this.runs.interrupt(this.branches.shown, !this.branches.list.length);

    answer = (cell: Cell, request: Line, value: string) => this.runs.answer(cell, request, value);

    // ---- Changes

    /** What is shown of these cells, or of all, is another outcome. */
    outcomesChanged(cells = this.cells) {
        for (const cell of cells) cell.version++;
        this.changed();
        this.keepNow();
    }

    private edited(cell?: Cell) {
        if (cell) cell.version++;
        this.changes++;
        this.changed();
        this.keepSoon();
    }

    /** Draws once a frame, however many lines arrive. */
    private changed() {
        if (this.drawing || this.stopped) return;
        this.drawing = true;
        setTimeout(() => {
            this.drawing = false;
            this.onChange();
        }, DRAW_MS);
    }

    private keepSoon() {
        if (this.keeping || this.stopped) return;
        this.keeping = window.setTimeout(this.keepNow, KEEP_MS);
    }

    private keepNow = () => {
        clearTimeout(this.keeping);
        this.keeping = 0;
        if (whoIsHere() !== this.of) return;
        const kept = keep(this.sessionId, this);
        if (kept !== this.isKept) {
            this.isKept = kept;
            this.changed();
        }
    };
}
