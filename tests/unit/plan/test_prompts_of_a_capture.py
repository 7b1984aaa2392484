"""`--prompts CAPTURE`: what was asked when it was made is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from support.captures import capture, completion, written

from parity.cli.main import cli


def planned(tmp_path: Path, *options: str, name: str = "asked.jsonl") -> dict[str, Any]:
    asked = capture(
        "cpu/base",
        completion((5, 6), "a", prompt=(11, 12, 13), temperature=0.3),
        completion((5, 6), "b", prompt=(14,), max_tokens=3),
        completion((5, 7), "b", prompt=(14,), max_tokens=3, round=1),
        temperature=0.8,
        max_tokens=9,
        top_k=20,
    )
    file = written(tmp_path / name, asked)
    out = tmp_path / "plan.json"
    made = CliRunner().invoke(cli, ["plan", "--prompts", str(file), "--output", str(out), *options])
    assert made.exit_code == 0, made.output
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_prompts_sampling_and_rounds_are_the_captures(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [(one["id"], one["prompt_token_ids"]) for one in plan["requests"]] == [("a", [11, 12, 13]), ("b", [14])]
    assert [one.get("sampling") for one in plan["requests"]] == [{"temperature": 0.3}, None]
    assert [one.get("max_tokens") for one in plan["requests"]] == [None, 3]
    assert (plan["sampling"]["temperature"], plan["sampling"]["top_k"], plan["sampling"]["max_tokens"]) == (0.8, 20, 9)
    assert plan["rounds"] == 2
    assert [one["name"] for one in plan["arms"]] == ["cpu/base", "cpu/mtp"]


def test_sampling_that_is_given_takes_the_place_of_the_captures(tmp_path: Path) -> None:
    plan = planned(tmp_path, "--temperature", "0", "--max-tokens", "4")
    assert (plan["sampling"]["temperature"], plan["sampling"]["max_tokens"], plan["rounds"]) == (0.0, 4, 1)
    assert [one["id"] for one in plan["requests"]] == ["a", "b"]


def test_a_packed_capture_is_one_too(tmp_path: Path) -> None:
    assert [one["id"] for one in planned(tmp_path, name="asked.jsonl.gz")["requests"]] == ["a", "b"]
