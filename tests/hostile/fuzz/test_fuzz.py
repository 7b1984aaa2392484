"""The short form of the fuzzing: the same few thousand inputs each time, without atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from parity.tui.screens import panels
from tests.hostile.fuzz.__main__ import Session, drawn
from tests.hostile.fuzz.doors import DOORS, beginnings, tried

INPUTS = {
    "reader": 900,
    "steps": 200,
    "recorded": 150,
    "sketched": 60,
    "worker": 1500,
    "plan": 400,
    "comparator": 60,
    "store": 40,
    "cells": 80,
    "reports": 25,
    "screens": 25,
    "app": 6,
}


@pytest.mark.parametrize("door", list(DOORS))
def test_each_says_no_in_words_or_takes_it(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    session = Session(door, tmp_path)
    assert all(tried(door, data) for data in beginnings(door))
    drawn(session, beginnings(door), INPUTS[door], seed=1, seconds=3600)
    assert session.faults == {}
    assert 0 < session.let_in < session.inputs or door == "worker"


def test_a_fault_of_the_interface_is_seen_and_ends_no_further_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: object) -> str:
        raise ValueError("planted")

    begin = beginnings("app")[0]
    with monkeypatch.context() as patched:
        patched.setattr(panels, "prompt", planted)
        with pytest.raises(ValueError, match="planted"):
            tried("app", begin)
    assert tried("app", begin)
