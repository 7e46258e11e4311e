# SPDX-License-Identifier: Apache-2.0
"""LangChain's Deep Agents with langchain-e2b for their backend."""

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_e2b import E2BSandbox


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self


def calls(name, **arguments):
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])


def backend_itself(backend):
    result = backend.execute("pwd; echo no >&2; exit 3")
    assert (result.output, result.exit_code) == ("/home/user\n\nno\n", 3), result
    assert backend.write("/home/user/a.txt", "one\ntwo\n").error is None
    assert "two" in str(backend.read("/home/user/a.txt"))
    assert backend.edit("/home/user/a.txt", "two", "three").occurrences == 1
    assert [it["line"] for it in backend.grep("three", "/home/user").matches] == [2]
    assert [it["path"] for it in backend.glob("*.txt", "/home/user").matches]
    assert "/home/user/a.txt" in str(backend.ls("/home/user"))
    assert backend.upload_files([("/home/user/b.bin", b"\0\xff")])[0].error is None
    assert backend.download_files(["/home/user/b.bin"])[0].content == b"\0\xff"
    assert backend.download_files(["/home/user/none"])[0].error == "file_not_found"


def agent(backend):
    said = [
        calls("write_file", file_path="/home/user/six.py", content="print(6 * 7)\n"),
        calls("execute", command="python /home/user/six.py"),
        AIMessage("It is 42."),
    ]
    deep = create_deep_agent(model=Scripted(messages=iter(said)), backend=backend)
    messages = deep.invoke({"messages": [{"role": "user", "content": "six times seven?"}]})[
        "messages"
    ]
    (output,) = [it.content for it in messages if it.type == "tool" and it.name == "execute"]
    assert "42" in output and messages[-1].content == "It is 42."


with Sandbox.create() as sandbox:
    backend_itself(E2BSandbox(sandbox=sandbox))
    agent(E2BSandbox(sandbox=sandbox))
print("done")
