"""Whole screens against pictures that were looked at: layout, colours, signs.

Made with one version of Textual (constraints.txt) and a frozen clock. After a change that is meant:
PARITY_UPDATE_SNAPSHOTS=1 pytest tests/functional/test_snapshots.py, then look at each picture that changed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import real_run
from driving import Person, drive
from textual import constants

from parity.store import triage, write

HERE = Path(__file__).parent / "snapshots"
TEXTUAL = "8.2.8"
"""The version that the pictures were made with: each draws a little differently."""
NOW = "2026-11-21T10:00:00.000+00:00"

installed = importlib.metadata.version("textual")
needs_textual = pytest.mark.skipif(
    installed != TEXTUAL, reason=f"the pictures were made with textual {TEXTUAL}, here is {installed}"
)


def test_the_pictures_are_of_the_pinned_version() -> None:
    """So that they are compared wherever constraints.txt is used."""
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"textual=={TEXTUAL}" in pins


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("frozen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "now", lambda: NOW)
        patch.setattr(triage, "now", lambda: NOW)
        real_run.store_run(home, "20261121-100000-aaaa", real_run.MANY, second_arm=True)
    return home


PICTURES = {
    "runs": ((80, 24), ()),
    "findings": ((80, 24), ("enter", "z", "space", "j", "space")),
    "row-leak": ((80, 24), ("enter", "enter")),
    "logprobs-wide": ((150, 40), ("enter", "j", "j", "j", "j", "enter")),
    "plain-text-light": ((80, 24), ("ctrl+t", "enter", "j", "j", "j", "enter", "m")),
    "triage": ((80, 24), ("enter", "t")),
}


@needs_textual
@pytest.mark.parametrize("name", PICTURES)
def test_screen(name: str, frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, keys = PICTURES[name]
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("HOME", str(frozen))
    # All colours, whatever terminal the tests run in (TERM=dumb in continuous integration).
    monkeypatch.setattr(constants, "COLOR_SYSTEM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    taken: list[str] = []

    async def task(person: Person) -> None:
        await person.sees("aaaa")
        await settled(person, ())
        for key in keys:
            await settled(person, (key,))
        # The focus of a field blinks its cursor: stop the clock of that too.
        for widget in person.app.screen.query("Input"):
            widget.cursor_blink = False  # type: ignore[attr-defined]
        await settled(person, ())
        taken.append(steady(person.app.export_screenshot(title="parity")))

    drive(frozen / "parity.db", task, size=size)
    path = HERE / f"{name}.svg"
    if os.environ.get("PARITY_UPDATE_SNAPSHOTS"):
        path.write_text(taken[0], encoding="utf-8")
    wanted = path.read_text(encoding="utf-8")
    if taken[0] != wanted:
        seen = Path(f"{name}.seen.svg").absolute()
        seen.write_text(taken[0], encoding="utf-8")
        pytest.fail(f"{path.name} looks different now; compare it with {seen}")


async def settled(person: Person, keys: Sequence[str]) -> None:
    await person.press(*keys)
    for _ in range(3):
        await person.settles()
        await person.pilot.pause(0.1)


def steady(svg: str) -> str:
    """Without the hash in its names and without fonts from elsewhere."""
    svg = re.sub(r"@font-face \{.*?\n    \}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"
