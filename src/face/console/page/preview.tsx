// SPDX-License-Identifier: Apache-2.0
// A look at a file: images, PDF, tables, Markdown, text. Nothing in it runs.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";

import { file, send, type Entry } from "./api";
import { bytes } from "./format";
import { Frame } from "./frame";
import { Text } from "./output";

const PREVIEW_MAX = 8 << 20;
const TEXT_MAX = 200_000;
const MARKDOWN_MAX = 50_000; // it is rendered on the page's thread
const ROWS_MAX = 200;
const COLUMNS_MAX = 100;

type Content =
    | { kind: "image"; url: string }
    | { kind: "pdf"; data: ArrayBuffer; Pdf: FunctionComponent<{ data: ArrayBuffer; name: string }> }
    | { kind: "table"; rows: string[][]; more: boolean }
    | { kind: "html"; html: string }
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

/** The values of JSON lines, as rows below the names of their members. Lines that are not objects, or that the
 * preview has cut, are left out. */
export function parseJsonLines(text: string): string[][] {
    const objects: Record<string, unknown>[] = [];
    for (const line of text.split("\n", ROWS_MAX)) {
        try {
            const value = JSON.parse(line);
            if (value && typeof value === "object" && !Array.isArray(value)) objects.push(value);
        } catch {
            continue;
        }
    }
    const names = [...new Set(objects.flatMap(Object.keys))].slice(0, COLUMNS_MAX);
    const shown = (value: unknown) =>
        value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
    return objects.length
        ? [names, ...objects.map((each) => names.map((name) => shown(each[name])))]
        : [];
}

function tableOf(path: string, text: string): string[][] {
    if (/\.csv$/i.test(path)) return parseTable(text, ",");
    if (/\.(tsv|tab)$/i.test(path)) return parseTable(text, "\t");
    return /\.(jsonl|ndjson)$/i.test(path) ? parseJsonLines(text) : [];
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
        return { kind: "none", why: `This file is too large for a preview: ${bytes(entry.size)}.` };
    const blob = await (await send(file(sessionId, entry.path), { signal })).blob();
    if (type.startsWith("image/"))
        return { kind: "image", url: await asDataUrl(new Blob([blob], { type })) };
    if (type === "application/pdf") {
        const { Pdf } = await import("./pdf");
        return { kind: "pdf", data: await blob.arrayBuffer(), Pdf };
    }
    const text = await blob.slice(0, TEXT_MAX).text();
    if (text.includes("\0")) return { kind: "none", why: "There is no preview of this file: it is not text." };
    const rows = tableOf(entry.path, text);
    if (rows.length)
        return { kind: "table", rows, more: rows.length >= ROWS_MAX || blob.size > TEXT_MAX };
    if (/\.(md|markdown)$/i.test(entry.path) && text.length <= MARKDOWN_MAX) {
        const { markdownToHtml } = await import("./markdown");
        return { kind: "html", html: markdownToHtml(text) };
    }
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
        case "html":
            return <Frame html={content.html} title={`Markdown of ${name}`} tall />;
        case "text":
            return <Text text={content.text} stream="stdout" />;
        case "table": {
            const [head, ...rows] = content.rows;
            return (
                <>
                    {content.more && <p class="quiet note">The first {rows.length} rows are shown.</p>}
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
                </>
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
