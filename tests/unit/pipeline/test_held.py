"""Captures that do not fit into memory are read again, and are the same; never are two large ones held."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from captures import capture, completion

from parity.capture import read_capture, write_capture
from parity.pipeline import held as module
from parity.pipeline.held import HeldCaptures
from parity.records import Capture


def make(arm: str, size: int) -> Capture:
    return capture(arm, *(completion([ord(arm[-1])], f"p{i}", finish="stop") for i in range(size)))


def hold(held: HeldCaptures, folder: Path, *names: str) -> dict[str, Capture]:
    made = {name: make(name, 6) for name in names}
    for name, one in made.items():
        path = folder / f"{name[-1]}.jsonl"
        write_capture(path, one)
        held.add(name, one, path)
    return made


def test_the_baseline_stays_and_one_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Capture]] = []
    most = 0

    def reading(path: Path, beside: Capture | None) -> Capture:
        nonlocal most
        gc.collect()
        most = max(most, sum(one() is not None for one in alive))
        capture = read_capture(path, beside=beside)
        alive.append(weakref.ref(capture))
        return capture

    monkeypatch.setattr(module, "read_capture", reading)
    held = HeldCaptures("x/a", budget=0)
    names = ("x/b", "x/c", "x/d", "x/a")
    base = hold(held, tmp_path, *names)["x/a"]
    assert (list(held), len(held)) == (list(names), 4)
    for name in ("x/b", "x/c", "x/d", "x/b"):
        assert held["x/a"] is base
        assert held[name].header.arm == name
        assert [one.token_ids.tolist() for one in held[name]] == [[ord(name[-1])]] * 6
        assert held["x/a"] is base
    assert len(alive) == 4  # one after the other, each read once while it was asked for
    assert most == 0  # and each was gone before the next was read


def test_small_captures_all_stay(tmp_path: Path) -> None:
    held = HeldCaptures("x/a")
    made = hold(held, tmp_path, "x/b", "x/c", "x/a")
    assert all(held[name] is capture for name, capture in made.items())


def test_the_budget_is_of_bytes_and_not_the_baselines(tmp_path: Path) -> None:
    size = 2000  # of one such file, not of two
    held = HeldCaptures("x/a", budget=size)
    made = hold(held, tmp_path, "x/a", "x/b", "x/c")
    assert size / 2 < (tmp_path / "b.jsonl").stat().st_size < size
    assert [held[name] is capture for name, capture in made.items()] == [True, True, False]
    assert "x/c" in held
    assert "x/z" not in held
