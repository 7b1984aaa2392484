"""`make bench`: figures by one command each, kept in a history so that a regression is seen.

    make bench [ARGS='compare start']      # those; without names all that start no engine
    make bench ARGS=--all                  # with the engines
    make bench ARGS=--table                # the table anew from the history

Each run of a benchmark adds a line to benchmarks/history.jsonl: commit, machine, load, seconds, figures. The table in
docs/figures.md has the last line of each, and what the one before it on a machine of the same kind said. A figure that
is a tenth worse than there is told, and ends with 1; a busy machine is no regression: look at the load. What each
benchmark measures is a row of benchmarks/figures.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figures import BENCHMARKS, Benchmark, Figure
from peers import missing

HERE = Path(__file__).resolve().parent
HISTORY = HERE / "history.jsonl"
PAGE = HERE.parent / "docs" / "figures.md"
BEGIN, END = "<!-- make bench -->\n", "<!-- /make bench -->"
WORSE = 1.1
"""Times the last figure, from which on one is told."""


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    """Of the working tree; with a + where it has changes."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True)
    return said.stdout.strip() or "?"


def found(figure: Figure, text: str) -> float | None:
    match = re.search(figure.pattern, text, re.MULTILINE)
    return None if match is None else float(match[1].replace(",", ""))


def measured(one: Benchmark) -> dict[str, Any]:
    """A line of the history. Raises SystemExit where the command fails."""
    load, began = os.getloadavg()[0] if hasattr(os, "getloadavg") else None, time.perf_counter()
    command = [sys.executable, *one.command.split()]
    # Whoever forbids Python to keep compiled modules would measure the compiler.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, cwd=HERE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        print(line, end="", flush=True)
        said.append(line)
    if process.wait():
        raise SystemExit(f"{one.name}: exit code {process.returncode}")
    text = "".join(said)
    figures = {figure.label: found(figure, text) for figure in one.figures}
    if lost := [figure.label for figure in one.figures if figures[figure.label] is None and not figure.peer]:
        raise SystemExit(f"{one.name}: not in what it printed: {', '.join(lost)}")
    return {
        "name": one.name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} × {processor()}",
        "python": platform.python_version(),
        "load": load,
        "seconds": round(time.perf_counter() - began, 1),
        "figures": {label: value for label, value in figures.items() if value is not None},
    }


def history() -> list[dict[str, Any]]:
    return [json.loads(line) for line in HISTORY.read_text("utf-8").splitlines()] if HISTORY.exists() else []


def before(line: dict[str, Any], lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The figures of the last line before this one of the same benchmark on a machine of the same kind."""
    earlier: dict[str, float] = {}
    for one in lines:
        if one is line:
            break
        if (one["name"], one["machine"]) == (line["name"], line["machine"]):
            earlier = one["figures"]
    return earlier


def is_worse(figure: Figure, now: float, then: float) -> bool:
    return now * WORSE < then if figure.more else now > then * WORSE


def table(lines: list[dict[str, Any]]) -> str:
    rows = ["| | figure | goal | before | measured |", "|---|---|---|---|---|"]
    last = {line["name"]: line for line in lines}
    for one in BENCHMARKS:
        line = last.get(one.name)
        if line is None:
            continue
        earlier, what = before(line, lines), f"**{one.measures}** (`{one.name}`)"
        load = "" if line["load"] is None else f", load {line['load']:.0f}"
        seen = f"{line['when'][:10]}, {line['commit']}{load}"
        rows.append(f"| {what} | | | | {seen} |")
        for figure in one.figures:
            now = line["figures"].get(figure.label)
            if now is None:
                if figure.peer is not None:
                    rows.append(f"| {figure.label} | not measured: `{figure.peer.install}` | | | |")
                continue
            goal = "" if figure.goal is None else f"{'≥' if figure.more else '≤'} {figure.goal:g}"
            then = earlier.get(figure.label)
            rows.append(
                f"| {figure.label} | {now:g} {figure.unit} | {goal} | {'' if then is None else f'{then:g}'} | |"
            )
    return "\n".join(rows) + "\n"


def write_table(lines: list[dict[str, Any]]) -> None:
    text = PAGE.read_text("utf-8")
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n{table(lines)}\n{text[end:]}", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known := [one.name for one in BENCHMARKS]))
    parser.add_argument("--all", action="store_true", help="those with engines too")
    parser.add_argument("--table", action="store_true", help="only write the table anew")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(known):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    lines, worse = history(), []
    wanted = [
        one for one in BENCHMARKS if one.name in asked.names or (not asked.names and (asked.all or not one.engine))
    ]
    for one in () if asked.table else wanted:
        line = measured(one)
        lines.append(line)
        with HISTORY.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        earlier = before(line, lines)
        for figure in one.figures:
            now, then = line["figures"].get(figure.label), earlier.get(figure.label)
            if now is not None and then is not None and is_worse(figure, now, then):
                worse.append(f"{one.name}: {figure.label} {now:g} {figure.unit}, {then:g} before")
    write_table(lines)
    measured_now = () if asked.table else wanted
    absent = missing(sorted({figure.peer for one in measured_now for figure in one.figures if figure.peer}))
    for text in (*absent, *worse):
        print(text, file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
