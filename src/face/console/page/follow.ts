// SPDX-License-Identifier: Apache-2.0
// Keeps the end of the page in view while it is in view, however late what is above grows.

import { useEffect, useRef } from "preact/hooks";

const NEAR = 160; // pixels

const isAtEnd = () => {
    const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
    return scrollHeight - clientHeight - scrollTop < NEAR;
};
const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);

/** Returns where the content is to be, and what goes to the end. `pauses`: what grows now is where
 * somebody writes. */
export function useFollow(pauses: () => boolean) {
    const content = useRef<HTMLDivElement>(null);
    const follows = useRef(true);
    useEffect(() => {
        let last = 0;
        // Only who scrolls up leaves the end: it may have moved on before this is called.
        const onScroll = () => {
            const { scrollTop } = document.documentElement;
            follows.current = isAtEnd() || (follows.current && scrollTop >= last);
            last = scrollTop;
        };
        const observer = new ResizeObserver(() => {
            if (follows.current && !pauses()) toEnd();
        });
        observer.observe(content.current!);
        addEventListener("scroll", onScroll, { passive: true });
        return () => {
            observer.disconnect();
            removeEventListener("scroll", onScroll);
        };
    }, []);
    const goToEnd = () => {
        follows.current = true;
        requestAnimationFrame(toEnd);
    };
    return { content, goToEnd };
}
