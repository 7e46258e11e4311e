// SPDX-License-Identifier: Apache-2.0
// The life of a sandbox: it is made, found, joined, and ended.
import assert from "node:assert/strict";
import { inSandbox, NotFoundError, Sandbox } from "./sdk.mjs";

const metadata = { user: "a b&c=d" };
await inSandbox(
  async (sandbox) => {
    assert.equal(await sandbox.isRunning(), true);
    const info = await sandbox.getInfo();
    assert.deepEqual(info.metadata, metadata);
    assert.equal(info.state, "running");
    assert.equal((await sandbox.runCode("import os; os.environ['OF_ALL']")).text, "one");
    assert.equal((await sandbox.commands.run("echo $OF_ALL")).stdout, "one\n");

    const listed = await Sandbox.list({ query: { metadata } }).nextItems();
    assert.deepEqual(listed.map((it) => it.sandboxId), [sandbox.sandboxId]);

    const other = await Sandbox.connect(sandbox.sandboxId);
    await sandbox.runCode("shared = 5");
    assert.equal((await other.runCode("shared")).text, "5");

    await sandbox.setTimeout(50_000);
    const left = (await sandbox.getInfo()).endAt.getTime() - Date.now();
    assert.ok(left <= 51_000, `${left} ms are left`);

    assert.equal(await sandbox.kill(), true);
    assert.equal(await sandbox.kill(), false);
    assert.equal(await other.isRunning(), false);
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), NotFoundError);
  },
  { metadata, envs: { OF_ALL: "one" } },
);
