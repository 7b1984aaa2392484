"""Counters that add up, and rounds that are run again because their counters are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plans import fake_plan

from parity.capture import dump_line
from parity.run.counting import added, of_replicas
from parity.run.expected import Expected
from parity.run.resume import read_held


def test_numbers_lists_and_histograms_add_up_and_nothing_else() -> None:
    total: dict[str, Any] = {"a": 1, "kept": "x", "h": {"1": 1}}
    more = added(total, {"a": 2.5, "b": [1], "h": {"1": 2, "2": 1}, "kept": 3, "flag": True})
    assert total == {"a": 1, "kept": "x", "h": {"1": 1}}
    both = added(more, {"b": [1, 2], "h": 3, "flag": True})
    assert both == {"a": 3.5, "kept": "x", "h": {"1": 3, "2": 1}, "b": [2, 2], "flag": True}


def test_replicas_are_side_by_side() -> None:
    both = [
        {"tokens": 5, "generate_seconds": 2.0, "h": {"4": 1}},
        {"tokens": 6, "generate_seconds": 3.0, "h": {"4": 2}},
    ]
    assert of_replicas(both) == {"tokens": 11, "generate_seconds": 3.0, "h": {"4": 3}}


def write(path: Path, *records: dict[str, Any]) -> None:
    header = {
        "record": "header",
        "schema": "parity.capture/1",
        "arm": "a/b",
        "engine": {},
        "sampling": {},
        "environment": {},
    }
    path.write_bytes(b"".join(dump_line(record) for record in (header, *records)))


def completion(round_: int) -> dict[str, Any]:
    return {"record": "completion", "request": "p0", "round": round_, "sample": 0, "prompt_token_ids": [1],
            "token_ids": [2]}  # fmt: skip


def test_a_round_that_was_killed_before_its_counters_is_run_again(tmp_path: Path) -> None:
    expected = Expected.of(fake_plan(requests=1, rounds=3), "a/b")
    path = tmp_path / "x.jsonl"
    over = {"record": "round", "round": 0, "counters": {"tokens": 1}}
    write(path, completion(0), over, completion(1))
    held = read_held(path)
    assert held.missing_rounds(expected) == [1, 2]
    assert held.rounds == {(0, 0): {"tokens": 1}}
    # A worker that gives no counters by the round: what is there is there.
    write(path, completion(0), completion(1))
    assert read_held(path).missing_rounds(expected) == [2]
