"""`parity why` where the numerics of a run are a finding, and no token is: by logprobs that are far off their scores.

The captures are those of reports/h200-near-ties, a sound run with its steps; logprobs are moved here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from parity.capture import read_capture, read_scores, write_capture
from parity.capture.steps import read_steps
from parity.cli.main import cli
from parity.explain.ledger import Ledger
from parity.explain.predicates import asked_of
from parity.records import Capture, Key, TopLogprobs
from parity.view.far_logprobs import FAR, far_logprobs
from parity.view.why import explained_by_logprobs

CASE = Path(__file__).parents[3] / "reports" / "h200-near-ties" / "captures"


@pytest.fixture(scope="module")
def sound() -> tuple[Capture, Capture]:
    return read_capture(CASE / "cuda-base.jsonl.gz"), read_capture(CASE / "cuda-mtp.jsonl.gz")


def ledger() -> Ledger:
    (steps,) = read_steps(CASE / "cuda-mtp.steps")
    return Ledger(steps)


def moved(capture: Capture, condition: str, nats: float) -> Capture:
    """The capture with other logprobs for what the row-steps made in which the condition holds."""
    steps = ledger()
    values = {key: one.logprobs.values.copy() for key, one in capture.completions.items() if one.logprobs is not None}
    for index in np.flatnonzero(asked_of(steps)[condition] & (steps.emitted > 0)).tolist():
        key, first = steps.request_of(index).key, int(steps.emitted_before[index])
        assert key is not None
        values[key][first : first + int(steps.emitted[index])] -= nats

    def other(key: Key) -> TopLogprobs:
        logprobs = capture.completions[key].logprobs
        assert logprobs is not None
        return TopLogprobs(logprobs.ids, values[key])

    return replace(
        capture, completions={key: replace(one, logprobs=other(key)) for key, one in capture.completions.items()}
    )


def test_a_sound_run_has_next_to_none(sound: tuple[Capture, Capture]) -> None:
    base, mtp = sound
    far = far_logprobs(mtp, base, read_scores(CASE / "scores.jsonl.gz"))
    assert far.nats == FAR
    assert sum(map(len, far.places.values())) <= 3
    found = explained_by_logprobs("cuda/mtp", (ledger().steps,), {}, far)
    assert not found.telling


@pytest.mark.parametrize("condition", ["rejected", "mixed", "first decode"])
def test_the_condition_is_named_by_logprobs_alone(
    sound: tuple[Capture, Capture], tmp_path: Path, condition: str
) -> None:
    base, mtp = sound
    write_capture(tmp_path / "base.jsonl", base)
    write_capture(tmp_path / "mtp.jsonl", moved(mtp, condition, 0.5))
    shutil.copy(CASE / "cuda-mtp.steps", tmp_path / "mtp.steps")
    database = ["--db", str(tmp_path / "parity.db")]
    words = ["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "mtp.jsonl"), "--save", *database]
    run = CliRunner().invoke(cli, [*words, "--scores", str(CASE / "scores.jsonl.gz")])
    assert "the numerics of the run as a whole differ" in " ".join(run.output.split()), run.output
    *_, found = json.loads(CliRunner().invoke(cli, ["why", "--json", *database]).stdout)
    assert found["logprobs_off"] == FAR
    first = found["ranked"][0]
    named = {name for names in (first["conditions"], *first["same"]) for name in names}
    assert condition in named
    assert first["adjusted_p"] < 1e-6
    report = CliRunner().invoke(cli, ["report", "--format", "md", "-o", "-", *database]).stdout
    assert "Where the numbers are wrong, by the recorded steps of `cuda/mtp`" in report


def staying(capture: Capture, condition: str, kept: float) -> Capture:
    """Noise on each logprob from the first row-step of a request on in which the condition holds, `kept` of it left in
    the next: as of a state that was wrong once."""
    steps, draw = ledger(), np.random.default_rng(0)
    holds, size = asked_of(steps)[condition], np.zeros(int(steps.request.max()) + 1)
    values = {key: one.logprobs.values.copy() for key, one in capture.completions.items() if one.logprobs is not None}
    for index in np.flatnonzero(steps.emitted > 0).tolist():
        number, key = int(steps.request[index]), steps.request_of(index).key
        assert key is not None
        size[number] = max(0.3 * holds[index], kept * size[number])
        made = values[key][int(steps.emitted_before[index]) :][: int(steps.emitted[index])]
        made += draw.normal(0, 1, made.shape) * size[number]
    completions = {
        key: replace(one, logprobs=TopLogprobs(one.logprobs.ids, values[key]))
        for key, one in capture.completions.items()
        if one.logprobs is not None
    }
    return replace(capture, completions=completions)


@pytest.mark.parametrize("condition", ["mixed", "position % 16 == 0"])
@pytest.mark.parametrize("kept", [0.9, 1.0])
def test_what_stays_wrong_counts_once_though_not_every_token_shows_it(
    sound: tuple[Capture, Capture], condition: str, kept: float
) -> None:
    base, mtp = sound
    far = far_logprobs(staying(mtp, condition, kept), base, read_scores(CASE / "scores.jsonl.gz"))
    found = explained_by_logprobs("cuda/mtp", (ledger().steps,), {}, far)
    assert found.telling
    assert found.associated.ranked[0].names == (condition,)


def test_a_short_piece_beside_is_of_another_row_and_no_longer_than_a_row_with_drafts() -> None:
    steps = ledger()
    holds = asked_of(steps)["short piece beside"]
    longest = steps.steps.header.speculative_tokens + 1
    step, scheduled = steps.steps.step_index, steps.numbers("scheduled")
    pieces = {
        index for index in range(len(steps))
        if steps.numbers("computed")[index] < steps.prompt_tokens[index] and scheduled[index] <= longest
    }  # fmt: skip
    assert pieces
    wanted = [any(step[one] == step[index] and one != index for one in pieces) for index in range(len(steps))]
    assert holds.tolist() == wanted
    assert 0 < holds.sum() < len(steps)


def test_what_is_wrong_everywhere_has_no_condition(sound: tuple[Capture, Capture]) -> None:
    """Each logprob moves by a draw of its own: as many are far off in one place as in another."""
    base, mtp = sound
    draw = np.random.default_rng(3)
    noisy = {
        key: replace(
            one,
            logprobs=TopLogprobs(
                one.logprobs.ids, one.logprobs.values + draw.normal(0, 0.08, one.logprobs.values.shape)
            ),
        )
        for key, one in mtp.completions.items()
        if one.logprobs is not None
    }
    far = far_logprobs(replace(mtp, completions=noisy), base, read_scores(CASE / "scores.jsonl.gz"))
    found = explained_by_logprobs("cuda/mtp", (ledger().steps,), {}, far)
    assert found.associated.faults > 60
    assert not found.telling


@pytest.mark.parametrize("nats", [0.15, 0.2, 0.4])
def test_what_is_wrong_everywhere_does_not_begin_with_a_request(sound: tuple[Capture, Capture], nats: float) -> None:
    """The less sure a token is, the more it moves. Far logprobs come from a request's first step on, and with them left
    out after each other the others are rare: that it begins where requests join is true, and no cause."""
    base, mtp = sound
    draw = np.random.default_rng(0)
    wrong = {}
    for key, one in mtp.completions.items():
        assert one.logprobs is not None
        values = one.logprobs.values
        moved_ones = values + (1 - np.exp(values)) * draw.choice([-nats, nats], values.shape)
        wrong[key] = replace(one, logprobs=TopLogprobs(one.logprobs.ids, moved_ones))
    far = far_logprobs(replace(mtp, completions=wrong), base, read_scores(CASE / "scores.jsonl.gz"))
    found = explained_by_logprobs("cuda/mtp", (ledger().steps,), {}, far)
    assert found.associated.faults > 60
    assert not found.telling
