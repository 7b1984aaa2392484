"""Faults of whole runs and of requests' rules, in one engine: each does what it says, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_lab import ENGINE, planted, run_job, short_requests
from parity_backends.vllm.cpu import CpuBackend
from parity_faults import FAULTS

from parity.capture import read_capture
from parity.records import Capture

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PLAIN = {"temperature": 0.0, "max_tokens": 24, "logprobs": 0}
STOPS = {"stop_token_ids": [11, 13, 199, 262, 290]}
WHOLE = [name for name, fault in FAULTS.items() if fault.whole_run]
RULES: dict[str, dict[str, Any]] = {
    "penalties_ignored": {"repetition_penalty": 1.5},
    "temperature_leak": {"temperature": 1.5, "seed": 1},
    "bad_words_ignored": {"bad_words": ["the", "The", "and", ",", "."]},
    "allowed_ignored": {"allowed_token_ids": list(range(300, 2000))},
    "min_tokens_ignored": {**STOPS, "min_tokens": 24},
    "stop_ignored": {"stop": ["e", "a"], **STOPS},
    "grammar_ignored": {"structured_outputs": {"regex": "[a-z ]{90,}"}},
}
WITHOUT = {"min_tokens_ignored": STOPS}
"""What the request asks for without its rule, where that is not nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per capture: `plain`, a fault's name, and a rule's as `NAME-kept` and `NAME-without`."""
    folder, model = tmp_path_factory.mktemp("whole"), CpuBackend().default_model()
    assert model is not None
    captures: list[dict[str, Any]] = [{"name": "plain", "fault": "none"}]
    captures += [{"name": name, "fault": name} for name in WHOLE]
    for name, asked in RULES.items():
        captures.append({"name": name, "fault": name, "sampling": asked})
        captures.append({"name": f"{name}-kept", "fault": "none", "sampling": asked})
        captures.append({"name": f"{name}-without", "fault": "none", "sampling": WITHOUT.get(name, {})})
    job = {
        "model": str(model),
        "sampling": PLAIN,
        "requests": short_requests(model)[:12],
        "vocab_size": 2048,
        "eos_token_ids": [0],
        "engine": ENGINE,
        "captures": captures,
    }
    run_job(CpuBackend().interpreter(print), folder, "base", job)
    return folder


def made(folder: Path, name: str) -> Capture:
    return read_capture(folder / name / "base.jsonl")


def tokens(capture: Capture) -> list[list[int]]:
    return [one.token_ids.tolist() for one in capture]


@pytest.mark.parametrize("name", WHOLE)
def test_a_fault_of_the_whole_run_moves_every_row_a_little(folder: Path, name: str) -> None:
    moved = []
    for usual, other in zip(made(folder, "plain"), made(folder, name), strict=True):
        assert usual.logprobs is not None
        assert other.logprobs is not None
        differ = np.flatnonzero(usual.token_ids != other.token_ids)
        until = int(differ[0]) if len(differ) else len(usual.token_ids)
        moved.append(np.abs(usual.logprobs.values[:until, 0] - other.logprobs.values[:until, 0]))
    assert len(planted(folder / name)) == len(moved)
    assert sum(bool(each.any()) for each in moved) >= 0.75 * len(moved)
    assert np.median(np.concatenate(moved)) < 0.5


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_ignored_leaves_what_the_request_without_it_gives(folder: Path, name: str) -> None:
    kept, without = tokens(made(folder, f"{name}-kept")), tokens(made(folder, f"{name}-without"))
    assert kept != without, "the rule changes nothing: there was nothing to ignore"
    assert tokens(made(folder, name)) == without
    assert len(planted(folder / name)) == len(without)


def test_plain_again_is_the_same(folder: Path) -> None:
    assert tokens(made(folder, "stop_ignored-without")) == tokens(made(folder, "plain"))
