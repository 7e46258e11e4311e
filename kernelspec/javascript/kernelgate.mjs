// SPDX-License-Identifier: Apache-2.0
// kernelgate's additions to Deno's kernel: `require`, `display`, variables, environment.
import { createRequire } from "node:module";
import process from "node:process";

const identifier = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u;
const indirectEval = globalThis.eval;
let savedEnv = {};

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
