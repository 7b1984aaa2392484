"""What a PASS says of cut-offs: how many completions may have ignored them, and that short lists do not show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.captures import EOS, capture, completion
from worlds import BASE, PEAKED, SURE, Fault, Shape, World, speculating
from worlds.faults import Lapse

from parity.comparator import Comparison, compare
from parity.comparator.detect import sampled
from parity.comparator.detect.trials import drawn_again
from parity.comparator.stats import Missed
from parity.records import RUN, Capture, Completion, Kind, ScoreKey, TopLogprobs, Verdict
from parity.records.next_steps import Step

CUT = {"temperature": 1.0, "top_k": 20}


def judged(seed: int, shape: Shape, rules: dict[str, Any], *, top: int | None = None, share: float = 0.0) -> Comparison:
    """64 drawn completions, a share of them with nothing cut off."""
    world = World(seed, shape)
    asked = world.requests(64, seed=seed)
    lapse = Lapse(values={"top_k": 0, "top_p": 1.0, "min_p": 0.0})
    fault = Fault("cut-off left out", "", "sampled", ("beyond_cutoff",), lapse=lapse, share=share, rules=rules)
    rules = {"max_tokens": 48, **rules}
    base = world.run(asked, BASE, **rules).capture
    other = world.run(asked, speculating(2), fault=fault if share else None, **rules).capture
    return compare(base, other, world.score(base, other, top=top))


def of_cutoffs(result: Comparison) -> Missed | None:
    return next((one for one in result.stats.missed if one.fault == "no_cutoff"), None)


@pytest.mark.parametrize("shape", [PEAKED, SURE], ids=["peaked", "sure"])
def test_a_share_that_a_pass_excludes_is_found(shape: Shape) -> None:
    said = of_cutoffs(judged(1, shape, CUT))
    assert said is not None
    assert said.rate is not None
    assert 0.045 < said.rate < 0.4  # 64 completions exclude 4.6 % where each hit is seen
    found = [judged(seed, shape, CUT, share=said.rate).verdict for seed in range(1, 6)]
    assert found.count(Verdict.DIVERGED) >= 4


WIDER = [
    ({"top_k": 5}, {"top_k": 6}, PEAKED, "top_k=5"),
    ({"top_p": 0.9}, {"top_p": 0.95}, PEAKED, "top_p=0.9"),
    ({"min_p": 0.05}, {"min_p": 0.025}, SURE, "min_p=0.05"),
]


@pytest.mark.parametrize(("asked", "drawn", "shape", "said"), WIDER, ids=[one[3] for one in WIDER])
def test_a_cut_off_a_little_too_wide_shows_over_the_run(
    asked: dict[str, Any], drawn: dict[str, Any], shape: Shape, said: str
) -> None:
    """Most of these tokens lie so little beyond that they do not show by themselves; the baseline has none."""
    result = wider(3, shape, asked, drawn)
    assert result.verdict is Verdict.DIVERGED
    (found,) = [one for one in result.corrupt if one.kind is Kind.BEYOND_CUTOFF and one.request == RUN]
    assert said in str(found.evidence.why)
    assert "0 of the baseline's 128" in str(found.evidence.why)


def test_a_baseline_that_cuts_off_too_little_accuses_nobody_of_it() -> None:
    asked, drawn, shape, _ = WIDER[0]
    swapped = wider(3, shape, asked, drawn, swap=True)
    assert Kind.BEYOND_CUTOFF not in {one.kind for one in swapped.corrupt}
    sound = wider(3, shape, asked, asked)
    assert (sound.verdict, list(sound.corrupt)) == (Verdict.PASS, [])


@pytest.mark.parametrize(("last", "kind"), [(EOS, Kind.EARLY_STOP), (9, Kind.BEYOND_CUTOFF)], ids=["end", "word"])
def test_an_end_beyond_the_cut_off_is_an_early_stop(last: int, kind: Kind) -> None:
    """One token in twenty is an end there, which is likely enough; top_k had cut it off all the same."""
    rng = np.random.default_rng(1)
    rows: tuple[list[Completion], list[Completion]] = ([], [])
    lists: dict[ScoreKey, TopLogprobs] = {}
    for arm, side in zip(("cpu/base", "cpu/mtp"), rows, strict=True):
        for number in range(8):
            tokens = rng.choice([7, 8], size=12, p=[0.6, 0.4])
            is_hit = arm == "cpu/mtp" and number == 3
            if is_hit:
                tokens[-1] = last
            values = np.log(np.tile([0.54, 0.36, 0.05, 0.05], (12, 1)))
            listed = TopLogprobs(np.tile([7, 8, 9, EOS], (12, 1)), values)
            finish = "stop" if is_hit and last == EOS else "length"
            row = completion(tokens, f"p{number}", finish=finish, prompt=(number, 5), max_tokens=12, logprobs=listed)
            lists[ScoreKey(arm, *row.key)] = listed
            side.append(row)
    arms = [
        capture(arm, *side, temperature=1.0, top_k=2) for arm, side in zip(("cpu/base", "cpu/mtp"), rows, strict=True)
    ]
    (found,) = compare(arms[0], arms[1], lists).corrupt
    assert (found.kind, found.request, found.position, found.length) == (kind, "p3", 11, 1)


def test_of_arms_in_other_precision_nothing_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router chooses other experts in one of them, of which the baseline's own tokens show nothing."""
    monkeypatch.setattr(sampled, "of_other_precision", lambda differences: True)
    asked, drawn, shape, _ = WIDER[0]
    assert RUN not in {one.request for one in wider(3, shape, asked, drawn).corrupt if one.kind is Kind.BEYOND_CUTOFF}


@pytest.mark.parametrize(("noise", "accused"), [(0.0, True), (0.04, False)])
def test_noisier_logits_move_tokens_beyond_a_cut_off(noise: float, accused: bool) -> None:
    """Where the candidate's own logprobs lie farther off the scores than the baseline's, its cut-off may be right."""
    asked, drawn, shape, _ = WIDER[0]
    result = wider(3, shape, asked, drawn, noise=noise)
    of_run = {one.kind for one in result.corrupt if one.request == RUN}
    assert (Kind.BEYOND_CUTOFF in of_run) is accused


def wider(
    seed: int,
    shape: Shape,
    asked: dict[str, Any],
    drawn: dict[str, Any],
    *,
    swap: bool = False,
    noise: float | None = None,
) -> Comparison:
    """128 completions drawn with another cut-off than asked, compared with as many sound ones. noise: nats put on the
    candidate's own logprobs; None: none are recorded."""
    world, rules = World(seed, shape), {"temperature": 1.0, "max_tokens": 128, **asked}
    if noise is not None:
        rules["logprobs"] = 0
    requests = world.requests(128, seed=seed)
    fault = Fault("another cut-off", "", "drawing", ("beyond_cutoff",), lapse=Lapse(values=drawn), rules=rules)
    arms = [BASE, speculating(2)]
    base, other = (
        world.run(requests, arm, fault=fault if (arm is BASE) is swap and drawn != asked else None, **rules).capture
        for arm in arms
    )
    return compare(base, other if noise is None else noisy(other, noise), world.score(base, other))


def noisy(arm: Capture, nats: float) -> Capture:
    rng, rows = np.random.default_rng(1), {}
    for key, one in arm.completions.items():
        assert one.logprobs is not None
        values = np.minimum(0.0, one.logprobs.values + rng.normal(0, nats, one.logprobs.values.shape))
        rows[key] = replace(one, logprobs=TopLogprobs(one.logprobs.ids, values))
    return replace(arm, completions=rows)


def test_lists_that_are_too_short_for_a_top_k_are_named_with_the_length_that_decides() -> None:
    result = judged(1, PEAKED, CUT, top=5)
    said = of_cutoffs(result)
    assert said is not None
    assert (said.rate, said.needed) == (None, None)
    note = next(one for one in result.notes if one.id == "beyond_cutoff.short_lists")
    assert [(one.step, one.number) for one in result.next_steps if one.settles == note.id] == [(Step.SCORE_TOP, 20)]
    longer = judged(1, PEAKED, CUT)
    assert "beyond_cutoff.short_lists" not in {one.id for one in longer.notes}


def test_nothing_is_said_of_cut_offs_that_nobody_asks_for() -> None:
    assert of_cutoffs(judged(1, PEAKED, {"temperature": 1.0})) is None


def test_tokens_are_drawn_again_as_the_lists_say() -> None:
    """Of 0.5, 0.3 and 0.1 at temperature 1, and the rest beyond; at 0.5 in the ratio of their squares."""
    top = TopLogprobs(np.tile(np.arange(3, dtype=np.int32), (20_000, 1)), np.log(np.tile([0.5, 0.3, 0.1], (20_000, 1))))
    tokens, lists = drawn_again(top, 1.0, np.random.default_rng(1))
    shares = [float((tokens == token).mean()) for token in range(3)]
    assert shares == pytest.approx([0.5, 0.3, 0.1], abs=0.015)
    own = np.where(lists.ids == tokens[:, None], lists.values, -np.inf).max(axis=1)
    beyond = tokens > 2
    assert (own[beyond] < np.log(0.1)).all()
    assert np.exp(own[beyond]).mean() < 0.1
    colder, _ = drawn_again(top, 0.5, np.random.default_rng(1))
    assert float((colder == 0).sum() / (colder == 1).sum()) == pytest.approx(25 / 9, rel=0.06)


@pytest.mark.parametrize("last", [-40.0, -9999.0, -np.inf, np.nan])
def test_lists_that_end_with_the_impossible_are_drawn_from_as_well(last: float) -> None:
    top = TopLogprobs(np.tile(np.arange(3, dtype=np.int32), (200, 1)), np.tile([-0.5, -1.5, last], (200, 1)))
    tokens, lists = drawn_again(top, 0.7, np.random.default_rng(1))
    assert (lists.ids == tokens[:, None]).any(axis=1).all()
    for shape in ((0, 3), (5, 0)):  # no tokens, and lists that name none
        nothing = TopLogprobs(np.zeros(shape, dtype=np.int32), np.zeros(shape))
        assert len(drawn_again(nothing, 0.7, np.random.default_rng(1))[0]) == shape[0]
