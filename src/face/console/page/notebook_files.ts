// SPDX-License-Identifier: Apache-2.0
// Notebooks from a file and into one: of this computer, or of the session.

import { ApiError, ask, type Entry, file, type Kernelspec, send, session } from "./api";
import { FILE_MAX, writeNotebook } from "./ipynb";
import type { Notebook } from "./notebook";

const PAGES_MAX = 5; // of the list of files

/** The notebooks among the session's files, those that were changed last first. */
export async function listNotebooks(sessionId: string): Promise<Entry[]> {
    const found: Entry[] = [];
    let after: string | undefined = "";
    for (let i = 0; i < PAGES_MAX && after !== undefined; i++) {
        const where: string = `${session(sessionId)}/files?after=${encodeURIComponent(after)}`;
        const page: { files: Entry[]; next?: string } = await ask(where);
        found.push(...page.files.filter((entry) => entry.type === "file" && isNotebook(entry.path)));
        after = page.next;
    }
    return found.sort((a, b) => b.mtime.localeCompare(a.mtime));
}

export const isNotebook = (name: string) => /\.ipynb$/i.test(name);

export async function readLocal(from: File): Promise<string> {
    if (from.size > FILE_MAX) throw new Error("This notebook is larger than 32 MiB.");
    return from.text();
}

export async function readFile(sessionId: string, path: string) {
    const response = await send(file(sessionId, path));
    if (Number(response.headers.get("Content-Length")) > FILE_MAX)
        throw new Error("This notebook is larger than 32 MiB.");
    return { text: await response.text(), etag: response.headers.get("ETag") ?? "" };
}

/** Whether the file is the one that was opened or saved last. */
async function isUnchanged(where: string, etag: string): Promise<boolean> {
    try {
        const response = await send(where, { method: "HEAD" });
        return response.headers.get("ETag") === etag;
    } catch (error) {
        if (error instanceof ApiError && error.status === 404) return true; // it is written anew
        throw error;
    }
}

/** Writes the notebook into the session's files. `mayReplace` is asked before a file is replaced that
 * is not what this page opened or saved. Returns false if it may not. */
export async function save(
    notebook: Notebook,
    specs: Kernelspec[],
    mayReplace: (changed: boolean) => Promise<boolean>,
): Promise<boolean> {
    const where = file(notebook.sessionId, notebook.name);
    const { etag } = notebook;
    const text = writeNotebook(notebook.cells, notebook.metadata, specs);
    const put = (query = "") =>
        send(where + query, { method: "PUT", raw: new Blob([text], { type: "application/json" }) });
    let response: Response;
    if (etag) {
        if (!(await isUnchanged(where, etag)) && !(await mayReplace(true))) return false;
        response = await put();
    } else {
        try {
            response = await put("?overwrite=0");
        } catch (error) {
            if (!(error instanceof ApiError) || error.code !== "file_exists") throw error;
            if (!(await mayReplace(false))) return false;
            response = await put();
        }
    }
    notebook.saved((await response.json()).etag ?? "");
    return true;
}

/** Gives the browser the notebook as a download. */
export function download(notebook: Notebook, specs: Kernelspec[]) {
    const text = writeNotebook(notebook.cells, notebook.metadata, specs);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    link.download = notebook.name.split("/").pop()!;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
