// SPDX-License-Identifier: Apache-2.0
// The cells of a session: what was run from this page, kept by this tab, and joined again after a
// reload. Executions of a session run one after another.

import { ApiError, type Line, readLines, send, session } from "./api";
import { Execution } from "./execution";

const CELLS_MAX = 50;
const CODE_MAX = 200_000; // characters of all cells that are kept for a reload
const RETRIES = 20;

export interface Cell {
    number: number;
    code: string;
    kernel: string;
    id: string; // of the execution; empty while it has none
    execution: Execution;
    waits: boolean; // behind another cell of this page
}

interface Kept {
    code: string;
    kernel: string;
    id: string;
}

export class Cells {
    cells: Cell[] = [];
    private queue: Promise<void> = Promise.resolve();
    private count = 0;
    private drawing = false;
    private stopped = new AbortController();
    onChange = () => {};

    constructor(readonly sessionId: string) {
        for (const kept of this.restore()) {
            const cell = this.append(kept.code, kept.kernel, kept.id);
            this.enqueue(cell, () => this.follow(cell));
        }
    }

    /** Stops reading; what runs in the session continues. */
    stop() {
        this.stopped.abort();
        this.onChange = () => {};
    }

    get running(): Cell | undefined {
        return this.cells.find((cell) => !cell.execution.done && !cell.waits);
    }

    /** `timeout` in seconds; 0: the gateway's default. */
    run(code: string, kernel: string, timeout: number) {
        const cell = this.append(code, kernel, "");
        this.enqueue(cell, () => this.start(cell, timeout));
        this.changed();
    }

    /** Removes the cells that have ended. */
    clear() {
        this.cells = this.cells.filter((cell) => !cell.execution.done);
        this.keep();
        this.changed();
    }

    /** Drops the cells that have not been sent, and interrupts what runs. */
    async interrupt() {
        for (const cell of this.cells)
            if (cell.waits && !cell.id) cell.execution.lose("Not run.");
        this.changed();
        await send(session(this.sessionId, "interrupt"), { method: "POST" });
    }

    private append(code: string, kernel: string, id: string): Cell {
        const execution = new Execution();
        const cell = { number: ++this.count, code, kernel, id, execution, waits: true };
        this.cells = [...this.cells, cell].slice(-CELLS_MAX);
        return cell;
    }

    private enqueue(cell: Cell, work: () => Promise<void>) {
        this.queue = this.queue.then(async () => {
            if (cell.execution.done || this.stopped.signal.aborted) return;
            cell.waits = false;
            this.changed();
            try {
                await work();
            } catch (error) {
                if (this.stopped.signal.aborted) return;
                cell.execution.lose((error as Error).message);
            }
            this.keep();
            this.changed();
        });
    }

    private async start(cell: Cell, timeout: number) {
        const response = await send("api/v1/execute", {
            method: "POST",
            signal: this.stopped.signal,
            body: {
                code: cell.code,
                session_id: this.sessionId,
                kernel: cell.kernel || undefined,
                on_disconnect: "continue",
                timeout: timeout || undefined,
            },
        });
        cell.id = response.headers.get("X-Execution-Id") ?? "";
        this.keep();
        await this.read(cell, response);
        if (!cell.execution.done) await this.follow(cell);
    }

    /** Joins the execution after the last line that has arrived, until it ends. */
    private async follow(cell: Cell) {
        for (let attempt = 0; attempt < RETRIES; attempt++) {
            if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, 1000));
            try {
                const where = `api/v1/executions/${encodeURIComponent(cell.id)}`;
                await this.read(
                    cell,
                    await send(`${where}?after=${cell.execution.seq}`, {
                        signal: this.stopped.signal,
                    }),
                );
            } catch (error) {
                if (this.stopped.signal.aborted) throw error;
                if (error instanceof ApiError && error.status === 404)
                    return cell.execution.lose("The gateway no longer has this output.");
                if (error instanceof ApiError && error.status >= 400 && error.status < 500)
                    throw error;
            }
            if (cell.execution.done) return;
        }
        cell.execution.lose("The connection to the gateway was lost.");
    }

    private async read(cell: Cell, response: Response) {
        try {
            await readLines(response, (line: Line) => {
                cell.execution.add(line);
                this.changed();
            });
        } catch (error) {
            if (this.stopped.signal.aborted) throw error;
        }
    }

    /** Draws once a frame, however many lines arrive. */
    private changed() {
        if (this.drawing) return;
        this.drawing = true;
        setTimeout(() => {
            this.drawing = false;
            this.onChange();
        }, 30);
    }

    // ---- Kept for a reload

    private get storageName() {
        return `kernelgate.cells.${this.sessionId}`;
    }

    private restore(): Kept[] {
        try {
            return JSON.parse(sessionStorage.getItem(this.storageName) ?? "[]");
        } catch {
            return [];
        }
    }

    private keep() {
        const kept: Kept[] = [];
        let room = CODE_MAX;
        for (const { code, kernel, id } of [...this.cells].reverse()) {
            room -= code.length;
            if (!id || room < 0) continue;
            kept.unshift({ code, kernel, id });
        }
        sessionStorage.setItem(this.storageName, JSON.stringify(kept));
    }
}
