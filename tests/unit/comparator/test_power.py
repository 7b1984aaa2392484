"""How many completions show a rare fault: against published figures, simulation, and the command."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from captures import written
from hypothesis import given
from hypothesis import strategies as st
from worlds import BASE, FLAT, World, speculating

from parity.comparator.population.power import (
    chance_to_see,
    measured_overdispersion,
    rate_excluded,
    requests_needed,
)
from parity.errors import ParityError


@pytest.mark.parametrize(
    ("rate", "requests"),
    # Faults that were reported: 2 of 512 (vllm-ascend#13863), 0.25 % (vllm#41493), 6 of 24 (vllm-ascend#10901).
    [(2 / 512, 766), (0.0025, 1197), (0.25, 11), (63 / 20480, 973), (0.003, 998)],
)
def test_reported_rates(rate: float, requests: int) -> None:
    assert requests_needed(rate) == requests


@given(st.floats(1e-5, 0.9), st.floats(0.05, 0.999), st.floats(1, 100))
def test_needed_is_the_least_that_is_enough(rate: float, confidence: float, overdispersion: float) -> None:
    needed = requests_needed(rate, confidence, overdispersion)
    assert chance_to_see(rate, needed, overdispersion) >= confidence - 1e-9
    if needed > 1:
        assert chance_to_see(rate, needed - 1, overdispersion) <= confidence + 1e-9


@given(st.integers(1, 10**7), st.floats(0.05, 0.999), st.floats(1, 100))
def test_what_is_excluded_would_have_been_seen(requests: int, confidence: float, overdispersion: float) -> None:
    excluded = rate_excluded(requests, confidence, overdispersion)
    if 1e-9 < excluded < 1 - 1e-9:
        assert math.isclose(chance_to_see(excluded, requests, overdispersion), confidence, rel_tol=1e-6)


def test_the_rule_of_three() -> None:
    assert rate_excluded(20_480) == pytest.approx(3 / 20_480, rel=0.01)
    assert rate_excluded(20_480, overdispersion=10) == pytest.approx(30 / 20_480, rel=0.01)
    assert rate_excluded(0) == 1.0


def test_a_batch_hit_as_one_counts_as_one() -> None:
    """64 completions hit together or not at all, simulated: the stated number finds the fault 95 times in 100."""
    rate, batch = 0.05, 64
    needed = requests_needed(rate, overdispersion=batch)
    assert abs(needed - 64 * 58.404) < 1
    draw = random.Random(3)
    batches = round(needed / batch)
    found = sum(any(draw.random() < rate for _ in range(batches)) for _ in range(4000))
    assert 0.93 < found / 4000 < 0.965


def test_overdispersion_is_measured_from_groups() -> None:
    assert measured_overdispersion([2, 2, 2, 2], [64] * 4) == 1.0
    assert measured_overdispersion([0] * 9 + [30], [64] * 10) > 20
    assert measured_overdispersion([1], [64]) == 1.0
    assert measured_overdispersion([0, 1, 0], [64] * 3) == 1.0
    draw = random.Random(4)
    even = [sum(draw.random() < 0.1 for _ in range(64)) for _ in range(400)]
    assert measured_overdispersion(even, [64] * 400) < 1.2


@pytest.mark.parametrize("bad", [{"rate": 0.0}, {"rate": 1.0}, {"confidence": 1.0}, {"overdispersion": 0.5}])
def test_what_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ParityError) as caught:
        requests_needed(**{"rate": 0.1, **bad})
    assert caught.value.hint


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "parity", "power", *args], capture_output=True, text=True, check=False)


def test_the_command() -> None:
    made = json.loads(command("--rate", "0.003", "--requests", "512", "--json").stdout)
    assert made["rates"] == [
        {"rate": 0.003, "requests": 998, "rounds": 16, "chance_to_see": pytest.approx(0.7853, abs=1e-3)}
    ]
    assert made["rate_excluded"] == pytest.approx(0.00583, abs=1e-5)
    shown = command("--rate", "0.003", "--overdispersion", "64")
    assert "63,8" in shown.stdout
    assert "count as one" in shown.stderr
    refused = command("--rate", "3")
    assert refused.returncode == 2
    assert "between 0 and 1" in refused.stderr


def test_with_a_run_the_command_says_what_its_numerics_would_show(tmp_path: Path) -> None:
    world = World(3, FLAT)
    asked = world.requests(24, seed=3)
    base, other = (world.run(asked, arm, max_tokens=64).capture for arm in (BASE, speculating(2)))
    known = world.score(base, other)
    database = str(tmp_path / "parity.db")
    paths = [
        str(written(tmp_path / f"{one.header.variant}.jsonl", one)) for one in (base, replace(other, scores=known))
    ]
    done = subprocess.run(
        [sys.executable, "-m", "parity", "compare", *paths, "--db", database, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    tokens = json.loads(done.stdout)["stats"]["numerics"]["tokens"]
    (run,) = json.loads(
        subprocess.run(
            [sys.executable, "-m", "parity", "runs", "list", "--db", database, "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    made = json.loads(command("--run", run["run"], "--db", database, "--json").stdout)
    (effects,) = made["numerics"].values()
    assert effects[0]["tokens"] == tokens
    shifts = [one["mean_shift"] for one in effects if one["mean_shift"] is not None]
    assert shifts == sorted(shifts, reverse=True)
    assert len(set(shifts)) > 3
    missing = command("--run", "none", "--db", database)
    assert missing.returncode == 2
