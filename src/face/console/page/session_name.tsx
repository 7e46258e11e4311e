// SPDX-License-Identifier: Apache-2.0
// The name that people give a sandbox: a member of its metadata, which may change. Its id does not.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { send, type Session, session } from "./api";

const NAME_MAX = 100; // characters; the gateway takes 512 bytes

type Named = Pick<Session, "session_id" | "metadata">;

export const nameOf = (of: Named) => of.metadata?.name || of.session_id;

/** PATCH replaces all metadata, so the other members are sent, too. */
function rename(of: Named, name: string) {
    const { name: _, ...metadata } = of.metadata ?? {};
    if (name && name !== of.session_id) metadata.name = name;
    return send(session(of.session_id), { method: "PATCH", body: { metadata } });
}

interface Props {
    id: string;
    of: Session | null; // null: not known yet, or gone
    onChange: () => void;
}

/** The heading of a sandbox's view, with a button that edits it in place. */
export function SessionName({ id, of, onChange }: Props) {
    const [editing, setEditing] = useState(false);
    const [failure, setFailure] = useState("");
    const field = useRef<HTMLInputElement>(null);
    const button = useRef<HTMLButtonElement>(null);
    useLayoutEffect(() => field.current?.select(), [editing]);
    const close = () => {
        setEditing(false);
        requestAnimationFrame(() => button.current?.focus());
    };
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        setFailure("");
        try {
            await rename(of!, field.current!.value.trim());
            onChange();
            close();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
    };
    if (!of || !editing)
        return (
            <div class="session-name">
                <h1>{of ? nameOf(of) : id}</h1>
                {of && nameOf(of) !== id && <code class="quiet">{id}</code>}
                {of && (
                    <button ref={button} class="plain small" onClick={() => setEditing(true)}>
                        Rename
                    </button>
                )}
            </div>
        );
    return (
        <form
            class="new session-name"
            onSubmit={onSubmit}
            onKeyDown={(event) => event.key === "Escape" && close()}
        >
            <h1 class="unseen">{nameOf(of)}</h1>
            <input
                ref={field}
                aria-label="Name of this sandbox"
                defaultValue={nameOf(of)}
                placeholder={id}
                maxLength={NAME_MAX}
                autocomplete="off"
                spellcheck={false}
            />
            <button type="submit">Save</button>
            <button type="button" class="plain" onClick={close}>
                Cancel
            </button>
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
        </form>
    );
}
