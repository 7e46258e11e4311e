// SPDX-License-Identifier: Apache-2.0
// For administrators: users, their roles and limits, and first keys and passwords for them.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { ask, getLogin, PASSWORD_MIN, type Registration, send } from "./api";
import { counted, duration } from "./format";
import { type MadeKey, NewKey } from "./keys";
import { usePolled } from "./polling";
import { useQuestion } from "./question";

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
    { member: "max_requests_per_second", label: "Requests per second", step: "any", max: 1_000_000 },
    { member: "max_memory_mb", label: "Memory per sandbox (MiB)", step: "1", max: 1_048_576 },
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
                    ? "Leave it empty to keep the current password. A new one logs the user out."
                    : "For logging in to this page. Leave it empty for a user who only needs keys."}
            </p>
            <label class="check">
                <input type="checkbox" name="administrator" defaultChecked={of?.administrator} />
                Administrator
            </label>
            {of && (
                <label class="check">
                    <input type="checkbox" name="disabled" defaultChecked={of.disabled} />
                    Disabled: keys and logins are refused; sandboxes run until they expire or are ended
                </label>
            )}
            <p id="limits-help" class="quiet">
                A limit of 0 means the gateway’s default.
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

interface RowProps {
    of: User;
    onEdit: () => void;
    onKey: () => void;
    onEnd: () => void;
    onRemove: () => void;
}

function Row({ of, onEdit, onKey, onEnd, onRemove }: RowProps) {
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
            <td class="number" data-label="Requests per second">
                {of.max_requests_per_second || "–"}
            </td>
            <td class="number" data-label="MiB per sandbox">
                {of.max_memory_mb || "–"}
            </td>
            <td class="number" data-label="Created">
                {duration(Date.now() - Date.parse(of.created_at))} ago
            </td>
            <td class="row-actions">
                <button class="small plain" aria-label={`Edit ${of.name}`} onClick={onEdit}>
                    Edit
                </button>
                <button class="small plain" aria-label={`New key for ${of.name}`} onClick={onKey}>
                    New key
                </button>
                {of.sessions > 0 && (
                    <button
                        class="small danger"
                        aria-label={`End sandboxes of ${of.name}`}
                        onClick={onEnd}
                    >
                        End sandboxes
                    </button>
                )}
                {of.name !== getLogin()?.user && (
                    <button class="small danger" aria-label={`Remove ${of.name}`} onClick={onRemove}>
                        Remove
                    </button>
                )}
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
                ? "Registration is open: everybody who can reach this page can create an account."
                : "Registration is closed: only administrators can add users."}
        </p>
    );
}

export function Users() {
    const { value, error, refresh } = usePolled<{ users: User[] }>("api/v1/users", POLL_MS);
    const [edited, setEdited] = useState<User | "new" | null>(null);
    const [made, setMade] = useState<{ key: MadeKey; user: string } | null>(null);
    const [failure, setFailure] = useState("");
    const [askFirst, question] = useQuestion();
    const attempt = async (act: () => Promise<unknown>) => {
        setFailure("");
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
    const onEnd = async ({ name, sessions }: User) => {
        const yes = await askFirst({
            title: `End all sandboxes of ${name}?`,
            text: `${counted(sessions, "sandbox", "sandboxes")} will end. Running code is stopped, and all files are deleted.`,
            yes: "End sandboxes",
        });
        if (yes) void attempt(() => send(`${path(name)}/sessions`, { method: "DELETE" }));
    };
    const onRemove = async ({ name, keys, sessions }: User) => {
        const also = sessions ? " The user’s sandboxes keep running until they expire, unless you end them first." : "";
        const yes = await askFirst({
            title: `Remove ${name}?`,
            text: `The account and ${counted(keys, "key")} are deleted.${also}`,
            yes: "Remove user",
        });
        if (yes) void attempt(() => send(path(name), { method: "DELETE" }));
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
                    title={`New key for ${made.user}`}
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
                                MiB per sandbox
                            </th>
                            <th scope="col" class="number">
                                Created
                            </th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>
                        {value.users.map((each) => (
                            <Row
                                key={each.name}
                                of={each}
                                onEdit={() => setEdited(each)}
                                onKey={() => onKey(each.name)}
                                onEnd={() => void onEnd(each)}
                                onRemove={() => void onRemove(each)}
                            />
                        ))}
                    </tbody>
                </table>
            )}
            {question}
        </main>
    );
}
