"""Two engines as one arm: what they say together is what one engine says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from engine_plan import BaseArm
from plans import plan_of

from parity.capture import check_capture, read_capture, read_scores
from parity.comparator import compare
from parity.plan.hosts import Host
from parity.run import ScoreItem, run_arm

pytestmark = pytest.mark.engine


def test_two_replicas_give_what_one_engine_gives(
    base_arm: BaseArm, base_plan: dict[str, Any], interpreter: Path, tmp_path: Path
) -> None:
    """A core for each. Both start at the same time; each runs half of the requests and of the scores."""
    cores = sorted(os.sched_getaffinity(0))
    host = Host("cpu", "cpu", devices=(str(cores[0]), str(cores[-1])))
    path = tmp_path / "a.jsonl"
    with run_arm(plan_of(base_plan), "cpu/base", path, tmp_path / "a.log", host=host) as session:
        session.generate()
        items = [
            ScoreItem("cpu/base", *c.key, c.prompt_token_ids.tolist(), c.token_ids.tolist())
            for c in read_capture(path, partial=True)
        ]
        session.score(items, tmp_path / "scores.jsonl", top=5)
    assert check_capture(path) == []
    one, two = read_capture(base_arm.capture), read_capture(path)
    # In batches of other sizes a near-tie may go the other way, and nothing else may differ.
    found = compare(one, two, read_scores(tmp_path / "scores.jsonl"))
    assert (found.verdict, found.corrupt) == ("PASS", [])
    header, *records, footer = map(json.loads, path.read_text().splitlines())
    ran = {record["request"]: record["replica"] for record in records if record["record"] == "completion"}
    assert ran == {f"p{i}": i % 2 for i in range(4)}
    assert [each["visible_devices"] for each in header["replicas"]] == list(host.devices)
    assert [each["tokens"] for each in footer["counters"]["replicas"]] == [32, 32]
    assert all("vllm" in (tmp_path / name).read_text().lower() for name in ("a.log", "a.replica1.log"))
    assert read_scores(tmp_path / "scores.jsonl").keys() == {item.key for item in items}
