// SPDX-License-Identifier: Apache-2.0
// The form for a key. This tab alone keeps it, until it is closed.

import { useEffect, useRef, useState } from "preact/hooks";

import { ask, getKey, setKey } from "./api";

export function Login({ onKey }: { onKey: () => void }) {
    const [error, setError] = useState(getKey() ? "The gateway no longer accepts this key." : "");
    const [busy, setBusy] = useState(false);
    const input = useRef<HTMLInputElement>(null);
    useEffect(() => {
        setKey("");
        input.current!.focus();
    }, []);
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const key = input.current!.value.trim();
        if (!key) return;
        if (!/^[\x21-\x7e]+$/.test(key)) return setError("A key has only ASCII characters.");
        setBusy(true);
        setKey(key);
        try {
            await ask("api/v1/kernelspecs");
            onKey();
        } catch (failed) {
            setKey("");
            setError((failed as Error).message);
            setBusy(false);
            input.current?.select();
        }
    };
    return (
        <main class="narrow">
            <form class="login" onSubmit={onSubmit}>
                <h1>kernelgate</h1>
                <label for="key">API key</label>
                <input
                    id="key"
                    ref={input}
                    type="password"
                    autocomplete="current-password"
                    aria-describedby="key-help"
                    aria-invalid={error ? true : undefined}
                />
                <p id="key-help" class="quiet">
                    This tab keeps the key until it is closed.
                </p>
                {error && (
                    <p role="alert" class="error">
                        {error}
                    </p>
                )}
                <button type="submit" class="primary" disabled={busy}>
                    Log in
                </button>
            </form>
        </main>
    );
}
