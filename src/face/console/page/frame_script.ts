// SPDX-License-Identifier: Apache-2.0
// The script of a frame that shows rendered output. It gets one HTML text from the page, and reports
// its height, and whether there is nothing to see. Nothing that the HTML brings can run: the policy knows this script alone.

const output = document.getElementById("output")!;

// A link with the target "_self", or "", would replace this document, and so would one of SVG without a
// target, which does not heed <base>.
function keepOut(link: Element) {
    if (!/^(_self)?$/i.test(link.getAttribute("target") ?? "")) return;
    const href = link.getAttribute("href") ?? link.getAttribute("xlink:href") ?? "";
    const scheme = /^[\s\0-\x1f]*([a-z][a-z0-9+.-]*):/i.exec(href)?.[1];
    if (scheme && !/^(https?|mailto)$/i.test(scheme)) {
        link.removeAttribute("href");
        link.removeAttribute("xlink:href");
    }
    link.setAttribute("target", "_blank");
}

// SVG's animations may change where a link leads, and in which frame.
function changesLinks(animation: Element) {
    return /(^|:)(href|target)$/i.test(animation.getAttribute("attributeName")?.trim() ?? "");
}

let has = false; // until then its height says nothing

const SEEN = "img, svg, picture, video, audio, canvas, math, table, hr, input, button, select, textarea";

/** Whether nothing is to be seen, since its scripts would make that. */
function needsScripts(parsed: DocumentFragment) {
    const shown = parsed.cloneNode(true) as DocumentFragment;
    const scripts = shown.querySelector("script") !== null;
    for (const each of shown.querySelectorAll("script, style, title, noscript")) each.remove();
    return scripts && !shown.textContent.trim() && !shown.querySelector(SEEN);
}

// A refresh would replace this document by an error.
function show(html: string) {
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    for (const each of parsed.content.querySelectorAll("meta, base, link")) each.remove();
    for (const each of parsed.content.querySelectorAll("a, area, [target]")) keepOut(each);
    for (const each of parsed.content.querySelectorAll("[attributeName]"))
        if (changesLinks(each)) each.remove();
    window.parent.postMessage({ needsScripts: needsScripts(parsed.content) }, "*");
    output.replaceChildren(parsed.content);
    has = true;
}

window.addEventListener("message", (event) => {
    if (event.source !== window.parent) return;
    document.documentElement.dataset.theme = event.data.theme;
    if (typeof event.data.html === "string") show(event.data.html);
});

new ResizeObserver(() => {
    if (!has) return;
    const { height } = document.body.getBoundingClientRect();
    const bar = document.documentElement.scrollWidth > window.innerWidth ? 16 : 0;
    window.parent.postMessage({ height: Math.ceil(height) + bar }, "*");
}).observe(document.body);
