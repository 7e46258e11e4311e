// SPDX-License-Identifier: Apache-2.0
// The script of a frame that shows rendered output. It gets one HTML text from the page, and reports
// its height. Nothing that the HTML brings can run: the policy knows this script alone.

const output = document.getElementById("output")!;

// A link with the target "_self", or "", would replace this document.
function keepOut(link: Element) {
    if (!/^(_self)?$/i.test(link.getAttribute("target")!)) return;
    const scheme = /^[\s\0-\x1f]*([a-z][a-z0-9+.-]*):/i.exec(link.getAttribute("href") ?? "")?.[1];
    if (scheme && !/^https?$/i.test(scheme)) link.removeAttribute("href");
    link.setAttribute("target", "_blank");
}

// A refresh would replace this document by an error.
function show(html: string) {
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    for (const each of parsed.content.querySelectorAll("meta, base, link")) each.remove();
    for (const each of parsed.content.querySelectorAll("[target]")) keepOut(each);
    output.replaceChildren(parsed.content);
}

window.addEventListener("message", (event) => {
    if (event.source !== window.parent) return;
    document.documentElement.dataset.theme = event.data.theme;
    if (typeof event.data.html === "string") show(event.data.html);
});

new ResizeObserver(() => {
    const { height } = document.body.getBoundingClientRect();
    const bar = document.documentElement.scrollWidth > window.innerWidth ? 16 : 0;
    window.parent.postMessage({ height: Math.ceil(height) + bar }, "*");
}).observe(document.body);
