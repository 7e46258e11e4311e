// SPDX-License-Identifier: Apache-2.0
// A look at a file: images, PDF, tables, text. Nothing in it runs.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";

import { file, send, type Entry } from "./api";
import { bytes } from "./format";
import { Text } from "./output";

const PREVIEW_MAX = 8 << 20;
const TEXT_MAX = 200_000;
const ROWS_MAX = 200;
const COLUMNS_MAX = 100;

type Content =
    | { kind: "image"; url: string }
    | { kind: "pdf"; data: ArrayBuffer; Pdf: FunctionComponent<{ data: ArrayBuffer; name: string }> }
    | { kind: "table"; rows: string[][] }
    | { kind: "text"; text: string }
    | { kind: "none"; why: string };

/** The rows of comma- or tab-separated values (RFC 4180). */
export function parseTable(text: string, separator: string): string[][] {
    const rows: string[][] = [];
    let row: string[] = [];
    let field = "";
    let quoted = false;
    for (let i = 0; i < text.length && rows.length < ROWS_MAX; i++) {
        const char = text[i]!;
        if (quoted && char === '"' && text[i + 1] === '"') field += text[++i];
        else if (char === '"' && (quoted || field === "")) quoted = !quoted;
        else if (quoted || (char !== separator && char !== "\n")) field += char;
        else {
            if (row.length < COLUMNS_MAX) row.push(field.replace(/\r$/, ""));
            field = "";
            if (char === "\n") {
                rows.push(row);
                row = [];
            }
        }
    }
    if (field || row.length) rows.push([...row, field]);
    return rows;
}

/** A blob: URL, opened in a tab of its own, would be a document of the page's origin. */
function asDataUrl(blob: Blob): Promise<string> {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result as string);
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(blob);
    });
}

async function load(sessionId: string, entry: Entry, signal: AbortSignal): Promise<Content> {
    const type = (entry.mime ?? "").split(";")[0]!;
    if (entry.size > PREVIEW_MAX)
        return { kind: "none", why: `${bytes(entry.size)} are too much for a preview.` };
    const blob = await (await send(file(sessionId, entry.path), { signal })).blob();
    if (type.startsWith("image/"))
        return { kind: "image", url: await asDataUrl(new Blob([blob], { type })) };
    if (type === "application/pdf") {
        const { Pdf } = await import("./pdf");
        return { kind: "pdf", data: await blob.arrayBuffer(), Pdf };
    }
    const text = await blob.slice(0, TEXT_MAX).text();
    if (text.includes("\0")) return { kind: "none", why: "This file is not text." };
    if (/\.[ct]sv$/i.test(entry.path))
        return { kind: "table", rows: parseTable(text, /\.tsv$/i.test(entry.path) ? "\t" : ",") };
    return { kind: "text", text };
}

function Shown({ content, name }: { content: Content; name: string }) {
    switch (content.kind) {
        case "image":
            return <img src={content.url} alt={name} />;
        case "pdf":
            return <content.Pdf data={content.data} name={name} />;
        case "none":
            return <p class="quiet">{content.why}</p>;
        case "text":
            return <Text text={content.text} stream="stdout" />;
        case "table": {
            const [head, ...rows] = content.rows;
            return (
                <table class="values">
                    <thead>
                        <tr>{head?.map((value, i) => <th key={i} scope="col">{value}</th>)}</tr>
                    </thead>
                    <tbody>
                        {rows.map((row, i) => (
                            <tr key={i}>{row.map((value, j) => <td key={j}>{value}</td>)}</tr>
                        ))}
                    </tbody>
                </table>
            );
        }
    }
}

interface Props {
    sessionId: string;
    entry: Entry;
    onClose: () => void;
}

export function Preview({ sessionId, entry, onClose }: Props) {
    const [content, setContent] = useState<Content | null>(null);
    useEffect(() => {
        const stopped = new AbortController();
        setContent(null);
        load(sessionId, entry, stopped.signal).then(
            (loaded) => stopped.signal.aborted || setContent(loaded),
            (error) => stopped.signal.aborted || setContent({ kind: "none", why: error.message }),
        );
        return () => stopped.abort();
    }, [sessionId, entry.path, entry.mtime]);
    return (
        <section class="preview" aria-label={`Preview of ${entry.path}`}>
            <div class="preview-head">
                <h2>{entry.path}</h2>
                <button class="plain" onClick={onClose}>
                    Close
                </button>
            </div>
            <div class="preview-body" tabIndex={0} role="group" aria-label="Content">
                {content ? <Shown content={content} name={entry.path} /> : <p class="quiet">Loading…</p>}
            </div>
        </section>
    );
}
