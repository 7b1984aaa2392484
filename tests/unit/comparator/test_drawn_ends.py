"""What a PASS of drawn completions says of ends that come too early, or never, held to what its tests see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import completion, texts
from worlds import FLAT, SURE, Shape
from worlds.choosing import Lapse
from worlds.claims import ADMITTED, EXCLUDED, planted, spoken
from worlds.faults import Fault, end_early
from worlds.trials import Faulty, Trial

from parity.comparator import compare
from parity.comparator.population.drawn_ends import FAULTS, EndsSeen, ends_seen
from parity.comparator.statistics import mann_whitney
from parity.comparator.stats import Missed
from parity.records import Completion, Verdict

LEVEL = 0.001 / 12
LIMIT = 128
Ints = np.typing.NDArray[np.int64]


def _lengths(rng: np.random.Generator, count: int, chance: float) -> tuple[Ints, Ints]:
    """(lengths, 1 where it ended by itself) of completions that end at each token with this chance."""
    drawn = rng.geometric(chance, count)
    return np.minimum(drawn, LIMIT), (drawn <= LIMIT).astype(np.int64)


def _said(lengths: Ints, ended: Ints, *, by_length: bool = True) -> dict[str, EndsSeen]:
    made: list[Completion] = [
        completion([1] * long, f"r{row}", finish="stop" if by_itself else "length")
        for row, (long, by_itself) in enumerate(zip(lengths.tolist(), ended.tolist(), strict=True))
    ]
    found = ends_seen(
        made,
        len(made),
        lambda one: one.finish_reason == "stop",
        lambda _: LIMIT,
        LEVEL,
        0.1,
        by_length=by_length,
        by_reason=not by_length,
    )
    return {one.fault: one for one in found}


def _hit(rng: np.random.Generator, fault: str, share: float, lengths: Ints, ended: Ints) -> tuple[Ints, Ints]:
    hit = rng.random(len(lengths)) < share
    if fault == "early_end":
        return np.where(hit, rng.integers(1, lengths + 1), lengths), np.where(hit, 1, ended)
    return np.where(hit & (ended == 1), LIMIT, lengths), np.where(hit, 0, ended)


@pytest.mark.parametrize("chance", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("by_length", [True, False], ids=["lengths", "reasons"])
def test_what_is_said_to_be_seen_is_seen_in_95_of_100_runs(chance: float, by_length: bool) -> None:
    rng = np.random.default_rng(7)
    seen, tried = dict.fromkeys(FAULTS, 0), dict.fromkeys(FAULTS, 0)
    for _ in range(150):
        base = _lengths(rng, 256, chance)
        for fault, one in _said(*base, by_length=by_length).items():
            if one.share is None:
                continue
            other = _hit(rng, fault, one.share, *_lengths(rng, 256, chance))
            values = [arm[0 if by_length else 1].astype(float) for arm in (base, other)]
            tried[fault] += 1
            seen[fault] += mann_whitney(*values) < LEVEL
    assert max(tried.values()) > 100
    assert all(seen[fault] >= 0.95 * tried[fault] for fault in FAULTS)


def test_more_completions_are_named_that_do_exclude_one_in_ten() -> None:
    rng = np.random.default_rng(8)
    needed = _said(*_lengths(rng, 64, 0.01))["no_end"].needed
    assert needed is not None
    share = _said(*_lengths(rng, needed, 0.01))["no_end"].share
    assert share == pytest.approx(0.1, abs=0.02)


def test_ends_that_none_has_cannot_be_kept_away() -> None:
    assert list(_said(np.full(64, LIMIT), np.zeros(64, dtype=np.int64))) == ["early_end"]
    assert ends_seen([], 64, lambda _: True, lambda _: None, LEVEL, 0.1) == ()


def _trial(shape: Shape, fault: Fault) -> tuple[Faulty, Trial]:
    faulty = Faulty(2500001, shape, first=16, logprobs=5)
    return faulty, faulty.trial(replace(fault, family="hunted"), 3)


def _missed(trial: Trial) -> tuple[dict[str, Missed], list[str]]:
    result = compare(trial.baseline, trial.candidate, trial.scores, trial.options)
    assert result.verdict is Verdict.PASS
    return {one.fault: one for one in result.stats.missed}, texts(result.reasons)


HOT = {"temperature": 10.0}
EARLY = Fault("early end", "", "drawn", ("early_stop",), damage=end_early(), again=True, share=0.1, rules=HOT)
KEPT = Fault("no end", "", "drawn", ("early_stop",), lapse=Lapse(values={"min_tokens": 1 << 20}), share=0.5, rules=HOT)


@pytest.mark.parametrize("shape", [FLAT, SURE], ids=["flat", "sure"])
@pytest.mark.parametrize("fault", [EARLY, KEPT], ids=["early", "kept away"])
def test_a_pass_with_wrong_ends_says_that_so_many_could_have_been_missed(shape: Shape, fault: Fault) -> None:
    faulty, trial = _trial(shape, fault)
    said, reasons = _missed(trial)
    name = "early_end" if fault is EARLY else "no_end"
    assert said["early_end"].rate is not None
    assert f"an end token put at a random place in fewer than {said['early_end'].rate:.2%}" in reasons[1]
    assert said["no_end"].needed is not None
    truth = planted(fault, faulty, trial, 0.0)
    assert truth.ends == name
    result = compare(trial.baseline, trial.candidate, trial.scores, trial.options)
    assert spoken(result.stats, truth, (*result.reasons, *result.notes))[0] == ADMITTED
    assert spoken(result.stats, replace(truth, share=1.0, ends="early_end"))[0] == EXCLUDED


def test_where_an_end_is_surprising_each_shows_by_itself() -> None:
    cold = replace(EARLY, rules={"temperature": 0.6}, share=0.0, damage=None)
    _, trial = _trial(SURE, cold)
    said, _ = _missed(trial)
    assert said["early_end"].seen > 0.3
    assert said["early_end"].rate is not None
    assert said["early_end"].rate <= 1 - 0.05 ** (1 / (said["early_end"].seen * 64))
