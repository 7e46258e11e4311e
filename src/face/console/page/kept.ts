// SPDX-License-Identifier: Apache-2.0
// A session's notebook as this tab keeps it, for a reload: sessionStorage, which no other tab reads,
// and which is emptied when one logs out. It is bounded: the outputs of the newest cells are kept.

import { getLogin } from "./api";
import type { Branch, Branches } from "./branches";
import { type Cell, type CellType, type Outcome, outcomesOf } from "./cell";
import { Execution, type KeptExecution } from "./execution";

const SOURCES_MAX = 1_000_000; // characters
const OUTPUTS_MAX = 1_500_000; // of all cells
const OUTPUT_MAX = 500_000; // of one cell
const HISTORY_MAX = 100;
const HISTORY_CHARS_MAX = 200_000;

type KeptOutcome = Pick<Outcome, "branch" | "run" | "order" | "savepoint" | "noUndo" | "undone"> & {
    execution?: KeptExecution;
};

interface KeptCell {
    id: string;
    type: CellType;
    source: string;
    kernel: string;
    metadata: Record<string, unknown>;
    attachments?: Cell["attachments"];
    outcomes: KeptOutcome[];
}

export interface Kept {
    user: string; // whose it is, with accounts
    name: string;
    etag: string;
    draft: string;
    history: string[];
    cells: KeptCell[];
    metadata: Record<string, unknown>;
    branch: string; // that is shown
    branches: Branch[];
}

const storageName = (sessionId: string) => `kernelgate.notebook.${sessionId}`;

const userHere = () => getLogin()?.user ?? "";

/** What was kept for the logged-in user; null if that is nothing, or another user's. */
export function restore(sessionId: string): Kept | null {
    try {
        const kept = JSON.parse(sessionStorage.getItem(storageName(sessionId)) ?? "null");
        return kept?.user === userHere() && kept.branches ? kept : null;
    } catch {
        return null;
    }
}

/** The newest texts that fit. */
function bounded(history: string[]): string[] {
    let room = HISTORY_CHARS_MAX;
    const kept: string[] = [];
    for (const text of history.slice(-HISTORY_MAX).reverse()) {
        room -= text.length;
        if (room < 0) break;
        kept.unshift(text);
    }
    return kept;
}

// The size of an output is known once: those of an execution that has ended do not change.
const sizes = new WeakMap<Execution, number>();

function sizeOf(execution: Execution): number {
    let size = sizes.get(execution);
    if (size === undefined) sizes.set(execution, (size = JSON.stringify(execution.keep()).length));
    return size;
}

/** Where an output does not fit, the gateway is asked for it after a reload. */
function withOutputs(cells: Cell[], outputsMax: number): KeptCell[] {
    let room = outputsMax;
    const kept: KeptCell[] = [];
    for (const cell of [...cells].reverse()) {
        const { id, type, source, kernel, metadata, attachments } = cell;
        const one: KeptCell = { id, type, source, kernel, metadata, outcomes: [] };
        if (attachments) one.attachments = attachments;
        for (const { branch, run, order, savepoint, noUndo, undone, execution } of outcomesOf(cell)) {
            const outcome: KeptOutcome = { branch, run, order, savepoint, noUndo, undone };
            const size = execution.done ? sizeOf(execution) : Infinity;
            if (size <= Math.min(room, OUTPUT_MAX)) {
                outcome.execution = execution.keep()!;
                room -= size;
            }
            if (run || outcome.execution) one.outcomes.push(outcome);
        }
        kept.unshift(one);
    }
    return kept;
}

interface Contents {
    name: string;
    etag: string;
    draft: string;
    history: string[];
    cells: Cell[];
    metadata: Record<string, unknown>;
    branches: Branches;
}

/** Returns false if it is too large to be kept. */
export function keep(sessionId: string, notebook: Contents): boolean {
    const characters = notebook.cells.reduce((sum, cell) => sum + cell.source.length, 0);
    if (characters > SOURCES_MAX) return false;
    for (const outputsMax of [OUTPUTS_MAX, OUTPUTS_MAX / 8, 0]) {
        const kept: Kept = {
            user: userHere(),
            name: notebook.name,
            etag: notebook.etag,
            draft: notebook.draft.slice(0, HISTORY_CHARS_MAX),
            history: bounded(notebook.history),
            cells: withOutputs(notebook.cells, outputsMax),
            metadata: notebook.metadata,
            branch: notebook.branches.shown,
            branches: notebook.branches.list,
        };
        try {
            sessionStorage.setItem(storageName(sessionId), JSON.stringify(kept));
            return true;
        } catch {
            // The browser's room for this tab is full: with less of the output, then.
        }
    }
    return false;
}
