// SPDX-License-Identifier: Apache-2.0
// Interactive charts: Plotly's figures, Vega and Vega-Lite (Altair). Each is drawn in a frame whose
// document brings the library, and which may ask nobody for anything.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { heightName, heightOf, keepHeight } from "./heights";

/** By library: the address of its frame's document, which build.mjs names. */
declare const CHART_DOCUMENTS: { plotly: string; vega: string };

const HEIGHT_MAX = 1600;
const WEIGHT_MAX = 2_000_000; // values, and pieces of 8 characters
const DRAW_MS = 20_000;
const FRAMES_MAX = 20; // each has the library in its memory
const WHY_MAX = 300; // characters

export interface ChartSpec {
    type: "plotly" | "vega" | "vega-lite";
    spec: any;
}

const VEGA = /^application\/vnd\.(vega|vegalite)\.v\d+[.+]json$/;

const MODE = ', {"mode": "vega'; // or "vega-lite"

/** Altair's default is HTML that loads libraries from elsewhere, and calls them with its specification. */
function fromAltairHtml(html: string): ChartSpec | null {
    const start = html.indexOf("})({");
    const end = html.lastIndexOf(MODE);
    if (start < 0 || end < start || !html.includes("vegaEmbed")) return null;
    try {
        const spec = JSON.parse(html.slice(start + 3, end));
        return { type: html.startsWith("-lite", end + MODE.length) ? "vega-lite" : "vega", spec };
    } catch {
        return null;
    }
}

/** The chart of a display, if it has one. */
export function chartOf(data: Record<string, any>): ChartSpec | null {
    const plotly = data["application/vnd.plotly.v1+json"];
    if (plotly && typeof plotly === "object") return { type: "plotly", spec: plotly };
    for (const [mime, spec] of Object.entries(data)) {
        const found = VEGA.exec(mime);
        if (found && spec && typeof spec === "object")
            return { type: found[1] === "vega" ? "vega" : "vega-lite", spec };
    }
    const html = data["text/html"];
    return typeof html === "string" ? fromAltairHtml(html) : null;
}

/** Before its first figure Plotly shows the library itself, as a script; nobody needs to see that. */
export const isPlotlyLibrary = (html: string) =>
    /^\s*<script[^>]*>\s*window\.PlotlyConfig\b/.test(html.slice(0, 1000));

/** Whether drawing it could take the browser's memory. */
function isTooLarge(spec: unknown): boolean {
    const waiting = [spec];
    let weight = 0;
    while (waiting.length) {
        const value = waiting.pop();
        if (typeof value === "string") weight += value.length >> 3;
        else if (value && typeof value === "object") {
            for (const key in value) waiting.push((value as Record<string, unknown>)[key]);
        }
        if (++weight + waiting.length > WEIGHT_MAX) return true;
    }
    return false;
}

const nameOf = ({ type, spec }: ChartSpec) => heightName(type + JSON.stringify(spec));

function titleOf({ type, spec }: ChartSpec): string {
    const title = type === "plotly" ? spec.layout?.title : spec.title;
    const text = title?.text ?? title;
    const name = type === "plotly" ? "Plotly chart" : "Vega chart";
    return typeof text === "string" && text ? `${name}: ${text.slice(0, 200)}` : name;
}

const TOO_LARGE = "This chart is too large to be drawn in the browser. Plot fewer points, or show it as an image.";
const BLOCKED =
    "This chart refers to data, images or maps on the internet, which the console does not load. " +
    "Load them in Python, and put them into the chart.";

interface FrameProps {
    chart: ChartSpec;
    onFail: (why: string) => void;
    onBlocked: () => void;
}

function ChartFrame({ chart, onFail, onBlocked }: FrameProps) {
    const frame = useRef<HTMLIFrameElement>(null);
    const name = useMemo(() => nameOf(chart), [chart]);
    const [height, setHeight] = useState(heightOf(name) ?? 450);
    const [loads, setLoads] = useState(0);
    useLayoutEffect(() => {
        const asked = loads > 0 ? chart : null;
        const fail = () => onFail(`The chart was not drawn within ${DRAW_MS / 1000} seconds.`);
        const timer = asked ? setTimeout(fail, DRAW_MS) : 0;
        const onMessage = ({ source, data }: MessageEvent) => {
            if (source !== frame.current?.contentWindow || !data) return;
            if (data.ready) setLoads((count) => count + 1);
            if (data.drawn || data.failed !== undefined) clearTimeout(timer);
            if (data.blocked) onBlocked();
            if (data.failed !== undefined)
                onFail(`The chart could not be drawn: ${String(data.failed).slice(0, WHY_MAX)}`);
            if (typeof data.height === "number") {
                const next = Math.min(Math.max(data.height, 40), HEIGHT_MAX);
                setHeight(next);
                keepHeight(name, next);
            }
        };
        addEventListener("message", onMessage);
        // Its origin is opaque, so there is no other name for it.
        if (asked) frame.current!.contentWindow!.postMessage({ chart: asked }, "*");
        return () => {
            clearTimeout(timer);
            removeEventListener("message", onMessage);
        };
    }, [chart, loads]);
    return (
        <iframe
            ref={frame}
            class="frame chart"
            title={titleOf(chart)}
            src={CHART_DOCUMENTS[chart.type === "plotly" ? "plotly" : "vega"]}
            sandbox="allow-scripts allow-downloads"
            referrerpolicy="no-referrer"
            height={height}
            loading="lazy"
        />
    );
}

let frames = 0; // on this page

/** A place among the charts that are drawn at a time. `more` is for one that is asked for. */
function usePlace(wanted: boolean, more: boolean): boolean {
    const [has, setHas] = useState(false);
    useEffect(() => {
        if (!wanted || (frames >= FRAMES_MAX && !more)) return;
        frames++;
        setHas(true);
        return () => {
            frames--;
            setHas(false);
        };
    }, [wanted, more]);
    return has;
}

export function Chart({ chart }: { chart: ChartSpec }) {
    const [failure, setFailure] = useState("");
    const [blocked, setBlocked] = useState(false);
    const [asked, setAsked] = useState(false);
    const tooLarge = useMemo(() => isTooLarge(chart.spec), [chart]);
    useLayoutEffect(() => {
        setFailure("");
        setBlocked(false);
    }, [chart]);
    const has = usePlace(!tooLarge && !failure, asked);
    if (tooLarge) return <p class="quiet note">{TOO_LARGE}</p>;
    if (failure) return <p class="quiet note">{blocked ? BLOCKED : failure}</p>;
    if (!has)
        return (
            <p class="quiet note">
                {`${FRAMES_MAX} charts are shown already. `}
                <button class="link" onClick={() => setAsked(true)}>
                    Show this one as well
                </button>
            </p>
        );
    return (
        <>
            <ChartFrame chart={chart} onFail={setFailure} onBlocked={() => setBlocked(true)} />
            {blocked && <p class="quiet note">{BLOCKED}</p>}
        </>
    );
}
