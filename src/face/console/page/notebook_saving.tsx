// SPDX-License-Identifier: Apache-2.0
// Opening and saving a notebook: what is asked before something is replaced, and what is said then.

import { useState } from "preact/hooks";

import type { Kernelspec } from "./api";
import { readNotebook } from "./ipynb";
import { CELLS_MAX, type Notebook } from "./notebook";
import { download, readFile, readLocal, save } from "./notebook_files";
import { useQuestion } from "./question";

const TOLD_MS = 4000;

export function useSaving(
    notebook: Notebook,
    specs: Kernelspec[],
    onError: (message: string) => void,
) {
    const [ask, question] = useQuestion();
    const [told, setTold] = useState("");
    const tell = (text: string) => {
        setTold(text);
        setTimeout(() => setTold((now) => (now === text ? "" : now)), TOLD_MS);
    };
    const attempt = async (act: () => Promise<void>) => {
        onError("");
        try {
            await act();
        } catch (error) {
            onError((error as Error).message);
        }
    };
    const mayReplaceCells = async (name: string) =>
        !notebook.changes ||
        !notebook.cells.length ||
        ask({
            title: `Open ${name}?`,
            text: `It replaces the cells of ${notebook.name}, which have unsaved changes.`,
            yes: "Open",
        });
    const show = async (name: string, read: () => Promise<{ text: string; etag: string }>) =>
        attempt(async () => {
            if (notebook.runs.isRunning()) throw new Error("Code is running. Open a notebook when it has finished.");
            const { text, etag } = await read();
            const opened = readNotebook(text, specs, CELLS_MAX);
            if (await mayReplaceCells(name)) notebook.replace(opened, name, etag);
        });
    return {
        question,
        told,
        onFile: (from: File) =>
            show(from.name, async () => ({ text: await readLocal(from), etag: "" })),
        onPath: (path: string) => show(path, () => readFile(notebook.sessionId, path)),
        onDownload: () => download(notebook, specs),
        onSave: () =>
            attempt(async () => {
                const mayReplace = (changed: boolean) =>
                    ask({
                        title: `Replace ${notebook.name}?`,
                        text: changed
                            ? "The file has changed since you opened it here."
                            : "The sandbox already has a file with this name.",
                        yes: "Replace",
                    });
                if (await save(notebook, specs, mayReplace)) tell(`Saved as /mnt/data/${notebook.name}`);
            }),
    };
}
