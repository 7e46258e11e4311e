// SPDX-License-Identifier: Apache-2.0
// The output of one execution: what its lines add up to.

import type { Line } from "./api";

const TEXT_MAX = 400_000; // characters of one piece that are shown; the oldest are left out
const OUTPUTS_MAX = 500;
const CALLS_MAX = 100; // of tools, that are listed

export type Output =
    | { kind: "text"; stream: "stdout" | "stderr"; text: string; cut: boolean }
    | { kind: "rich"; line: Line }
    | { kind: "error"; line: Line }
    | { kind: "file"; line: Line }
    | { kind: "note"; text: string };

/** A call of a tool: without a status, it waits. */
export interface ToolCall {
    id: string;
    name: string;
    status?: string;
    ms?: number;
    size?: number; // of the result, as JSON
}

export interface ToolCalls {
    shown: ToolCall[]; // the newest
    total: number;
    failed: number;
}

/** An execution that has ended, as it is kept for a reload. */
export interface KeptExecution {
    outputs: Output[];
    calls?: ToolCalls;
    done: Line;
    left: number;
}

export class Execution {
    outputs: Output[] = [];
    calls: ToolCalls = { shown: [], total: 0, failed: 0 };
    done: Line | null = null;
    seq = 0; // of the last line
    left = 0; // outputs that are not shown
    input: Line | null = null; // what the code asks for, while it waits for it
    private answers: Record<number, string> = {}; // by the number of the line that asked
    private clearLater = false;

    /** What was kept of one that has ended. */
    static restore(kept: KeptExecution): Execution {
        const execution = new Execution();
        execution.outputs = kept.outputs;
        execution.calls = kept.calls ?? execution.calls;
        execution.done = kept.done;
        execution.left = kept.left;
        return execution;
    }

    /** Null while it goes on. */
    keep(): KeptExecution | null {
        return this.done && { outputs: this.outputs, calls: this.calls, done: this.done, left: this.left };
    }

    get count(): number | null {
        return this.done?.execution_count ?? null;
    }

    /** Adds a line; those that were added before are ignored. */
    add(line: Line) {
        if (line.seq !== undefined) {
            if (line.seq <= this.seq) return;
            this.seq = line.seq;
        }
        if (line.type === "keepalive") return;
        this.endInput();
        if (line.type === "done") this.done = line;
        else if (line.type === "clear") this.clear(line.wait);
        else if (line.type === "input_request") this.input = line;
        else if (line.type === "tool_call" || line.type === "tool_result") this.addCall(line);
        else this.show(line);
    }

    /** What the output will say of an answer, which is about to be sent; null takes it back. */
    setAnswer(request: Line, value: string | null) {
        if (value === null) delete this.answers[request.seq!];
        else this.answers[request.seq!] = request.password ? "\u2022".repeat(8) : value;
    }

    /** The gateway has taken the answer: nothing more is asked for. */
    answered(request: Line) {
        if (this.input === request) this.endInput();
    }

    /** Any later line says that the code has been given what it asked for. */
    private endInput() {
        const request = this.input;
        if (!request) return;
        this.input = null;
        this.addText("stdout", `${request.prompt}${this.answers[request.seq!] ?? ""}\n`);
    }

    /** Adds a call, or how one has ended. Calls of the gateway's MCP servers have no line before that. */
    private addCall(line: Line) {
        const { shown, total, failed } = this.calls;
        const known = shown.some((call) => call.id === line.call_id);
        const call: ToolCall = { id: line.call_id, name: line.name };
        if (line.type === "tool_result")
            Object.assign(call, { status: line.status, ms: line.duration_ms, size: line.bytes });
        const next = known ? shown.map((other) => (other.id === call.id ? call : other)) : [...shown, call];
        this.calls = {
            shown: next.slice(-CALLS_MAX),
            total: known ? total : total + 1,
            failed: failed + Number(line.status !== undefined && line.status !== "ok"),
        };
    }

    private clear(wait: boolean) {
        this.clearLater = wait;
        if (!wait) this.outputs = [];
    }

    private show(line: Line) {
        if (this.clearLater) this.outputs = [];
        this.clearLater = false;
        switch (line.type) {
            case "stdout":
            case "stderr":
                return this.addText(line.type, line.text);
            case "display":
            case "result":
                return this.addRich(line);
            case "error":
                return this.push({ kind: "error", line });
            case "file":
                return this.push({ kind: "file", line });
            case "progress":
                return this.addText("stderr", `${line.text}\n`);
            case "dropped":
                return this.note(describeDropped(line));
        }
    }

    private addText(stream: "stdout" | "stderr", text: string) {
        const last = this.outputs[this.outputs.length - 1];
        const joined = last?.kind === "text" && last.stream === stream;
        let whole = joined ? last.text + text : text;
        let cut = joined && last.cut;
        if (whole.length > TEXT_MAX) {
            whole = whole.slice(whole.indexOf("\n", whole.length - TEXT_MAX * 0.75) + 1);
            if (whole.length > TEXT_MAX) whole = whole.slice(-TEXT_MAX * 0.75);
            cut = true;
        }
        const output: Output = { kind: "text", stream, text: whole, cut };
        if (joined) this.outputs[this.outputs.length - 1] = output;
        else this.push(output);
    }

    private addRich(line: Line) {
        const id = line.display_id;
        if (id === undefined) return this.push({ kind: "rich", line });
        let known = false;
        this.outputs = this.outputs.map((output) => {
            if (output.kind !== "rich" || output.line.display_id !== id) return output;
            known = true;
            return { kind: "rich", line };
        });
        if (!known || !line.update) this.push({ kind: "rich", line });
    }

    private push(output: Output) {
        this.outputs.push(output);
        if (this.outputs.length > OUTPUTS_MAX) {
            this.outputs.shift();
            this.left++;
        }
    }

    note(text: string) {
        this.push({ kind: "note", text });
    }

    /** The stream ended without `done`, and cannot be joined again. */
    lose(why: string) {
        this.end(why, "lost");
    }

    /** The code was never sent. */
    skip(why: string) {
        this.end(why, "skipped");
    }

    private end(why: string, status: string) {
        this.endInput();
        if (why) this.note(why);
        this.done = { type: "done", status };
    }
}

function describeDropped(line: Line): string {
    if (line.messages === undefined) return `Output was dropped: ${line.bytes} bytes.`;
    const size = line.bytes ? `, ${line.bytes} bytes` : "";
    return `Output was dropped: ${line.messages} ${line.messages === 1 ? "message" : "messages"}${size}.`;
}
