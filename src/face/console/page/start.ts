// SPDX-License-Identifier: Apache-2.0
// Runs before the page's code, which index.html has fetched but does not run: shows the theme, and
// lets the browser paint the first screen before that code takes the processor.

import { showTheme } from "./theme_choice";

const PAINTED_MS = 100; // in a tab that is not seen nothing is painted

let started = false;

function start() {
    if (started) return;
    started = true;
    const code = document.querySelector<HTMLLinkElement>("link[data-main]")!;
    import(code.href).catch(() => {}); // the browser has logged what failed
}

function startWhenPainted() {
    requestAnimationFrame(() => {
        const painted = new MessageChannel();
        painted.port1.onmessage = start;
        painted.port2.postMessage(null);
    });
    setTimeout(start, PAINTED_MS);
}

showTheme();
if (document.readyState === "loading")
    document.addEventListener("DOMContentLoaded", startWhenPainted);
else startWhenPainted();
