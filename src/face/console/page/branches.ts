// SPDX-License-Identifier: Apache-2.0
// The branches of a session as its notebook shows them, and undoing cells by savepoints. Each cell has
// an outcome in each branch; the notebook shows those of one branch, and runs cells in it.

import { ApiError, ask, type Options, send, session } from "./api";
import { type Cell, type Outcome, outcomesOf } from "./cell";
import type { Notebook } from "./notebook";
import type { Place } from "./runs";

const GONE = "The gateway no longer has the savepoint from before this cell.";

// A savepoint keeps what the kernel overwrites later: with little memory left, code needs that more.
const MEMORY_MAX = 0.5;
const LITTLE_MEMORY =
    "The sandbox used more than half of its memory when this cell was sent, so its variables were not saved.";

/** A branch, as the gateway lists it. */
export interface Branch {
    branch: string;
    kernel: string; // its kernelspec
    state: string;
    execution_count: number;
    memory_bytes?: number | null; // that it shares with no other process; missing until it is listed
    replaced?: { at: string; reason: string };
}

export interface Savepoint {
    savepoint: string;
    name: string | null;
    kernel: string; // the name of the kernel or branch
    created_at: string;
    execution_count: number;
    memory_bytes: number | null;
    lost: string[];
}

interface SavepointList {
    savepoints: Savepoint[];
    dropped: { savepoint: string; reason: string }[];
}

/** What the gateway says of a refusal, or more clearly. */
export function describeRefusal(error: unknown): string {
    const { code, message } = error as ApiError;
    if (code === "kernel_busy") return "The kernel is running code. Try again when it has finished.";
    return message;
}

export class Branches {
    list: Branch[] = [];
    shown = ""; // "": the main kernel
    savepoints: Savepoint[] = [];
    memoryUsed = 0; // the part of the sandbox's memory
    told = ""; // what has happened to a branch without this page
    private dropped = new Map<string, string>(); // savepoints, and why they are gone

    constructor(private notebook: Notebook) {}

    restore(shown: string, list: Branch[]) {
        this.shown = shown;
        this.list = list;
    }

    find = (name: string) => this.list.find((each) => each.branch === name);

    // ---- Where cells run

    private specOf({ kernel }: { kernel: string }) {
        return this.notebook.specs.find((spec) => (kernel ? spec.name === kernel : spec.default));
    }

    /** A branch has one kernel: cells of other kernelspecs run where they run without branches. */
    placeOf(cell: { kernel: string }, branch: string): Place {
        const spec = this.specOf(cell);
        const kernel = this.find(branch)?.kernel;
        return {
            kernel: cell.kernel,
            branch: branch && (!spec || !kernel || kernel === spec.name) ? branch : "",
            hasSavepoints: spec?.savepoints === true,
            noSavepoint: this.memoryUsed > MEMORY_MAX ? LITTLE_MEMORY : "",
        };
    }

    /** The kernelspec whose kernel a new branch is made of; undefined: none has savepoints. */
    specFor(kernel: string): string | undefined {
        const able = this.notebook.specs.filter((spec) => spec.savepoints);
        return (able.find((spec) => (kernel ? spec.name === kernel : spec.default)) ?? able[0])?.name;
    }

    // ---- What the gateway lists

    /** Asks for the branches; what it listed before and no longer lists has ended. */
    readBranches = async (where: string, options: Options): Promise<Branch[]> => {
        if (!where) return this.list;
        const before = this.list.map((each) => each.branch);
        const answer = await ask<{ branches: Branch[] }>(where, options);
        // This page may have made or ended some meanwhile.
        const found = answer.branches.filter(({ branch }) => !before.includes(branch) || this.find(branch));
        const listed = (name: string) => found.some((each) => each.branch === name);
        const made = this.list.filter(({ branch }) => !before.includes(branch) && !listed(branch));
        const ended = before.filter((name) => this.find(name) && !listed(name));
        this.list = [...found, ...made];
        if (ended.includes(this.shown)) this.told = `The branch ${this.shown} has ended.`;
        for (const name of ended) this.leave(name);
        return this.list;
    };

    readSavepoints = async (where: string, options: Options): Promise<Savepoint[]> => {
        if (!where) return this.savepoints;
        const known = this.notebook.cells.flatMap(outcomesOf).map((outcome) => outcome.savepoint);
        const { savepoints, dropped } = await ask<SavepointList>(where, options);
        this.savepoints = savepoints;
        for (const id of known) {
            if (!id || savepoints.some((each) => each.savepoint === id)) continue;
            const why = dropped.find((each) => each.savepoint === id)?.reason;
            const text = why ? `The savepoint from before this cell is gone: ${why}.` : GONE;
            if (!this.dropped.has(id) || (why && this.dropped.get(id) === GONE)) this.drop(id, text);
        }
        return savepoints;
    };

    onDropped(ids: string[]) {
        for (const id of ids) this.drop(id, GONE);
    }

    private drop(id: string, why: string) {
        this.dropped.set(id, why);
        const has = (cell: Cell) => outcomesOf(cell).some((outcome) => outcome.savepoint === id);
        this.notebook.outcomesChanged(this.notebook.cells.filter(has));
    }

    // ---- Undoing a cell

    /** Why a cell cannot be undone; "": it can; null: nothing is to be said of it. */
    whyNotUndone({ outcome }: Cell): string | null {
        if (!outcome?.execution.done || outcome.undone) return null;
        if (!outcome.savepoint) return outcome.noUndo || null;
        return this.dropped.get(outcome.savepoint) ?? "";
    }

    /** The cells whose effects go with those of one: it, and what ran after it in the same kernel. */
    undoneWith(cell: Cell): Cell[] {
        const { order } = cell.outcome!;
        const kernel = this.specOf(cell);
        return this.notebook.cells.filter(
            ({ outcome, ...each }) =>
                outcome?.run && !outcome.undone && outcome.order >= order && this.specOf(each) === kernel,
        );
    }

    /** Brings the variables back to what they were before a cell ran. */
    async undo(cell: Cell) {
        const { savepoint, branch } = cell.outcome!;
        try {
            await send(session(this.notebook.sessionId, "savepoints", savepoint, "restore"), {
                method: "POST",
                body: {},
            });
        } catch (error) {
            if (error instanceof ApiError && error.status === 404) {
                this.drop(savepoint, GONE);
                throw new Error(GONE);
            }
            throw error;
        }
        if (branch !== this.shown) return;
        const undone = this.undoneWith(cell);
        for (const each of undone) each.outcome!.undone = true;
        this.notebook.outcomesChanged(undone);
    }

    // ---- Branches

    show(name: string) {
        if (name === this.shown) return;
        for (const cell of this.notebook.cells) {
            if (cell.outcome) cell.others.set(this.shown, cell.outcome);
            cell.outcome = cell.others.get(name) ?? null;
            cell.others.delete(name);
        }
        this.shown = name;
        this.told = "";
        this.notebook.outcomesChanged();
    }

    /** Starts a branch with the variables of a savepoint, or (null) of what is shown, as they are now. */
    async open(name: string, from: Savepoint | null, kernel: string) {
        const now = this.shown ? { branch: this.shown } : { kernel };
        const body = { name, ...(from ? { from: from.savepoint } : now) };
        await send(session(this.notebook.sessionId, "branches"), { method: "POST", body });
        const spec = this.find(this.shown)?.kernel ?? kernel;
        const count = from?.execution_count ?? 0;
        this.list = [
            ...this.list.filter((each) => each.branch !== name),
            { branch: name, kernel: spec, state: "ready", execution_count: count },
        ];
        this.inherit(name, from);
        this.show(name);
    }

    /** A new branch begins with the outcomes of what had run before. They cannot be undone in it. */
    private inherit(name: string, from: Savepoint | null) {
        const all = this.notebook.cells.flatMap(outcomesOf);
        const made = from && all.find((outcome) => outcome.savepoint === from.savepoint);
        const main = (kernel: string) => (this.find(kernel) ? kernel : "");
        const source = from ? main(from.kernel) : this.shown;
        const has = ({ branch, execution, order, undone }: Outcome) =>
            branch === source &&
            execution.done &&
            !undone &&
            (made ? order < made.order : !from || (execution.count ?? 0) <= from.execution_count);
        for (const cell of this.notebook.cells) {
            const outcome = outcomesOf(cell).find(has);
            if (!outcome) continue;
            const noUndo = "This cell ran before the branch was made.";
            cell.others.set(name, { ...outcome, branch: name, savepoint: "", noUndo });
        }
    }

    /** The main kernel gets what a branch has, and the branch ends. */
    async promote(name: string) {
        await send(session(this.notebook.sessionId, "branches", name, "promote"), { method: "POST", body: {} });
        this.show(name);
        for (const cell of this.notebook.cells) {
            const { outcome } = cell;
            const before = cell.others.get("");
            cell.others.delete("");
            if (!outcome) continue;
            if (before?.execution === outcome.execution) cell.outcome = before; // it ran before the branch was made
            else if (outcome.savepoint) outcome.noUndo = "This cell ran in a branch that has ended.";
            if (cell.outcome === outcome) Object.assign(outcome, { branch: "", savepoint: "" });
        }
        this.shown = "";
        this.list = this.list.filter((each) => each.branch !== name);
        this.notebook.outcomesChanged();
    }

    async end(name: string) {
        await send(session(this.notebook.sessionId, "branches", name), { method: "DELETE" });
        this.list = this.list.filter((each) => each.branch !== name);
        this.leave(name);
    }

    /** Forgets what came of cells in a branch that has ended. */
    private leave(name: string) {
        const { told } = this;
        if (this.shown === name) this.show("");
        this.told = told;
        for (const cell of this.notebook.cells) cell.others.delete(name);
        this.notebook.outcomesChanged();
    }
}
