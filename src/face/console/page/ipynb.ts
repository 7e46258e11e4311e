// SPDX-License-Identifier: Apache-2.0
// Notebooks as files: nbformat 4.5. A file that is opened is not trusted: what does not follow the format
// is left out, and its outputs are shown as any output is.

import { type Cell, type CellType, makeCell, makeId, makeOutcome, type Outcome } from "./cell";
import { Execution, type Output } from "./execution";
import type { Kernelspec, Line } from "./api";

export const FILE_MAX = 32 << 20; // bytes
const TYPES: CellType[] = ["code", "markdown", "raw"];
const IMAGES = [
    ["image/png", "png"],
    ["image/jpeg", "jpeg"],
    ["image/gif", "gif"],
    ["image/svg+xml", "svg"],
] as const;

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
    typeof value === "object" && value !== null && !Array.isArray(value);
const objectOf = (value: unknown): Json => (isObject(value) ? value : {});
/** A text, or the list of its pieces. */
const textOf = (value: unknown): string =>
    Array.isArray(value)
        ? value.filter((piece) => typeof piece === "string").join("")
        : typeof value === "string"
          ? value
          : "";
const isJsonType = (type: string) => /^application\/(.*\+)?json$/.test(type);

// ---- Reading

/** A bundle of MIME types as a line of the API: its image, its text, and the rest in `data`. */
function lineOf(type: "display" | "result", bundle: Json): Line {
    const line: Line = { type };
    const data: Json = {};
    for (const [name, value] of Object.entries(bundle))
        data[name] = isJsonType(name) ? value : textOf(value);
    for (const [name, format] of IMAGES) {
        if (line.image || !data[name]) continue;
        const text = data[name] as string;
        line.image = format === "svg" ? text : text.replace(/\s/g, "");
        line.format = format;
        delete data[name];
    }
    line.text = textOf(data["text/plain"]);
    delete data["text/plain"];
    line.data = data;
    return line;
}

function outputOf(given: Json): Line | null {
    switch (given.output_type) {
        case "stream":
            return { type: given.name === "stderr" ? "stderr" : "stdout", text: textOf(given.text) };
        case "display_data":
            return lineOf("display", objectOf(given.data));
        case "execute_result":
            return lineOf("result", objectOf(given.data));
        case "error": {
            const [ename, evalue] = [textOf(given.ename), textOf(given.evalue)];
            const traceback = Array.isArray(given.traceback) ? given.traceback.map(textOf) : [];
            const error = evalue ? `${ename}: ${evalue}` : ename;
            return { type: "error", error, ename, evalue, traceback };
        }
    }
    return null;
}

/** What a cell has shown, as if it had been run here; null if it was not run. */
function outcomeOf(given: Json): Outcome | null {
    const outputs = Array.isArray(given.outputs) ? given.outputs : [];
    const count = typeof given.execution_count === "number" ? given.execution_count : null;
    if (!outputs.length && count === null) return null;
    const execution = new Execution();
    for (const output of outputs.map(objectOf)) {
        const line = outputOf(output);
        if (line) execution.add(line);
    }
    execution.add({ type: "done", status: "saved", execution_count: count });
    return makeOutcome({ execution });
}

function attachmentsOf(given: unknown): Cell["attachments"] {
    const found: Cell["attachments"] = {};
    for (const [name, bundle] of Object.entries(objectOf(given)))
        found[name] = Object.fromEntries(
            Object.entries(objectOf(bundle)).map(([type, value]) => [type, textOf(value)]),
        );
    return Object.keys(found).length ? found : undefined;
}

function cellOf(given: Json, taken: Set<string>): Cell {
    const type = TYPES.find((name) => name === given.cell_type) ?? "raw";
    const metadata = { ...objectOf(given.metadata) };
    const own = objectOf(metadata.kernelgate);
    delete metadata.kernelgate;
    const named = typeof given.id === "string" && /^[\w-]{1,64}$/.test(given.id);
    const id = named && !taken.has(given.id as string) ? (given.id as string) : makeId();
    taken.add(id);
    const attachments = attachmentsOf(given.attachments);
    return makeCell({
        id,
        type,
        source: textOf(given.source),
        kernel: textOf(own.kernel),
        metadata,
        outcome: type === "code" ? outcomeOf(given) : null,
        ...(attachments && { attachments }),
    });
}

export interface Opened {
    cells: Cell[];
    metadata: Json;
}

/** The kernelspec of a notebook: the one that it names, or one of its language; "": the default. */
function kernelOf(metadata: Json, specs: Kernelspec[]): string {
    const { name, language } = objectOf(metadata.kernelspec);
    const wanted = textOf(language) || textOf(objectOf(metadata.language_info).name);
    const found =
        specs.find((spec) => spec.name === name) ??
        specs.find((spec) => spec.language === wanted.toLowerCase());
    return !found || found.default ? "" : found.name;
}

/** Throws an Error that says what is wrong with the file. */
export function readNotebook(text: string, specs: Kernelspec[], cellsMax: number): Opened {
    let file: unknown;
    try {
        file = JSON.parse(text);
    } catch {
        throw new Error("This file is not a notebook: it is not JSON.");
    }
    if (!isObject(file) || typeof file.nbformat !== "number")
        throw new Error("This file is not a notebook: it has no nbformat.");
    if (file.nbformat !== 4)
        throw new Error(
            `This notebook has format ${file.nbformat}; the console opens format 4. ` +
                "To convert it, run jupyter nbconvert --to notebook.",
        );
    if (!Array.isArray(file.cells)) throw new Error("This notebook has no list of cells.");
    if (file.cells.length > cellsMax)
        throw new Error(`This notebook has ${file.cells.length} cells; the console opens at most ${cellsMax}.`);
    const metadata = objectOf(file.metadata);
    const kernel = kernelOf(metadata, specs);
    const taken = new Set<string>();
    const cells = file.cells.map((each) => cellOf(objectOf(each), taken));
    for (const cell of cells) {
        const own = specs.find((spec) => spec.name === cell.kernel);
        if (cell.type === "code") cell.kernel = own ? (own.default ? "" : own.name) : kernel;
    }
    return { cells, metadata };
}

// ---- Writing

/** A text as nbformat's own writer has it: the list of its lines. */
const linesOf = (text: string) => text.split(/(?<=\n)/).filter(Boolean);

function bundleOf(line: Line): Json {
    const data: Json = {};
    for (const [type, value] of Object.entries(objectOf(line.data)))
        data[type] = isJsonType(type) ? value : linesOf(textOf(value));
    const image = IMAGES.find(([, format]) => format === line.format);
    if (line.image && image) data[image[0]] = line.format === "svg" ? linesOf(line.image) : line.image;
    if (line.text) data["text/plain"] = linesOf(line.text);
    return data;
}

function writeOutput(output: Output, count: number | null): Json | null {
    switch (output.kind) {
        case "text":
            return { output_type: "stream", name: output.stream, text: linesOf(output.text) };
        case "rich": {
            const data = bundleOf(output.line);
            if (output.line.type !== "result") return { output_type: "display_data", data, metadata: {} };
            return { output_type: "execute_result", execution_count: count, data, metadata: {} };
        }
        case "error": {
            const { ename, evalue, error, traceback } = output.line;
            return {
                output_type: "error",
                ename: ename ?? String(error).split(":")[0],
                evalue: evalue ?? "",
                traceback: traceback ?? [],
            };
        }
    }
    return null; // links to files, and notes of this page
}

function writeCell(cell: Cell, own: string): Json {
    const metadata = own ? { ...cell.metadata, kernelgate: { kernel: own } } : cell.metadata;
    const written: Json = { id: cell.id, cell_type: cell.type, metadata, source: linesOf(cell.source) };
    if (cell.type !== "code") {
        if (cell.attachments) written.attachments = cell.attachments;
        return written;
    }
    const execution = cell.outcome?.execution;
    const count = execution?.count ?? null;
    const outputs = execution?.outputs.map((output) => writeOutput(output, count)) ?? [];
    return { ...written, execution_count: count, outputs: outputs.filter((output) => output !== null) };
}

/** The notebook's own kernelspec, under the name that Jupyter has for it. */
function describeKernel(spec: Kernelspec | undefined): Json {
    if (!spec) return {};
    const name = spec.name === "python" ? "python3" : spec.name;
    return {
        kernelspec: { name, display_name: spec.display_name, language: spec.language },
        language_info: { name: spec.language },
    };
}

/** The file of a notebook. Its kernel is that of its first code; cells of another one say so. */
export function writeNotebook(cells: Cell[], metadata: Json, specs: Kernelspec[]): string {
    const specOf = (cell: Cell | undefined) =>
        specs.find((spec) => (cell?.kernel ? spec.name === cell.kernel : spec.default));
    const spec = specOf(cells.find((cell) => cell.type === "code"));
    const own = (cell: Cell) => {
        const other = cell.type === "code" ? specOf(cell) : undefined;
        return other && other !== spec ? other.name : "";
    };
    const file = {
        cells: cells.map((cell) => writeCell(cell, own(cell))),
        metadata: { ...metadata, ...describeKernel(spec) },
        nbformat: 4,
        nbformat_minor: 5,
    };
    return `${JSON.stringify(file, null, 1)}\n`;
}
