// SPDX-License-Identifier: Apache-2.0
// Files: content of each type both ways, folders, URLs for others, and what a watch tells.
import assert from "node:assert/strict";
import { inSandbox, NotFoundError, watched } from "./sdk.mjs";

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256);

async function content(files) {
  const written = await files.write("notes/of me.txt", "grüße\n");
  assert.equal(written.path, "/home/user/notes/of me.txt");
  assert.equal(await files.read("notes/of me.txt"), "grüße\n");
  await files.write("bytes.bin", bytes.buffer);
  assert.deepEqual(await files.read("bytes.bin", { format: "bytes" }), bytes);
  assert.equal((await files.read("bytes.bin", { format: "blob" })).size, bytes.length);
  let streamed = 0;
  for await (const part of await files.read("bytes.bin", { format: "stream" })) streamed += part.length;
  assert.equal(streamed, bytes.length);
  await files.write("empty", "");
  assert.equal(await files.read("empty"), "");
  const all = await files.write([
    { path: "many/a", data: "a" },
    { path: "many/b", data: new Blob(["b"]) },
  ]);
  assert.deepEqual(all.map((it) => it.path), ["/home/user/many/a", "/home/user/many/b"]);
  await assert.rejects(files.read("missing"), NotFoundError);
}

async function folders(files) {
  assert.equal(await files.makeDir("one/two"), true);
  assert.equal(await files.makeDir("one/two"), false);
  await files.write("one/two/three.txt", "3");
  const names = async (path, options) => (await files.list(path, options)).map((it) => it.name);
  assert.deepEqual(await names("one"), ["two"]);
  assert.deepEqual((await names("one", { depth: 2 })).sort(), ["three.txt", "two"]);
  const info = await files.getInfo("one/two/three.txt");
  assert.deepEqual([info.type, info.size, info.permissions, info.owner], ["file", 1, "-rw-r--r--", "user"]);
  assert.equal((await files.rename("one/two/three.txt", "one/four.txt")).path, "/home/user/one/four.txt");
  assert.equal(await files.exists("one/two/three.txt"), false);
  await files.remove("one");
  assert.equal(await files.exists("one"), false);
  await assert.rejects(files.list("one"), NotFoundError);
}

async function urls(sandbox) {
  const form = new FormData();
  form.append("file", new Blob(["from a page"]), "sent.txt");
  const upload = await sandbox.uploadUrl("sent.txt");
  assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
  const download = await sandbox.downloadUrl("sent.txt", { useSignatureExpiration: 60 });
  assert.equal(await (await fetch(download)).text(), "from a page");
  assert.equal((await fetch(download.replace("sent.txt", "bytes.bin"))).status, 401);
}

async function watch(files) {
  const seen = [];
  const has = (name) => seen.some((it) => it.name === name);
  const all = watched(() => has("new.txt") && has("deep/er.txt"));
  await files.makeDir("seen/deep");
  const onEvent = (event) => {
    seen.push(event);
    all.tell();
  };
  const handle = await files.watchDir("seen", onEvent, { recursive: true });
  await files.write("seen/new.txt", "1");
  await files.write("seen/deep/er.txt", "2");
  await all.found;
  await handle.stop();
  assert.ok(seen.some((it) => it.name === "new.txt" && it.type === "create"));
}

await inSandbox(async (sandbox) => {
  await content(sandbox.files);
  await folders(sandbox.files);
  await urls(sandbox);
  await watch(sandbox.files);
});
