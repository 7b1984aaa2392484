"""The tutorials are run: each command of docs/start.md, in both languages, gives what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = "…"
VARIES = {
    r"\d{8}-\d{6}-[0-9a-f]{4}": "RUN",
    r"\b\d+ s$": "SECONDS",
    r"version \d+\.\d+\.\d+$": "version VERSION",
}
"""Of a run itself: its id, how long it took, which parity made it."""


def steps(page: str) -> Iterator[tuple[str, str]]:
    """(command, what the page says comes out) of every console block, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, said = step.partition("\n")
            yield command, said


def plain(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.rstrip("\n").split("\n")]
    for varies, name in VARIES.items():
        lines = [re.sub(varies, name, line) for line in lines]
    return lines


def holds(said: list[str], came: list[str]) -> bool:
    """Whether `came` is what was said, with any lines where it says …"""
    if not said:
        return not came
    if said[0] == LEFT_OUT:
        return any(holds(said[1:], came[at:]) for at in range(len(came) + 1))
    return bool(came) and said[0] == came[0] and holds(said[1:], came[1:])


@pytest.mark.parametrize("page", ["start.md", "start.zh.md"])
def test_every_command_gives_what_the_page_says(page: str, tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "parity"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parity "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "reports").symlink_to(ROOT / "reports")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PARITY_", "LC_", "LANG"))},
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
        "PARITY_HOME": str(tmp_path / "home"),
        "COLUMNS": "80",
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}",
    }
    bash = shutil.which("bash")
    assert bash
    code, asked = 0, list(steps((ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert len(asked) >= 5
    for command, said in asked:
        done = subprocess.run(
            [bash, "-c", f"(exit {code}); {command}"],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        code = done.returncode
        assert holds(plain(said), plain(done.stdout)), f"{page}: $ {command}\n{done.stdout}"


def test_another_output_would_be_noticed() -> None:
    assert holds(["a", LEFT_OUT, "d"], ["a", "b", "c", "d"])
    assert not holds(["a", LEFT_OUT, "d"], ["a", "b", "c"])
    assert not holds(["a"], ["a", "b"])
