"""Logprobs of the chosen tokens alone, which every run records: they list no rivals and change no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted_set import Case, cases, clean
from support.captures import TEXT, capture, completion, score, scores

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.detect import pairs as pairs_module
from parity.comparator.detect.many_logprobs import doubtful_rows
from parity.comparator.detect.usual_logprobs import most_have
from parity.comparator.streams.pairing import pair_up
from parity.records import Capture, Completion, Key, Kind, ScoreKey, Scores, TopLogprobs, Verdict


def own(tokens: Any, values: Any) -> TopLogprobs:
    return TopLogprobs(np.array(tokens, np.int64)[:, None], np.array(values, np.float64)[:, None])


def recorded(arm: Capture, scored: Scores, seed: int = 0) -> Capture:
    """The arm as it would be with its own logprobs: its scores' and a little noise; likely ones without a score."""
    noise = np.random.default_rng(seed)

    def of(one: Completion) -> Completion:
        top = scored.get(ScoreKey(arm.header.arm, *one.key))
        likely = np.full(len(one.token_ids), -0.1)
        if top is not None and len(top) == len(one.token_ids):
            is_chosen = top.ids == one.token_ids[:, None]
            found = np.where(is_chosen, top.values, -np.inf).max(axis=1)
            likely = np.where(np.isfinite(found), found, likely)
        values = np.minimum(likely + noise.normal(0, 0.014, len(likely)), 0.0)
        return replace(one, logprobs=own(one.token_ids, values))

    return replace(arm, completions={key: of(one) for key, one in arm.completions.items()})


def same(one: Comparison, other: Comparison) -> None:
    def found(result: Comparison) -> list[tuple[Any, ...]]:
        return [(f.key, f.kind, f.position, f.length, f.severity) for f in result.findings]

    assert one.verdict == other.verdict
    assert [reason.id for reason in one.reasons] == [reason.id for reason in other.reasons]
    assert dict(one.classes) == dict(other.classes)
    assert found(one) == found(other)


def some() -> list[Case]:
    """One case of each fault, and of every fourth with penalties."""
    return [*one_of_each("A"), *one_of_each("B")[::4]]


def one_of_each(world: str) -> list[Case]:
    first: dict[str, Case] = {}
    for case in cases(world):
        first.setdefault(case.fault, case)
    return list(first.values())


@pytest.mark.parametrize("with_scores", [True, False])
def test_the_planted_set_is_judged_as_without(with_scores: bool) -> None:
    for case in some():
        baseline, _, _ = clean(case.world)
        scored = case.scores if with_scores else {}
        with_own = (recorded(baseline, scored, 1), recorded(case.candidate, case.scores, 2))
        same(compare(*with_own, scored), compare(baseline, case.candidate, scored))


def test_they_support_no_token_and_the_advice_stays() -> None:
    other = (*TEXT[:20], *range(700, 740))
    values = np.full(60, -0.1)
    base = capture("cpu/base", completion(TEXT, logprobs=own(TEXT, values)))
    found = compare(base, capture("cpu/mtp", completion(other, logprobs=own(other, values))))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert set(found.classes.values()) == {"unjudged"}
    assert "conclude.unjudged" in {reason.id for reason in found.reasons}
    assert all(finding.evidence.numbers is None for finding in found.findings)


def test_a_forbidden_token_is_none_that_the_engine_did_not_list() -> None:
    values = np.full(60, -0.1)
    base = capture("cpu/base", completion(TEXT, logprobs=own(TEXT, values)), allowed_token_ids=[*TEXT[1:]])
    found = compare(base, capture("cpu/mtp", *base, allowed_token_ids=[*TEXT[1:]]))
    assert Kind.LOGPROB_MISMATCH not in {finding.kind for finding in found.findings}


def test_copies_of_a_sample_are_found_as_without() -> None:
    rng = np.random.default_rng(3)
    texts = [rng.integers(1, 900, 60) for _ in range(6)]
    theirs = [rng.integers(1, 900, 60) for _ in range(6)]

    def made(arm: str, rows: list[np.ndarray], logprobs: bool) -> Capture:
        return capture(
            arm,
            *(
                completion(row, sample=number, logprobs=own(row, np.full(60, -4.0)) if logprobs else None)
                for number, row in enumerate(rows)
            ),
            temperature=1.0,
            n=6,
        )

    copies = [*texts[:5], texts[0]]
    with_own = compare(made("cpu/base", theirs, True), made("cpu/mtp", copies, True))
    without = compare(made("cpu/base", theirs, False), made("cpu/mtp", copies, False))
    assert Kind.DUPLICATE_COMPLETION in {finding.kind for finding in without.findings}
    same(with_own, without)


# ------------------------------------------------------------------ what they do show


def arms(values: Any, theirs: Any) -> tuple[Capture, Capture, Scores]:
    scored = {**scores("cpu/base", p0=score(TEXT)), **scores("cpu/mtp", p0=score(TEXT))}
    base = capture("cpu/base", completion(TEXT, logprobs=own(TEXT, theirs)))
    return base, capture("cpu/mtp", completion(TEXT, logprobs=own(TEXT, values))), scored


@pytest.mark.parametrize(
    ("candidate", "baseline", "is_found"),
    [
        (-4.5, -0.1, True),  # far from the score, where the baseline's own are near it
        (-0.5, -0.1, False),  # two kernels may differ by that much
        (-2.5, -1.3, False),  # the baseline's own lie as far from theirs as that
        (float("nan"), -0.1, True),  # no logprob at all
        (float("nan"), -1.3, True),
    ],
)
def test_wrong_ones_are_found_beyond_what_the_baseline_shows(candidate: float, baseline: float, is_found: bool) -> None:
    values, theirs = np.full(60, -0.1), np.full(60, -0.1)
    values[30], theirs[10] = candidate, baseline
    found = compare(*arms(values, theirs))
    assert (Kind.LOGPROB_MISMATCH in {finding.kind for finding in found.findings}) == is_found


def test_without_scores_of_the_baseline_none_is_far_off() -> None:
    values = np.full(60, -0.1)
    base, other, scored = arms(np.where(np.arange(60) == 30, -2.5, values), values)
    found = compare(base, other, {key: top for key, top in scored.items() if key.arm == "cpu/mtp"})
    assert not found.findings


def rows(values: list[Any], arm: str) -> Capture:
    return capture(arm, *(completion(TEXT, f"p{at}", logprobs=own(TEXT, one)) for at, one in enumerate(values)))


def test_another_rows_logprobs_are_found_where_nothing_is_scored() -> None:
    """As with `--score differing`: equal tokens have no score, but the baseline decoded them too."""
    rng = np.random.default_rng(5)
    theirs = [-rng.exponential(0.6, 60) for _ in range(6)]
    mine = [one - rng.exponential(0.02, 60) for one in theirs]
    assert compare(rows(theirs, "cpu/base"), rows(mine, "cpu/mtp")).verdict is Verdict.PASS
    mine[1], mine[4] = mine[4], mine[1]
    found = compare(rows(theirs, "cpu/base"), rows(mine, "cpu/mtp"))
    assert {(one.request, one.kind) for one in found.corrupt} == {
        ("p1", Kind.LOGPROB_MISMATCH),
        ("p4", Kind.LOGPROB_MISMATCH),
    }


def near_tie_at_the_end(tokens: np.ndarray) -> TopLogprobs:
    """Scores of these tokens; in the last place 99 is nearly as good."""
    top = score(tokens.tolist())
    top.ids[-1, 1], top.values[-1, 1] = 99, -0.15
    return top


@pytest.mark.parametrize("noisy", [False, True])
def test_another_rows_logprobs_are_found_where_only_what_parted_is_scored(*, noisy: bool) -> None:
    """`--score differing`. Noisy: a model whose logprobs are off now and then in every row has no wrong row."""
    rng = np.random.default_rng(7)
    texts = [rng.permutation(np.arange(100, 160)) for _ in range(8)]
    base = capture("cpu/base", *(completion([*one[:-1], 99], f"p{at}") for at, one in enumerate(texts)))
    scored = scores("cpu/mtp", **{f"p{at}": near_tie_at_the_end(one) for at, one in enumerate(texts)})
    mine = [-0.1 + rng.normal(0, 0.014, 60) for _ in texts]
    if noisy:
        for at, one in enumerate(mine):
            one[rng.choice(60, 12 if at == 3 else 5, replace=False)] -= 0.9
    else:
        mine[3][20:32] -= 0.9
    made = (completion(one, f"p{at}", logprobs=own(one, mine[at])) for at, one in enumerate(texts))
    found = compare(base, capture("cpu/mtp", *made), scored)
    wrong = {(one.request, one.kind) for one in found.corrupt}
    assert wrong == (set() if noisy else {("p3", Kind.LOGPROB_MISMATCH)})


def test_half_of_the_rows_are_no_habit_either_where_what_parted_is_scored() -> None:
    rng = np.random.default_rng(7)
    texts = [rng.permutation(np.arange(100, 160)) for _ in range(12)]
    base = capture("cpu/base", *(completion([*one[:-1], 99], f"p{at}") for at, one in enumerate(texts)))
    scored = scores("cpu/mtp", **{f"p{at}": near_tie_at_the_end(one) for at, one in enumerate(texts)})
    mine = [-0.1 + rng.normal(0, 0.014, 60) for _ in texts]
    for at, top in enumerate(scored.values()):
        mine[at][20:40], top.values[20:40] = -1.2, top.values[20:40] - 1.1
    for one in mine[:6]:
        one[rng.choice(60, 40, replace=False)] -= 0.9
    made = (completion(one, f"p{at}", logprobs=own(one, mine[at])) for at, one in enumerate(texts))
    found = compare(base, capture("cpu/mtp", *made), scored)
    assert {one.request for one in found.corrupt} == {f"p{at}" for at in range(6)}


def test_arms_whose_logprobs_are_off_now_and_then_in_every_row_have_no_wrong_row() -> None:
    """A model whose logprobs hang on rounding: some in each completion, in one a few more."""
    rng = np.random.default_rng(6)
    theirs = [np.full(60, -1.0) for _ in range(8)]
    mine = [one.copy() for one in theirs]
    for at, one in enumerate(mine):
        one[rng.choice(60, 12 if at == 3 else 4, replace=False)] -= 0.9
    found = compare(rows(theirs, "cpu/base"), rows(mine, "cpu/mtp"))
    assert Kind.LOGPROB_MISMATCH not in {one.kind for one in found.findings}


@pytest.mark.parametrize("wrong", [1, 8, 11], ids=str)
def test_logprobs_a_token_late_in_many_rows_are_no_habit(wrong: int) -> None:
    """Of 16 rows. Where the other rows agree, no model moves the logprobs of a whole row by itself."""
    rng = np.random.default_rng(11)
    theirs = [-rng.exponential(1.0, 60) for _ in range(16)]
    mine = [np.minimum(one + rng.normal(0, 0.014, 60), 0.0) for one in theirs]
    mine[:wrong] = [np.roll(one, 1) for one in mine[:wrong]]
    found = compare(rows(theirs, "cpu/base"), rows(mine, "cpu/mtp"))
    assert {one.request for one in found.corrupt} == {f"p{at}" for at in range(wrong)}
    assert {one.kind for one in found.corrupt} == {Kind.LOGPROB_MISMATCH}


def test_where_no_row_agrees_the_arms_write_other_numbers() -> None:
    rng = np.random.default_rng(11)
    theirs = [-rng.exponential(1.0, 60) for _ in range(16)]
    mine = [np.roll(one, 1) for one in theirs]
    assert Kind.LOGPROB_MISMATCH not in {
        one.kind for one in compare(rows(theirs, "cpu/base"), rows(mine, "cpu/mtp")).corrupt
    }


@pytest.mark.parametrize("parted", [0, 4, 8])
def test_completions_that_show_nothing_do_not_agree(parted: int) -> None:
    """Logprobs of another kind throughout: half as large. Some pairs part at once, or are too sure to show it."""
    rng = np.random.default_rng(12)
    theirs = [-rng.exponential(2.0, 60) for _ in range(16)]
    theirs[-4:] = [np.full(60, -0.05) for _ in range(4)]
    base, other = rows(theirs, "cpu/base"), rows([one / 2 for one in theirs], "cpu/mtp")
    apart = [replace(one, token_ids=one.token_ids + 500) for one in list(other)[:parted]]
    other = other.but({one.key: replace(one, logprobs=own(one.token_ids, theirs[0])) for one in apart})
    assert Kind.LOGPROB_MISMATCH not in {one.kind for one in compare(base, other).corrupt}


def off_at(texts: list[list[int]], wrong: dict[int, list[int]]) -> set[str]:
    """The rows called corrupt where these logprobs are off between the arms: by row, places."""
    prompts = [[900 + at] for at in range(len(texts))]
    arms = []
    for arm in ("cpu/base", "cpu/mtp"):
        values = np.full((len(texts), 60), -1.0)
        for row, places in wrong.items() if arm == "cpu/mtp" else ():
            values[row, places] -= 0.6
        made = (
            completion(one, f"p{at}", prompt=prompts[at], logprobs=own(one, values[at])) for at, one in enumerate(texts)
        )
        arms.append(capture(arm, *made))
    return {one.request for one in compare(*arms).corrupt}


def test_a_choice_that_a_loop_comes_to_again_and_again_is_one() -> None:
    """Four of 160 logprobs of one clean completion of a small random model were off by 0.56 nats: its text had a loop
    of 37 tokens."""
    rng = np.random.default_rng(8)
    texts = [rng.permutation(np.arange(100, 160)).tolist() for _ in range(8)]
    texts[2] = texts[2][:15] * 4
    again = [place for place in range(20, 60) if place % 15 in (4, 9)]
    assert off_at(texts, {2: again}) == set()
    assert off_at(texts, {2: list(range(20, 28))}) == {"p2"}
    assert off_at(texts, {3: again}) == {"p3"}


def test_nor_is_one_that_several_completions_come_to_a_fault_of_one() -> None:
    rng = np.random.default_rng(9)
    texts = [rng.permutation(np.arange(100, 160)).tolist() for _ in range(12)]
    for one in texts[:3]:
        one[30:] = range(200, 230)
    places = [33, 38, 43, 48, 53, 58]
    assert off_at(texts, dict.fromkeys((0, 1, 2), places)) == set()
    assert off_at(texts, dict.fromkeys((0, 1), places)) == {"p0", "p1"}


@pytest.mark.parametrize(
    ("counts", "usual"),
    [
        ([], 0),
        ([0] * 14 + [9] * 6, 0),  # what is wrong in fewer than one completion in three
        ([0] * 10 + [1] * 8 + [4, 11], 4),  # and the one that has most is left out
        (np.array([2, 2, 2, 3]), 2),
    ],
)
def test_few_completions_make_nothing_usual(counts: Any, usual: int) -> None:
    assert most_have(counts) == usual


def test_equal_completions_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.full(60, -0.1)
    wrong = np.where(np.arange(60) == 7, -3.0, values)
    short = own(TEXT[:59], values[:59])
    base = capture("cpu/base", *(completion(TEXT, f"p{i}", logprobs=own(TEXT, values)) for i in range(6)))
    each = [own(TEXT, values), own(TEXT, wrong), short, own((*TEXT[:5], 1, *TEXT[6:]), values), None, own(TEXT, values)]
    other = capture("cpu/mtp", *(completion(TEXT, f"p{i}", logprobs=one) for i, one in enumerate(each)))
    assert doubtful_rows(pair_up(base, other), np.arange(6)) == {1, 2, 3}
    monkeypatch.setattr(pairs_module, "Case", None)  # none is made of a pair with nothing to look at
    assert compare(base, capture("cpu/mtp", *base), options=CompareOptions()).verdict is Verdict.PASS


def lists(values: Any) -> TopLogprobs:
    """What an engine gives where lists are asked for: the chosen token and one more."""
    ids = np.stack([np.array(TEXT, np.int64), np.full(60, 998)], axis=1)
    return TopLogprobs(ids, np.stack([np.array(values, np.float64), np.full(60, -4.0)], axis=1))


@pytest.mark.parametrize(
    ("candidate", "baseline", "is_found"),
    [
        (dict.fromkeys((10, 20, 30, 41), -0.9), {}, True),
        ({30: -0.9, 41: -1.0}, {10: -0.8}, False),  # another expert at a near-tie, in either arm
        (dict.fromkeys(range(20, 31), -0.9), {10: -0.8, 11: -0.8, 40: -0.8}, True),  # far more of them
        ({30: -4.5, 41: -1.0}, {10: -0.8}, True),  # or much farther
    ],
)
def test_lists_are_wrong_beyond_what_the_baseline_s_own_show(
    candidate: dict[int, float], baseline: dict[int, float], is_found: bool
) -> None:
    """Seen with a DeepSeek of random weights on the emulated NPU: of 24 tokens one to four lay 0.6 to 1.3 nats off
    their scores in every arm, the baseline's too, and three completions were called corrupt."""

    def made(off: dict[int, float]) -> TopLogprobs:
        return lists([off.get(place, -0.1) for place in range(60)])

    scored = {**scores("cpu/base", p0=score(TEXT)), **scores("cpu/mtp", p0=score(TEXT))}
    base = capture("cpu/base", completion(TEXT, logprobs=made(baseline)))
    found = compare(base, capture("cpu/mtp", completion(TEXT, logprobs=made(candidate))), scored)
    assert (Kind.LOGPROB_MISMATCH in {finding.kind for finding in found.findings}) == is_found


@pytest.mark.parametrize("scored", ["cpu/mtp", "cpu/base"])
def test_logprobs_of_what_a_grammar_leaves_are_not_those_of_the_scores(scored: str) -> None:
    """vLLM applies the mask before it takes them. One that is no logprob is wrong all the same."""
    asked = {"structured_outputs": {"regex": ".*"}}
    sure = own(TEXT, np.zeros(len(TEXT)))
    usual = own(TEXT, np.full(len(TEXT), -0.1))
    rest = [completion(TEXT, f"o{n}", logprobs=usual) for n in range(6)]
    base, other = (capture(arm, *rest, completion(TEXT, logprobs=sure, **asked)) for arm in ("cpu/base", "cpu/mtp"))
    top = TopLogprobs.from_json([[[998, -0.1], [token, -4.0]] for token in TEXT])
    known = {ScoreKey(scored, "p0", 0, 0): top, ScoreKey(scored, "o1", 0, 0): score(TEXT)}
    result = compare(base, other, known)
    assert result.corrupt == []
    assert "inputs.masked_logprobs" in {one.id for one in result.notes}
    broken = own(TEXT, [*np.zeros(len(TEXT) - 1), np.nan])
    wrong = replace(other.completions[Key("p0", 0, 0)], logprobs=broken)
    found = compare(base, other.but({wrong.key: wrong}), known).corrupt
    assert [(one.request, one.kind, one.position) for one in found] == [("p0", Kind.LOGPROB_MISMATCH, len(TEXT) - 1)]


@pytest.mark.parametrize(("rule", "is_wrong"), [({}, True), ({"bad_words": ["a"]}, False)], ids=str)
def test_a_token_that_rules_left_nothing_beside_has_no_logprob(rule: dict[str, Any], is_wrong: bool) -> None:
    asked = {"structured_outputs": {"regex": "a"}, **rule}
    nothing = own(TEXT, [-np.inf, *np.zeros(len(TEXT) - 1)])
    base, other = (capture(arm, completion(TEXT, logprobs=nothing, **asked)) for arm in ("cpu/base", "cpu/mtp"))
    assert [one.kind for one in compare(base, other).corrupt] == [Kind.LOGPROB_MISMATCH] * is_wrong


def _row(request: str, values: Sequence[float]) -> Completion:
    return completion(TEXT[: len(values)], request, logprobs=own(TEXT[: len(values)], values))


@pytest.mark.parametrize("off", ["candidate", "baseline"])
def test_logprobs_of_another_row_are_found_where_the_candidate_alone_is_scored(off: str) -> None:
    """Both arms say the same, so the baseline's own logprobs say how far those of a token lie apart. Where it is these
    that lie off the score, the candidate is not accused."""
    right = np.where(np.arange(24) % 3, -0.1, -1.5)
    wrong = np.roll(right, 1)
    scored = {
        ScoreKey("cuda/mtp", f"p{n}", 0, 0): TopLogprobs.from_json(
            [[[token, float(value)], [998, -4.0]] for token, value in zip(TEXT, right, strict=False)]
        )
        for n in range(8)
    }
    rows = [_row(f"p{n}", right) for n in range(8)]
    odd = [_row("p0", wrong), *rows[1:]]
    sides = (odd, rows) if off == "baseline" else (rows, odd)
    arms = [capture(name, *side, max_tokens=24) for name, side in zip(("cuda/base", "cuda/mtp"), sides, strict=True)]
    result = compare(*arms, scored)
    found = [(one.request, one.kind) for one in result.corrupt]
    assert found == ([] if off == "baseline" else [("p0", Kind.LOGPROB_MISMATCH)])
