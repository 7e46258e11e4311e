// SPDX-License-Identifier: Apache-2.0
// The keys of a notebook's command mode: those of JupyterLab, and U.

import type { Command } from "./cell_view";

const TWICE_MS = 1000; // for two keys in a row

export type KeyCommand =
    | Command
    | "run-next" | "stay" | "insert" | "previous" | "next" | "undo" | "interrupt" | "cut" | "copy" | "paste"
    | "wait"; // for the second key

const KEYS: Record<string, KeyCommand> = {
    Enter: "edit",
    ArrowUp: "previous",
    ArrowDown: "next",
    k: "previous",
    j: "next",
    a: "above",
    b: "below",
    m: "markdown",
    y: "code",
    z: "undo",
    x: "cut",
    c: "copy",
    v: "paste",
    u: "take-back",
};
const TWICE: Record<string, KeyCommand> = { d: "delete", i: "interrupt" };

/** `before` is the key that was pressed last, which this changes. Null: the key does nothing here. */
export function keyCommand(
    event: KeyboardEvent,
    before: { key: string; at: number },
): KeyCommand | null {
    const { key, shiftKey, altKey } = event;
    const mod = event.ctrlKey || event.metaKey;
    const again = before.key === key && performance.now() - before.at < TWICE_MS;
    before.key = "";
    if (key === "Enter" && shiftKey) return "run-next";
    if (key === "Enter" && mod) return "stay";
    if (key === "Enter" && altKey) return "insert";
    if (mod && shiftKey && key === "ArrowUp") return "up";
    if (mod && shiftKey && key === "ArrowDown") return "down";
    if (mod || altKey || shiftKey) return null;
    if (!TWICE[key]) return KEYS[key] ?? null;
    if (again) return TWICE[key];
    before.key = key;
    before.at = performance.now();
    return "wait";
}
