// SPDX-License-Identifier: Apache-2.0
// The line that running code asks for by input() or getpass().

import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Line } from "./api";

interface Props {
    request: Line;
    onAnswer: (value: string) => Promise<void>;
}

export function InputLine({ request, onAnswer }: Props) {
    const field = useRef<HTMLInputElement>(null);
    const id = useId();
    const [sending, setSending] = useState(false);
    const [failure, setFailure] = useState("");
    useLayoutEffect(() => field.current!.focus(), [request]);
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        if (sending) return;
        setSending(true);
        setFailure("");
        try {
            await onAnswer(field.current!.value);
        } catch (error) {
            setFailure((error as Error).message);
        }
        setSending(false);
    };
    return (
        <form class="input-line" onSubmit={onSubmit}>
            <label for={id}>{request.prompt?.trim() || "Input"}</label>
            <input
                id={id}
                ref={field}
                class="grow"
                {...(request.password && { type: "password" as const })}
                autocomplete="off"
                autocapitalize="off"
                spellcheck={false}
            />
            <button type="submit" disabled={sending}>
                Send
            </button>
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
        </form>
    );
}
