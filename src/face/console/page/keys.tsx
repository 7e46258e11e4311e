// SPDX-License-Identifier: Apache-2.0
// The keys of one's account: what there is, making one, and revoking; and its password.

import { useState } from "preact/hooks";

import { ask, getKey, getLogin, type Login, PASSWORD_MIN, send, setLogin } from "./api";
import { useCopy } from "./copy";
import { duration } from "./format";
import { usePolled } from "./polling";

const POLL_MS = 5000;

interface Key {
    id: string;
    name: string;
    created_at: string;
    used_at: string | null;
}

export interface MadeKey {
    id: string;
    name: string;
    key: string;
}

const ago = (time: string) => `${duration(Date.now() - Date.parse(time))} ago`;

interface NewKeyProps {
    made: MadeKey;
    title: string;
    onClose: () => void;
}

/** A new key, which cannot be shown again. */
export function NewKey({ made, title, onClose }: NewKeyProps) {
    const [told, copy] = useCopy("The browser does not allow it: copy by hand.");
    return (
        <section class="snippet" aria-label="New key">
            <div class="snippet-head">
                <h2>{title}</h2>
                <span role="status" class="quiet">
                    {told}
                </span>
                <button onClick={() => copy(made.key)}>Copy</button>
                <button class="plain" onClick={onClose}>
                    Done
                </button>
            </div>
            <pre tabIndex={0} aria-label="The key">
                {made.key}
            </pre>
            <p class="snippet-note quiet">Keep it now: it is not shown again.</p>
        </section>
    );
}

interface RowProps {
    of: Key;
    confirming: boolean;
    onRevoke: () => void;
    onLeave: () => void;
}

function Row({ of, confirming, onRevoke, onLeave }: RowProps) {
    const name = of.name || "without a name";
    const inUse = getKey().split("_")[1] === of.id;
    return (
        <tr>
            <th scope="row">
                {of.name || <span class="quiet">{name}</span>}
                {inUse && <span class="quiet"> (of this tab)</span>}
            </th>
            <td data-label="Id">
                <code>{of.id}</code>
            </td>
            <td data-label="Made">{ago(of.created_at)}</td>
            <td data-label="Last used">{of.used_at ? ago(of.used_at) : "never"}</td>
            <td class="row-actions">
                <button
                    class="small danger"
                    aria-label={confirming ? undefined : `Revoke ${name}`}
                    onClick={onRevoke}
                    onBlur={onLeave}
                >
                    {confirming ? (inUse ? "Revoke, and log out?" : "Revoke for good?") : "Revoke"}
                </button>
            </td>
        </tr>
    );
}

/** What one's account has now, and may have. */
function Quota() {
    const { value } = usePolled<Login>("api/v1/login", POLL_MS);
    if (!value) return null;
    const { max_sessions, max_requests_per_second, max_memory_mb } = value.quota;
    return (
        <p class="quiet">
            {`Your account has ${value.sessions} of ${max_sessions} sandboxes, ${max_memory_mb} MiB each`}
            {max_requests_per_second > 0 && `, and ${max_requests_per_second} requests a second`}.
        </p>
    );
}

/** For logging in to this page. */
function Password() {
    const [told, setTold] = useState("");
    const [failure, setFailure] = useState("");
    const had = getLogin()?.has_password;
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const form = event.target as HTMLFormElement;
        const body = Object.fromEntries(new FormData(form));
        setTold("");
        setFailure("");
        try {
            setLogin(await ask<Login>("api/v1/password", { method: "PUT", body }));
            setTold("The password is set. Other browsers are logged out.");
            form.reset();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
    };
    return (
        <form class="panel" aria-label="Password" onSubmit={onSubmit}>
            <h2>Password</h2>
            <p class="quiet">For logging in to this page by name. Programs use keys.</p>
            {had && (
                <label>
                    Present password
                    <input
                        type="password"
                        name="old_password"
                        autocomplete="current-password"
                        required
                    />
                </label>
            )}
            <label>
                New password
                <input
                    type="password"
                    name="new_password"
                    autocomplete="new-password"
                    minLength={PASSWORD_MIN}
                    required
                />
            </label>
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
            <div class="actions">
                <button type="submit">Set the password</button>
                <span role="status" class="quiet">
                    {told}
                </span>
            </div>
        </form>
    );
}

export function Keys() {
    const { value, error, refresh } = usePolled<{ keys: Key[] }>("api/v1/keys", POLL_MS);
    const [made, setMade] = useState<MadeKey | null>(null);
    const [failure, setFailure] = useState("");
    const [confirming, setConfirming] = useState("");
    const attempt = async (act: () => Promise<unknown>) => {
        setFailure("");
        try {
            await act();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    const onMake = (event: Event) => {
        event.preventDefault();
        const form = event.target as HTMLFormElement;
        const name = String(new FormData(form).get("name")).trim();
        void attempt(async () => {
            setMade(await ask<MadeKey>("api/v1/keys", { method: "POST", body: { name } }));
            form.reset();
        });
    };
    const onRevoke = (id: string) => {
        if (confirming !== id) return setConfirming(id);
        setConfirming("");
        void attempt(() => send(`api/v1/keys/${id}`, { method: "DELETE" }));
    };
    return (
        <main>
            <div class="head">
                <h1>Keys</h1>
                <form class="new" onSubmit={onMake}>
                    <input
                        name="name"
                        aria-label="Name of the new key"
                        placeholder="what it is for"
                        maxLength={64}
                        autocomplete="off"
                    />
                    <button type="submit" class="primary">
                        New key
                    </button>
                </form>
            </div>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {made && (
                <NewKey
                    made={made}
                    title={made.name ? `New key: ${made.name}` : "New key"}
                    onClose={() => setMade(null)}
                />
            )}
            <p class="quiet">
                Give each program a key of its own. To replace one, make another, change the program,
                and revoke the old one: it is refused from the next request on.
            </p>
            <Quota />
            {value && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">Name</th>
                            <th scope="col">Id</th>
                            <th scope="col">Made</th>
                            <th scope="col">Last used</th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>
                        {value.keys.map((of) => (
                            <Row
                                key={of.id}
                                of={of}
                                confirming={confirming === of.id}
                                onRevoke={() => onRevoke(of.id)}
                                onLeave={() => setConfirming("")}
                            />
                        ))}
                    </tbody>
                </table>
            )}
            {value && <Password />}
        </main>
    );
}
