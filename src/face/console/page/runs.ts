// SPDX-License-Identifier: Apache-2.0
// Runs the cells of a session, one after another, and joins their executions again after a reload or
// a lost connection.

import { ApiError, type Line, readLines, send, session } from "./api";
import { type Cell, isRunning } from "./cell";
import { Execution } from "./execution";

const RETRIES = 20;
const RETRY_MS = 1000;

const execution = (id: string, ...rest: string[]) =>
    ["api/v1/executions", encodeURIComponent(id), ...rest].join("/");

export const interruptExecution = (id: string) =>
    send(execution(id, "interrupt"), { method: "POST" });

/** Adds the lines after the last one that has arrived, until the execution ends. `onLine` is called
 * after each line. */
export async function follow(
    id: string,
    into: Execution,
    signal: AbortSignal,
    onLine: (line: Line) => void,
) {
    for (let attempt = 0; attempt < RETRIES && !into.done; attempt++) {
        if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        try {
            const response = await send(`${execution(id)}?after=${into.seq}`, { signal });
            await readLines(response, (line) => {
                into.add(line);
                onLine(line);
            });
        } catch (error) {
            if (signal.aborted) throw error;
            if (!(error instanceof ApiError) || error.status < 400 || error.status >= 500) continue;
            return into.lose(
                error.status === 404 ? "The gateway no longer has this output." : error.message,
            );
        }
    }
    if (!into.done) into.lose("The connection to the gateway was lost.");
}

export class Runs {
    /** The executions that this page has started or joined. */
    readonly known = new Set<string>();
    private queue: Promise<void> = Promise.resolve();
    private active: Cell[] = []; // those that run or wait, also when they are no longer in the notebook
    private stopped = new AbortController();
    private asksInput = true; // whether the gateway knows allow_stdin

    /** `onChange` is called when something of the cell has changed, `onSettle` when that should be
     * kept at once. */
    constructor(
        private sessionId: string,
        private onChange: (cell: Cell) => void,
        private onSettle: () => void,
    ) {}

    /** Stops reading; what runs in the session continues. */
    stop() {
        this.stopped.abort();
    }

    get running(): Cell | undefined {
        return this.active.find((cell) => !cell.waits);
    }

    /** A cell has been sent whose execution has no id yet. */
    get starting(): boolean {
        return this.running !== undefined && !this.running.run;
    }

    /** Runs the cells in turn; an error in one stops those behind it. `timeout` in seconds; 0: the
     * gateway's default. */
    start(cells: Cell[], timeout: number) {
        let failed = false;
        for (const cell of cells.filter((each) => !isRunning(each))) {
            cell.run = "";
            this.enqueue(cell, async () => {
                if (failed) return cell.execution!.skip("An earlier cell failed.");
                await this.send(cell, timeout);
                failed = cell.execution!.done?.status !== "ok";
            });
        }
    }

    /** Joins the execution of a cell that was run before the page was loaded. */
    join(cell: Cell) {
        this.known.add(cell.run);
        this.enqueue(cell, () => this.follow(cell));
    }

    /** Drops the cells that have not been sent, and interrupts what runs. */
    async interrupt() {
        for (const cell of this.active) {
            if (!cell.waits || cell.run) continue;
            cell.execution!.skip("");
            this.onChange(cell);
        }
        await send(session(this.sessionId, "interrupt"), { method: "POST" });
    }

    /** Gives the code the line that it asks for. */
    async answer(cell: Cell, request: Line, value: string) {
        const { execution: of, run } = cell;
        of!.setAnswer(request, value);
        try {
            await send(execution(run, "input"), { method: "POST", body: { value } });
        } catch (error) {
            of!.setAnswer(request, null);
            // It has been answered before, or the code no longer waits.
            if (!(error instanceof ApiError && error.status === 409)) throw error;
        }
        of!.answered(request);
        this.onChange(cell);
    }

    private enqueue(cell: Cell, work: () => Promise<void>) {
        const of = (cell.execution = new Execution());
        cell.waits = true;
        this.active.push(cell);
        this.onChange(cell);
        this.queue = this.queue.then(async () => {
            if (this.stopped.signal.aborted) return;
            cell.waits = false;
            this.onChange(cell);
            try {
                if (!of.done) await work();
            } catch (error) {
                if (this.stopped.signal.aborted) return;
                const refused = error instanceof ApiError && error.status > 0;
                if (refused && !cell.run) of.skip(error.message);
                else of.lose((error as Error).message);
            }
            this.active = this.active.filter((other) => other !== cell);
            this.onChange(cell);
            this.onSettle();
        });
    }

    private async send(cell: Cell, timeout: number) {
        const response = await this.post(cell, timeout);
        cell.run = response.headers.get("X-Execution-Id") ?? "";
        this.known.add(cell.run);
        this.onSettle();
        try {
            await readLines(response, (line: Line) => {
                cell.execution!.add(line);
                this.onChange(cell);
            });
        } catch (error) {
            if (this.stopped.signal.aborted) throw error;
        }
        await this.follow(cell);
    }

    private async post(cell: Cell, timeout: number): Promise<Response> {
        const body = {
            code: cell.source,
            session_id: this.sessionId,
            kernel: cell.kernel || undefined,
            on_disconnect: "continue",
            timeout: timeout || undefined,
            allow_stdin: this.asksInput || undefined,
        };
        try {
            return await send("api/v1/execute", { method: "POST", body, signal: this.stopped.signal });
        } catch (error) {
            // An older replica refuses a field that it does not know.
            const unknown = error instanceof ApiError && /allow_stdin/.test(error.message);
            if (!this.asksInput || !unknown) throw error;
            this.asksInput = false;
            return this.post(cell, timeout);
        }
    }

    private async follow(cell: Cell) {
        await follow(cell.run, cell.execution!, this.stopped.signal, () => this.onChange(cell));
    }
}
