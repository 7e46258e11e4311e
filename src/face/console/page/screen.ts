// SPDX-License-Identifier: Apache-2.0
// The screen of a terminal: xterm.js with the page's colours, keys and size. A bundle of its own, which is
// loaded for the first terminal.

import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import css from "@xterm/xterm/css/xterm.css" with { type: "text" };

import { addSheet } from "./sheet";

const SCROLLBACK = 5000; // lines
const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export const LEAVE_HINT = "Ctrl+M leaves it";

export interface ScreenEvents {
    onInput(bytes: Uint8Array): void;
    onResize(cols: number, rows: number): void;
    onFocus(): void;
    /** The keys that leave the terminal. */
    onLeave(): void;
    onCopy(text: string): void;
}

Terminal.strings.promptLabel = `Terminal. ${LEAVE_HINT}.`;
addSheet(css);

function themeOfPage(): ITheme {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const theme: Record<string, string> = {
        background: color("raised"),
        foreground: color("text"),
        cursor: color("accent"),
        cursorAccent: color("raised"),
        selectionBackground: color("selection"),
    };
    COLORS.forEach((name, i) => {
        theme[name] = color(`c${i}`);
        theme[`bright${name[0]!.toUpperCase()}${name.slice(1)}`] = color(`c${i === 0 ? 8 : i}`);
    });
    return theme;
}

const bytesOf = (binary: string) => Uint8Array.from(binary, (char) => char.charCodeAt(0));

export class Screen {
    private terminal: Terminal;
    private fit = new FitAddon();
    private observer = new ResizeObserver(() => this.fit.fit());

    constructor(
        private box: HTMLElement,
        private events: ScreenEvents,
        readsAloud: boolean,
    ) {
        this.terminal = new Terminal({
            fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
            fontSize: 13.5,
            scrollback: SCROLLBACK,
            theme: themeOfPage(),
            minimumContrastRatio: 4.5,
            screenReaderMode: readsAloud,
            macOptionIsMeta: true,
        });
        const encoder = new TextEncoder();
        this.terminal.loadAddon(this.fit);
        this.terminal.open(box);
        this.terminal.onData((text) => events.onInput(encoder.encode(text)));
        this.terminal.onBinary((binary) => events.onInput(bytesOf(binary)));
        this.terminal.onResize(({ cols, rows }) => events.onResize(cols, rows));
        this.terminal.textarea!.addEventListener("focus", () => events.onFocus());
        this.terminal.attachCustomKeyEventHandler((event) => this.onKey(event));
        this.fit.fit();
        this.observer.observe(box);
    }

    get size(): [cols: number, rows: number] {
        return [this.terminal.cols, this.terminal.rows];
    }

    /** Calls `onShown` when the bytes are on the screen. */
    write(bytes: Uint8Array | string, onShown?: () => void) {
        this.terminal.write(bytes, onShown);
    }

    reset() {
        this.terminal.reset();
    }

    focus() {
        this.terminal.focus();
    }

    showTheme() {
        this.terminal.options.theme = themeOfPage();
    }

    readAloud(yes: boolean) {
        this.terminal.options.screenReaderMode = yes;
    }

    dispose() {
        this.observer.disconnect();
        this.terminal.dispose();
        this.box.replaceChildren();
    }

    /** False: the terminal does not get the key. The browser itself pastes, by Ctrl+Shift+V. */
    private onKey(event: KeyboardEvent): boolean {
        const only = (shift: boolean) =>
            event.ctrlKey && event.shiftKey === shift && !event.altKey && !event.metaKey;
        const leaves = only(false) && event.code === "KeyM";
        const copies =
            (only(true) && event.code === "KeyC") || (only(false) && event.code === "Insert");
        if (!leaves && !copies) return true;
        event.preventDefault();
        if (event.type !== "keydown") return false;
        if (leaves) this.events.onLeave();
        else if (this.terminal.hasSelection()) this.events.onCopy(this.terminal.getSelection());
        return false;
    }
}
