// SPDX-License-Identifier: Apache-2.0
// Text with the escape sequences of terminals: colours and weights become spans, carriage returns
// and backspaces overwrite, every other sequence is removed.

export interface Span {
    text: string;
    classes: string;
}

// CSI, OSC and other strings, the two-character escapes, and control characters but \t \n \r \b.
const SEQUENCES =
    /\x1b\[([0-9;:]*)([@-~])|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]/g;

interface Style {
    color: number;
    back: number;
    bold: boolean;
    dim: boolean;
    italic: boolean;
    underline: boolean;
    inverse: boolean;
}
const PLAIN: Style = {
    color: -1, back: -1, bold: false, dim: false, italic: false, underline: false, inverse: false,
};

/** One of the 16 colours that is closest to a colour of the table of 256. */
function nearest(index: number): number {
    if (!(index >= 16)) return index;
    if (index >= 232) return index < 240 ? 8 : index < 248 ? 7 : 15;
    const cube = index - 16;
    return fromRgb(...([36, 6, 1].map((part) => (Math.floor(cube / part) % 6) * 51) as Rgb));
}
type Rgb = [number, number, number];
function fromRgb(red: number, green: number, blue: number): number {
    const most = Math.max(red, green, blue);
    const bright = most > 200 ? 8 : 0;
    if (most < 60) return 0;
    if (most - Math.min(red, green, blue) < 40) return most > 220 ? 15 : most > 120 ? 7 : 8;
    const half = most / 2;
    return bright + (red > half ? 1 : 0) + (green > half ? 2 : 0) + (blue > half ? 4 : 0);
}

function apply(style: Style, parameters: string): Style {
    const codes = parameters.split(/[;:]/).map(Number);
    let next = { ...style };
    for (let i = 0; i < codes.length; i++) {
        const code = codes[i]!;
        if (code === 0) next = { ...PLAIN };
        else if (code === 1) next.bold = true;
        else if (code === 2) next.dim = true;
        else if (code === 3) next.italic = true;
        else if (code === 4) next.underline = true;
        else if (code === 7) next.inverse = true;
        else if (code === 22) next.bold = next.dim = false;
        else if (code === 23) next.italic = false;
        else if (code === 24) next.underline = false;
        else if (code === 27) next.inverse = false;
        else if (code === 39) next.color = -1;
        else if (code === 49) next.back = -1;
        else if (code >= 30 && code <= 37) next.color = code - 30;
        else if (code >= 40 && code <= 47) next.back = code - 40;
        else if (code >= 90 && code <= 97) next.color = code - 82;
        else if (code >= 100 && code <= 107) next.back = code - 92;
        else if (code === 38 || code === 48) {
            const rgb = codes[i + 1] === 2;
            const color = rgb
                ? fromRgb(codes[i + 2] ?? 0, codes[i + 3] ?? 0, codes[i + 4] ?? 0)
                : nearest(codes[i + 2] ?? 0);
            if (code === 38) next.color = color;
            else next.back = color;
            i += rgb ? 4 : 2;
        }
    }
    return next;
}

function classesOf(style: Style): string {
    const [color, back] = style.inverse ? [style.back, style.color] : [style.color, style.back];
    const names = [];
    if (color >= 0 && color < 16) names.push(`c${color}`);
    else if (style.inverse) names.push("c-back");
    if (back >= 0 && back < 16) names.push(`b${back}`);
    else if (style.inverse) names.push("b-text");
    for (const name of ["bold", "dim", "italic", "underline"] as const)
        if (style[name]) names.push(name);
    return names.join(" ");
}

/** Applies \r and \b to one line's spans, of which each has one class list. */
class LineOfSpans {
    private spans: Span[] = [];
    private overwrite = false;

    add(text: string, classes: string) {
        for (const piece of text.split(/([\r\b])/)) {
            if (piece === "\r") this.overwrite = true;
            else if (piece === "\b") this.erase();
            else if (piece) {
                if (this.overwrite) this.spans = [];
                this.overwrite = false;
                this.spans.push({ text: piece, classes });
            }
        }
    }
    private erase() {
        const last = this.spans[this.spans.length - 1];
        if (!last) return;
        last.text = last.text.slice(0, -1);
        if (!last.text) this.spans.pop();
    }
    take(): Span[] {
        const taken = this.spans;
        this.spans = [];
        this.overwrite = false;
        return taken;
    }
}

/** The spans of a text; neighbours with the same classes are one. */
export function parseAnsi(text: string): Span[] {
    const spans: Span[] = [];
    const line = new LineOfSpans();
    let style = PLAIN;
    let classes = "";
    const push = (span: Span) => {
        const last = spans[spans.length - 1];
        if (last && last.classes === span.classes) last.text += span.text;
        else spans.push(span);
    };
    const add = (piece: string) => {
        if (!/[\r\b]/.test(piece) && !piece.includes("\n")) return line.add(piece, classes);
        const lines = piece.replace(/\r+\n/g, "\n").split("\n");
        lines.forEach((part, i) => {
            line.add(part, classes);
            if (i < lines.length - 1) {
                line.take().forEach(push);
                push({ text: "\n", classes: spans[spans.length - 1]?.classes ?? classes });
            }
        });
    };
    let end = 0;
    for (const found of text.matchAll(SEQUENCES)) {
        if (found.index > end) add(text.slice(end, found.index));
        end = found.index + found[0].length;
        if (found[2] === "m") {
            style = apply(style, found[1] ?? "");
            classes = classesOf(style);
        }
    }
    if (end < text.length) add(text.slice(end));
    line.take().forEach(push);
    return spans;
}
