// SPDX-License-Identifier: Apache-2.0
// runCode(): callbacks, results, errors and languages.
import assert from "node:assert/strict";
import { inSandbox } from "./sdk.mjs";

await inSandbox(async (sandbox) => {
  const told = [];
  const run = await sandbox.runCode("import sys\nprint('out')\nprint('err', file=sys.stderr)\n'a' + 'b'", {
    onStdout: (it) => told.push(`stdout ${it.line}`),
    onStderr: (it) => told.push(`stderr ${it.line}`),
    onResult: (it) => told.push(`result ${it.text}`),
  });
  assert.deepEqual(told.sort(), ["result ab", "stderr err\n", "stdout out\n"]);
  assert.equal(run.text, "ab");
  assert.deepEqual(run.logs, { stdout: ["out\n"], stderr: ["err\n"] });
  assert.ok(run.executionCount > 0);

  const errors = [];
  const failed = await sandbox.runCode("1/0", { onError: (it) => errors.push(it.name) });
  assert.deepEqual([failed.error.name, failed.error.value, ...errors], [
    "ZeroDivisionError",
    "division by zero",
    "ZeroDivisionError",
  ]);

  const figure = await sandbox.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()");
  assert.equal(Buffer.from(figure.results[0].png, "base64").toString("latin1").slice(1, 4), "PNG");
  assert.equal((await sandbox.runCode("import os; os.environ['ONCE']", { envs: { ONCE: "x" } })).text, "x");

  const squares = await sandbox.runCode("[1, 2].map((x) => x * x)", { language: "javascript" });
  assert.equal(squares.text, "[ 1, 4 ]");
});
