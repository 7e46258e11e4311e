// SPDX-License-Identifier: Apache-2.0
// The outputs of an execution: text, images, tables, Markdown, formulas, JSON, errors, files.

import { useEffect, useMemo, useState } from "preact/hooks";

import { parseAnsi } from "./ansi";
import type { Line } from "./api";
import { Chart, chartOf, isPlotlyLibrary } from "./chart";
import type { Execution, Output } from "./execution";
import { FileLink } from "./file_link";
import { bytes } from "./format";
import { Frame } from "./frame";
import { ToolCalls } from "./tool_calls";

export function Text({ text, stream }: { text: string; stream: string }) {
    const spans = useMemo(() => parseAnsi(text), [text]);
    return (
        <pre class={`text ${stream}`}>
            {spans.map(({ text, classes }, i) =>
                classes ? (
                    <span key={i} class={classes}>
                        {text}
                    </span>
                ) : (
                    text
                ),
            )}
        </pre>
    );
}

const IMAGE_TYPES: Record<string, string> = {
    png: "image/png",
    jpeg: "image/jpeg",
    gif: "image/gif",
    svg: "image/svg+xml",
};

// An SVG in an <img> runs no scripts and loads nothing.
function Image({ line }: { line: Line }) {
    const type = IMAGE_TYPES[line.format] ?? "image/png";
    const source =
        line.format === "svg"
            ? `data:${type};utf8,${encodeURIComponent(line.image)}`
            : `data:${type};base64,${line.image}`;
    return (
        <a class="image" href={source} download={`figure.${line.format}`} title="Download">
            <img src={source} alt={line.text || "Figure"} />
        </a>
    );
}

const CHILDREN_MAX = 200;

function Json({ value, name, open }: { value: unknown; name?: string; open: boolean }) {
    const [shown, setShown] = useState(open);
    const label = name === undefined ? null : <span class="json-name">{name}: </span>;
    if (value === null || typeof value !== "object")
        return (
            <div class="json-leaf">
                {label}
                <span class={`json-${value === null ? "null" : typeof value}`}>
                    {JSON.stringify(value)}
                </span>
            </div>
        );
    const entries = Object.entries(value);
    const summary = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
    return (
        <details open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
            <summary>
                {label}
                <span class="quiet">{summary}</span>
            </summary>
            {shown &&
                entries
                    .slice(0, CHILDREN_MAX)
                    .map(([key, child]) => <Json key={key} name={key} value={child} open={false} />)}
            {shown && entries.length > CHILDREN_MAX && (
                <div class="quiet">{entries.length - CHILDREN_MAX} more</div>
            )}
        </details>
    );
}

const RENDERED_MAX = 50_000; // characters: it is rendered on the page's thread

/** Markdown or a formula; its text until what renders it is loaded, and if it is too long. */
export function Rendered({ text, as }: { text: string; as: "markdownToHtml" | "latexToHtml" }) {
    const [html, setHtml] = useState("");
    useEffect(() => {
        if (text.length > RENDERED_MAX) return;
        let current = true;
        import("./markdown").then((module) => current && setHtml(module[as](text))).catch(() => {});
        return () => void (current = false);
    }, [text, as]);
    if (!html) return <Text text={text} stream="stdout" />;
    return <Frame html={html} title={as === "latexToHtml" ? "Formula" : "Markdown"} />;
}

function Rich({ line }: { line: Line }) {
    const chart = useMemo(() => chartOf(line.data ?? {}), [line]);
    if (chart) return <Chart chart={chart} />;
    if (line.image) return <Image line={line} />;
    const data = line.data ?? {};
    if (typeof data["text/html"] === "string") {
        if (isPlotlyLibrary(data["text/html"])) return null;
        return <Frame html={data["text/html"]} title="Output as HTML" />;
    }
    if (typeof data["text/markdown"] === "string")
        return <Rendered text={data["text/markdown"]} as="markdownToHtml" />;
    if (typeof data["text/latex"] === "string")
        return <Rendered text={data["text/latex"]} as="latexToHtml" />;
    if (data["application/json"] !== undefined)
        return (
            <div class="json">
                <Json value={data["application/json"]} open />
            </div>
        );
    return <Text text={line.text ?? ""} stream={line.type} />;
}

function Failure({ line }: { line: Line }) {
    const traceback = (line.traceback ?? []).join("\n");
    return (
        <div class="failure" role="alert">
            <strong>{line.error}</strong>
            {traceback && (
                <details>
                    <summary>Traceback</summary>
                    <Text text={traceback} stream="stderr" />
                </details>
            )}
        </div>
    );
}

function One({ output, sessionId }: { output: Output; sessionId: string }) {
    switch (output.kind) {
        case "text":
            return (
                <>
                    {output.cut && <p class="quiet note">Earlier text is not shown.</p>}
                    <Text text={output.text} stream={output.stream} />
                </>
            );
        case "rich":
            return <Rich line={output.line} />;
        case "error":
            return <Failure line={output.line} />;
        case "file":
            return (
                <p class="file-line">
                    <FileLink sessionId={sessionId} path={output.line.file} />{" "}
                    <span class="quiet">{bytes(output.line.size)}</span>
                </p>
            );
        case "note":
            return <p class="quiet note">{output.text}</p>;
    }
}

export function Outputs({ execution, sessionId }: { execution: Execution; sessionId: string }) {
    return (
        <div class="outputs">
            {execution.left > 0 && (
                <p class="quiet note">{execution.left} earlier outputs are not shown.</p>
            )}
            {execution.outputs.map((output, i) => (
                <One key={execution.left + i} output={output} sessionId={sessionId} />
            ))}
            <ToolCalls calls={execution.calls} />
        </div>
    );
}
