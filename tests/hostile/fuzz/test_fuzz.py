"""The short form of the fuzzing: the same few thousand inputs each time, without atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

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
