// SPDX-License-Identifier: Apache-2.0
// How high frames were when they last reported it: a reload draws them as high at once, and what is
// below does not jump.

const NAME = "kernelgate.heights";
const HEIGHTS_MAX = 300;

let heights: Map<string, number> | null = null; // the oldest first

function load(): Map<string, number> {
    try {
        return new Map(JSON.parse(sessionStorage.getItem(NAME) ?? "[]"));
    } catch {
        return new Map();
    }
}

/** A name for a frame's content: its length and FNV-1a's hash. */
export function heightName(content: string): string {
    let hash = 0x811c9dc5;
    for (let i = 0; i < content.length; i++) hash = Math.imul(hash ^ content.charCodeAt(i), 0x01000193);
    return `${content.length}.${hash >>> 0}`;
}

export const heightOf = (name: string) => (heights ??= load()).get(name);

export function keepHeight(name: string, height: number) {
    heights ??= load();
    if (heights.get(name) === height) return;
    heights.delete(name);
    heights.set(name, height);
    for (const oldest of heights.keys()) {
        if (heights.size <= HEIGHTS_MAX) break;
        heights.delete(oldest);
    }
    try {
        sessionStorage.setItem(NAME, JSON.stringify([...heights]));
    } catch {
        // The browser's room for this tab is full: the height is known until a reload.
    }
}
