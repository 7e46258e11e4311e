// SPDX-License-Identifier: Apache-2.0
// Keeps the end of the page in view while it is in view, however late what is above grows.

import { useEffect, useRef } from "preact/hooks";

const NEAR = 4; // pixels

const page = () => document.documentElement;
const isAtEnd = () => page().scrollHeight - page().clientHeight - page().scrollTop < NEAR;

/** Returns where the content is to be, and what goes to the end. `pauses`: what grows now is where
 * somebody writes. */
export function useFollow(pauses: () => boolean) {
    const content = useRef<HTMLDivElement>(null);
    const follows = useRef(true);
    const last = useRef(0); // where the page was
    // Who scrolls up leaves the end, which may have moved on before this is called.
    const look = () => {
        follows.current = isAtEnd() || (follows.current && page().scrollTop >= last.current);
        last.current = page().scrollTop;
    };
    const toEnd = () => {
        window.scrollTo(0, page().scrollHeight);
        last.current = page().scrollTop;
    };
    useEffect(() => {
        const observer = new ResizeObserver(() => {
            look();
            if (follows.current && !pauses()) toEnd();
        });
        observer.observe(content.current!);
        addEventListener("scroll", look, { passive: true });
        return () => {
            observer.disconnect();
            removeEventListener("scroll", look);
        };
    }, []);
    const goToEnd = () => {
        follows.current = true;
        requestAnimationFrame(toEnd);
    };
    return { content, goToEnd };
}
