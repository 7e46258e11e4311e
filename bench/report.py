# SPDX-License-Identifier: Apache-2.0
"""The report of a run: tables, goals that were met or missed, and all of it as JSON."""

import json
import os
import platform


def print_table(title, rows):
    print(f"\n{title}")
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    width = max(map(len, rows))
    print(f"  {'':{width}}" + "".join(f"  {column:>14}" for column in columns))
    for name, row in rows.items():
        print(f"  {name:{width}}" + "".join(f"  {row.get(column, ''):>14}" for column in columns))


def finish(results, goals, path):
    """Prints the goals, which are (goal, measured, met); all results go to `path`, if there is one."""
    results["machine"] = {"kernel": platform.release(), "cores": os.cpu_count()}
    results["goals"] = [
        {"goal": goal, "measured": measured, "met": met} for goal, measured, met in goals
    ]
    print("\nGoals")
    for goal in results["goals"]:
        print(f"  {'met   ' if goal['met'] else 'MISSED'}  {goal['goal']}: {goal['measured']}")
    if path:
        path.write_text(json.dumps(results, indent=2) + "\n")
