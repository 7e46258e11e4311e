// SPDX-License-Identifier: Apache-2.0
// E2B's SDK for JavaScript as npm has it. It finds the gateway by E2B_API_URL and E2B_SANDBOX_URL, or by
// E2B_DOMAIN, and its key in E2B_API_KEY: the environment is all that these scripts set.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.KG_NODE_ROOT + "/"));
export const { CommandExitError, NotFoundError, Sandbox } = require("@e2b/code-interpreter");

// Runs a test in a sandbox of its own. `done` is the last word of a script that has found no fault.
export async function inSandbox(test, options = {}) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, ...options });
  try {
    await test(sandbox);
  } finally {
    await sandbox.kill();
  }
  console.log("done");
}

// Resolves to the first true value of `condition`, which is asked whenever `tell` is called.
export function watched(condition) {
  let resolve;
  const found = new Promise((fulfil) => (resolve = fulfil));
  const tell = () => {
    const value = condition();
    if (value) resolve(value);
  };
  return { found, tell };
}
