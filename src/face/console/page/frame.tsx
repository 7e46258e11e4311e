// SPDX-License-Identifier: Apache-2.0
// HTML that is not ours: in a frame that has neither the page's origin nor scripts but its own.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { heightName, heightOf, keepHeight } from "./heights";
import { useTheme } from "./theme";

const HEIGHT_MIN = 24;
const HEIGHT_MAX = 640;
const TALL_MAX = 100_000;
const NEEDS_SCRIPTS =
    "This output needs scripts, which the console does not run. To see a Plotly or Altair chart, show the " +
    "figure itself, for example with fig.show().";

interface Props {
    html: string;
    title: string;
    tall?: boolean; // as high as the document: what is around it scrolls
}

export function Frame({ html, title, tall = false }: Props) {
    const frame = useRef<HTMLIFrameElement>(null);
    const name = useMemo(() => heightName(html), [html]);
    const [height, setHeight] = useState(heightOf(name) ?? HEIGHT_MIN);
    const [loads, setLoads] = useState(0);
    const shown = useRef(name); // what the frame has been given
    const [needsScripts, setNeedsScripts] = useState(false);
    const theme = useTheme();
    useEffect(() => {
        const onMessage = (event: MessageEvent) => {
            if (event.source !== frame.current?.contentWindow) return;
            const told = event.data?.height;
            if (typeof told === "number") {
                const next = Math.min(Math.max(told, 16), tall ? TALL_MAX : HEIGHT_MAX);
                setHeight(next);
                keepHeight(shown.current, next);
            }
            if (event.data?.needsScripts !== undefined) setNeedsScripts(event.data.needsScripts === true);
        };
        addEventListener("message", onMessage);
        return () => removeEventListener("message", onMessage);
    }, []);
    useEffect(() => {
        // Its origin is opaque, so there is no other name for it.
        if (loads === 0) return;
        shown.current = name;
        frame.current!.contentWindow!.postMessage({ html, theme }, "*");
    }, [html, theme, loads]);
    return (
        <>
            <iframe
                ref={frame}
                class="frame"
                title={title}
                src="frame.html"
                sandbox="allow-scripts allow-popups allow-popups-to-escape-sandbox"
                referrerpolicy="no-referrer"
                height={height}
                loading="lazy"
                hidden={needsScripts}
                onLoad={() => setLoads((count) => count + 1)}
            />
            {needsScripts && <p class="quiet note">{NEEDS_SCRIPTS}</p>}
        </>
    );
}
