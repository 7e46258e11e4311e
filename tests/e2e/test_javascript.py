# SPDX-License-Identifier: Apache-2.0
"""JavaScript and TypeScript beside Python: one session, the same files."""

import base64

import pytest

# The smallest PNG there is.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def shared(gateway):
    """A session for tests that leave nothing behind."""
    session = gateway.create_session(session_id="js-shared")
    yield session
    gateway.delete_session(session)


@pytest.fixture
def js(gateway, shared):
    return lambda code, **fields: gateway.execute(code, session_id=shared, kernel="js", **fields)


@pytest.mark.parametrize(
    "code, text",
    [
        ("1 + 1", "2"),
        ("[1, 2].map((x) => x * 2)", "[ 2, 4 ]"),
        ("import os from 'node:os'; os.platform()", '"linux"'),
        ("const { join } = await import('node:path'); join('a', 'b')", '"a/b"'),
        ("const zlib = require('zlib'); typeof zlib.gzipSync", '"function"'),
        ("interface A { b: number }\nlet a: A = { b: 1 }; a", "{ b: 1 }"),
        ("enum E { x = 3 }\nE.x", "3"),
        ("await new Promise((done) => setTimeout(() => done(7), 20))", "7"),
        ("[Deno.cwd(), process.cwd(), process.env.HOME].join()", '"/mnt/data,/mnt/data,/tmp"'),
    ],
)
def test_values(js, code, text):
    assert js(code).one("result")["text"] == text


def test_names_of_the_kernel(gateway, shared):
    for name in ("javascript", "js", "typescript", "ts", "deno"):
        assert (
            gateway.execute("6 * 7", session_id=shared, language=name).one("result")["text"] == "42"
        )
    assert set(gateway.show_session(shared)["kernels"]) == {"python", "javascript"}


def test_output(js):
    lines = js("console.log('out', { a: 1 }); console.error('err'); console.log('more')")
    assert (lines.text("stdout"), lines.text("stderr")) == ("out { a: 1 }\nmore\n", "err\n")


def test_what_is_written_to_the_streams(js):
    lines = js(
        "console.log('a'); process.stdout.write('b');\n"
        "const bytes = new TextEncoder().encode('é\\n');\n"
        "Deno.stdout.writeSync(bytes.slice(0, 1)); await Deno.stdout.write(bytes.slice(1));\n"
        "await new Promise((done) => process.stdout.write(Buffer.from('c\\n'), done));\n"
        "await new Blob(['d\\n']).stream().pipeTo(Deno.stdout.writable);\n"
        "process.stderr.write('e'); Deno.stderr.writeSync(bytes); console.log('z')"
    )
    assert (lines.text(), lines.text("stderr")) == ("a\nbé\nc\nd\nz\n", "eé\n"), lines


def test_errors_that_no_code_waits_for(js):
    """They are shown while code runs, end nothing, and what is awaited later ends."""
    for code, text in (
        ("setTimeout(() => { throw new Error('of a timer') }, 1);", "of a timer"),
        ("Promise.reject(new Error('of a promise'));", "of a promise"),
        ("async function main() { await 1; throw new Error('of main') }\nmain();", "of main"),
    ):
        waits = "await new Promise((done) => setTimeout(done, 100)); 7"
        lines = js(f"{code}\n{waits}", timeout=120)
        assert text in lines.text("stderr") and lines.one("result")["text"] == "7", lines
        assert js(waits, timeout=120).one("result")["text"] == "7"


def test_order(js):
    """No output arrives after the end, however fast the code is."""
    for i in range(50):
        lines = js(f"console.log({i}); {i}")
        assert (lines.text(), lines.one("result")["text"]) == (f"{i}\n", str(i))


def test_errors(js):
    lines = js("function f() { null.x }\nf()")
    error = lines.one("error")
    assert lines.status == "error"
    assert error["ename"] == "TypeError" and "reading 'x'" in error["error"]
    assert any("at f " in line for line in error["traceback"])
    assert "Expression expected" in js("let y = ;").one("error")["error"]
    assert js("1").status == "ok"


def test_images(js):
    line = js(f"await display({{ 'image/png': '{PNG}' }}, {{ raw: true }})").one("display")
    assert (line["format"], base64.b64decode(line["image"])[:4]) == ("png", b"\x89PNG")
    bytes_of_it = f"Uint8Array.from(atob('{PNG}'), (c) => c.charCodeAt(0))"
    line = js(f"Deno.jupyter.image({bytes_of_it})").one("result")
    assert (line["format"], line["image"]) == ("png", PNG)
    svg = js("Deno.jupyter.svg`<svg xmlns='http://www.w3.org/2000/svg'/>`").one("result")
    assert svg["format"] == "svg" and svg["image"].startswith("<svg")


def test_variables_and_env(js):
    values = {"nested": {"a": [1, None, "ä\u2028'\""]}, "class": 1}
    assert (
        js("nested.a[2] + globalThis['class']", variables=values).one("result")["text"].count("ä")
    )
    assert js("let declared = 1; declared").status == "ok"
    assert js("declared + 1", variables={"declared": 41}).one("result")["text"] == "42"
    code = "`${process.env.NAME}|${Deno.env.get('NAME')}`"
    assert js(code, env={"NAME": "v ä"}).one("result")["text"] == '"v ä|v ä"'
    # The text "undefined" would look the same above.
    code = "['NAME' in process.env, Deno.env.has('NAME')].join()"
    assert js(code).one("result")["text"] == '"false,false"'


def test_files_are_pythons(gateway, shared, js):
    js("await Deno.writeTextFile('shared.json', JSON.stringify({ a: [1, 2] }))")
    python = gateway.execute(
        "import json; print(json.load(open('shared.json')))", session_id=shared
    )
    assert python.text() == "{'a': [1, 2]}\n"


def test_endless_code_is_interrupted(js):
    """The interrupt is a message, not a signal: the kernel survives."""
    js("let kept = 5")
    done = js("while (true) {}", timeout=0.5).done
    assert done["status"] == "timeout" and "kernel_restarted" not in done
    assert js("kept").one("result")["text"] == "5"


def test_what_waits_is_killed(js):
    """Deno's kernel cannot interrupt a promise: it is replaced, and starts up as the first did."""
    done = js("await new Promise(() => setTimeout(() => {}, 1e6))", timeout=0.5).done
    assert (done["status"], done["kernel_restarted"]) == ("timeout", True)
    assert js("require('node:path').basename('/a/b')").one("result")["text"] == '"b"'


def test_out_of_memory(js):
    """The memory is not V8's heap: near its limit, collecting garbage can take longer than the test."""
    lines = js("const b = []; for (;;) b.push(new Uint8Array(1e8).fill(1))")
    assert lines.one("error")["ename"] in ("OutOfMemory", "KernelDied")
    assert js("1 + 2").one("result")["text"] == "3"


def test_it_is_inside(js):
    """Deno has all permissions; the sandbox confines it."""
    assert js("Deno.readTextFileSync('/etc/shadow')").status == "error"
    assert js("await fetch('http://1.1.1.1/')", timeout=10).status == "error"
    assert js("Deno.writeTextFileSync('/usr/x', '')").status == "error"
    assert int(js("Deno.uid()").one("result")["text"]) >= 1000
    command = "new Deno.Command('echo', { args: ['child'] }).outputSync().stdout"
    assert js(f"new TextDecoder().decode({command})").one("result")["text"] == '"child\\n"'


def test_as_the_default(start_gateway):
    """Pooled kernels are warmed up, and then ready like others."""
    gateway = start_gateway("--default-kernel", "javascript", "--pool-size", "1")
    lines = gateway.execute("require('node:os').EOL")
    assert lines.one("result")["text"] == '"\\n"'


def test_a_folder_of_its_own(gateway):
    """What the kernelspec's `folder` code does: once in a process, since code may go elsewhere."""
    session = gateway.create_session()
    enter = """globalThis[Symbol.for('kernelgate')].setFolder(
        JSON.stringify({ folder: '/mnt/data/a b/é', home: '/tmp/home' }))"""
    where = "[Deno.cwd(), process.env.HOME].join()"

    def run(code):
        return gateway.execute(code, session_id=session, kernel="js").one("result")["text"]

    assert run(f"{enter}; {where}") == '"/mnt/data/a b/é,/tmp/home"'
    assert run("Deno.writeTextFileSync('m.json', '[7]'); require('./m.json')[0]") == "7"
    assert run(f"Deno.chdir('/tmp'); {enter}; {where}") == '"/tmp,/tmp/home"'
    gateway.delete_session(session)
