// SPDX-License-Identifier: Apache-2.0
// Commands: with output as it comes, in the background, with input, joined again, and ended.
import assert from "node:assert/strict";
import { CommandExitError, inSandbox, watched } from "./sdk.mjs";

await inSandbox(async ({ commands, files }) => {
  const parts = [];
  const run = await commands.run("echo out; echo err >&2; pwd; echo $NAME", {
    cwd: "/tmp",
    envs: { NAME: "value" },
    onStdout: (it) => parts.push(it),
  });
  assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, "out\n/tmp\nvalue\n", "err\n"]);
  assert.equal(parts.join(""), run.stdout);
  await assert.rejects(commands.run("echo no >&2; exit 3"), (error) => {
    assert.ok(error instanceof CommandExitError);
    assert.deepEqual([error.exitCode, error.stderr], [3, "no\n"]);
    return true;
  });

  const sorting = await commands.run("sort", { background: true, stdin: true });
  await commands.sendStdin(sorting.pid, "b\na\n");
  await commands.closeStdin(sorting.pid);
  assert.equal((await sorting.wait()).stdout, "a\nb\n");

  const waiting = "until [ -e go ]; do sleep 0.05; done; echo gone";
  const first = await commands.run(waiting, { background: true });
  const listed = (await commands.list()).find((it) => it.pid === first.pid);
  assert.deepEqual([listed.cmd, listed.args.at(-1)], ["/bin/bash", waiting]);
  await first.disconnect();
  const again = await commands.connect(first.pid);
  await files.write("go", "");
  assert.equal((await again.wait()).stdout, "gone\n");

  let seen = "";
  const begun = watched(() => seen.includes("on"));
  const endless = await commands.run("echo on; sleep 1000", {
    background: true,
    onStdout: (it) => {
      seen += it;
      begun.tell();
    },
  });
  await begun.found;
  assert.equal(await endless.kill(), true);
  await assert.rejects(endless.wait(), CommandExitError);
  assert.equal(await commands.kill(endless.pid), false);
});
