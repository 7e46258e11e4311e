// SPDX-License-Identifier: Apache-2.0
// Runs the cells of a session, those of one branch one after another, and joins their executions again
// after a reload or a lost connection.

import { ApiError, type Line, readLines, send, session } from "./api";
import { type Cell, isRunning, makeOutcome, type Outcome } from "./cell";
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

/** Where a cell is run, by the notebook. */
export interface Place {
    kernel: string; // a kernelspec's name
    branch: string; // "": the main kernel of that kernelspec
    hasSavepoints: boolean;
    noSavepoint: string; // why none is to be made; "": nothing speaks against it
}

export interface RunsEvents {
    /** Something of the cell has changed. */
    onChange: (cell: Cell) => void;
    /** That should be kept at once. */
    onSettle: () => void;
    /** The gateway has dropped these savepoints. */
    onDropped: (ids: string[]) => void;
    placeOf: (cell: { kernel: string }, branch: string) => Place;
}

/** What a cell without a savepoint says of it. The other reasons are the gateway's. */
const NO_SAVEPOINT: Record<string, string> = {
    kernel_busy: "The kernel was running other code when this cell was sent, so its variables were not saved.",
    too_many_savepoints: "Its variables were not saved: every savepoint of the session has a name.",
};
const NO_SAVEPOINT_CODES = [...Object.keys(NO_SAVEPOINT), "not_supported", "savepoint_failed", "session_busy"];

interface Active {
    cell: Cell;
    outcome: Outcome;
}

export class Runs {
    /** The executions that this page has started or joined. */
    readonly known = new Set<string>();
    private queues = new Map<string, Promise<void>>(); // by branch
    private active: Active[] = []; // what runs or waits, also in cells that have been removed
    private stopped = new AbortController();
    private refused = new Set<string>(); // fields that an older replica does not know
    private order = 0;

    constructor(
        private sessionId: string,
        private events: RunsEvents,
    ) {}

    /** Stops reading; what runs in the session continues. */
    stop() {
        this.stopped.abort();
    }

    /** In a branch, or anywhere. */
    isRunning(branch?: string): boolean {
        return this.active.some(({ outcome }) => !outcome.waits && (branch ?? outcome.branch) === outcome.branch);
    }

    /** A cell has been sent whose execution has no id yet. */
    get starting(): boolean {
        return this.active.some(({ outcome }) => !outcome.waits && !outcome.run);
    }

    /** Runs the cells in turn; an error in one stops those behind it. `timeout` in seconds; 0: the
     * gateway's default. */
    start(cells: Cell[], branch: string, timeout: number) {
        let failed = false;
        for (const cell of cells.filter((each) => !isRunning(each))) {
            const outcome = makeOutcome({ branch, execution: new Execution(), order: ++this.order });
            cell.outcome = outcome;
            this.enqueue(cell, outcome, async () => {
                if (failed) return outcome.execution.skip("An earlier cell failed.");
                await this.send(cell, outcome, timeout);
                failed = outcome.execution.done?.status !== "ok";
            });
        }
    }

    /** Knows an outcome from before the page was loaded, and joins its execution if that was not kept. */
    join(cell: Cell, outcome: Outcome) {
        this.order = Math.max(this.order, outcome.order);
        if (outcome.run) this.known.add(outcome.run);
        if (outcome.run && !outcome.execution.done)
            this.enqueue(cell, outcome, () => this.follow(cell, outcome));
    }

    /** Drops the cells of a branch that have not been sent, and interrupts what runs in it. `alone`: it
     * is the only one, so all that runs in the session is meant. */
    async interrupt(branch: string, alone: boolean) {
        const meant = this.active.filter(({ outcome }) => outcome.branch === branch);
        for (const { cell, outcome } of meant) {
            if (!outcome.waits || outcome.run) continue;
            outcome.execution.skip("");
            this.events.onChange(cell);
        }
        const running = meant.filter(({ outcome }) => outcome.run && !outcome.execution.done);
        if (alone) await send(session(this.sessionId, "interrupt"), { method: "POST" });
        else await Promise.all(running.map(({ outcome }) => interruptExecution(outcome.run)));
    }

    /** Gives the code the line that it asks for. */
    async answer(cell: Cell, request: Line, value: string) {
        const { execution: of, run } = cell.outcome!;
        of.setAnswer(request, value);
        try {
            await send(execution(run, "input"), { method: "POST", body: { value } });
        } catch (error) {
            of.setAnswer(request, null);
            // It has been answered before, or the code no longer waits.
            if (!(error instanceof ApiError && error.status === 409)) throw error;
        }
        of.answered(request);
        this.events.onChange(cell);
    }

    private enqueue(cell: Cell, outcome: Outcome, work: () => Promise<void>) {
        const { execution: of, branch } = outcome;
        const { onChange, onSettle } = this.events;
        const entry = { cell, outcome };
        outcome.waits = true;
        this.active.push(entry);
        onChange(cell);
        const before = this.queues.get(branch) ?? Promise.resolve();
        const turn = before.then(async () => {
            if (this.stopped.signal.aborted) return;
            outcome.waits = false;
            onChange(cell);
            try {
                if (!of.done) await work();
            } catch (error) {
                if (this.stopped.signal.aborted) return;
                const refused = error instanceof ApiError && error.status > 0;
                if (refused && !outcome.run) of.skip(error.message);
                else of.lose((error as Error).message);
            }
            this.active = this.active.filter((other) => other !== entry);
            outcome.savepoint = of.done?.savepoint ?? "";
            if (of.done?.savepoints_dropped) this.events.onDropped(of.done.savepoints_dropped);
            onChange(cell);
            onSettle();
        });
        this.queues.set(branch, turn);
    }

    private async send(cell: Cell, outcome: Outcome, timeout: number) {
        const response = await this.post(cell, outcome, timeout);
        outcome.run = response.headers.get("X-Execution-Id") ?? "";
        this.known.add(outcome.run);
        this.events.onSettle();
        try {
            await readLines(response, (line: Line) => {
                outcome.execution.add(line);
                this.events.onChange(cell);
            });
        } catch (error) {
            if (this.stopped.signal.aborted) throw error;
        }
        await this.follow(cell, outcome);
    }

    private async post(cell: Cell, outcome: Outcome, timeout: number): Promise<Response> {
        const place = this.events.placeOf(cell, outcome.branch);
        const body: Record<string, unknown> = {
            code: cell.source,
            session_id: this.sessionId,
            kernel: place.kernel || undefined,
            branch: place.branch || undefined,
            on_disconnect: "continue",
            timeout: timeout || undefined,
            allow_stdin: true,
            savepoint: (place.hasSavepoints && !place.noSavepoint) || undefined,
        };
        if (place.hasSavepoints) outcome.noUndo = place.noSavepoint;
        for (const field of this.refused) delete body[field];
        for (;;) {
            try {
                return await send("api/v1/execute", { method: "POST", body, signal: this.stopped.signal });
            } catch (error) {
                const field = this.refusedField(error, body);
                if (!field) throw error;
                delete body[field];
                const { code, message } = error as ApiError;
                if (field === "savepoint" && code !== "not_supported")
                    outcome.noUndo = NO_SAVEPOINT[code] ?? message;
            }
        }
    }

    /** The field without which the gateway may take the request: nothing has run yet. */
    private refusedField(error: unknown, body: Record<string, unknown>): string | null {
        if (!(error instanceof ApiError)) return null;
        if (body.savepoint && NO_SAVEPOINT_CODES.includes(error.code)) return "savepoint";
        if (error.status !== 400) return null;
        const unknown = ["savepoint", "allow_stdin"].find((field) => body[field] && error.message.includes(field));
        if (unknown) this.refused.add(unknown);
        return unknown ?? null;
    }

    private async follow(cell: Cell, { run, execution: of }: Outcome) {
        await follow(run, of, this.stopped.signal, () => this.events.onChange(cell));
    }
}
