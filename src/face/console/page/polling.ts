// SPDX-License-Identifier: Apache-2.0
// An answer of the gateway that is asked for again while the page is visible.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { ask, type Options } from "./api";
import { takeEarly } from "./early";

const TIMEOUT_MS = 20_000;

export interface Polled<T> {
    value: T | null;
    error: Error | null;
    refresh: () => void;
}

/** `read` asks for an answer; it must be the same function in every call. An answer that was asked for
 * early is taken in place of the first one. */
export function usePolled<T>(
    where: string,
    periodMs: number,
    read: (where: string, options: Options) => Promise<T> = ask<T>,
): Polled<T> {
    const [early] = useState(() => (read === ask ? takeEarly(where) : undefined));
    const first = useRef(early);
    const [value, setValue] = useState<T | null>((early?.value as T) ?? null);
    const [error, setError] = useState<Error | null>(null);
    const look = useRef(() => {});
    useEffect(() => {
        const stopped = new AbortController();
        let timer = 0;
        look.current = async () => {
            clearTimeout(timer);
            if (!document.hidden) {
                try {
                    const signal = AbortSignal.any([stopped.signal, AbortSignal.timeout(TIMEOUT_MS)]);
                    const known = first.current?.answer as Promise<T> | undefined;
                    first.current = undefined;
                    const answer = await (known ?? read(where, { signal }));
                    if (stopped.signal.aborted) return;
                    setValue(answer);
                    setError(null);
                } catch (failed) {
                    if (stopped.signal.aborted) return;
                    setError(failed as Error);
                }
            }
            clearTimeout(timer);
            timer = window.setTimeout(() => look.current(), periodMs);
        };
        const onVisible = () => document.hidden || look.current();
        if (!first.current) setValue(null);
        look.current();
        document.addEventListener("visibilitychange", onVisible);
        return () => {
            stopped.abort();
            clearTimeout(timer);
            document.removeEventListener("visibilitychange", onVisible);
        };
    }, [where, periodMs, read]);
    return { value, error, refresh: useCallback(() => look.current(), []) };
}
