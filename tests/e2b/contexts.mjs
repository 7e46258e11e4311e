// SPDX-License-Identifier: Apache-2.0
// Contexts: each has variables and a working folder of its own, and can be restarted and removed.
import assert from "node:assert/strict";
import { inSandbox } from "./sdk.mjs";

await inSandbox(async (sandbox) => {
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.equal(context.language, "python");
  await sandbox.runCode("x = 1");
  assert.equal((await sandbox.runCode("import os; os.getcwd()", { context })).text, "/tmp");
  assert.equal((await sandbox.runCode("x", { context })).error.name, "NameError");
  assert.equal((await sandbox.runCode("x")).text, "1");
  const ids = async () => (await sandbox.listCodeContexts()).map((it) => it.id);
  assert.ok((await ids()).includes(context.id));
  await sandbox.runCode("kept = 1", { context });
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.runCode("kept", { context })).error.name, "NameError");
  await sandbox.removeCodeContext(context);
  assert.ok(!(await ids()).includes(context.id));
});
