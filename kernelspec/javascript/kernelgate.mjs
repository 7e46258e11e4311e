// SPDX-License-Identifier: Apache-2.0
// kernelgate's additions to Deno's kernel: `require`, `display`, `tools`, variables, environment, and
// what Deno 2.7's kernel does not show: what code writes to its streams, errors of timers and promises.
import { Buffer } from "node:buffer";
import { createRequire } from "node:module";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { tools } from "./tools.mjs";

const identifier = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u;
const indirectEval = globalThis.eval;
let savedEnv = {};
let folderIsSet = false;

// A `let` variable hides the global object's property of that name, so it is assigned by running code.
function setVariable(name, value) {
  globalThis[name] = value;
  if (!identifier.test(name)) return;
  let seen;
  try {
    seen = indirectEval(name);
  } catch {
    return; // a reserved word: only globalThis["class"] is possible
  }
  if (seen === value) return;
  const slot = Symbol.for("kernelgate.value");
  globalThis[slot] = value;
  try {
    indirectEval(`${name} = globalThis[Symbol.for("kernelgate.value")]`);
  } finally {
    delete globalThis[slot];
  }
}

globalThis[Symbol.for("kernelgate")] = Object.freeze({
  setVariables(json) {
    for (const [name, value] of Object.entries(JSON.parse(json))) setVariable(name, value);
  },
  // Once: a gateway that takes the kernel over asks again, and code may have gone elsewhere.
  setFolder(json) {
    if (folderIsSet) return;
    const { folder, home } = JSON.parse(json);
    Deno.mkdirSync(folder, { recursive: true });
    process.chdir(folder);
    if (home !== undefined) process.env.HOME = home;
    globalThis.require = createRequire(pathToFileURL(`${folder}/`));
    folderIsSet = true;
  },
  setEnv(json) {
    for (const [name, value] of Object.entries(JSON.parse(json))) {
      savedEnv[name] = process.env[name];
      process.env[name] = value;
    }
  },
  restoreEnv() {
    for (const [name, value] of Object.entries(savedEnv)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    savedEnv = {};
  },
});

globalThis.require ??= createRequire("file:///mnt/data/");
globalThis.display ??= Deno.jupyter.display;
// Code may have a `tools` of its own, by any kind of declaration.
if (!("tools" in globalThis)) {
  Object.defineProperty(globalThis, "tools", {
    value: tools,
    configurable: true,
    writable: true,
    enumerable: false,
  });
}

// ---- Streams. Deno's kernel shows what console prints, and sends the descriptors to its log.

const { print } = Deno[Deno.internal].core;

function show(file, isError) {
  const decoder = new TextDecoder();
  file.writeSync = (bytes) => {
    print(decoder.decode(bytes, { stream: true }), isError);
    return bytes.length;
  };
  file.write = async (bytes) => file.writeSync(bytes);
  Object.defineProperty(file, "writable", {
    configurable: true,
    get: () => new WritableStream({ write: (bytes) => void file.writeSync(bytes) }),
  });
  return (chunk, encoding, done) => {
    file.writeSync(typeof chunk === "string" ? Buffer.from(chunk, toEncoding(encoding)) : chunk);
    const callback = typeof encoding === "function" ? encoding : done;
    if (callback) process.nextTick(callback);
    return true;
  };
}

function toEncoding(encoding) {
  return typeof encoding === "string" ? encoding : "utf8";
}

process.stdout.write = show(Deno.stdout, false);
process.stderr.write = show(Deno.stderr, true);

// ---- Errors that no code waits for. Without these, Deno's kernel forgets them, and after one of a timer
// nothing that is awaited ends.

addEventListener("error", (event) => {
  event.preventDefault();
  console.error("Uncaught", event.error);
});
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  console.error("Uncaught (in promise)", event.reason);
});
