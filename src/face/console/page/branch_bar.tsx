// SPDX-License-Identifier: Apache-2.0
// The branches of a session: tabs above the cells, and what can be done with the one that is shown.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { type Branch, type Branches, describeRefusal, type Savepoint } from "./branches";
import { outcomesOf } from "./cell";
import { bytes } from "./format";
import type { Notebook } from "./notebook";
import { useQuestion } from "./question";

const MAIN = "main";
const NAME = "[A-Za-z0-9_\\-]{1,32}";

const clock = (time: string) => new Date(time).toLocaleTimeString();

/** What a savepoint has, for those who choose one. */
function describe(savepoint: Savepoint, notebook: Notebook): string {
    const has = notebook.cells.findIndex((cell) =>
        outcomesOf(cell).some((outcome) => outcome.savepoint === savepoint.savepoint),
    );
    const what = savepoint.name ?? (has < 0 ? `at ${clock(savepoint.created_at)}` : `before cell ${has + 1}`);
    const branch = notebook.branches.find(savepoint.kernel) && `in ${savepoint.kernel}`;
    const memory = savepoint.memory_bytes !== null && bytes(savepoint.memory_bytes);
    return [what, branch, memory].filter(Boolean).join(", ");
}

function freeName({ list }: Branches): string {
    for (let i = 1; ; i++)
        if (!list.some(({ branch }) => branch === `branch-${i}`)) return `branch-${i}`;
}

interface NewProps {
    notebook: Notebook;
    kernel: string;
    onClose: () => void;
}

/** Asks for the name of a new branch, and what it starts from. */
export function NewBranch({ notebook, kernel, onClose }: NewProps) {
    const { branches } = notebook;
    const dialog = useRef<HTMLDialogElement>(null);
    const [failure, setFailure] = useState("");
    const [busy, setBusy] = useState(false);
    useLayoutEffect(() => {
        dialog.current!.showModal();
        dialog.current!.querySelector("input")!.select();
    }, []);
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const form = new FormData(event.target as HTMLFormElement);
        const from = branches.savepoints.find((each) => each.savepoint === form.get("from"));
        setBusy(true);
        setFailure("");
        try {
            await branches.open(String(form.get("name")), from ?? null, kernel);
            dialog.current?.close();
        } catch (error) {
            setFailure(describeRefusal(error));
            setBusy(false);
        }
    };
    return (
        <dialog ref={dialog} aria-labelledby="new-branch" onClose={onClose}>
            <h2 id="new-branch">New branch</h2>
            <p class="quiet">
                A branch has a copy of the variables. What you run in it does not change those of {MAIN}. All
                branches share the sandbox’s files.
            </p>
            <form class="branch-form" onSubmit={onSubmit}>
                <label>
                    Name
                    <input
                        name="name"
                        required
                        pattern={NAME}
                        title="1 to 32 letters, digits, _ and -"
                        defaultValue={freeName(branches)}
                        autocomplete="off"
                        spellcheck={false}
                    />
                </label>
                <label>
                    Variables
                    <select name="from">
                        <option value="">as they are now in {branches.shown || MAIN}</option>
                        {[...branches.savepoints].reverse().map((each) => (
                            <option key={each.savepoint} value={each.savepoint}>
                                {describe(each, notebook)}
                            </option>
                        ))}
                    </select>
                </label>
                {failure && <p role="alert" class="error">{failure}</p>}
                <div class="actions">
                    <span class="space" />
                    <button type="button" onClick={() => dialog.current!.close()}>
                        Cancel
                    </button>
                    <button type="submit" class="primary" disabled={busy}>
                        {busy ? "Creating…" : "Create branch"}
                    </button>
                </div>
            </form>
        </dialog>
    );
}

const promoting = (name: string) => ({
    title: `Make ${name} the main kernel?`,
    text: `The main kernel gets the variables of ${name} in place of its own, and ${name} ends. Code that is running in the main kernel is stopped.`,
    yes: "Promote",
});
const ending = (name: string) => ({
    title: `End the branch ${name}?`,
    text: "Its variables are lost, and running code in it is stopped. Files are kept.",
    yes: "End branch",
});

/** What has become of the kernel of a branch. */
function stateOf({ branch, state, replaced }: Branch): string {
    if (state === "dead")
        return `The kernel of ${branch} has ended, and its variables are lost. The next cell starts it again without them.`;
    return replaced ? `The variables of ${branch} were lost at ${clock(replaced.at)}: ${replaced.reason}.` : "";
}

interface BarProps {
    notebook: Notebook;
    onNew: () => void;
    onLeft: () => void; // the branch has ended, and its buttons are gone
    onError: (message: string) => void;
}

export function BranchBar({ notebook, onNew, onLeft, onError }: BarProps) {
    const { branches } = notebook;
    const { list, shown } = branches;
    const [ask, question] = useQuestion();
    const tabs = useRef<HTMLDivElement>(null);
    const names = ["", ...list.map((each) => each.branch)];
    const here = branches.find(shown);
    const attempt = async (asked: ReturnType<typeof ending>, act: () => Promise<void>) => {
        if (!(await ask(asked))) return;
        onError("");
        try {
            await act();
            onLeft();
        } catch (error) {
            onError(describeRefusal(error));
        }
    };
    const onKeyDown = (event: KeyboardEvent) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        const next = names[(names.indexOf(branches.shown) + by + names.length) % names.length]!;
        branches.show(next);
        tabs.current!.querySelectorAll<HTMLElement>("[role=tab]")[names.indexOf(next)]!.focus();
    };
    return (
        <div class="branches">
            <div ref={tabs} class="tabs" role="tablist" aria-label="Branches" onKeyDown={onKeyDown}>
                {names.map((name) => {
                    const { state = "ready", memory_bytes: memory } = branches.find(name) ?? {};
                    return (
                        <button
                            key={name}
                            role="tab"
                            id={`branch-${name}`}
                            aria-selected={name === shown}
                            aria-controls="cells"
                            tabIndex={name === shown ? 0 : -1}
                            onClick={() => branches.show(name)}
                        >
                            {name || MAIN}
                            {state !== "ready" && <span class={`state ${state}`}>{state}</span>}
                            {memory != null && (
                                <span class="memory" title="Memory that this branch shares with no other">
                                    {bytes(memory)}
                                </span>
                            )}
                        </button>
                    );
                })}
            </div>
            <button class="plain small" onClick={onNew}>
                New branch
            </button>
            {here && (
                <span class="actions" role="group" aria-label={`Branch ${shown}`}>
                    <button
                        class="plain small"
                        title="Gives its variables to the main kernel, and ends it"
                        onClick={() => attempt(promoting(shown), () => branches.promote(shown))}
                    >
                        Promote
                    </button>
                    <button
                        class="plain small danger"
                        onClick={() => attempt(ending(shown), () => branches.end(shown))}
                    >
                        End branch
                    </button>
                </span>
            )}
            <p class="quiet note" role="status">
                {here && stateOf(here)}
            </p>
            {question}
        </div>
    );
}
