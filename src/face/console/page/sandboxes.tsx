// SPDX-License-Identifier: Apache-2.0
// The list of the owner's sandboxes, live, and a form for a new one.

import { useState } from "preact/hooks";

import { type Kernelspec, send, type Session, session } from "./api";
import { alsoRuns, bytes, duration } from "./format";
import { Gateway } from "./gateway";
import { sourceOf, useLimits } from "./limits";
import { usePolled } from "./polling";
import { useQuestion } from "./question";
import { AllLimits } from "./quota";
import { linkTo } from "./route";
import { nameOf } from "./session_name";
import { startSandbox, Welcome } from "./welcome";

const POLL_MS = 2000;
const ID = /^[\w-]{1,64}$/; // another name is only shown

export const stateOf = (of: Session) =>
    Object.values(of.kernels)
        .map((kernel) => kernel.state)
        .find((state) => state !== "ready") ?? (of.is_busy ? "busy" : "ready");

function NewSandbox({ onError }: { onError: (message: string) => void }) {
    const { value: specs } = usePolled<{ kernelspecs: Record<string, Kernelspec> }>(
        "api/v1/kernelspecs",
        600_000,
    );
    const [busy, setBusy] = useState(false);
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const form = new FormData(event.target as HTMLFormElement);
        const name = String(form.get("name")).trim();
        const named = ID.test(name) ? { session_id: name } : name ? { metadata: { name } } : {};
        setBusy(true);
        try {
            await startSandbox({ ...named, kernel: form.get("kernel") ?? undefined });
        } catch (error) {
            onError((error as Error).message);
            setBusy(false);
        }
    };
    return (
        <form class="new" onSubmit={onSubmit}>
            <input
                name="name"
                aria-label="Name of the new sandbox"
                placeholder="Name (optional)"
                maxLength={100}
                autocomplete="off"
                spellcheck={false}
            />
            <select name="kernel" aria-label="Kernel of the new sandbox">
                {Object.values(specs?.kernelspecs ?? {}).map((spec) => (
                    <option key={spec.name} value={spec.name} selected={spec.default}>
                        {spec.display_name}
                    </option>
                ))}
            </select>
            <button type="submit" class="primary" disabled={busy}>
                {busy ? "Starting…" : "New sandbox"}
            </button>
        </form>
    );
}

/** How many there are, of how many. */
function Count({ sandboxes }: { sandboxes: number }) {
    const of = useLimits();
    if (!of) return null;
    const most = of.limits.max_sessions;
    return (
        <p class="quiet" role="status">
            {`${sandboxes} of ${most}, from ${sourceOf(of, "max_sessions").split(",")[0]}.`}
            {sandboxes >= most && " End one before you start another."}
        </p>
    );
}

interface RowProps {
    of: Session;
    chosen: boolean;
    onChoose: (chosen: boolean) => void;
}

function Row({ of, chosen, onChoose }: RowProps) {
    const now = Date.now();
    const state = stateOf(of);
    return (
        <tr>
            <td class="choose">
                <input
                    type="checkbox"
                    aria-label={`Select ${of.session_id}`}
                    checked={chosen}
                    onChange={(event) => onChoose(event.currentTarget.checked)}
                />
            </td>
            <th scope="row">
                <a href={linkTo(of.session_id)}>{nameOf(of)}</a>
                {nameOf(of) !== of.session_id && <code class="quiet beside">{of.session_id}</code>}
            </th>
            <td>
                <span class={`state ${state}`}>{state}</span>
                <span class="quiet beside">{alsoRuns(of)}</span>
            </td>
            <td data-label="Kernels">{Object.keys(of.kernels).join(", ") || "none"}</td>
            <td class="number" data-label="Executions">
                {of.execution_count}
            </td>
            <td class="number" data-label="Memory">
                {of.memory_bytes != null && bytes(of.memory_bytes)}
            </td>
            <td class="number" data-label="Age">
                {duration(now - Date.parse(of.created_at))}
            </td>
            <td class="number" data-label="Idle">
                {of.is_busy ? "–" : duration(now - Date.parse(of.last_activity))}
            </td>
            <td class="number" data-label="Expires in">
                {of.is_busy ? "–" : duration(Date.parse(of.expires_at) - now)}
            </td>
        </tr>
    );
}

const ACTIONS: { name: string; method: string; rest: string[]; title?: string }[] = [
    { name: "Interrupt", method: "POST", rest: ["interrupt"] },
    { name: "Restart", method: "POST", rest: ["restart"] },
    { name: "Renew", method: "POST", rest: ["touch"], title: "Counts their idle time from now" },
    { name: "End", method: "DELETE", rest: [] },
];

const several = (names: string[], one: string) =>
    names.length === 1 ? one : `${names.length} sandboxes`;

/** Questions about the sandboxes of these names. */
export const ending = (names: string[]) => ({
    title: `End ${several(names, names[0]!)}?`,
    text: `${names.length === 1 ? "Its" : "Their"} files and variables are lost, and running code is stopped.`,
    yes: `End ${several(names, "sandbox")}`,
});
export const restarting = (names: string[]) => ({
    title: `Restart the kernels of ${several(names, names[0]!)}?`,
    text: "All variables are lost, and running code is stopped. Files are kept.",
    yes: "Restart kernels",
});
const QUESTIONS: Record<string, typeof ending> = { End: ending, Restart: restarting };

export function Sandboxes() {
    const { value, error, refresh } = usePolled<{ sessions: Record<string, Session> }>(
        "api/v1/sessions",
        POLL_MS,
    );
    const [chosen, setChosen] = useState<Set<string>>(new Set());
    const [failure, setFailure] = useState("");
    const [ask, question] = useQuestion();
    const sessions = Object.values(value?.sessions ?? {}).sort((a, b) =>
        b.created_at.localeCompare(a.created_at),
    );
    const ids = sessions.map((of) => of.session_id).filter((id) => chosen.has(id));
    const choose = (id: string, yes: boolean) => {
        const next = new Set(ids);
        if (yes) next.add(id);
        else next.delete(id);
        setChosen(next);
    };
    const act = async ({ method, rest, name }: (typeof ACTIONS)[number]) => {
        const asked = QUESTIONS[name]?.(ids);
        if (asked && !(await ask(asked))) return;
        setFailure("");
        const calls = ids.map((id) => send(session(id, ...rest), { method }));
        const failed = (await Promise.allSettled(calls)).find((call) => call.status === "rejected");
        if (failed) setFailure(failed.reason.message);
        refresh();
    };
    return (
        <main>
            <div class="head">
                <h1>Sandboxes</h1>
                {value && <Count sandboxes={sessions.length} />}
                <NewSandbox onError={setFailure} />
            </div>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {value && sessions.length === 0 && <Welcome onError={setFailure} />}
            {sessions.length > 0 && (
                <>
                    <div class="actions" role="group" aria-label="Selected sandboxes">
                        {ACTIONS.map((action) => (
                            <button
                                key={action.name}
                                class={action.name === "End" ? "danger" : ""}
                                title={action.title}
                                disabled={ids.length === 0}
                                onClick={() => act(action)}
                            >
                                {action.name}
                            </button>
                        ))}
                        <span class="quiet" role="status">
                            {ids.length > 0 && `${ids.length} selected`}
                        </span>
                    </div>
                    <table class="list">
                        <thead>
                            <tr>
                                <td class="choose">
                                    <input
                                        type="checkbox"
                                        aria-label="Select all"
                                        checked={ids.length === sessions.length}
                                        onChange={(event) => {
                                            const all = sessions.map((of) => of.session_id);
                                            setChosen(
                                                new Set(event.currentTarget.checked ? all : []),
                                            );
                                        }}
                                    />
                                </td>
                                <th scope="col">Name</th>
                                <th scope="col">State</th>
                                <th scope="col">Kernels</th>
                                <th scope="col" class="number">
                                    Executions
                                </th>
                                <th scope="col" class="number">
                                    Memory
                                </th>
                                <th scope="col" class="number">
                                    Age
                                </th>
                                <th scope="col" class="number">
                                    Idle
                                </th>
                                <th scope="col" class="number">
                                    Expires in
                                </th>
                            </tr>
                        </thead>
                        <tbody>
                            {sessions.map((of) => (
                                <Row
                                    key={of.session_id}
                                    of={of}
                                    chosen={chosen.has(of.session_id)}
                                    onChoose={(yes) => choose(of.session_id, yes)}
                                />
                            ))}
                        </tbody>
                    </table>
                </>
            )}
            <AllLimits />
            <Gateway />
            {question}
        </main>
    );
}
