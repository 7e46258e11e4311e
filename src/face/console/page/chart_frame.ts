// SPDX-License-Identifier: Apache-2.0
// What the frames of all charts do: take a specification from the page, have it drawn, and report what
// became of it. The specification is as little trusted as other output. It is data, and this document's
// policy allows no script but this one, and no request.

const MESSAGE_MAX = 300; // characters
const REPORTED_MS = 100;

const tell = (what: object) => window.parent.postMessage(what, "*");

/** Tells that something was asked for that is elsewhere. */
export const tellBlocked = () => tell({ blocked: true });

type Draw = (box: HTMLElement, spec: any, type: string) => Promise<void>;

// Plotly saves a picture by a link that it makes for this. A specification's links are of SVG.
const saves = (link: Element) => link instanceof HTMLAnchorElement && link.href.startsWith("blob:");

// Another link would replace this document.
function stopLinks(event: Event) {
    for (const node of event.composedPath())
        if (node instanceof Element && node.localName === "a" && !saves(node)) event.preventDefault();
}

const described = (error: unknown) =>
    (error instanceof Error ? error.message : String(error ?? "")).slice(0, MESSAGE_MAX);

/** Draws what the page sends. `draw` replaces what it has drawn before. */
export function drawWith(draw: Draw) {
    const box = document.getElementById("chart")!;
    window.addEventListener("message", async (event) => {
        if (event.source !== window.parent || !event.data?.chart) return;
        const { type, spec } = event.data.chart;
        try {
            await draw(box, spec, type);
            tell({ drawn: true });
        } catch (error) {
            // What the policy has refused is reported a moment later, and may be the reason.
            setTimeout(() => tell({ failed: described(error) }), REPORTED_MS);
        }
    });
    for (const type of ["click", "auxclick"]) document.addEventListener(type, stopLinks, true);
    document.addEventListener("securitypolicyviolation", ({ blockedURI }) => {
        if (/^(https?|wss?|blob)\b/.test(blockedURI)) tellBlocked();
    });
    new ResizeObserver(() => {
        if (!box.hasChildNodes()) return; // nothing is drawn yet
        const { height } = document.body.getBoundingClientRect();
        const bar = document.documentElement.scrollWidth > window.innerWidth ? 16 : 0;
        tell({ height: Math.ceil(height) + bar });
    }).observe(document.body);
    tell({ ready: true });
}
