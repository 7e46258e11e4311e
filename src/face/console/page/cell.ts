// SPDX-License-Identifier: Apache-2.0
// One cell of a notebook: its text, and what came of running it.

import { Execution } from "./execution";

export type CellType = "code" | "markdown" | "raw";

export interface Cell {
    readonly id: string; // as in the notebook's file
    type: CellType;
    source: string;
    kernel: string; // a kernelspec's name; "": the gateway's default
    execution: Execution | null; // of the last run
    run: string; // the id of that execution at the gateway; "": it has none
    waits: boolean; // behind another cell of this page
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
        execution: null,
        run: "",
        waits: false,
        metadata: {},
        version: 0,
        ...given,
    };
}

/** Whether it runs, or waits for its turn. */
export const isRunning = (cell: Cell) => cell.execution !== null && !cell.execution.done;
