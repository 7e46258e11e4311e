// SPDX-License-Identifier: Apache-2.0
// HTML that is not ours: in a frame that has neither the page's origin nor scripts but its own.

import { useEffect, useRef, useState } from "preact/hooks";

import { useTheme } from "./theme";

const HEIGHT_MAX = 640;

export function Frame({ html, title }: { html: string; title: string }) {
    const frame = useRef<HTMLIFrameElement>(null);
    const [height, setHeight] = useState(24);
    const [loads, setLoads] = useState(0);
    const theme = useTheme();
    useEffect(() => {
        const onMessage = (event: MessageEvent) => {
            const told = event.data?.height;
            if (event.source !== frame.current?.contentWindow || typeof told !== "number") return;
            setHeight(Math.min(Math.max(told, 16), HEIGHT_MAX));
        };
        addEventListener("message", onMessage);
        return () => removeEventListener("message", onMessage);
    }, []);
    useEffect(() => {
        // Its origin is opaque, so there is no other name for it.
        if (loads > 0) frame.current!.contentWindow!.postMessage({ html, theme }, "*");
    }, [html, theme, loads]);
    return (
        <iframe
            ref={frame}
            class="frame"
            title={title}
            src="frame.html"
            sandbox="allow-scripts allow-popups allow-popups-to-escape-sandbox"
            referrerpolicy="no-referrer"
            height={height}
            loading="lazy"
            onLoad={() => setLoads((count) => count + 1)}
        />
    );
}
