// SPDX-License-Identifier: Apache-2.0
// Terminals: what is typed, their size, a second client, and their end.
import assert from "node:assert/strict";
import { inSandbox, watched } from "./sdk.mjs";

function screen() {
  let text = "";
  let wanted = "";
  let word = watched(() => false);
  const onData = (bytes) => {
    text += Buffer.from(bytes).toString();
    word.tell();
  };
  const shows = (what) => {
    wanted = what;
    word = watched(() => text.includes(wanted));
    word.tell();
    return word.found;
  };
  return { onData, shows };
}

await inSandbox(async ({ pty, commands }) => {
  const first = screen();
  const terminal = await pty.create({ cols: 80, rows: 24, onData: first.onData, envs: { MINE: "yes" }, cwd: "/tmp" });
  const type = (text) => pty.sendInput(terminal.pid, new TextEncoder().encode(text));
  await type("echo $MINE-$PWD-$((6 * 7)); stty size\n");
  await first.shows("yes-/tmp-42");
  await first.shows("24 80");
  await pty.resize(terminal.pid, { cols: 100, rows: 30 });
  await type("stty size\n");
  await first.shows("30 100");

  const second = screen();
  await pty.connect(terminal.pid, { onData: second.onData });
  await type("echo seen-by-$((1 + 1))\n");
  await Promise.all([first.shows("seen-by-2"), second.shows("seen-by-2")]);
  assert.ok((await commands.list()).some((it) => it.pid === terminal.pid));
  await type("exit 5\n");
  await assert.rejects(terminal.wait(), { exitCode: 5 });

  const other = await pty.create({ cols: 80, rows: 24, onData: () => {} });
  assert.equal(await pty.kill(other.pid), true);
  await assert.rejects(other.wait());
  assert.equal(await pty.kill(other.pid), false);
});
