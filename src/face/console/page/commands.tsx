// SPDX-License-Identifier: Apache-2.0
// Shell commands in a session's sandbox, beside its kernels. A command ends with its stream.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { readLines, send, session } from "./api";
import { Execution } from "./execution";
import { shortDuration } from "./format";
import { Outputs } from "./output";

const COMMANDS_MAX = 50;

interface Run {
    number: number;
    command: string;
    output: Execution;
    stop: AbortController;
}

function describe(output: Execution): string {
    const { done } = output;
    if (!done) return "running";
    if (done.status === "lost") return "";
    const parts = [done.exit_code ? `exit code ${done.exit_code}` : "", done.signal ?? ""];
    if (done.status === "timeout") parts.push("time limit reached");
    return [...parts.filter(Boolean), shortDuration(done.duration_ms ?? 0)].join(", ");
}

export function Commands({ id }: { id: string }) {
    const [runs, setRuns] = useState<Run[]>([]);
    const [, draw] = useState(0);
    const count = useRef(0);
    const input = useRef<HTMLInputElement>(null);
    const latest = useRef(runs);
    latest.current = runs;
    useLayoutEffect(() => input.current!.focus(), []);
    useEffect(() => () => latest.current.forEach((run) => run.stop.abort()), []);
    const start = async (command: string) => {
        const run = {
            number: ++count.current,
            command,
            output: new Execution(),
            stop: new AbortController(),
        };
        setRuns((before) => [...before, run].slice(-COMMANDS_MAX));
        try {
            const response = await send(session(id, "commands"), {
                method: "POST",
                body: { command },
                signal: run.stop.signal,
            });
            await readLines(response, (line) => {
                run.output.add(line);
                draw((drawn) => drawn + 1);
            });
            if (!run.output.done) run.output.lose("The connection to the gateway was lost.");
        } catch (error) {
            const stopped = run.stop.signal.aborted;
            run.output.lose(stopped ? "Stopped." : (error as Error).message);
        }
        draw((drawn) => drawn + 1);
    };
    const onSubmit = (event: Event) => {
        event.preventDefault();
        const command = input.current!.value;
        if (!command.trim()) return;
        input.current!.value = "";
        start(command);
    };
    const onKeyDown = (event: KeyboardEvent) => {
        const last = runs[runs.length - 1];
        if (event.key !== "ArrowUp" || !last || input.current!.value) return;
        event.preventDefault();
        input.current!.value = last.command;
    };
    return (
        <div class="commands">
            {runs.map((run) => (
                <article key={run.number} class="cell" aria-label={`Command ${run.number}`}>
                    <div class="code">
                        <span class="prompt" aria-hidden="true">
                            $
                        </span>
                        <pre>{run.command}</pre>
                        <span class="cell-end">
                            <span class={`status is-${run.output.done?.status ?? "running"}`}>
                                {describe(run.output)}
                            </span>
                            {!run.output.done && (
                                <button class="plain small" onClick={() => run.stop.abort()}>
                                    Stop
                                </button>
                            )}
                        </span>
                    </div>
                    <Outputs execution={run.output} sessionId={id} />
                </article>
            ))}
            <form class="new shell" onSubmit={onSubmit}>
                <span class="prompt" aria-hidden="true">
                    $
                </span>
                <input
                    ref={input}
                    class="grow"
                    aria-label="Command"
                    placeholder="ls -l"
                    autocomplete="off"
                    autocapitalize="off"
                    spellcheck={false}
                    onKeyDown={onKeyDown}
                />
                <button type="submit" class="primary">
                    Run
                </button>
            </form>
        </div>
    );
}
