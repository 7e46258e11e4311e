// SPDX-License-Identifier: Apache-2.0
// The keys of one's account: what there is, making one, and revoking; and its password.

import { useState } from "preact/hooks";

import { ask, getKey, getLogin, type Login, PASSWORD_MIN, send, setLogin } from "./api";
import { useCopy } from "./copy";
import { duration } from "./format";
import { usePolled } from "./polling";
import { useQuestion } from "./question";
import { Quota } from "./quota";

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
    const [told, copy] = useCopy("The browser blocked copying: select the key, and copy it.");
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
            <p class="snippet-note quiet">Copy this key now: it is not shown again.</p>
        </section>
    );
}

const isInUse = (of: Key) => getKey().split("_")[1] === of.id;

function Row({ of, onRevoke }: { of: Key; onRevoke: () => void }) {
    const name = of.name || "unnamed";
    return (
        <tr>
            <th scope="row">
                {of.name || <span class="quiet">{name}</span>}
                {isInUse(of) && <span class="quiet"> (used by this tab)</span>}
            </th>
            <td data-label="Id">
                <code>{of.id}</code>
            </td>
            <td data-label="Created">{ago(of.created_at)}</td>
            <td data-label="Last used">{of.used_at ? ago(of.used_at) : "never"}</td>
            <td class="row-actions">
                <button class="small danger" aria-label={`Revoke ${name}`} onClick={onRevoke}>
                    Revoke
                </button>
            </td>
        </tr>
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
            setTold("Your password has been changed. Other browsers have been logged out.");
            form.reset();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
    };
    return (
        <form class="panel" aria-label="Password" onSubmit={onSubmit}>
            <h2>Password</h2>
            <p class="quiet">You log in to this page with your name and password. Programs use keys.</p>
            {had && (
                <label>
                    Current password
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
                <button type="submit">{had ? "Change password" : "Set password"}</button>
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
    const onMake = (event: Event) => {
        event.preventDefault();
        const form = event.target as HTMLFormElement;
        const name = String(new FormData(form).get("name")).trim();
        void attempt(async () => {
            setMade(await ask<MadeKey>("api/v1/keys", { method: "POST", body: { name } }));
            form.reset();
        });
    };
    const onRevoke = async (of: Key) => {
        const yes = await askFirst({
            title: `Revoke the key ${of.name || of.id}?`,
            text: isInUse(of)
                ? "You are logged in with this key, and will be logged out. Programs that use it can no longer log in."
                : "Programs that use it can no longer log in.",
            yes: "Revoke key",
        });
        if (yes) void attempt(() => send(`api/v1/keys/${of.id}`, { method: "DELETE" }));
    };
    return (
        <main>
            <div class="head">
                <h1>Keys</h1>
                <form class="new" onSubmit={onMake}>
                    <input
                        name="name"
                        aria-label="Name of the new key"
                        placeholder="What is it for?"
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
                Give each program its own key. To replace a key, create a new one, change the program,
                and revoke the old one, which stops working at once.
            </p>
            <Quota />
            {value && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">Name</th>
                            <th scope="col">Id</th>
                            <th scope="col">Created</th>
                            <th scope="col">Last used</th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>
                        {value.keys.map((of) => (
                            <Row
                                key={of.id}
                                of={of}
                                onRevoke={() => onRevoke(of)}
                            />
                        ))}
                    </tbody>
                </table>
            )}
            {value && <Password />}
            {question}
        </main>
    );
}
