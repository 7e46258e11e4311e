// SPDX-License-Identifier: Apache-2.0
// Code that runs in the session and was not started by this page: by another tab, a program, or before
// the gateway was restarted.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { send, type Session, session } from "./api";
import { Execution } from "./execution";
import { duration } from "./format";
import { Outputs } from "./output";
import { usePolled } from "./polling";
import { follow, interruptExecution, type Runs } from "./runs";

const POLL_MS = 2000;
const SURE_MS = 5000; // the list of executions and the state of kernels are not of one moment

interface Listed {
    execution_id: string;
    state: string;
    kernel: string;
    created_at: string;
    started_at: string | null;
    msg_id?: string; // of a Jupyter client
}

/** The output of an execution, from its beginning, as long as it is shown. */
function Joined({ id, sessionId }: { id: string; sessionId: string }) {
    const execution = useMemo(() => new Execution(), [id]);
    const [, draw] = useState(0);
    useEffect(() => {
        const left = new AbortController();
        let drawing = 0;
        const onLine = () => {
            drawing ||= window.setTimeout(() => {
                drawing = 0;
                draw((drawn) => drawn + 1);
            }, 50);
        };
        follow(id, execution, left.signal, onLine).then(onLine, () => {});
        return () => {
            left.abort();
            clearTimeout(drawing);
        };
    }, [id]);
    return <Outputs execution={execution} sessionId={sessionId} />;
}

interface OneProps {
    of: Listed;
    sessionId: string;
    ended: boolean;
    onRemove: () => void;
    onJoin: () => void;
    onError: (message: string) => void;
}

function One({ of, sessionId, ended, onRemove, onJoin, onError }: OneProps) {
    const [joined, setJoined] = useState(false);
    const since = duration(Date.now() - Date.parse(of.started_at ?? of.created_at));
    return (
        <section class="cell" aria-label="Code from elsewhere">
            <div class="code">
                <span class="prompt" aria-hidden="true">
                    •
                </span>
                <p class="quiet">
                    Code from {of.msg_id ? "a Jupyter client" : "another page or program"}, in the kernel{" "}
                    {of.kernel}
                </p>
                <span class="cell-end">
                    <span class={ended ? "status" : "status is-running"} role="status">
                        {ended ? "ended" : of.state === "queued" ? "waiting" : `running for ${since}`}
                    </span>
                    {!joined && (
                        <button
                            class="plain small"
                            onClick={() => {
                                setJoined(true);
                                onJoin();
                            }}
                        >
                            Show output
                        </button>
                    )}
                    {!ended && (
                        <button
                            class="plain small"
                            onClick={() =>
                                interruptExecution(of.execution_id).catch((e) => onError(e.message))
                            }
                        >
                            Interrupt
                        </button>
                    )}
                    {ended && (
                        <button class="plain small" onClick={onRemove}>
                            Remove
                        </button>
                    )}
                </span>
            </div>
            {joined && <Joined id={of.execution_id} sessionId={sessionId} />}
        </section>
    );
}

interface Props {
    runs: Runs;
    sessionId: string;
    session: Session | null;
    onError: (message: string) => void;
}

/** The kernels that have been busy for some time although no listed execution runs in them. After a
 * restart, the gateway calls such kernels `starting` until they answer. */
function useUnlisted(of: Session | null, listed: Set<string>, known: boolean): string[] {
    const since = useRef(new Map<string, number>());
    const now = Date.now();
    for (const [name, { state }] of Object.entries(of?.kernels ?? {})) {
        const busy = state === "busy" || (state === "starting" && of!.is_busy);
        if (!known || !busy || listed.has(name)) since.current.delete(name);
        else if (!since.current.has(name)) since.current.set(name, now);
    }
    return [...since.current].filter(([, begin]) => now - begin >= SURE_MS).map(([name]) => name);
}

export function Elsewhere({ runs, sessionId, session: of, onError }: Props) {
    const where = session(sessionId, "executions");
    const { value } = usePolled<{ executions: Listed[] }>(where, POLL_MS);
    const [joined, setJoined] = useState<Listed[]>([]); // these stay when they have ended
    const seen = useRef(new Set<string>());
    const all = (value?.executions ?? []).filter((each) => each.state !== "done").reverse();
    // What this page has just sent has no id yet.
    const running = all.filter(
        ({ execution_id: id }) => !runs.known.has(id) && (!runs.starting || seen.current.has(id)),
    );
    for (const each of running) seen.current.add(each.execution_id);
    const isRunning = (each: Listed) => running.some((r) => r.execution_id === each.execution_id);
    const shown = [...joined.filter((each) => !isRunning(each)), ...running];
    const listed = new Set(all.map((each) => each.kernel));
    const unlisted = useUnlisted(of, listed, value !== null && !runs.isRunning());
    const interrupt = () =>
        send(session(sessionId, "interrupt"), { method: "POST" }).catch((error) => onError(error.message));
    return (
        <>
            {shown.map((each) => (
                <One
                    key={each.execution_id}
                    of={each}
                    sessionId={sessionId}
                    ended={!isRunning(each)}
                    onJoin={() => setJoined([...joined, each])}
                    onRemove={() =>
                        setJoined(joined.filter((other) => other.execution_id !== each.execution_id))
                    }
                    onError={onError}
                />
            ))}
            {unlisted.map((name) => (
                <section key={name} class="cell" aria-label="Code from elsewhere">
                    <div class="code">
                        <span class="prompt" aria-hidden="true">
                            •
                        </span>
                        <p class="quiet">
                            The kernel {name} is running code that is not listed: it was started before the
                            gateway was restarted, or by a Jupyter client.
                        </p>
                        <span class="cell-end">
                            <span class="status is-running" role="status">
                                running
                            </span>
                            <button class="plain small" onClick={interrupt}>
                                Interrupt
                            </button>
                        </span>
                    </div>
                </section>
            ))}
        </>
    );
}
