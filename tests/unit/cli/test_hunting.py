"""Options of experiments: what they take, what they refuse, what `parity plan` makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from parity.cli.hunting import Abort, Arrival, Span, Vary
from parity.cli.plan import plan


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Span(), "4:32", (4, 32)),
        (Span(), "7", (7, 7)),
        (Arrival(), "together", ("together", 0.0, "steps")),
        (Arrival(), "fixed:2", ("fixed", 2.0, "steps")),
        (Arrival(), "poisson:1.5", ("poisson", 1.5, "steps")),
        (Arrival(), "poisson:0.05s", ("poisson", 0.05, "seconds")),
        (Abort(), "0.1", (0.1, None)),
        (Abort(), "0.1:1:32", (0.1, (1, 32))),
    ],
)
def test_what_is_taken(kind: click.ParamType[Any], text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Span(), "4:x"),
        (Span(), ""),
        (Arrival(), "sometimes"),
        (Arrival(), "fixed"),
        (Arrival(), "fixed:soon"),
        (Arrival(), "poisson:s"),
        (Abort(), "many"),
        (Abort(), "0.1:"),
        (Vary(), "max_num_seqs"),
        (Vary(), "k=-1"),
    ],
)
def test_what_is_refused(kind: click.ParamType[Any], text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert text in str(caught.value) or "whole numbers" in str(caught.value)


def test_options_become_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = CliRunner().invoke(
        plan,
        [
            "--suite", "smoke", "--vary", "k=0,1", "--vary", "async=true,false", "--samples", "2", "--rounds", "3",
            "--churn", "light", "--arrival", "poisson:3", "--no-shuffle", "--abort", "0.2:2:5", "--output-lengths",
            "8:16", "--max-tokens", "16", "--batch-sizes", "2:4", "--needle", "capital", "--kv-blocks", "50",
            "-o", str(file),
        ],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0
    assert "2 of 4 combinations cannot run" in done.stderr
    made = json.loads(file.read_text())
    assert [arm["name"] for arm in made["arms"]] == ["cpu/k=0+async=false", "cpu/k=1+async=false"]
    assert made["churn"] == {
        "arrival": "poisson",
        "every": 3.0,
        "abort_share": 0.2,
        "abort_after": [2, 5],
        "batch_sizes": [2, 4],
        "needle": "capital#1",
        "kv_blocks": 50,
    }
    assert len(made["requests"]) == 8
    assert all(8 <= request["max_tokens"] <= 16 for request in made["requests"])
