// SPDX-License-Identifier: Apache-2.0
// The gateway's public API, as the console uses it: the key or login, requests, errors, lines of
// streams.

const KEY = "kernelgate.key";
const base = new URL("..", document.baseURI);

export class ApiError extends Error {
    constructor(
        readonly status: number,
        readonly code: string,
        message: string,
    ) {
        super(message);
    }
}

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export function setKey(key: string) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
}

/** The logged-in user. The credential is the key, or a cookie, which this page cannot read. */
export interface Login {
    user: string;
    administrator: boolean;
    has_password: boolean;
    csrf_token: string | null; // null: by a key
    sessions: number;
    quota: { max_sessions: number; max_requests_per_second: number; max_memory_mb: number };
}
let login: Login | null = null; // of a gateway with accounts
export const getLogin = () => login;
export function setLogin(who: Login | null) {
    login = who;
}

export interface Registration {
    open: boolean;
    first: boolean; // there are no users yet
}

export const PASSWORD_MIN = 10;

/** The gateway's address, without a slash at its end. */
export const address = base.href.replace(/\/$/, "");

/** Called when the gateway refuses the key or the login. */
let onRefused = () => {};
export function whenRefused(call: () => void) {
    onRefused = call;
}

const path = (parts: string[]) => parts.map(encodeURIComponent).join("/");
export const session = (id: string, ...rest: string[]) => `api/v1/sessions/${path([id, ...rest])}`;
export const file = (id: string, name: string) =>
    `${session(id)}/files/${path(name.split("/"))}`;

export interface Options {
    method?: string;
    body?: unknown;
    raw?: Blob;
    signal?: AbortSignal;
}

/** Sends a request below the gateway's address; an answer that is an error is thrown as ApiError. */
export async function send(where: string, options: Options = {}): Promise<Response> {
    const headers: Record<string, string> = {};
    const key = getKey();
    if (key) headers.Authorization = `Bearer ${key}`;
    else if (login?.csrf_token) headers["X-CSRF-Token"] = login.csrf_token;
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    let response: Response;
    try {
        response = await fetch(new URL(where, base), {
            method: options.method ?? "GET",
            headers,
            body: options.raw ?? (options.body === undefined ? null : JSON.stringify(options.body)),
            signal: options.signal ?? null,
            cache: "no-store",
            credentials: "same-origin",
        });
    } catch (error) {
        if ((error as Error).name === "AbortError") throw error;
        throw new ApiError(0, "unreachable", "The gateway is not responding.");
    }
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    // Another tab may have logged in as another user, who has another token.
    if (response.status === 401 || problem.code === "csrf_token_required") onRefused();
    throw new ApiError(
        response.status,
        problem.code ?? "",
        problem.detail ?? problem.title ?? `The gateway answered ${response.status}.`,
    );
}

const base64url = (text: string) =>
    btoa(String.fromCharCode(...new TextEncoder().encode(text)))
        .replaceAll("+", "-")
        .replaceAll("/", "_")
        .replaceAll("=", "");

/** A WebSocket to the gateway. Its key goes as a subprotocol: browsers send no other headers, and an
 * address would be in logs. */
export function openSocket(where: string): WebSocket {
    const key = getKey();
    const offered = ["kernelgate.terminal"];
    if (key) offered.push(`kernelgate.key.${base64url(key)}`);
    const url = new URL(where, base);
    url.protocol = url.protocol.replace("http", "ws");
    return new WebSocket(url, offered);
}

export const ask = async <T>(where: string, options?: Options): Promise<T> =>
    (await send(where, options)).json();

/** One line of a stream; docs/api.md lists the types. */
export interface Line {
    type: string;
    seq?: number;
    [member: string]: any;
}

/** Calls `onLine` for each line of an NDJSON stream as it arrives. */
export async function readLines(response: Response, onLine: (line: Line) => void) {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let pieces: string[] = [];
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            const ends = value.split("\n");
            for (let i = 0; i < ends.length - 1; i++) {
                pieces.push(ends[i]!);
                const text = pieces.join("");
                pieces = [];
                if (text) onLine(JSON.parse(text));
            }
            pieces.push(ends[ends.length - 1]!);
        }
    } catch (error) {
        reader.cancel().catch(() => {}); // else the connection stays open
        throw error;
    }
}

export interface Session {
    session_id: string;
    created_at: string;
    last_activity: string;
    expires_at: string;
    is_busy: boolean;
    execution_count: number;
    metadata?: Record<string, string>;
    kernels: Record<string, { state: string; execution_count: number }>;
    // These are missing where an older replica has the session.
    memory_bytes?: number | null;
    commands?: number | null;
    terminals?: number | null;
    usage?: { memory_bytes: number; cpu_seconds: number; pids: number; disk_bytes: number };
}

/** A command that was started, as the gateway lists it. */
export interface Command {
    command_id: string;
    command: string; // empty: a shell
    cwd: string;
    terminal: boolean;
    running: boolean;
    started_at: string;
    clients: number;
    exit_code?: number;
    signal?: string;
}

export interface Kernelspec {
    name: string;
    display_name: string;
    language: string;
    default: boolean;
    savepoints?: boolean; // whether its kernels have some; missing with an older replica
}

export interface Entry {
    path: string;
    type: string;
    size: number;
    mtime: string;
    mime?: string;
}
