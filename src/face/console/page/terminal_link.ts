// SPDX-License-Identifier: Apache-2.0
// The connection to one terminal of a session: a WebSocket, which is made again when it is lost. The
// terminal goes on meanwhile, and the gateway replays the last that it has shown.

import { ApiError, ask, openSocket, send, session } from "./api";
import type { Screen } from "./screen";

const RETRY_MS = [500, 1000, 2000, 5000];
// Bytes that wait to be shown. Above the most, what comes is left out until few are left; but not the
// last, which may be the program's end and the shell's prompt.
const WAITING_MAX = 2 << 20;
const WAITING_LOW = 256 << 10;
const LAST_MAX = 64 << 10;
const QUIET_MS = 500;
const INPUT_PIECE = 64 << 10; // bytes of a message
const REPLAY_MS = 500;
const CANCEL = "\x18"; // ends a sequence that has lost its end

export interface LinkState {
    kind: "connecting" | "open" | "lost" | "ended";
    text: string; // why it is lost, or how it has ended
    missed: number; // bytes of output
}

// What a screen says by itself: answers to a program that asks for its kind or state, and its focus. Of a
// replay, nobody waits for it.
const isAnswer = (bytes: Uint8Array) =>
    /^\x1b(\[[?>=]?[\d;]*[cnRtyIO]|\[\?[\d;]*\$y|[P\]])/.test(
        String.fromCharCode(...bytes.subarray(0, 40)),
    );

function describeEnd(told: { exit_code: number | null; signal?: string; error?: string }): string {
    if (told.exit_code === null) return `The terminal was lost: ${told.error ?? "unknown"}`;
    if (told.signal) return `The shell was ended by ${told.signal}.`;
    return `The shell has ended with exit code ${told.exit_code}.`;
}

export class TerminalLink {
    state: LinkState = { kind: "connecting", text: "", missed: 0 };
    private socket: WebSocket | null = null;
    private left = new AbortController();
    private attempt = 0;
    private timer = 0;
    private waiting = 0;
    private leavesOut = false;
    private leftOut = 0; // bytes
    private last: Uint8Array[] = []; // of what is left out, at least LAST_MAX bytes if there were as many
    private quiet = 0; // the timer that joins again
    private lacks = false; // what the gateway has left out
    private replays = false;

    constructor(
        private sessionId: string,
        readonly commandId: string,
        private screen: Screen,
        private onState: (state: LinkState) => void,
    ) {
        addEventListener("online", this.now);
        void this.join();
    }

    /** Leaves the terminal, which goes on. */
    leave() {
        removeEventListener("online", this.now);
        clearTimeout(this.timer);
        clearTimeout(this.quiet);
        this.left.abort();
        this.socket?.close();
    }

    send(bytes: Uint8Array) {
        if (this.socket?.readyState !== WebSocket.OPEN) return;
        if (this.replays && isAnswer(bytes)) return;
        this.replays = false; // somebody types: what comes now is new
        for (let at = 0; at < bytes.length; at += INPUT_PIECE)
            this.socket.send(bytes.slice(at, at + INPUT_PIECE));
    }

    resize() {
        if (this.socket?.readyState === WebSocket.OPEN)
            this.socket.send(JSON.stringify({ resize: this.screen.size }));
    }

    private now = () => {
        if (this.state.kind === "lost") this.retry(0);
    };

    private tell(change: Partial<LinkState>) {
        if (this.left.signal.aborted) return;
        this.state = { ...this.state, ...change };
        this.onState(this.state);
    }

    private retry(ms: number) {
        clearTimeout(this.timer);
        this.timer = window.setTimeout(() => void this.join(), ms);
    }

    private lose(why: string) {
        if (this.left.signal.aborted || this.state.kind === "ended") return;
        this.tell({ kind: "lost", text: why });
        this.retry(RETRY_MS[Math.min(this.attempt++, RETRY_MS.length - 1)]!);
    }

    /** Only a terminal that is known is joined: its name alone would start another shell. */
    private async join() {
        try {
            await ask(session(this.sessionId, "commands", this.commandId), {
                signal: this.left.signal,
            });
        } catch (error) {
            if (this.left.signal.aborted) return;
            if (error instanceof ApiError && error.status === 404)
                return this.tell({ kind: "ended", text: "This terminal has ended." });
            return this.lose((error as Error).message);
        }
        const id = encodeURIComponent(this.commandId);
        const socket = openSocket(`${session(this.sessionId, "terminal")}?id=${id}`);
        this.socket?.close();
        this.socket = socket;
        socket.binaryType = "arraybuffer";
        socket.onmessage = ({ data }) => {
            if (this.socket !== socket || this.left.signal.aborted) return;
            if (typeof data === "string") this.hear(JSON.parse(data));
            else this.show(new Uint8Array(data));
        };
        socket.onclose = () => {
            if (this.socket === socket) this.lose("The connection was lost.");
        };
    }

    private hear(told: any) {
        if ("command_id" in told) return this.begin(told.running && told.dropped_bytes > 0);
        if ("exit_code" in told) return this.tell({ kind: "ended", text: describeEnd(told) });
        if ("dropped_bytes" in told) this.lack(told.dropped_bytes);
    }

    /** `lacksBegin`: a program may have drawn what is no longer replayed; it is asked to draw again. */
    private begin(lacksBegin: boolean) {
        this.attempt = 0;
        this.lacks = false;
        this.screen.reset();
        this.replays = true;
        setTimeout(() => this.screen.write("", () => (this.replays = false)), REPLAY_MS);
        this.resize();
        this.tell({ kind: "open", text: "" });
        if (!lacksBegin) return;
        const where = session(this.sessionId, "commands", this.commandId, "signal");
        send(where, { method: "POST", body: { signal: "WINCH" } }).catch(() => {}); // it has ended
    }

    private miss(bytes: number) {
        this.screen.write(CANCEL);
        this.tell({ missed: this.state.missed + bytes });
    }

    /** The gateway has left something out. When nothing more comes, the end of it is had by joining again. */
    private lack(bytes: number) {
        this.miss(bytes);
        this.lacks = true;
        this.joinWhenQuiet();
    }

    private joinWhenQuiet() {
        clearTimeout(this.quiet);
        if (this.lacks) this.quiet = window.setTimeout(() => void this.join(), QUIET_MS);
    }

    /** The browser reads whatever comes, so what it cannot show in time is left out here. */
    private show(bytes: Uint8Array) {
        this.joinWhenQuiet();
        if (this.waiting > WAITING_MAX) this.leavesOut = true;
        if (this.leavesOut) return this.leaveOut(bytes);
        this.waiting += bytes.length;
        this.screen.write(bytes, () => {
            this.waiting -= bytes.length;
            if (this.leavesOut && this.waiting < WAITING_LOW) this.showAgain();
        });
    }

    private leaveOut(bytes: Uint8Array) {
        this.last.push(bytes);
        let kept = this.last.reduce((sum, piece) => sum + piece.length, 0);
        while (kept - this.last[0]!.length >= LAST_MAX) {
            const first = this.last.shift()!;
            kept -= first.length;
            this.leftOut += first.length;
        }
    }

    private showAgain() {
        const last = this.last;
        this.leavesOut = false;
        this.miss(this.leftOut);
        this.leftOut = 0;
        this.last = [];
        for (const bytes of last) this.show(bytes);
    }
}
