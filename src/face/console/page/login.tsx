// SPDX-License-Identifier: Apache-2.0
// Logging in: by name and password, or by an API key, which this tab alone keeps until it is closed;
// and making an account.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import {
    ApiError,
    ask,
    getKey,
    getLogin,
    type Login as Who,
    PASSWORD_MIN,
    type Registration,
    setKey,
    setLogin,
} from "./api";

type Way = "password" | "key" | "account";

const TITLES: Record<Way, string> = {
    password: "Log in",
    key: "Log in with an API key",
    account: "Create an account",
};

/** Enters with a key, or fails with the reason. */
async function enterByKey(key: string) {
    if (!/^[\x21-\x7e]+$/.test(key)) throw new Error("This is not an API key: a key consists of ASCII letters, digits and punctuation.");
    setKey(key);
    try {
        await ask("api/v1/kernelspecs");
    } catch (failed) {
        setKey("");
        throw failed;
    }
}

function KeyField({ invalid }: { invalid: boolean }) {
    return (
        <>
            <label for="key">API key</label>
            <input
                id="key"
                name="key"
                type="password"
                autocomplete="off"
                aria-describedby="key-help"
                aria-invalid={invalid || undefined}
            />
            <p id="key-help" class="quiet">
                The key is kept in this tab until you close it.
            </p>
        </>
    );
}

interface NameProps {
    way: Way;
    registration: Registration;
    invalid: boolean;
}

function NameFields({ way, registration, invalid }: NameProps) {
    const isNew = way === "account";
    return (
        <>
            {isNew && registration.first && (
                <>
                    <label for="token">Setup token, from the gateway’s log</label>
                    <input
                        id="token"
                        name="token"
                        autocomplete="off"
                        spellcheck={false}
                        required={!registration.open}
                    />
                </>
            )}
            <label for="name">Name</label>
            <input
                id="name"
                name="name"
                autocomplete="username"
                autocapitalize="none"
                spellcheck={false}
                required
                aria-invalid={invalid || undefined}
            />
            <label for="password">Password</label>
            <input
                id="password"
                name="password"
                type="password"
                autocomplete={isNew ? "new-password" : "current-password"}
                minLength={isNew ? PASSWORD_MIN : undefined}
                required
                aria-invalid={invalid || undefined}
            />
        </>
    );
}

const askRegistration = () => ask<Registration>("api/v1/registration");
// Asked while the page loads, for those who have to log in first.
let registering = getKey() ? null : askRegistration();
registering?.catch(() => {});

/** For those who need not log in now: later on the answer is out of date. */
export function forgetRegistration() {
    registering = null;
}

const lost = () => {
    if (getKey()) return "The gateway no longer accepts this key.";
    return getLogin() ? "You have been logged out." : "";
};

export function Login({ onEnter }: { onEnter: () => void }) {
    const [error, setError] = useState(lost);
    const [busy, setBusy] = useState(false);
    const [registration, setRegistration] = useState<Registration | null>(null);
    const [way, setWay] = useState<Way | null>(null); // null: not known yet
    const form = useRef<HTMLFormElement>(null);
    useLayoutEffect(() => {
        const hadKey = getKey() !== "";
        setKey("");
        setLogin(null);
        (registering ?? askRegistration()).then(
            (found) => {
                setRegistration(found);
                setWay(hadKey ? "key" : found.first ? "account" : "password");
            },
            () => setWay("key"), // there are no accounts
        );
        forgetRegistration();
    }, []);
    useLayoutEffect(() => form.current?.querySelector("input")?.focus(), [way]);
    if (!way) return <main class="narrow" aria-busy="true" />;
    const ways = (["password", "account", "key"] as const).filter(
        (each) =>
            each !== way &&
            registration &&
            (each !== "account" || registration.open || registration.first),
    );
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const body = Object.fromEntries(new FormData(form.current!)) as Record<string, string>;
        if (way === "key" && !body.key!.trim()) return;
        if (!body.token) delete body.token;
        setBusy(true);
        try {
            if (way === "key") await enterByKey(body.key!.trim());
            else {
                const where = way === "account" ? "api/v1/registration" : "api/v1/login";
                setLogin(await ask<Who>(where, { method: "POST", body }));
            }
            onEnter();
        } catch (failed) {
            const refused = way === "account" && failed instanceof ApiError && failed.status === 401;
            setError(refused ? "The setup token is wrong." : (failed as Error).message);
            setBusy(false);
            form.current?.querySelector<HTMLInputElement>("[type=password]")?.select();
        }
    };
    const onWay = (next: Way) => {
        setError("");
        setWay(next);
    };
    return (
        <main class="narrow">
            <form class="login" ref={form} onSubmit={onSubmit}>
                <h1>{TITLES[way]}</h1>
                {way === "account" && registration!.first && (
                    <p class="quiet">There are no users yet. The first account becomes an administrator.</p>
                )}
                {way === "key" ? (
                    <KeyField invalid={error !== ""} />
                ) : (
                    <NameFields
                        way={way}
                        registration={registration!}
                        invalid={error !== ""}
                    />
                )}
                {error && (
                    <p role="alert" class="error">
                        {error}
                    </p>
                )}
                <button type="submit" class="primary" disabled={busy}>
                    {way === "account" ? "Create account" : "Log in"}
                </button>
                {ways.map((each) => (
                    <button key={each} type="button" class="plain" onClick={() => onWay(each)}>
                        {TITLES[each]}
                    </button>
                ))}
            </form>
        </main>
    );
}
