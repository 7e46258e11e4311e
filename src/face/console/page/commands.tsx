// SPDX-License-Identifier: Apache-2.0
// Shell commands in a session's sandbox, beside its kernels. They go on when the page is closed.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { type Command, send, session } from "./api";
import { CommandRuns, isRunning, type Run } from "./command_runs";
import { shortDuration } from "./format";
import { Outputs } from "./output";
import { usePolled } from "./polling";

const POLL_MS = 3000;
const SIGNALS = ["INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT"];

function describe(run: Run): string {
    const { done } = run.output;
    const end = done ?? run.listed;
    if (isRunning(run)) return "running";
    if (!end || done?.status === "lost") return "";
    const parts = [end.exit_code ? `exit code ${end.exit_code}` : "", end.signal ?? ""];
    if (done?.status === "timeout") parts.push("time limit reached");
    if (done) parts.push(shortDuration(done.duration_ms ?? 0));
    return parts.filter(Boolean).join(", ") || "ended";
}

interface InputProps {
    onSend: (text: string) => void;
    onEnd: () => void;
}

function Input({ onSend, onEnd }: InputProps) {
    const field = useRef<HTMLInputElement>(null);
    useLayoutEffect(() => field.current!.focus(), []);
    const onSubmit = (event: Event) => {
        event.preventDefault();
        onSend(`${field.current!.value}\n`);
        field.current!.value = "";
    };
    return (
        <form class="new shell run-input" onSubmit={onSubmit}>
            <input ref={field} class="grow" aria-label="Line of input" autocomplete="off" />
            <button type="submit">Send</button>
            <button type="button" onClick={onEnd}>
                Close input
            </button>
        </form>
    );
}

interface RunProps {
    run: Run;
    runs: CommandRuns;
    sessionId: string;
}

function RunView({ run, runs, sessionId }: RunProps) {
    const [asksInput, setAsksInput] = useState(false);
    const [failure, setFailure] = useState("");
    const running = isRunning(run);
    const attempt = async (act: () => Promise<unknown>) => {
        setFailure("");
        try {
            await act();
        } catch (error) {
            setFailure((error as Error).message);
        }
    };
    const onStop = () =>
        attempt(() => send(session(sessionId, "commands", run.id), { method: "DELETE" }));
    const onSignal = (event: Event) => {
        const choice = event.currentTarget as HTMLSelectElement;
        const signal = choice.value;
        choice.value = "";
        void attempt(() => runs.signal(run, signal));
    };
    return (
        <article class="cell" aria-label={`Command ${run.command}`}>
            <div class="code">
                <span class="prompt" aria-hidden="true">
                    $
                </span>
                <pre>{run.command}</pre>
                <span class="cell-end">
                    <span class={`status is-${run.output.done?.status ?? "running"}`}>
                        {describe(run)}
                    </span>
                    {running && (
                        <>
                            <button
                                class="plain small"
                                aria-expanded={asksInput}
                                onClick={() => setAsksInput(!asksInput)}
                            >
                                Input
                            </button>
                            <select class="small" aria-label="Send a signal" onChange={onSignal}>
                                <option value="">Send signal</option>
                                {SIGNALS.map((name) => (
                                    <option key={name}>{name}</option>
                                ))}
                            </select>
                            <button class="plain small" onClick={onStop}>
                                Stop
                            </button>
                        </>
                    )}
                    {!running && (
                        <button class="plain small" onClick={() => runs.remove(run)}>
                            Remove
                        </button>
                    )}
                </span>
            </div>
            <Outputs execution={run.output} sessionId={sessionId} />
            {!run.reader && !run.output.done && (
                <button class="link" onClick={() => void runs.follow(run)}>
                    Show output
                </button>
            )}
            {running && asksInput && (
                <Input
                    onSend={(text) => attempt(() => runs.input(run, text, false))}
                    onEnd={() => attempt(() => runs.input(run, "", true))}
                />
            )}
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
        </article>
    );
}

export function Commands({ id }: { id: string }) {
    const [, draw] = useState(0);
    const runs = useMemo(() => new CommandRuns(id, () => draw((drawn) => drawn + 1)), [id]);
    const { value } = usePolled<{ commands: Command[] }>(session(id, "commands"), POLL_MS);
    const input = useRef<HTMLInputElement>(null);
    const [takesInput, setTakesInput] = useState(false);
    useLayoutEffect(() => input.current!.focus(), []);
    useEffect(() => () => runs.stop(), [runs]);
    useEffect(() => {
        if (!value) return;
        runs.know([...value.commands].sort((a, b) => a.started_at.localeCompare(b.started_at)));
    }, [value]);
    const onSubmit = (event: Event) => {
        event.preventDefault();
        const command = input.current!.value;
        if (!command.trim()) return;
        input.current!.value = "";
        void runs.start(command, takesInput);
    };
    const onKeyDown = (event: KeyboardEvent) => {
        const last = runs.runs[runs.runs.length - 1];
        if (event.key !== "ArrowUp" || !last || input.current!.value) return;
        event.preventDefault();
        input.current!.value = last.command;
    };
    return (
        <div class="commands">
            {runs.runs.map((run) => (
                <RunView key={run.id} run={run} runs={runs} sessionId={id} />
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
                <label class="check">
                    <input
                        type="checkbox"
                        checked={takesInput}
                        onChange={(event) => setTakesInput(event.currentTarget.checked)}
                    />
                    Accept input
                </label>
                <button type="submit" class="primary">
                    Run
                </button>
            </form>
        </div>
    );
}
