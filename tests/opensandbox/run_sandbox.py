# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's Python SDK on the gateway at KG_URL, with the key KG_KEY: what its README shows."""

import asyncio
import os
import urllib.parse
from datetime import timedelta

import pytest
from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.manager import SandboxManager
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import SandboxFilter

DOMAIN = urllib.parse.urlsplit(os.environ["KG_URL"]).netloc
KEY = os.environ["KG_KEY"]
IMAGE = "python:3.11"


async def quick_start(config):
    sandbox = await Sandbox.create(IMAGE, connection_config=config)
    try:
        execution = await sandbox.commands.run("echo 'Hello Sandbox!'")
        assert execution.logs.stdout[0].text == "Hello Sandbox!"
        assert execution.exit_code == 0
    finally:
        await sandbox.destroy()


async def lifecycle(config):
    sandbox = await Sandbox.create(
        IMAGE,
        connection_config=config,
        timeout=timedelta(minutes=10),
        metadata={"project": "demo", "note": "a b&c=d"},
        env={"PROJECT": "apollo"},
        resource={"cpu": "500m", "memory": "512Mi"},
    )
    info = await sandbox.get_info()
    assert info.status.state == "Running"
    assert info.metadata == {"project": "demo", "note": "a b&c=d"}
    assert timedelta(minutes=9) < info.expires_at - info.created_at <= timedelta(minutes=10)
    renewed = await sandbox.renew(timedelta(minutes=30))
    info = await sandbox.get_info()
    assert abs(info.expires_at - renewed.expires_at) < timedelta(seconds=2)
    assert info.expires_at - info.created_at > timedelta(minutes=29)
    patched = await sandbox.patch_metadata({"note": None, "team": "one"})
    assert patched.metadata == {"project": "demo", "team": "one"}
    assert (await sandbox.commands.run("echo $PROJECT")).logs.stdout[0].text == "apollo"
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.pause()
    assert refused.value.status_code == 409 and refused.value.error.code == "NOT_SUPPORTED"
    metrics = await sandbox.get_metrics()
    assert metrics.cpu_count > 0 and metrics.memory_total_in_mib > 0
    assert await sandbox.is_healthy()
    again = await Sandbox.connect(sandbox.id, connection_config=config)
    assert (await again.commands.run("echo again")).logs.stdout[0].text == "again"
    await manage(config, sandbox)
    with pytest.raises(SandboxApiException) as gone:
        await sandbox.get_info()
    assert gone.value.status_code == 404 and gone.value.error.code == "SANDBOX_NOT_FOUND"


async def manage(config, sandbox):
    async with await SandboxManager.create(connection_config=config) as manager:
        wanted = SandboxFilter(states=["RUNNING"], metadata={"team": "one"}, page_size=10)
        found = await manager.list_sandbox_infos(wanted)
        assert [info.id for info in found.sandbox_infos] == [sandbox.id]
        nothing = SandboxFilter(metadata={"team": "two"})
        assert (await manager.list_sandbox_infos(nothing)).sandbox_infos == []
        await manager.kill_sandbox(sandbox.id)


async def commands(sandbox):
    said = []

    async def on_stdout(message):
        said.append(message.text)

    result = await sandbox.commands.run(
        'for i in {1..5}; do echo "Count $i"; done; echo wrong >&2; exit 3',
        handlers=ExecutionHandlers(on_stdout=on_stdout),
    )
    assert said == [f"Count {i}" for i in range(1, 6)], said
    assert [line.text for line in result.logs.stderr] == ["wrong"]
    assert result.exit_code == 3 and result.error.name == "CommandExecError"
    words = await sandbox.commands.run(
        ["printf", "%s|", "a b", "$c"],
        opts=RunCommandOpts(working_directory="/tmp", envs={"c": "no"}),
    )
    assert words.logs.stdout[0].text == "a b|$c|"
    background = await sandbox.commands.run(
        "echo one; echo two >&2; while [ ! -e stop ]; do sleep 0.1; done; exit 7",
        opts=RunCommandOpts(background=True),
    )
    status = await sandbox.commands.get_command_status(background.id)
    assert status.running and status.exit_code is None
    logs = await sandbox.commands.get_background_command_logs(background.id)
    while logs.cursor < len("one\ntwo\n"):
        logs = await sandbox.commands.get_background_command_logs(background.id)
    assert sorted(logs.content.split()) == ["one", "two"]
    more = await sandbox.commands.get_background_command_logs(background.id, cursor=logs.cursor)
    assert (more.content, more.cursor) == ("", logs.cursor)
    await sandbox.commands.run("touch stop")
    while status.running:
        status = await sandbox.commands.get_command_status(background.id)
    assert status.exit_code == 7
    endless = await sandbox.commands.run("exec sleep 600", opts=RunCommandOpts(background=True))
    await sandbox.commands.interrupt(endless.id)
    while (await sandbox.commands.get_command_status(endless.id)).running:
        pass


async def files(sandbox):
    await sandbox.files.write_files(
        [
            WriteEntry(path="/tmp/work/hello.txt", data="Hello World", mode=644),
            WriteEntry(path="/tmp/work/deep/ü.bin", data=bytes(range(256)), mode=600),
        ]
    )
    assert await sandbox.files.read_file("/tmp/work/hello.txt") == "Hello World"
    assert await sandbox.files.read_bytes("/tmp/work/deep/ü.bin") == bytes(range(256))
    part = await sandbox.files.read_bytes("/tmp/work/hello.txt", range_header="bytes=6-")
    assert part == b"World"
    found = await sandbox.files.search(SearchEntry(path="/tmp/work", pattern="*.txt"))
    assert [entry.path for entry in found] == ["/tmp/work/hello.txt"]
    info = await sandbox.files.get_file_info(["/tmp/work/deep/ü.bin"])
    assert info["/tmp/work/deep/ü.bin"].mode == 600
    assert info["/tmp/work/deep/ü.bin"].size == 256
    await sandbox.files.replace_contents(
        [ContentReplaceEntry(path="/tmp/work/hello.txt", old_content="World", new_content="Moon")]
    )
    assert await sandbox.files.read_file("/tmp/work/hello.txt") == "Hello Moon"
    await sandbox.files.set_permissions([SetPermissionEntry(path="/tmp/work/hello.txt", mode=600)])
    await sandbox.files.create_directories([WriteEntry(path="/tmp/work/new/one", mode=750)])
    await sandbox.files.move_files([MoveEntry(src="/tmp/work/hello.txt", dest="/tmp/work/new/h")])
    listed = await sandbox.files.list_directory(DirectoryListEntry(path="/tmp/work", depth=2))
    assert {(entry.path, entry.entry_type, entry.mode) for entry in listed} >= {
        ("/tmp/work/new", "directory", 755),
        ("/tmp/work/new/one", "directory", 750),
        ("/tmp/work/new/h", "file", 600),
    }
    await sandbox.files.write_file("relative.txt", "here")
    assert await sandbox.files.read_file("/mnt/data/relative.txt") == "here"
    await sandbox.files.delete_files(["/tmp/work/new/h", "/tmp/work/none"])
    await sandbox.files.delete_directories(["/tmp/work"])
    with pytest.raises(SandboxApiException) as gone:
        await sandbox.files.read_file("/tmp/work/new/h")
    assert gone.value.status_code == 404


def synchronous():
    config = ConnectionConfigSync(domain=DOMAIN, api_key=KEY, use_server_proxy=True)
    sandbox = SandboxSync.create(IMAGE, connection_config=config)
    try:
        sandbox.files.write_file("script.py", "print('Hello World')")
        assert sandbox.commands.run("python3 script.py").logs.stdout[0].text == "Hello World"
    finally:
        sandbox.destroy()


async def main():
    config = ConnectionConfig(domain=DOMAIN, api_key=KEY)
    await quick_start(config)
    await lifecycle(config)
    sandbox = await Sandbox.create(IMAGE, connection_config=config)
    try:
        await commands(sandbox)
        await files(sandbox)
    finally:
        await sandbox.destroy()
    with pytest.raises(SandboxApiException) as refused:
        await Sandbox.create("ubuntu", connection_config=config)
    assert refused.value.status_code == 400 and "code-interpreter" in str(refused.value)


asyncio.run(main())
synchronous()
print("done")
