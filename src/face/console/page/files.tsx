// SPDX-License-Identifier: Apache-2.0
// The files of a session, as a tree: upload, download, look at, delete.

import { useState } from "preact/hooks";

import { ApiError, type Entry, file, send, session } from "./api";
import { FileLink } from "./file_link";
import { bytes, duration } from "./format";
import { sourceOf, useLimits } from "./limits";
import { usePolled } from "./polling";
import { Preview } from "./preview";
import { useQuestion } from "./question";

const POLL_MS = 3000;

interface Listing {
    files: Entry[];
    next?: string;
}

interface RowProps {
    id: string;
    entry: Entry;
    closed: boolean; // a folder whose entries are not shown
    onToggle: () => void;
    onPreview: () => void;
    onDelete: () => void;
}

/** Whether it is in one of these folders, at any depth. */
const isWithin = (path: string, folders: ReadonlySet<string>) =>
    path.split("/").some((_, i, parts) => i > 0 && folders.has(parts.slice(0, i).join("/")));

function Row({ id, entry, closed, onToggle, onPreview, onDelete }: RowProps) {
    const depth = Math.min(entry.path.split("/").length - 1, 6);
    const isFile = entry.type === "file";
    return (
        <tr>
            <th scope="row" class={`depth-${depth}`}>
                {isFile && <FileLink sessionId={id} path={entry.path} />}
                {entry.type === "dir" && (
                    <button class="plain small folder" aria-expanded={!closed} onClick={onToggle}>
                        {entry.path}/
                    </button>
                )}
                {!isFile && entry.type !== "dir" && `${entry.path} (${entry.type})`}
            </th>
            <td class="number" data-label="Size">
                {isFile ? bytes(entry.size) : ""}
            </td>
            <td class="number" data-label="Modified">
                {duration(Date.now() - Date.parse(entry.mtime))} ago
            </td>
            <td class="row-actions">
                {isFile && (
                    <button class="plain small" onClick={onPreview} aria-label={`Preview ${entry.path}`}>
                        Preview
                    </button>
                )}
                <button
                    class="plain small danger"
                    aria-label={`Delete ${entry.path}`}
                    onClick={onDelete}
                >
                    Delete
                </button>
            </td>
        </tr>
    );
}

async function exists(id: string, name: string): Promise<boolean> {
    try {
        await send(`${file(id, name)}?stat=1`);
        return true;
    } catch (error) {
        if (error instanceof ApiError && error.status === 404) return false;
        throw error;
    }
}

const replacing = (name: string) => ({
    title: `Replace ${name}?`,
    text: "The sandbox already has a file with this name. Its content will be replaced.",
    yes: "Replace file",
});

const deleting = ({ path, type }: Entry) =>
    type === "dir"
        ? {
              title: `Delete the folder ${path}?`,
              text: "Everything in it is deleted, too.",
              yes: "Delete folder",
          }
        : { title: `Delete ${path}?`, text: "It cannot be restored.", yes: "Delete file" };

export function Files({ id }: { id: string }) {
    const [after, setAfter] = useState<string[]>([]);
    const last = after[after.length - 1];
    const where = `${session(id)}/files${last ? `?after=${encodeURIComponent(last)}` : ""}`;
    const { value, error, refresh } = usePolled<Listing>(where, POLL_MS);
    const [shown, setShown] = useState<Entry | null>(null);
    const [failure, setFailure] = useState("");
    const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
    const [uploading, setUploading] = useState("");
    const [over, setOver] = useState(false);
    const [ask, question] = useQuestion();
    const known = useLimits();
    const most = known?.limits.max_upload_bytes ?? Infinity;
    const tooLarge = ({ name, size }: File) =>
        `${name} is ${bytes(size)}. A file may be at most ${bytes(most)} (${sourceOf(known!, "max_upload_bytes")}).`;
    const upload = async (files: Iterable<File>) => {
        setFailure("");
        try {
            for (const each of files) {
                if (each.size > most) {
                    setFailure(tooLarge(each));
                    continue;
                }
                if ((await exists(id, each.name)) && !(await ask(replacing(each.name)))) continue;
                setUploading(each.name);
                await send(file(id, each.name), { method: "PUT", raw: each });
                refresh();
            }
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        setUploading("");
    };
    const onDrop = (event: DragEvent) => {
        event.preventDefault();
        setOver(false);
        upload([...(event.dataTransfer?.files ?? [])]);
    };
    const onToggle = (folder: string) => {
        const next = new Set(closed);
        if (!next.delete(folder)) next.add(folder);
        setClosed(next);
    };
    const onDelete = async (entry: Entry) => {
        if (!(await ask(deleting(entry)))) return;
        setFailure("");
        try {
            await send(file(id, entry.path), { method: "DELETE" });
            if (shown?.path === entry.path) setShown(null);
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    return (
        <div
            class={over ? "files over" : "files"}
            onDragOver={(event) => {
                event.preventDefault();
                setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={onDrop}
        >
            <div class="upload">
                <label class="button">
                    Upload files
                    <input
                        type="file"
                        multiple
                        onChange={(event) => {
                            const input = event.currentTarget;
                            upload([...(input.files ?? [])]).then(() => (input.value = ""));
                        }}
                    />
                </label>
                <span class="quiet" role="status">
                    {uploading ? `Uploading ${uploading}…` : `or drop them here. They are saved in /mnt/data.${known ? ` The limit is ${bytes(most)} per file.` : ""}`}
                </span>
            </div>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {!value && !error && <p class="quiet">Loading…</p>}
            {value?.files.length === 0 && <p class="empty">No files yet.</p>}
            {value && value.files.length > 0 && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">File</th>
                            <th scope="col" class="number">
                                Size
                            </th>
                            <th scope="col" class="number">
                                Modified
                            </th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>
                        {value.files
                            .filter((entry) => !isWithin(entry.path, closed))
                            .map((entry) => (
                                <Row
                                    key={entry.path}
                                    id={id}
                                    entry={entry}
                                    closed={closed.has(entry.path)}
                                    onToggle={() => onToggle(entry.path)}
                                    onPreview={() => setShown(entry)}
                                    onDelete={() => onDelete(entry)}
                                />
                            ))}
                    </tbody>
                </table>
            )}
            {(after.length > 0 || value?.next) && (
                <div class="actions">
                    <button disabled={!after.length} onClick={() => setAfter(after.slice(0, -1))}>
                        Previous
                    </button>
                    <button
                        disabled={!value?.next}
                        onClick={() => value?.next && setAfter([...after, value.next])}
                    >
                        Next
                    </button>
                </div>
            )}
            {shown && <Preview sessionId={id} entry={shown} onClose={() => setShown(null)} />}
            {question}
        </div>
    );
}
