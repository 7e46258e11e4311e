// SPDX-License-Identifier: Apache-2.0
// The global `tools`: what the code of this execution may call, and the client that has sent it answers.
//
//     await tools.search({query: "rain"})          // a value, or a ToolError
//     await tools.call("odd name", {query: 1})     // by its name, whatever that is
//     await tools.list(), await tools.find("rain") // which there are
//
// Calls side by side share one connection, which is made for the first one. The protocol is in
// src/tools/tool_link.h.

const greeting = '{"method":"tools","params":{}}\n';
const largestLine = 512 * 1024;
const idleMs = 1000; // after that, the gateway may have ended the connection unnoticed
const trustedMs = 1; // for so long after the gateway has answered, a connection with calls is used as it is
const trialMs = 1000; // a connection that does not answer for so long is not used again
const retiredMs = 10 * 1000; // then it is seen whether its calls can still be answered

export class ToolError extends Error {
  // `code` is tool_error (the tool itself says so), timeout, cancelled, lost, invalid_request, not_found, …
  constructor(message, code = "tool_error") {
    super(message);
    this.name = "ToolError";
    this.code = code;
  }
}

// A result that was too large for a value: JSON in a file.
export class ResultFile {
  constructor(path) {
    this.path = path;
  }
  async load() {
    return JSON.parse(await Deno.readTextFile(this.path));
  }
  toString() {
    return this.path;
  }
  toJSON() {
    return this.path;
  }
}

// ---- Requests and answers as lines

// What JSON does not know, but a caller would expect it to.
function plain(_, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw notJson(String(value));
  if (typeof value === "bigint") {
    const number = Number(value);
    if (!Number.isSafeInteger(number)) throw notJson(`${value}n`);
    return number;
  }
  if (value instanceof Set) return [...value];
  if (value instanceof Map) return Object.fromEntries(value);
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return [...value];
  return value;
}

function notJson(what) {
  return new ToolError(`arguments: ${what} is not JSON`, "invalid_request");
}

function toLine(request) {
  const line = new TextEncoder().encode(JSON.stringify(request, plain) + "\n");
  if (line.length > largestLine) {
    const advice = "Write them to a file and pass its name";
    throw new ToolError(
      `the arguments are ${line.length} bytes as JSON; the limit is ${largestLine}. ${advice}`,
      "invalid_request",
    );
  }
  return line;
}

function errorOf(answer) {
  const message = answer.error ?? answer.message ?? "the call has failed";
  return new ToolError(message, answer.code ?? "tool_error");
}

// ---- The connection

const lost = "the gateway has ended or restarted while the call was under way: " +
  "it is not known whether the tool has run";

// An interrupt ends the whole turn of Deno's event loop: promises whose operations this turn has completed
// are never settled. So what reads a connection, or writes to it, may be gone without a trace. It is read
// only while calls wait, by a loop that the first of them starts, and while calls wait it is tried before it
// is used again.
class Link {
  static async connect() {
    const name = Deno.env.get("KERNELGATE_SOCKET") ?? "@kernelgate";
    const path = name.startsWith("@") ? `\0${name.slice(1)}` : name;
    try {
      return new Link(await Deno.connect({ transport: "unix", path }));
    } catch (error) {
      throw new ToolError(`there is no gateway to call tools of: ${error.message}`, "not_found");
    }
  }

  #connection;
  #ids = 0;
  #waiting = new Map(); // by id: {resolve, reject}
  #usedMs = performance.now();
  #answeredMs = 0;
  #trial = null; // {sinceMs, promise}
  #out = { lines: 0, sent: Promise.resolve() }; // lines that are not sent yet, and the end of that
  #last = 0; // the id of the last line
  #reader = 0; // counts them: the newest goes on
  #decoder = new TextDecoder();
  #rest = ""; // of what was read: the beginning of a line
  ended = false;

  constructor(connection) {
    this.#connection = connection;
    this.#send(0, new TextEncoder().encode(greeting));
  }

  isTrusted() {
    const [sinceMs, limitMs] = this.#isIdle() ? [this.#usedMs, idleMs] : [this.#answeredMs, trustedMs];
    return !this.ended && performance.now() - sinceMs < limitMs;
  }

  #isIdle() {
    return this.#waiting.size === 0 && this.#out.lines === 0;
  }

  // Whether it answers. Calls side by side share a trial.
  answers() {
    if (!this.#trial || performance.now() - this.#trial.sinceMs > trialMs) {
      const promise = this.ask({ method: "list", server: "" }).then(() => true, () => false);
      this.#trial = { sinceMs: performance.now(), promise };
      promise.then(() => this.#trial = null);
    }
    return within(this.#trial.promise);
  }

  // Nothing more is asked here; calls that wait are answered where that is still possible.
  retire() {
    if (this.#waiting.size === 0) this.#end(new ToolError(lost, "lost"));
    if (this.ended) return;
    setTimeout(async () => {
      if (await this.answers()) this.retire();
      else this.#end(new ToolError(lost, "lost"));
    }, retiredMs);
  }

  ask(request, signal) {
    const id = ++this.#ids;
    const line = toLine({ id, ...request });
    const answer = Promise.withResolvers();
    const leave = () => {
      if (!this.#waiting.delete(id)) return;
      answer.reject(signal.reason);
      this.#send(0, toLine({ id, method: "cancel" }));
    };
    const isFirst = this.#waiting.size === 0;
    this.#usedMs = performance.now();
    if (this.#isIdle()) this.#answeredMs = this.#usedMs; // nothing can be wrong with it
    this.#waiting.set(id, answer);
    this.#send(id, line);
    if (isFirst) this.#read();
    signal?.addEventListener("abort", leave, { once: true });
    return answer.promise.finally(() => signal?.removeEventListener("abort", leave));
  }

  #send(id, line) {
    const out = this.#out;
    this.#last = id;
    out.lines++;
    out.sent = out.sent.then(() => this.#write(line)).then(() => out.lines--);
  }

  async #write(bytes) {
    try {
      for (let at = 0; at < bytes.length; ) at += await this.#connection.write(bytes.subarray(at));
    } catch {
      // #read() finds out that the connection has ended.
    }
  }

  // There may be one before, which waits for bytes still: it takes those, and leaves.
  async #read() {
    const reader = ++this.#reader;
    const bytes = new Uint8Array(1 << 17);
    try {
      for (let n; (n = await this.#connection.read(bytes)) !== null; ) {
        const text = this.#decoder.decode(bytes.subarray(0, n), { stream: true });
        const lines = (this.#rest + text).split("\n");
        this.#rest = lines.pop();
        lines.forEach((line) => this.#take(JSON.parse(line)));
        if (reader !== this.#reader || this.#waiting.size === 0) return;
      }
    } catch {
      // It has ended.
    }
    this.#end(new ToolError(lost, "lost"));
  }

  #take(answer) {
    this.#usedMs = this.#answeredMs = performance.now();
    if (!("id" in answer)) {
      this.#end(errorOf(answer)); // about the connection
      return;
    }
    // Then it has been sent, and all before it, whether or not that was noticed.
    if (answer.id === this.#last) this.#out = { lines: 0, sent: Promise.resolve() };
    const call = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if (!call) return;
    if ("error" in answer) call.reject(errorOf(answer));
    else if ("file" in answer) call.resolve(new ResultFile(answer.file));
    else call.resolve("tools" in answer ? answer.tools : answer.result);
  }

  #end(error) {
    const calls = [...this.#waiting.values()];
    this.#waiting.clear();
    if (!this.ended) this.#connection.close();
    this.ended = true;
    calls.forEach((call) => call.reject(error));
  }
}

// What the promise gives; undefined: nothing in time.
async function within(promise) {
  let timer;
  const late = new Promise((resolve) => timer = setTimeout(resolve, trialMs));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

let link = null;
let connecting = null; // a promise of the next one

async function connected() {
  for (;;) {
    const known = link;
    if (known?.isTrusted()) return known;
    if (known && !known.ended && await known.answers()) return known;
    if (link !== known) continue; // another call has found a better one
    known?.retire();
    link = null;
    const promise = connecting ??= Link.connect();
    try {
      const made = await within(promise);
      if (made && !made.ended) return link = made;
    } finally {
      if (connecting === promise) connecting = null;
    }
  }
}

async function ask(request, signal) {
  signal?.throwIfAborted();
  return (await connected()).ask(request, signal);
}

// ---- What code sees

async function call(name, args = {}, { signal } = {}) {
  if (args === null || typeof args !== "object" || Array.isArray(args)) {
    throw new TypeError(`${name}() takes its arguments as one object, as in ${name}({query: "…"})`);
  }
  return await ask({ method: "call", name, arguments: args }, signal);
}

async function list() {
  return await ask({ method: "list" });
}

// Those with all words of `text` in their name or description: {name: description}.
async function find(text = "") {
  const words = text.toLowerCase().split(/\s+/);
  const has = (tool) => words.every((word) => `${tool.name} ${tool.description}`.toLowerCase().includes(word));
  return Object.fromEntries((await list()).filter(has).map((tool) => [tool.name, tool.description]));
}

const own = {
  call,
  list,
  find,
  ToolError,
  ResultFile,
  [Symbol.for("Deno.customInspect")]: () => "tools: await tools.list() says which there are",
};
// What promises and JSON look for in any object.
const others = new Set(["then", "toJSON", ...Object.getOwnPropertyNames(Object.prototype)]);

// A tool, or a server of the gateway's, whose tools are its members: which there are is only known when
// one is called.
function member(name) {
  return new Proxy((args, options) => call(name, args, options), {
    get(target, key) {
      if (typeof key === "symbol" || key in target || others.has(key)) return target[key];
      return member(`${name}.${key}`);
    },
  });
}

export const tools = new Proxy(own, {
  get(target, name) {
    if (typeof name === "symbol" || name in target || others.has(name)) return target[name];
    return member(name);
  },
});
