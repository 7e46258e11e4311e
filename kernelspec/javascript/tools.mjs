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
  #usedMs = Date.now();
  #sent;
  ended = false;

  constructor(connection) {
    this.#connection = connection;
    this.#sent = this.#write(new TextEncoder().encode(greeting));
    this.#read();
  }

  // Lets the end of a connection be noticed that no call has used for a while.
  async settle() {
    if (this.#waiting.size === 0 && Date.now() - this.#usedMs > idleMs) {
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  ask(request, signal) {
    const id = ++this.#ids;
    const line = toLine({ id, ...request });
    const answer = Promise.withResolvers();
    const leave = () => {
      if (!this.#waiting.delete(id)) return;
      answer.reject(signal.reason);
      this.#send(toLine({ id, method: "cancel" }));
    };
    this.#waiting.set(id, answer);
    this.#usedMs = Date.now();
    this.#send(line);
    signal?.addEventListener("abort", leave, { once: true });
    return answer.promise.finally(() => signal?.removeEventListener("abort", leave));
  }

  #send(line) {
    this.#sent = this.#sent.then(() => this.#write(line));
  }

  async #write(bytes) {
    try {
      for (let at = 0; at < bytes.length; ) at += await this.#connection.write(bytes.subarray(at));
    } catch {
      // Whoever reads learns why, or that it has ended.
    }
  }

  async #read() {
    const decoder = new TextDecoder();
    const bytes = new Uint8Array(1 << 17);
    let rest = "";
    try {
      for (let n; (n = await this.#connection.read(bytes)) !== null; ) {
        const lines = (rest + decoder.decode(bytes.subarray(0, n), { stream: true })).split("\n");
        rest = lines.pop();
        lines.forEach((line) => this.#take(JSON.parse(line)));
      }
    } catch {
      // It has ended.
    }
    const why = "the gateway has ended or restarted while the call was under way: " +
      "it is not known whether the tool has run";
    this.#end(new ToolError(why, "lost"));
  }

  #take(answer) {
    this.#usedMs = Date.now();
    if (!("id" in answer)) {
      this.#end(errorOf(answer)); // about the connection
      return;
    }
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

let link = null; // or a promise of one

async function ask(request, signal) {
  signal?.throwIfAborted();
  const before = link;
  const known = await before?.catch(() => null);
  await known?.settle();
  if (link === before && (!known || known.ended)) link = Link.connect();
  return (await link).ask(request, signal);
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
