// SPDX-License-Identifier: Apache-2.0
// What is done with the whole notebook: its name, opening and saving, running all of it.

import { useEffect, useRef, useState } from "preact/hooks";

import type { Entry } from "./api";
import { bytes, duration } from "./format";
import type { Notebook } from "./notebook";
import { listNotebooks } from "./notebook_files";

interface ChoiceProps {
    sessionId: string;
    onFile: (file: File) => void;
    onPath: (path: string) => void;
    onClose: () => void;
}

/** Which notebook is to be opened. */
function Choice({ sessionId, onFile, onPath, onClose }: ChoiceProps) {
    const dialog = useRef<HTMLDialogElement>(null);
    const [found, setFound] = useState<Entry[] | null>(null);
    const [failure, setFailure] = useState("");
    useEffect(() => {
        dialog.current!.showModal();
        listNotebooks(sessionId).then(setFound, (error) => setFailure(error.message));
    }, []);
    return (
        <dialog ref={dialog} class="choice" aria-label="Open a notebook" onClose={onClose}>
            <h2>Open a notebook</h2>
            <div class="upload">
                <label class="button">
                    From this computer
                    <input
                        type="file"
                        accept=".ipynb"
                        onChange={(event) => {
                            const [file] = event.currentTarget.files ?? [];
                            if (file) onFile(file);
                        }}
                    />
                </label>
                <span class="quiet">or drop one into the console</span>
            </div>
            <h3>From the sandbox</h3>
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
            {!found && !failure && <p class="quiet">Loading…</p>}
            {found?.length === 0 && <p class="quiet">There are no notebooks in /mnt/data.</p>}
            {found && found.length > 0 && (
                <ul>
                    {found.map((entry) => (
                        <li key={entry.path}>
                            <button class="link" onClick={() => onPath(entry.path)}>
                                {entry.path}
                            </button>{" "}
                            <span class="quiet">
                                {bytes(entry.size)}, changed{" "}
                                {duration(Date.now() - Date.parse(entry.mtime))} ago
                            </span>
                        </li>
                    ))}
                </ul>
            )}
            <div class="actions">
                <span class="space" />
                <button onClick={onClose}>Cancel</button>
            </div>
        </dialog>
    );
}

interface BarProps {
    notebook: Notebook;
    told: string; // what has been done
    onFile: (file: File) => void;
    onPath: (path: string) => void;
    onSave: () => void;
    onDownload: () => void;
    onRunAll: () => void;
    onUndo: () => void;
    onBranch: (() => void) | undefined;
}

const cellsOf = (count: number) => (count === 1 ? "1 cell" : `${count} cells`);

export function NotebookBar(props: BarProps) {
    const { notebook, told, onFile, onPath, onSave, onDownload, onRunAll, onUndo, onBranch } = props;
    const [choosing, setChoosing] = useState(false);
    const [typed, setTyped] = useState<string | null>(null); // a name that is being written
    const empty = notebook.cells.length === 0;
    const deleted = notebook.undoable;
    const close = () => setChoosing(false);
    return (
        <div class="notebook-bar" role="group" aria-label="Notebook">
            {!empty && (
                <input
                    class="name"
                    aria-label="Name of the notebook"
                    value={typed ?? notebook.name}
                    autocomplete="off"
                    spellcheck={false}
                    onInput={(event) => setTyped(event.currentTarget.value)}
                    onChange={(event) => {
                        setTyped(null);
                        const name = event.currentTarget.value.trim().replace(/^\/+/, "");
                        if (name) notebook.rename(/\.ipynb$/i.test(name) ? name : `${name}.ipynb`);
                        event.currentTarget.value = notebook.name;
                    }}
                />
            )}
            <button class="plain" onClick={() => setChoosing(true)}>
                {empty ? "Open a notebook" : "Open"}
            </button>
            {!empty && (
                <>
                    <button class="plain" title="Save in the sandbox (Ctrl+S)" onClick={onSave}>
                        Save
                    </button>
                    <button class="plain" onClick={onDownload}>
                        Download
                    </button>
                    <button class="plain" onClick={onRunAll}>
                        Run all
                    </button>
                    <button class="plain" onClick={() => notebook.clear()}>
                        Clear
                    </button>
                    {onBranch && (
                        <button class="plain" onClick={onBranch}>
                            New branch
                        </button>
                    )}
                </>
            )}
            <span class="quiet told" role="status">
                {told ||
                    notebook.branches.told ||
                    (deleted > 0 && `${cellsOf(deleted)} deleted`) ||
                    (!notebook.isKept && "Too large to survive a reload: save it")}
            </span>
            {deleted > 0 && (
                <button class="link" onClick={onUndo}>
                    Undo
                </button>
            )}
            {choosing && (
                <Choice
                    sessionId={notebook.sessionId}
                    onFile={(file) => (close(), onFile(file))}
                    onPath={(path) => (close(), onPath(path))}
                    onClose={close}
                />
            )}
        </div>
    );
}
