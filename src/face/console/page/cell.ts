// SPDX-License-Identifier: Apache-2.0
// One cell of a notebook: its text, and what came of running it.

import { Execution } from "./execution";

export type CellType = "code" | "markdown" | "raw";

/** What came of running a cell, in one branch. */
export interface Outcome {
    branch: string; // "": none of them, but the session's main kernel
    execution: Execution;
    run: string; // the id of that execution at the gateway; "": it has none
    waits: boolean; // behind another cell of this page
    order: number; // a later run has a higher one; 0: it was not run here
    savepoint: string; // it has the variables from before this run; "": there is none
    noUndo: string; // why there is none, if there could have been one
    undone: boolean; // the variables have gone back to before this run
}

export interface Cell {
    readonly id: string; // as in the notebook's file
    type: CellType;
    source: string;
    kernel: string; // a kernelspec's name; "": the gateway's default
    outcome: Outcome | null; // of the last run, in the branch that is shown
    others: Map<string, Outcome>; // the same in the other branches
    metadata: Record<string, unknown>;
    attachments?: Record<string, Record<string, string>>; // images of a Markdown cell
    version: number; // grows with each change
}

const ID_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789";

export const makeId = () =>
    [...crypto.getRandomValues(new Uint8Array(12))].map((n) => ID_CHARS[n % ID_CHARS.length]).join("");

export function makeCell(given: Partial<Cell> & { source: string }): Cell {
    return {
        id: makeId(),
        type: "code",
        kernel: "",
        outcome: null,
        others: new Map(),
        metadata: {},
        version: 0,
        ...given,
    };
}

export function makeOutcome(given: Partial<Outcome> & { execution: Execution }): Outcome {
    return {
        branch: "",
        run: "",
        waits: false,
        order: 0,
        savepoint: "",
        noUndo: "",
        undone: false,
        ...given,
    };
}

export const outcomesOf = (cell: Cell): Outcome[] =>
    cell.outcome ? [cell.outcome, ...cell.others.values()] : [...cell.others.values()];

const isOpen = (outcome: Outcome | null) => outcome !== null && !outcome.execution.done;

/** Whether it runs, or waits for its turn, in the branch that is shown. */
export const isRunning = (cell: Cell) => isOpen(cell.outcome);

/** The same in any branch. */
export const runsAnywhere = (cell: Cell) => outcomesOf(cell).some(isOpen);
