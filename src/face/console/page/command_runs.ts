// SPDX-License-Identifier: Apache-2.0
// The commands of a session: those that this page has started, and those that were there before or come
// from elsewhere. All go on without the page, which joins them again.

import { ApiError, type Command, type Line, readLines, send, session } from "./api";
import { Execution } from "./execution";

const RUNS_MAX = 50;
const FOLLOWED_MAX = 3; // a browser opens few connections to a host
const ENDED_SHOWN = 8; // whose output is fetched at first
const RETRIES = 20;
const RETRY_MS = 1000;
const ID_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789";

export interface Run {
    id: string;
    command: string;
    output: Execution;
    reader: AbortController | null; // null: its output is not followed
    listed: Command | null; // as the gateway has listed it
}

export const isRunning = (run: Run) => !run.output.done && run.listed?.running !== false;

const makeId = () =>
    [...crypto.getRandomValues(new Uint8Array(12))].map((n) => ID_CHARS[n % ID_CHARS.length]).join("");

export class CommandRuns {
    runs: Run[] = [];
    private first = true;
    private drawing = false;
    private stopped = false;
    private removed: Set<string>;

    constructor(
        private sessionId: string,
        private onChange: () => void,
    ) {
        this.removed = new Set(JSON.parse(sessionStorage.getItem(this.storageName) ?? "[]"));
    }

    /** Leaves all commands, which go on. */
    stop() {
        this.stopped = true;
        for (const run of this.runs) run.reader?.abort();
    }

    async start(command: string, takesInput: boolean) {
        const run = this.append(makeId(), command, null);
        const body = { id: run.id, command, stdin: takesInput, on_disconnect: "continue" };
        await this.read(run, (signal) =>
            send(session(this.sessionId, "commands"), { method: "POST", body, signal }),
        );
    }

    /** Takes the gateway's list, the oldest first. */
    know(commands: Command[]) {
        const fresh: Run[] = [];
        for (const listed of commands) {
            if (listed.terminal || this.removed.has(listed.command_id)) continue;
            const known = this.runs.find((run) => run.id === listed.command_id);
            if (known) known.listed = listed;
            else fresh.push(this.append(listed.command_id, listed.command, listed));
        }
        if (this.first) void this.showSome(fresh);
        this.first = false;
        this.changed();
    }

    /** Joins a command: the last of its output, and what follows. */
    async follow(run: Run) {
        for (let attempt = 0; attempt < RETRIES; attempt++) {
            if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
            if (this.stopped) return;
            run.output = new Execution();
            const join = (signal: AbortSignal) =>
                send(session(this.sessionId, "commands", run.id, "output"), { signal });
            if (await this.readOnce(run, join)) return;
        }
        run.output.lose("The connection to the gateway was lost.");
        this.changed();
    }

    remove(run: Run) {
        run.reader?.abort();
        this.runs = this.runs.filter((other) => other !== run);
        this.removed.add(run.id);
        sessionStorage.setItem(this.storageName, JSON.stringify([...this.removed].slice(-200)));
        this.changed();
    }

    input(run: Run, text: string, ends: boolean) {
        const where = session(this.sessionId, "commands", run.id, "input");
        return send(ends ? `${where}?end=1` : where, { method: "POST", raw: new Blob([text]) });
    }

    signal(run: Run, signal: string) {
        const where = session(this.sessionId, "commands", run.id, "signal");
        return send(where, { method: "POST", body: { signal } });
    }

    private get storageName() {
        return `kernelgate.commands.removed.${this.sessionId}`;
    }

    private append(id: string, command: string, listed: Command | null): Run {
        const run: Run = { id, command, output: new Execution(), reader: null, listed };
        const left = this.runs.length + 1 - RUNS_MAX;
        for (const old of this.runs.slice(0, Math.max(left, 0))) old.reader?.abort();
        this.runs = [...this.runs, run].slice(-RUNS_MAX);
        return run;
    }

    private async showSome(runs: Run[]) {
        for (const run of runs.filter(isRunning).slice(-FOLLOWED_MAX)) void this.follow(run);
        for (const run of runs.filter((run) => !isRunning(run)).slice(-ENDED_SHOWN))
            await this.follow(run);
    }

    private async read(run: Run, request: (signal: AbortSignal) => Promise<Response>) {
        if (!(await this.readOnce(run, request))) await this.follow(run);
    }

    /** Returns false if the connection was lost. */
    private async readOnce(
        run: Run,
        request: (signal: AbortSignal) => Promise<Response>,
    ): Promise<boolean> {
        const reader = new AbortController();
        run.reader = reader;
        this.leaveOldest(run);
        try {
            await readLines(await request(reader.signal), (line) => {
                this.add(run, line);
                this.changed();
            });
        } catch (error) {
            if (reader.signal.aborted) return true;
            if (error instanceof ApiError && error.status >= 400 && error.status < 500)
                run.output.lose(error.message);
        } finally {
            if (run.reader === reader) run.reader = null;
            this.changed();
        }
        return run.output.done !== null;
    }

    private leaveOldest(newest: Run) {
        const followed = this.runs.filter((run) => run.reader && run !== newest);
        if (followed.length >= FOLLOWED_MAX) followed[0]!.reader!.abort();
    }

    private add(run: Run, line: Line) {
        if (line.type === "started" && line.dropped_bytes)
            run.output.note(`The first ${line.dropped_bytes} bytes are no longer kept.`);
        run.output.add(line);
    }

    /** Draws once a frame, however many lines arrive. */
    private changed() {
        if (this.drawing || this.stopped) return;
        this.drawing = true;
        setTimeout(() => {
            this.drawing = false;
            this.onChange();
        }, 30);
    }
}
