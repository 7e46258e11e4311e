# SPDX-License-Identifier: Apache-2.0
"""What the clients of a soak run, and what that must answer: cells that count how often they have
run, for real kernels and for scripted ones."""

import dataclasses


@dataclasses.dataclass
class Cell:
    code: str
    text: str | None  # on stdout; None: any
    result: str | None = None


class Python:
    """`ran` has an entry for each time that a cell was run."""

    def begin(self, name):
        """The first code of a session. It reports whether the session had been used before."""
        keep = f"with open('kept', 'w') as file: file.write({name!r})"
        return Cell(f"import os, time\nran = []\nprint(os.path.exists('kept'))\n{keep}", None)

    def count(self, number, pause):
        code = (
            f"ran.append({number})\nprint({number}, len(ran), flush=True)\ntime.sleep({pause})\n"
            f"print('end', {number})\nlen(ran), sum(ran)"
        )
        return Cell(code, f"{number} {number}\nend {number}\n", self.look(number).result)

    def look(self, number):
        return Cell("len(ran), sum(ran)", None, str((number, number * (number + 1) // 2)))

    def once(self, number):
        return Cell(f"print({number} + 1)", f"{number + 1}\n")


class Script:
    """The same in steps (component/kernel/steps.h): `ran` is how many cells were run, `sum` the sum of
    their numbers."""

    def begin(self, name):
        return Cell(f"exists kept\nwrite kept {name}\nset ran 0\nset sum 0", None)

    def count(self, number, pause):
        steps = [
            *("get ran", "add ran 1", f"add sum {number}", f"sleep {pause}", f"print end {number}"),
            *("get ran", "get sum"),
        ]
        end = f"{number}\n{number * (number + 1) // 2}\n"
        return Cell("\n".join(steps), f"{number - 1}\nend {number}\n{end}")

    def look(self, number):
        return Cell("get ran\nget sum", f"{number}\n{number * (number + 1) // 2}\n")

    def once(self, number):
        return Cell(f"print {number + 1}", f"{number + 1}\n")
