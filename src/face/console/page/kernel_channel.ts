// SPDX-License-Identifier: Apache-2.0
// Asks a session's kernel by Jupyter's messages, over the WebSocket of the gateway's Jupyter API. It is
// opened with the first question, and closed soon after the last one: while it is open, the session does
// not expire, and all output comes over it, too.

import { getKey, getLogin, openSocket } from "./api";

const PROTOCOL = "v1.kernel.websocket.jupyter.org";
const ANSWER_MS = 5000;
const IDLE_MS = 30_000;
const RETRY_MS = 60_000;
const MESSAGE_MAX = 4 << 20; // bytes; what is larger is no answer to a question of this page

type Json = Record<string, any>;

/** The offsets of the parts, then the channel's name and the parts. */
function encode(parts: string[]): ArrayBuffer {
    const encoded = parts.map((part) => new TextEncoder().encode(part));
    let offset = 8 * (encoded.length + 2);
    const bytes = new Uint8Array(offset + encoded.reduce((sum, part) => sum + part.length, 0));
    const view = new DataView(bytes.buffer);
    view.setBigUint64(0, BigInt(encoded.length + 1), true);
    for (let i = 0; i <= encoded.length; i++) {
        view.setBigUint64(8 * (i + 1), BigInt(offset), true);
        if (i === encoded.length) break;
        bytes.set(encoded[i]!, offset);
        offset += encoded[i]!.length;
    }
    return bytes.buffer;
}

function decode(buffer: ArrayBuffer): { header: Json; parent: Json; content: Json } | null {
    const view = new DataView(buffer);
    const offset = (i: number) => Number(view.getBigUint64(8 * (i + 1), true));
    const part = (i: number) =>
        JSON.parse(new TextDecoder().decode(buffer.slice(offset(i), offset(i + 1))));
    try {
        return { header: part(1), parent: part(2), content: part(4) };
    } catch {
        return null;
    }
}

/** Jupyter's API has the sessions whose ids are UUIDs, and takes no key or login from a page. */
const isServed = (sessionId: string) =>
    !getKey() && !getLogin() && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(sessionId);

interface Question {
    type: string;
    resolve: (content: Json | null) => void;
}

export class KernelChannel {
    private socket: WebSocket | null = null;
    private opened: Promise<boolean> = Promise.resolve(false);
    private questions = new Map<string, Question>();
    private busy = false; // with somebody's code
    private idle = 0;
    private client = crypto.randomUUID();
    private failed = -Infinity; // when it could not be opened

    constructor(private sessionId: string) {}

    /** The content of the reply to a request; null if there is none in time, or the kernel is busy. */
    async request(type: string, content: Json): Promise<Json | null> {
        if (!isServed(this.sessionId) || performance.now() - this.failed < RETRY_MS) return null;
        if (!(await this.open()) || this.busy) return null;
        const id = crypto.randomUUID();
        const header = {
            msg_id: id,
            msg_type: `${type}_request`,
            session: this.client,
            username: "",
            date: new Date().toISOString(),
            version: "5.3",
        };
        return new Promise((resolve) => {
            const timer = setTimeout(() => settle(null), ANSWER_MS);
            const settle = (reply: Json | null) => {
                clearTimeout(timer);
                this.questions.delete(id);
                resolve(reply);
            };
            this.questions.set(id, { type: `${type}_reply`, resolve: settle });
            this.socket!.send(
                encode(["shell", JSON.stringify(header), "{}", "{}", JSON.stringify(content)]),
            );
        });
    }

    close() {
        clearTimeout(this.idle);
        this.socket?.close();
        this.socket = null;
        for (const { resolve } of this.questions.values()) resolve(null);
    }

    private open(): Promise<boolean> {
        clearTimeout(this.idle);
        this.idle = window.setTimeout(() => this.close(), IDLE_MS);
        if (this.socket) return this.opened;
        const socket = openSocket(
            `api/kernels/${encodeURIComponent(this.sessionId)}/channels`,
            PROTOCOL,
        );
        socket.binaryType = "arraybuffer";
        this.socket = socket;
        this.opened = new Promise((resolve) => {
            setTimeout(resolve, ANSWER_MS, false);
            // The first message says whether the kernel is busy.
            socket.onmessage = ({ data }) => {
                this.onMessage(data);
                resolve(true);
            };
            socket.onerror = () => (this.failed = performance.now());
            socket.onclose = () => {
                resolve(false);
                if (this.socket === socket) this.close();
            };
        });
        return this.opened;
    }

    private onMessage(data: unknown) {
        if (!(data instanceof ArrayBuffer) || data.byteLength > MESSAGE_MAX) return;
        const message = decode(data);
        if (!message) return;
        const { header, parent, content } = message;
        const question = this.questions.get(parent.msg_id);
        if (question && header.msg_type === question.type) question.resolve(content);
        else if (header.msg_type === "status" && parent.session !== this.client)
            this.busy = content.execution_state !== "idle";
    }
}
