"""Captures that do not fit into memory are read again, and are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from parity.capture import write_capture
from parity.pipeline.held import HeldCaptures
from parity.records import Capture, Completion, Header, Key


def make(arm: str, size: int) -> Capture:
    keys = [Key(f"p{i}", 0, 0) for i in range(size)]
    completions = {key: Completion(key, np.array([1]), np.array([ord(arm[-1])]), None, "stop", None) for key in keys}
    return Capture(Header(arm, *arm.split("/"), "tiny"), completions, {}, {})


def test_only_the_latest_stay_and_the_baseline(tmp_path: Path) -> None:
    held = HeldCaptures("x/a", budget=10)
    made = {name: make(name, 6) for name in ("x/b", "x/c", "x/d", "x/a")}
    for name, capture in made.items():
        path = tmp_path / f"{name[-1]}.jsonl"
        write_capture(path, capture)
        held.add(name, capture, path)
    assert list(held) == list(made)
    assert len(held) == 4
    for name in ("x/b", "x/c", "x/d", "x/b"):
        assert held["x/a"] is made["x/a"]
        again = held[name]
        assert again.header.arm == name
        assert [one.token_ids.tolist() for one in again] == [[ord(name[-1])]] * 6
    assert held["x/b"] is not made["x/b"]
    assert len(held._held) == 2


def test_small_captures_all_stay(tmp_path: Path) -> None:
    held = HeldCaptures("x/a")
    made = {name: make(name, 6) for name in ("x/b", "x/c", "x/a")}
    for name, capture in made.items():
        held.add(name, capture, tmp_path / "never-written")
    assert all(held[name] is capture for name, capture in made.items())
