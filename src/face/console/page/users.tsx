// SPDX-License-Identifier: Apache-2.0
// For administrators: users, their roles and limits, and first keys and passwords for them.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { ask, PASSWORD_MIN, type Registration, send } from "./api";
import { duration } from "./format";
import { type MadeKey, NewKey } from "./keys";
import { usePolled } from "./polling";

const POLL_MS = 5000;

interface User {
    name: string;
    administrator: boolean;
    disabled: boolean;
    has_password: boolean;
    keys: number;
    sessions: number;
    created_at: string;
    max_sessions: number;
    max_requests_per_second: number;
    max_memory_mb: number;
}

const LIMITS = [
    { member: "max_sessions", label: "Sandboxes at a time", step: "1", max: 10_000 },
    { member: "max_requests_per_second", label: "Requests a second", step: "any", max: 1_000_000 },
    { member: "max_memory_mb", label: "MiB of each sandbox", step: "1", max: 1_048_576 },
] as const;

const path = (name: string) => `api/v1/users/${encodeURIComponent(name)}`;

interface FormProps {
    of: User | null; // null: a new one
    onSave: (body: Record<string, unknown>, password: string) => void; // "": stays as it is
    onClose: () => void;
}

function UserForm({ of, onSave, onClose }: FormProps) {
    const form = useRef<HTMLFormElement>(null);
    // At once: later, it would take the focus from a field that is being filled in.
    useLayoutEffect(() => form.current!.querySelector("input")!.focus(), []);
    const onSubmit = (event: Event) => {
        event.preventDefault();
        const form = new FormData(event.target as HTMLFormElement);
        const body: Record<string, unknown> = { administrator: form.has("administrator") };
        for (const { member } of LIMITS) body[member] = Number(form.get(member));
        if (of) body.disabled = form.has("disabled");
        else body.name = form.get("name");
        onSave(body, String(form.get("password")));
    };
    return (
        <form
            ref={form}
            class="panel"
            aria-label={of ? `User ${of.name}` : "New user"}
            onSubmit={onSubmit}
        >
            {of ? (
                <h2>{of.name}</h2>
            ) : (
                <label>
                    Name
                    <input
                        name="name"
                        required
                        pattern="[A-Za-z0-9._\-]{1,64}"
                        title="1 to 64 letters, digits, ., _ and -"
                        autocomplete="off"
                        spellcheck={false}
                    />
                </label>
            )}
            {LIMITS.map(({ member, label, step, max }) => (
                <label key={member}>
                    {label}
                    <input
                        type="number"
                        name={member}
                        min="0"
                        max={max}
                        step={step}
                        required
                        defaultValue={String(of?.[member] ?? 0)}
                        aria-describedby="limits-help"
                    />
                </label>
            ))}
            <label>
                {of?.has_password ? "New password" : "Password"}
                <input
                    type="password"
                    name="password"
                    minLength={PASSWORD_MIN}
                    autocomplete="new-password"
                    aria-describedby="password-help"
                />
            </label>
            <p id="password-help" class="quiet">
                {of?.has_password
                    ? "Empty: it stays. Another one logs the user out."
                    : "For logging in by name; it may stay empty."}
            </p>
            <label class="check">
                <input type="checkbox" name="administrator" defaultChecked={of?.administrator} />
                Administrator
            </label>
            {of && (
                <label class="check">
                    <input type="checkbox" name="disabled" defaultChecked={of.disabled} />
                    Disabled: keys are refused, sandboxes stay until they expire or are ended
                </label>
            )}
            <p id="limits-help" class="quiet">
                A limit of 0 is the gateway's own.
            </p>
            <div class="actions">
                <button type="submit" class="primary">
                    Save
                </button>
                <button type="button" class="plain" onClick={onClose}>
                    Cancel
                </button>
            </div>
        </form>
    );
}

type Action = "end" | "remove";

interface RowProps {
    of: User;
    confirming: Action | null;
    onEdit: () => void;
    onKey: () => void;
    onAction: (action: Action) => void;
    onLeave: () => void;
}

function Row({ of, confirming, onEdit, onKey, onAction, onLeave }: RowProps) {
    return (
        <tr>
            <th scope="row">{of.name}</th>
            <td>
                {[of.administrator && "administrator", of.disabled && "disabled"]
                    .filter(Boolean)
                    .join(", ")}
            </td>
            <td class="number" data-label="Keys">
                {of.keys}
            </td>
            <td class="number" data-label="Sandboxes">
                {of.sessions}
                {of.max_sessions > 0 && ` of ${of.max_sessions}`}
            </td>
            <td class="number" data-label="Requests a second">
                {of.max_requests_per_second || "–"}
            </td>
            <td class="number" data-label="MiB of each">
                {of.max_memory_mb || "–"}
            </td>
            <td class="number" data-label="Since">
                {duration(Date.now() - Date.parse(of.created_at))}
            </td>
            <td class="row-actions">
                <button class="small plain" aria-label={`Change ${of.name}`} onClick={onEdit}>
                    Change
                </button>
                <button class="small plain" aria-label={`New key for ${of.name}`} onClick={onKey}>
                    New key
                </button>
                {of.sessions > 0 && (
                    <button
                        class="small danger"
                        aria-label={confirming === "end" ? undefined : `End sandboxes of ${of.name}`}
                        onClick={() => onAction("end")}
                        onBlur={onLeave}
                    >
                        {confirming === "end" ? `End ${of.sessions}? Files are lost` : "End sandboxes"}
                    </button>
                )}
                <button
                    class="small danger"
                    aria-label={confirming === "remove" ? undefined : `Remove ${of.name}`}
                    onClick={() => onAction("remove")}
                    onBlur={onLeave}
                >
                    {confirming === "remove" ? "Remove, with all keys?" : "Remove"}
                </button>
            </td>
        </tr>
    );
}

function RegistrationState() {
    const { value } = usePolled<Registration>("api/v1/registration", POLL_MS);
    if (!value) return null;
    return (
        <p class="quiet">
            {value.open
                ? "Registration is open: everybody who reaches this page can make an account."
                : "Registration is closed: administrators make the users."}
        </p>
    );
}

export function Users() {
    const { value, error, refresh } = usePolled<{ users: User[] }>("api/v1/users", POLL_MS);
    const [edited, setEdited] = useState<User | "new" | null>(null);
    const [made, setMade] = useState<{ key: MadeKey; user: string } | null>(null);
    const [failure, setFailure] = useState("");
    const [confirming, setConfirming] = useState<{ name: string; action: Action } | null>(null);
    const attempt = async (act: () => Promise<unknown>) => {
        setFailure("");
        setConfirming(null);
        try {
            await act();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    const of = edited === "new" ? null : edited;
    const onSave = (body: Record<string, unknown>, password: string) =>
        attempt(async () => {
            const name = of?.name ?? String(body.name);
            if (of) await send(path(name), { method: "PATCH", body });
            else await send("api/v1/users", { method: "POST", body });
            if (password)
                await send(`${path(name)}/password`, { method: "PUT", body: { password } });
            setEdited(null);
        });
    const onKey = (user: string) =>
        attempt(async () => {
            const key = await ask<MadeKey>(`${path(user)}/keys`, {
                method: "POST",
                body: { name: "by an administrator" },
            });
            setMade({ key, user });
        });
    const onAction = (name: string, action: Action) => {
        if (confirming?.name !== name || confirming.action !== action)
            return setConfirming({ name, action });
        const where = action === "end" ? `${path(name)}/sessions` : path(name);
        void attempt(() => send(where, { method: "DELETE" }));
    };
    return (
        <main>
            <div class="head">
                <h1>Users</h1>
                <span class="space" />
                <button class="primary" onClick={() => setEdited("new")}>
                    New user
                </button>
            </div>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            <RegistrationState />
            {made && (
                <NewKey
                    made={made.key}
                    title={`New key of ${made.user}`}
                    onClose={() => setMade(null)}
                />
            )}
            {edited && (
                <UserForm
                    key={of?.name ?? ""}
                    of={of}
                    onSave={onSave}
                    onClose={() => setEdited(null)}
                />
            )}
            {value && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">Name</th>
                            <th scope="col">Role and state</th>
                            <th scope="col" class="number">
                                Keys
                            </th>
                            <th scope="col" class="number">
                                Sandboxes
                            </th>
                            <th scope="col" class="number">
                                Requests/s
                            </th>
                            <th scope="col" class="number">
                                MiB each
                            </th>
                            <th scope="col" class="number">
                                Since
                            </th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>
                        {value.users.map((each) => (
                            <Row
                                key={each.name}
                                of={each}
                                confirming={
                                    confirming?.name === each.name ? confirming.action : null
                                }
                                onEdit={() => setEdited(each)}
                                onKey={() => onKey(each.name)}
                                onAction={(action) => onAction(each.name, action)}
                                onLeave={() => setConfirming(null)}
                            />
                        ))}
                    </tbody>
                </table>
            )}
        </main>
    );
}
