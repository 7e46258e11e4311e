# SPDX-License-Identifier: Apache-2.0
"""Each rule of script/include-graph, broken in a small tree of its own."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_script():
    path = os.path.join(ROOT, "script", "include-graph")
    loader = importlib.machinery.SourceFileLoader("include_graph", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


include_graph = load_script()

# loop uses base; two files of loop use each other. That breaks no rule.
TREE = {
    "base/base.h": "int base_id(void);\n",
    "base/base.c": '#include "base.h"\nint base_id(void) { return 1; }\n',
    "loop/loop.h": '#include "base.h"\nint loop_run(void);\nint timer_run(void);\n',
    "loop/loop_priv.h": '#include "loop.h"\nextern int loop_turns;\n',
    "loop/loop.c": '#include "loop_priv.h"\nint loop_turns;\nint loop_run(void) { return timer_run(); }\n',
    "loop/timer.c": '#include "loop_priv.h"\nint timer_run(void) { return base_id() + loop_turns; }\n',
}


class IncludeGraph(unittest.TestCase):
    def check(self, changes):
        """The problems of the tree with some files changed."""
        with tempfile.TemporaryDirectory() as root:
            commands = []
            files = TREE | changes
            for path, text in files.items():
                full = os.path.join(root, "src", path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            folders = [f"-Isrc/{os.path.dirname(path)}" for path in files]
            for path in (path for path in files if path.endswith(".c")):
                obj = path.replace("/", "_") + ".o"
                command = ["cc", *folders, "-o", obj, "-c", os.path.join("src", path)]
                subprocess.run(command, cwd=root, check=True)
                commands.append(
                    {
                        "directory": root,
                        "command": " ".join(command),
                        "file": os.path.join(root, "src", path),
                    }
                )
            with open(os.path.join(root, "compile_commands.json"), "w", encoding="utf-8") as file:
                json.dump(commands, file)
            graph = include_graph.Graph(root, root)
            self.drawn = "\n".join(include_graph.draw(graph, None, False))
            return include_graph.check(graph)

    def assert_one(self, problems, *words):
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_sound_tree(self):
        self.assertEqual(self.check({}), [])
        self.assertIn("loop: base\n", self.drawn + "\n")

    def test_circle_of_three_files(self):
        changes = {
            "loop/timer.c": "int work(void);\nint timer_run(void) { return work(); }\n",
            "loop/work.c": '#include "loop.h"\nint work(void) { return loop_run(); }\n',
        }
        problems = self.check(changes)
        self.assert_one(
            problems, "src/loop: 3 files", "loop, timer, work", "work -> loop: loop_run"
        )

    def test_circle_through_a_header(self):
        changes = {
            "loop/timer.c": "int work(void);\nint timer_run(void) { return work(); }\n",
            "loop/work.h": '#include "loop.h"\nint work(void);\n',
            "loop/work.c": "int work(void) { return 1; }\n",
        }
        self.assert_one(self.check(changes), "src/loop: 3 files", "work -> loop: includes loop.h")

    def test_include_of_a_higher_module(self):
        changes = {"base/base.c": '#include "loop.h"\nint base_id(void) { return 1; }\n'}
        self.assert_one(self.check(changes), "src/base must not use src/loop", "src/base/base")

    def test_call_of_a_higher_module(self):
        changes = {"base/base.c": "int loop_run(void);\nint base_id(void) { return loop_run(); }\n"}
        self.assert_one(self.check(changes), "src/base must not use src/loop", "loop_run")

    def test_include_of_a_module_beside_it(self):
        changes = {
            "config/config.h": "enum { CONFIG = 1 };\n",
            "metrics/metrics.c": '#include "config.h"\nint metric = CONFIG;\n',
        }
        self.assert_one(self.check(changes), "src/metrics must not use src/config")

    def test_private_header_of_a_lower_module(self):
        changes = {"http/http.c": '#include "loop_priv.h"\nint http(void) { return loop_turns; }\n'}
        self.assert_one(self.check(changes), "src/http/http.c includes loop_priv.h", "src/loop")

    def test_names_of_a_face(self):
        routes = '#define ROUTE(m, p) p\nconst char *api = ROUTE(GET, "/api/v1/things/{id}");\n'
        api = {"face/api/api.c": routes}
        for string in ("/api/v1/things", "/api/v1/things/7", "/api/v1/things/%s"):
            changes = api | {"http/http.c": f'const char *http = "{string}";\n'}
            self.assert_one(self.check(changes), f'src/http/http.c has "{string}"', "src/face/api")
        for text in ('"/api/v1/things-more"', '"see /api/v1/things"', '"" /* "/api/v1/things" */'):
            self.assertEqual(self.check(api | {"http/http.c": f"const char *http = {text};\n"}), [])
        tool = 'struct { const char *name, *title; } t = { .name = "run_it", .title = "Run" };\n'
        changes = {"face/mcp/tools/t.c": tool, "http/http.c": 'const char *http = "run_it";\n'}
        self.assert_one(self.check(changes), 'src/http/http.c has "run_it"', "src/face/mcp")

    def test_a_face_is_a_folder(self):
        layers = [["http"], ["face/mcp"], ["face/api", "face/mcp/tools"], ["gateway"]]
        found = include_graph.faces(layers)
        self.assertEqual(
            found, {"face/mcp": ["face/mcp", "face/mcp/tools"], "face/api": ["face/api"]}
        )

    def test_module_without_a_layer(self):
        problems = self.check({"stray/stray.c": "int stray;\n"})
        self.assert_one(problems, "src/stray is not in src/layers")

    def test_object_that_was_not_built(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src", "base"))
            source = os.path.join(root, "src", "base", "base.c")
            with open(source, "w", encoding="utf-8") as file:
                file.write("int base;\n")
            entry = {"directory": root, "command": f"cc -o b.o -c {source}", "file": source}
            with open(os.path.join(root, "compile_commands.json"), "w", encoding="utf-8") as file:
                json.dump([entry], file)
            with self.assertRaises(SystemExit):
                include_graph.Graph(root, root)


if __name__ == "__main__":
    unittest.main()
