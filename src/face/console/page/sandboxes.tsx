// SPDX-License-Identifier: Apache-2.0
// The list of the owner's sandboxes, live, and a form for a new one.

import { useState } from "preact/hooks";

import { ask, type Kernelspec, send, type Session, session } from "./api";
import { alsoRuns, bytes, duration } from "./format";
import { Gateway } from "./gateway";
import { usePolled } from "./polling";
import { linkTo } from "./route";

const POLL_MS = 2000;

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
        setBusy(true);
        try {
            const made = await ask<{ data: { session_id: string } }>("api/v1/sessions", {
                method: "POST",
                body: { session_id: name || undefined, kernel: form.get("kernel") ?? undefined },
            });
            location.hash = linkTo(made.data.session_id);
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
                placeholder="name (optional)"
                pattern="[A-Za-z0-9_\-]{1,64}"
                title="1 to 64 letters, digits, _ and -"
                autocomplete="off"
                spellcheck={false}
            />
            <select name="kernel" aria-label="Its kernel">
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
                    aria-label={`Choose ${of.session_id}`}
                    checked={chosen}
                    onChange={(event) => onChoose(event.currentTarget.checked)}
                />
            </td>
            <th scope="row">
                <a href={linkTo(of.session_id)}>{of.session_id}</a>
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
            <td class="number" data-label="Ends in">
                {of.is_busy ? "–" : duration(Date.parse(of.expires_at) - now)}
            </td>
        </tr>
    );
}

const ACTIONS = [
    { name: "Interrupt", method: "POST", rest: ["interrupt"] },
    { name: "Restart", method: "POST", rest: ["restart"] },
    { name: "Renew", method: "POST", rest: ["touch"] },
    { name: "End", method: "DELETE", rest: [] },
];

export function Sandboxes() {
    const { value, error, refresh } = usePolled<{ sessions: Record<string, Session> }>(
        "api/v1/sessions",
        POLL_MS,
    );
    const [chosen, setChosen] = useState<Set<string>>(new Set());
    const [failure, setFailure] = useState("");
    const [confirming, setConfirming] = useState(false);
    const sessions = Object.values(value?.sessions ?? {}).sort((a, b) =>
        b.created_at.localeCompare(a.created_at),
    );
    const ids = sessions.map((of) => of.session_id).filter((id) => chosen.has(id));
    const choose = (id: string, yes: boolean) => {
        const next = new Set(ids);
        if (yes) next.add(id);
        else next.delete(id);
        setConfirming(false);
        setChosen(next);
    };
    const act = async ({ method, rest, name }: (typeof ACTIONS)[number]) => {
        if (name === "End" && !confirming) return setConfirming(true);
        setConfirming(false);
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
                <NewSandbox onError={setFailure} />
            </div>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {value && sessions.length === 0 && (
                <div class="empty">
                    <p>No sandbox runs.</p>
                    <p class="quiet">
                        A sandbox is a container with its own kernels and files. Start one here, or
                        let a program do it: <a href="#/connect">Connect</a> shows how.
                    </p>
                </div>
            )}
            {sessions.length > 0 && (
                <>
                    <div class="actions" role="group" aria-label="For the chosen sandboxes">
                        {ACTIONS.map((action) => (
                            <button
                                key={action.name}
                                class={action.name === "End" ? "danger" : ""}
                                disabled={ids.length === 0}
                                onClick={() => act(action)}
                            >
                                {action.name === "End" && confirming
                                    ? `End ${ids.length}? Files are lost`
                                    : action.name}
                            </button>
                        ))}
                        <span class="quiet" role="status">
                            {ids.length > 0 && `${ids.length} chosen`}
                        </span>
                    </div>
                    <table class="list">
                        <thead>
                            <tr>
                                <td class="choose">
                                    <input
                                        type="checkbox"
                                        aria-label="Choose all"
                                        checked={ids.length === sessions.length}
                                        onChange={(event) => {
                                            const all = sessions.map((of) => of.session_id);
                                            setConfirming(false);
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
                                    Ends in
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
            <Gateway />
        </main>
    );
}
