"""One small stream for each kind: what it is called, where it begins, how long it is."""

from __future__ import annotations

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion, score, scores, texts

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.streams.pairing import pair_up
from parity.records import Finding, Kind, ScoreKey, TopLogprobs, Verdict
from parity.records.next_steps import Step

FAULT = 9.0
"""Nats below the best token: no noise."""


def findings(
    candidate: list[int],
    wrong: dict[int, float],
    *,
    base: tuple[int, ...] = TEXT,
    finish: str = "length",
) -> tuple[Verdict, list[Finding]]:
    result = compare(
        capture("cpu/base", completion(base)),
        capture("cpu/mtp", completion(candidate, finish=finish)),
        scores("cpu/mtp", p0=score(candidate, wrong, base)),
    )
    return result.verdict, result.findings


def the_one(outcome: tuple[Verdict, list[Finding]]) -> tuple[Kind, int | None, int | None]:
    verdict, found = outcome
    assert verdict is Verdict.DIVERGED
    assert len(found) == 1, found
    return found[0].kind, found[0].position, found[0].length


def test_the_same_stream_passes() -> None:
    assert findings(list(TEXT), {}) == (Verdict.PASS, ())


def test_near_tie_then_text_of_its_own_passes() -> None:
    verdict, found = findings([*TEXT[:20], *range(300, 340)], {20: 0.1})
    assert verdict is Verdict.PASS
    assert [(one.kind, one.position) for one in found] == [(Kind.NEAR_TIE, 20)]
    assert found[0].evidence.to_json()["gap"] == pytest.approx(0.1)


def test_one_wrong_token() -> None:
    assert the_one(findings([*TEXT[:20], 500, *TEXT[21:]], {20: FAULT})) == (Kind.UNJUSTIFIED, 20, 1)


def test_wrong_token_after_a_near_tie() -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    verdict, found = findings(stream, {20: 0.1, 35: FAULT})
    assert verdict is Verdict.DIVERGED
    assert {(one.kind, one.position) for one in found} == {(Kind.NEAR_TIE, 20), (Kind.UNJUSTIFIED, 35)}


def test_garbled() -> None:
    rubbish = [700, 650, 720, 610, 690, 777]
    stream = [*TEXT[:20], *rubbish, *TEXT[26:]]
    assert the_one(findings(stream, dict.fromkeys(range(20, 26), FAULT))) == (Kind.GARBLED, 20, 6)


def test_chunk_emitted_twice() -> None:
    stream = [*TEXT[:20], *TEXT[15:20], *TEXT[20:55]]
    assert the_one(findings(stream, {20: FAULT})) == (Kind.DUPLICATION, 20, 5)


def test_chunk_lost() -> None:
    stream = [*TEXT[:20], *TEXT[25:], *range(300, 305)]
    assert the_one(findings(stream, {20: FAULT})) == (Kind.OMISSION, 20, 5)


def test_lost_chunk_of_repeating_text_is_called_ambiguous() -> None:
    base = (*TEXT[:10], *TEXT[:10], *TEXT[:10], *TEXT[10:40])
    stream = [*base[:20], *base[30:], *range(300, 310)]
    _, found = findings(stream, {20: FAULT}, base=base)
    assert found[0].kind is Kind.OMISSION
    assert found[0].evidence.ambiguous is not None


def test_falls_into_a_loop() -> None:
    stream = [*TEXT[:20], *([117, 118, 119] * 14)[:40]]
    assert the_one(findings(stream, {20: FAULT})) == (Kind.REPETITION, 20, 40)


def test_a_loop_of_the_model_itself_passes() -> None:
    loop = (*TEXT[:20], *([117, 118, 119] * 14)[:40])
    assert findings(list(loop), {}, base=loop) == (Verdict.PASS, ())


def test_ends_early() -> None:
    stream = [*TEXT[:20], EOS]
    assert the_one(findings(stream, {20: FAULT}, finish="stop")) == (Kind.EARLY_STOP, 20, 1)


def test_goes_on_behind_the_end() -> None:
    base = (*TEXT[:20], EOS)
    result = compare(
        capture("cpu/base", completion(base, finish="stop")),
        capture("cpu/mtp", completion([*base, *range(300, 339)])),
    )
    assert [(one.kind, one.position) for one in result.corrupt] == [(Kind.OVERRUN, 21)]


def test_longer_than_asked() -> None:
    assert the_one(findings([*TEXT, 300, 301], {})) == (Kind.OVERRUN, 60, 2)


def test_id_outside_the_vocabulary() -> None:
    assert the_one(findings([*TEXT[:20], 1000, *TEXT[21:]], {})) == (Kind.INVALID_TOKEN, 20, 1)


def test_a_loop_behind_an_id_outside_the_vocabulary() -> None:
    stream = [*TEXT[:20], *range(300, 310), 1000, *range(310, 319), *([700, 701] * 10)]
    wrong = {20: 0.1, 31: FAULT, **dict.fromkeys(range(40, 60), FAULT)}
    _, found = findings(stream, wrong)
    kinds = [(one.kind, one.position) for one in found if one.kind is not Kind.NEAR_TIE]
    assert kinds == [(Kind.INVALID_TOKEN, 30), (Kind.REPETITION, 40)]


def test_tokens_lost_behind_a_chunk_twice_are_told_apart() -> None:
    stream = [*TEXT[:8], *TEXT[4:8], *TEXT[8:30], *TEXT[36:]]

    kinds = [(one.kind, one.position, one.length) for one in findings(stream[:58], {8: FAULT, 34: FAULT})[1]]
    assert kinds[:2] == [(Kind.DUPLICATION, 8, 4), (Kind.OMISSION, 34, 6)]


def test_another_prompt() -> None:
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(TEXT, prompt=(1, 2, 4))))
    assert [one.kind for one in result.corrupt] == [Kind.INPUT_MISMATCH]
    assert result.corrupt[0].evidence.to_json()["prompt_position"] == 2


def test_completion_lost() -> None:
    both = completion(TEXT), completion(TEXT, "p1")
    result = compare(capture("cpu/base", *both), capture("cpu/mtp", both[0]))
    assert [(one.kind, one.request) for one in result.corrupt] == [(Kind.MISSING_COMPLETION, "p1")]


def test_a_round_that_differs_from_another_by_a_fault() -> None:
    wrong = [*TEXT[:20], 500, *TEXT[21:]]
    base = [completion(TEXT, round=n) for n in range(2)]
    candidate = completion(TEXT), completion(wrong, round=1)
    known = scores("cpu/mtp", p0=score(TEXT))
    key = next(iter(known))._replace(round=1)
    result = compare(
        capture("cpu/base", *base), capture("cpu/mtp", *candidate), {**known, key: score(wrong, {20: FAULT}, TEXT)}
    )
    assert {(one.kind, one.round) for one in result.corrupt} == {(Kind.UNJUSTIFIED, 1), (Kind.NONDETERMINISM, 1)}


def test_without_a_reference_a_difference_is_not_judged() -> None:
    stream = [*TEXT[:20], 500, *range(300, 339)]
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(stream)))
    assert (result.verdict, result.findings) == (Verdict.INCONCLUSIVE, ())


def test_an_engine_that_does_not_take_the_best_of_its_own_list() -> None:
    """Behind a near-tie and without scores, the engine's own list still shows a token it did not choose."""
    stream = [*TEXT[:20], *range(300, 340)]
    own = score(stream, {20: 0.1, 35: FAULT}, TEXT)
    before = score(TEXT)
    before.ids[20, 1], before.values[20, 1] = stream[20], -0.2
    result = compare(
        capture("cpu/base", completion(TEXT, logprobs=before)),
        capture("cpu/mtp", completion(stream, logprobs=own)),
    )
    assert [(one.kind, one.position) for one in result.corrupt] == [(Kind.UNJUSTIFIED, 35)]


def test_automatic_tolerance_follows_the_noise_of_the_baseline() -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    arms = capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(stream))
    floor = scores("cpu/base", p0=score(TEXT, {7: 0.2}))
    for gap, verdict in ((0.59, Verdict.PASS), (0.65, Verdict.DIVERGED)):
        known = {**floor, **scores("cpu/mtp", p0=score(stream, {20: gap}, TEXT))}
        result = compare(*arms, known, CompareOptions(tolerance="auto"))
        assert result.stats.to_json()["tolerance"] == pytest.approx(0.6, abs=0.001)
        assert result.verdict is verdict


@pytest.mark.parametrize(("own", "gap", "rejected"), [(0.0, 0.56, True), (0.56, 0.56, False), (0.56, 1.2, True)])
def test_a_token_of_the_baseline_within_the_noise_that_it_shows_is_no_contradiction(
    own: float, gap: float, rejected: bool
) -> None:
    """own: how far a token of the baseline lies below the best in its own score."""
    stream = [*TEXT[:20], *range(300, 340)]
    told = score(stream)
    told.ids[20, 1], told.values[20, 1] = TEXT[20], -0.1 - gap
    known = {**scores("cpu/base", p0=score(TEXT, {7: own} if own else {})), **scores("cpu/mtp", p0=told)}
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(stream)), known)
    assert ("conclude.baseline_rejected" in {one.id for one in result.reasons}) is rejected
    assert not result.corrupt


LONE = [*TEXT[:10], 700, *TEXT[11:]]


@pytest.mark.parametrize(
    ("gap", "floor", "verdict"),
    [
        (0.4, None, Verdict.INCONCLUSIVE),  # who knows
        (0.4, 0.2, Verdict.PASS),  # the baseline's own tokens lie up to 0.2 below: 0.4 is noise
        (0.4, 0.05, Verdict.INCONCLUSIVE),  # the baseline's are all but exact, and nobody recorded a logprob of it
        (0.6, None, Verdict.INCONCLUSIVE),
        (0.6, 0.4, Verdict.INCONCLUSIVE),
        (0.8, None, Verdict.INCONCLUSIVE),  # a model whose experts lie far apart has such, and nothing says it has not
        (1.9, None, Verdict.DIVERGED),
        (0.8, 0.4, Verdict.INCONCLUSIVE),  # the baseline's own would say whether its engine does that by itself
        (5.2, 0.4, Verdict.DIVERGED),
    ],
)
def test_a_lone_token_little_beyond_the_tolerance(gap: float, floor: float | None, verdict: Verdict) -> None:
    known = scores("cpu/mtp", p0=score(LONE, {10: gap}, TEXT))
    if floor is not None:
        known |= scores("cpu/base", p0=score(TEXT, {30: floor}))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(LONE)), known)
    assert result.verdict is verdict
    assert [one.position for one in result.findings] == [10]
    told = " ".join([*texts(result.reasons), *texts(result.notes)])
    assert ("little beyond the tolerance" in told) == (gap < 0.75)


@pytest.mark.parametrize(
    ("gap", "own", "floor", "verdict"),
    [
        (0.4, 0.2, 0.05, Verdict.PASS),
        (0.4, 0.02, 0.05, Verdict.INCONCLUSIVE),
        (0.6, 0.2, 0.05, Verdict.INCONCLUSIVE),
        (0.6, 0.1, 0.05, Verdict.INCONCLUSIVE),
        (0.8, 0.4, 0.05, Verdict.INCONCLUSIVE),  # a model whose experts lie far apart has such, and few tokens show it
        (1.9, 0.4, 0.05, Verdict.INCONCLUSIVE),
        (1.9, 0.02, 0.05, Verdict.DIVERGED),
        (5.2, 2.0, 0.05, Verdict.DIVERGED),
        (0.6, 0.2, None, Verdict.INCONCLUSIVE),
        (0.6, 0.1, None, Verdict.INCONCLUSIVE),  # the baseline's own are not scored: its logits may move as far
        (0.8, 0.4, None, Verdict.INCONCLUSIVE),
        (0.8, 0.75, None, Verdict.INCONCLUSIVE),
        (1.9, 1.85, None, Verdict.DIVERGED),  # the best one's, as where another token was handed out
        (1.9, 0.02, None, Verdict.DIVERGED),
    ],
)
def test_a_lone_token_that_the_engine_itself_believed_in(
    gap: float, own: float, floor: float | None, verdict: Verdict
) -> None:
    """Its logits moved; or it handed out another token than they say. Whether the baseline is scored is no matter of
    it: a clean arm of which only differing completions were scored was accused of a token 0.625 nats below the best."""
    scored = score(LONE, {10: gap}, TEXT)
    column = (scored.ids == np.array(LONE)[:, None]).argmax(axis=1)
    said = np.take_along_axis(scored.values, column[:, None], axis=1)
    said[10] += own
    known = {ScoreKey("cpu/mtp", "p0", 0, 0): scored}
    if floor is not None:
        known[ScoreKey("cpu/base", "p0", 0, 0)] = score(TEXT, {30: floor})
    candidate = completion(LONE, logprobs=TopLogprobs(np.array(LONE)[:, None], said))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", candidate), known)
    assert result.verdict is verdict
    if verdict is Verdict.PASS:  # which does not say that it would have seen such a token
        assert [one.size >= gap for one in result.stats.missed] == [True]
        assert "beyond the tolerance: 0 of 60)" in " ".join(texts(result.notes))


def test_an_end_that_is_supported_does_not_weigh_beside_a_lone_token_before_it() -> None:
    """As a clean arm had it, under a repetition penalty."""
    stream = [*TEXT[:10], 700, EOS]
    scored = score(stream, {10: 0.4}, [*TEXT[:11], EOS])
    column = (scored.ids == np.array(stream)[:, None]).argmax(axis=1)
    said = np.take_along_axis(scored.values, column[:, None], axis=1)
    said[10] += 0.2
    known = {ScoreKey("cpu/mtp", "p0", 0, 0): scored, ScoreKey("cpu/base", "p0", 0, 0): score(TEXT, {30: 0.05})}
    candidate = completion(stream, finish="stop", logprobs=TopLogprobs(np.array(stream)[:, None], said))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", candidate), known)
    assert result.verdict is Verdict.PASS


def test_single_tokens_without_a_logprob_of_their_own_are_left_open() -> None:
    """As clean arms had: one 0.34 nats below the best under a repetition penalty, two 0.41 and 0.38 below it; with
    experts far apart, beside baselines that had none, two 2.1 and 2.3. Not more than chance makes of equal arms."""

    def asked(*wrong: dict[int, float]) -> Comparison:
        names = [f"p{number}" for number in range(len(wrong))]
        spoken = [[token + 60 * number for token in TEXT] for number in range(len(wrong))]
        streams = [
            [token if at not in gaps else 700 for at, token in enumerate(text)]
            for gaps, text in zip(wrong, spoken, strict=True)
        ]
        known = scores("cpu/base", **{n: score(text, {30: 0.05}) for n, text in zip(names, spoken, strict=True)})
        for name, text, stream, gaps in zip(names, spoken, streams, wrong, strict=True):
            known |= scores("cpu/mtp", **{name: score(stream, gaps, text)})
        base, mine = ([completion(text, name) for name, text in zip(names, texts, strict=True)]
                      for texts in (spoken, streams))  # fmt: skip
        return compare(capture("cpu/base", *base), capture("cpu/mtp", *mine), known)

    for wrong in ([{10: 0.34}, {}], [{}, {10: 0.41, 20: 0.38}], [{10: 0.34}, {10: 0.4}], [{10: 2.3}, {10: 2.1}],
                  [{10: 0.34, 20: 0.4, 30: 0.3}, {}]):  # fmt: skip
        alone = asked(*wrong)
        assert alone.verdict is Verdict.INCONCLUSIVE
        assert {one.step for one in alone.next_steps} == {Step.LOGPROBS, Step.ARBITER, Step.LONGER}
    for wrong in ([{10: 5.2}, {}], [{10: 3.4}, {10: 3.2}], [{10: 0.6}] * 3, [{10: 0.6, 11: 0.6, 12: 0.6}, {}]):
        found = asked(*wrong)
        assert found.verdict is Verdict.DIVERGED
        assert {one.request for one in found.corrupt} == {f"p{n}" for n, one in enumerate(wrong) if one}


def test_one_choice_in_a_phrase_that_many_come_to_is_one() -> None:
    """As in 16 completions of a clean arm with random weights: the same token after the same three."""
    names = [f"p{number}" for number in range(8)]
    texts = [[*range(300 + 50 * number, 340 + 50 * number), *TEXT[:20]] for number in range(8)]
    streams = [[*text[:50], 900, *text[51:]] for text in texts]
    known = scores("cpu/base", **{n: score(text) for n, text in zip(names, texts, strict=True)})
    known |= scores("cpu/mtp", **{n: score(s, {50: 1.5}, t) for n, s, t in zip(names, streams, texts, strict=True)})
    base, mine = ([completion(one, name) for name, one in zip(names, some, strict=True)] for some in (texts, streams))
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *mine), known)
    assert (result.corrupt, result.verdict) == ([], Verdict.INCONCLUSIVE)


def test_one_choice_of_the_baseline_in_a_phrase_excuses_no_more_than_one() -> None:
    """Of 54 completions 14 differ: the baseline's all come to the phrase, the candidate's are wrong where nobody is."""
    texts = {f"p{n}": [*range(160 + 40 * n, 200 + 40 * n), *TEXT[:20]] for n in range(14)}
    alike = {f"q{n}": list(range(720, 780)) for n in range(40)}
    theirs = {name: [*text[:50], 900, *text[51:]] for name, text in texts.items()}
    mine = {name: [*text[:10], 901, *text[11:]] for name, text in texts.items()}
    known = scores("cpu/base", **{n: score(one, {50: 1.5}, texts[n]) for n, one in theirs.items()})
    known |= scores("cpu/base", **{n: score(one) for n, one in alike.items()})
    known |= scores("cpu/mtp", **{n: score(one, {10: 1.5}, texts[n]) for n, one in mine.items()})
    base, other = ([completion(one, n) for n, one in (some | alike).items()] for some in (theirs, mine))
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *other), known)
    assert result.verdict is Verdict.DIVERGED
    assert {one.position for one in result.corrupt} == {10}


def test_three_tokens_little_beyond_the_tolerance_are_a_fault() -> None:
    stream = [*TEXT[:10], 700, 701, 702, *TEXT[13:]]
    known = scores("cpu/mtp", p0=score(stream, {10: 0.4, 11: 0.3, 12: 0.45}, TEXT))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(stream)), known)
    assert result.verdict is Verdict.DIVERGED


def test_a_length_takes_the_doubt_away() -> None:
    stream = [*TEXT[:10], *TEXT[20:]]
    known = scores("cpu/mtp", p0=score(stream, {10: 0.4}, TEXT))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(stream)), known)
    assert [(one.kind, one.position, one.length) for one in result.corrupt] == [(Kind.OMISSION, 10, 10)]


@pytest.mark.parametrize(
    ("apart", "verdict"),
    [
        ({7: 0.6}, Verdict.PASS),
        ({7: 1.2}, Verdict.INCONCLUSIVE),
        ({7: 0.6, 30: 0.6}, Verdict.INCONCLUSIVE),
        ({7: 4.2}, Verdict.DIVERGED),
        (dict.fromkeys((7, 17, 27, 37), 0.6), Verdict.DIVERGED),
    ],
)
def test_one_logprob_may_be_a_little_off(apart: dict[int, float], verdict: Verdict) -> None:
    entries = [[[token, -0.1 - apart.get(at, 0.0)], [998, -4.0]] for at, token in enumerate(TEXT)]
    told = completion(TEXT, logprobs=TopLogprobs.from_json(entries))
    known = scores("cpu/mtp", p0=score(TEXT))
    assert compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", told), known).verdict is verdict


def test_automatic_tolerance_without_scores_of_the_baseline_says_so() -> None:
    result = compare(
        capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(TEXT)), None, CompareOptions("auto")
    )
    assert result.stats.to_json()["tolerance"] == pytest.approx(0.25)
    assert any("--tolerance auto" in note for note in texts(result.notes))


def test_streams_of_uneven_length_are_compared_place_by_place() -> None:
    rng = np.random.default_rng(3)
    left, right, expected = [], [], []
    for n in range(40):
        tokens = rng.integers(1, 900, rng.integers(1, 30)).tolist()
        other = list(tokens)
        at = -1
        if n % 3 == 0:
            at = int(rng.integers(len(tokens)))
            other[at] = 950
        elif n % 7 == 0:
            at = len(tokens)
            other.append(950)
        left.append(completion(tokens, f"p{n}"))
        right.append(completion(other, f"p{n}"))
        expected.append(at)
    pairs = pair_up(capture("cpu/base", *left), capture("cpu/mtp", *right))
    assert pairs.parts_at.tolist() == expected
