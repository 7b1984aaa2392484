"""Rows drawn at another temperature than asked: a language whose distributions are known, drawn exactly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest
from captures import capture, completion, texts

from parity.comparator import Comparison, compare
from parity.comparator.reference.cutoff import beyond
from parity.comparator.reference.drawn_lists import Cut, draws_of
from parity.comparator.reference.temperature import bets, looks_like, winnings
from parity.records import Finding, Key, Kind, ScoreKey, TopLogprobs, Verdict
from parity.records.evidence import CutoffEvidence, TemperatureEvidence

WORDS, LENGTH, REQUESTS, SAMPLES = 200, 64, 32, 4
NOISE = 0.02
"""Nats by which the scoring engine's logits differ from those that were drawn from."""


class Language:
    """A distribution for each (request, position), from nearly certain to nearly flat."""

    def __init__(self, seed: int, *, sharpness: tuple[float, float] = (0.5, 6.0)) -> None:
        self.rng = np.random.default_rng(seed)
        scale = self.rng.uniform(*sharpness, (REQUESTS, LENGTH, 1))
        self.logits = self.rng.gumbel(size=(REQUESTS, LENGTH, WORDS)) * scale
        self.logits[:, :, 0] = -1e9  # no EOS

    def draw(self, request: int, temperature: float, cut: Cut, *, last: bool = False) -> list[int]:
        """One completion; `last`: the temperature after the cut, as some engines have it."""
        logits = self.logits[request]
        if temperature == 0:
            return [int(one) for one in logits.argmax(axis=1)]
        first = logits if last else logits / temperature
        order = np.argsort(-first, axis=1)
        chances = np.exp(np.take_along_axis(first, order, 1) - first.max(axis=1, keepdims=True))
        kept = np.cumsum(chances, axis=1) - chances < cut.top_p * chances.sum(axis=1, keepdims=True)
        kept &= chances >= cut.min_p * chances[:, :1]
        kept &= np.arange(WORDS) < (cut.top_k or WORDS)
        if last:
            chances = chances ** (1 / temperature)
        chances = np.where(kept, chances, 0.0)
        cumulated = np.cumsum(chances, axis=1)
        noise = self.rng.random((LENGTH, 1)) * cumulated[:, -1:]
        return [int(one) for one in order[np.arange(LENGTH), (cumulated <= noise).sum(axis=1)]]

    def score(self, request: int, tokens: list[int], width: int) -> TopLogprobs:
        logits = self.logits[request] + self.rng.normal(0, NOISE, (LENGTH, WORDS))
        logs = logits - np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        logs -= logits.max(axis=1, keepdims=True)
        best = np.argsort(-logs, axis=1)[:, :width]
        ids = np.concatenate([best, np.array(tokens)[:, None]], axis=1)
        return TopLogprobs(ids, np.take_along_axis(logs, ids, 1))


def compared(
    seed: int,
    odd: Mapping[int, float] | None = None,
    *,
    other_cut: Mapping[int, Cut] | None = None,
    asked: float = 0.8,
    cut: Cut | None = None,
    width: int = 5,
    last: bool = False,
    scored: tuple[bool, bool] = (True, True),
    own: bool = False,
    sharpness: tuple[float, float] = (0.5, 6.0),
    where: str = "cpu/mtp",
) -> Comparison:
    """128 completions an arm; `odd`: row of the candidate, or of `where`, to the temperature it is drawn at instead,
    `other_cut`: to the cut-off."""
    language, cut = Language(seed, sharpness=sharpness), cut or Cut()
    head: dict[str, Any] = {"temperature": asked, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS}
    head |= {"top_k": cut.top_k, "top_p": cut.top_p, "min_p": cut.min_p, "engine": {"logprobs_mode": "raw_logprobs"}}
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for arm, is_scored in zip(("cpu/base", "cpu/mtp"), scored, strict=True):
        rows = []
        for row in range(REQUESTS * SAMPLES):
            request, sample = divmod(row, SAMPLES)
            temperature = (odd or {}).get(row, asked) if arm == where else asked
            mine = (other_cut or {}).get(row, cut) if arm == where else cut
            tokens = language.draw(request, temperature, mine, last=last)
            top = language.score(request, tokens, width)
            rows.append(completion(tokens, f"p{request}", sample=sample, logprobs=top if own else None))
            if is_scored:
                known[ScoreKey(arm, *rows[-1].key)] = top
        arms.append(capture(arm, *rows, **head))
    return compare(arms[0], arms[1], known)


def accused(result: Comparison) -> list[Finding]:
    return [one for one in result.corrupt if one.request != "*"]


def key_of(row: int) -> Key:
    return Key(f"p{row // SAMPLES}", 0, row % SAMPLES)


GREEDY_ROWS = {3: 0.0, 17: 0.0, 40: 0.0, 66: 0.0, 90: 0.0, 127: 0.0}
"""One in twenty of 128."""


def compared_as(language: Language, drawn: Callable[[str, int], tuple[int, float]], *, own: bool = False) -> Comparison:
    """Scored completions asked for at 0.8. `drawn`: of an arm's row, the request whose text it is, and at which
    temperature; `own`: each brings the logprobs that it was drawn by."""
    head: dict[str, Any] = {"temperature": 0.8, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS}
    head["engine"] = {"logprobs_mode": "raw_logprobs"}
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for arm in ("cpu/base", "cpu/mtp"):
        rows = []
        for row in range(REQUESTS * SAMPLES):
            request, sample = divmod(row, SAMPLES)
            source, temperature = drawn(arm, row)
            tokens = language.draw(source, temperature, Cut())
            mine = language.score(source, tokens, 1) if own else None
            rows.append(completion(tokens, f"p{request}", sample=sample, logprobs=mine))
            known[ScoreKey(arm, *rows[-1].key)] = language.score(request, tokens, 20)
        arms.append(capture(arm, *rows, **head))
    return compare(arms[0], arms[1], known)


@pytest.mark.parametrize("own", [True, False])
def test_swapped_rows_with_logprobs_of_their_own_are_not_called_hot(own: bool) -> None:
    """The other prompt's distribution looks hot; the engine's own logprobs say that it was another one."""
    language = Language(5, sharpness=(0.3, 1.0))

    def drawn(arm: str, row: int) -> tuple[int, float]:
        return {4: 11, 44: 1}.get(row, row // SAMPLES) if arm == "cpu/mtp" else row // SAMPLES, 0.8

    found = accused(compared_as(language, drawn, own=own))
    assert {one.key for one in found} == {key_of(4), key_of(44)}
    assert (Kind.WRONG_TEMPERATURE in {one.kind for one in found}) != own
    if own:
        assert {one.evidence.why.id for one in found} == {"unsupported.other_distribution"}


def test_two_greedy_rows_that_come_to_one_loop_are_no_leak() -> None:
    """Each token is the best one: nothing says that it is another request's."""
    language = Language(9, sharpness=(0.5, 3.0))
    loop = np.tile(np.arange(100, 106), LENGTH)
    for request, start in ((0, 0), (5, 4)):
        best = language.logits[request, start:].max(axis=1)
        language.logits[request, np.arange(start, LENGTH), loop[: LENGTH - start]] = best + 0.1

    def drawn(arm: str, row: int) -> tuple[int, float]:
        return row // SAMPLES, 0.0 if arm == "cpu/mtp" and row % 20 == 0 else 0.8

    found = accused(compared_as(language, drawn))
    assert {key_of(0), key_of(20)} <= {one.key for one in found}
    assert {one.kind for one in found} == {Kind.WRONG_TEMPERATURE}


CUTS = [Cut(), Cut(top_p=0.9), Cut(top_k=20), Cut(top_k=4), Cut(min_p=0.05), Cut(40, 0.95, 0.02)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(("asked", "width"), [(0.6, 2), (1.4, 20)])
def test_clean_arms_are_not_accused(asked: float, cut: Cut, width: int) -> None:
    result = compared(int(asked * 10) + width, asked=asked, cut=cut, width=width)
    assert [one.kind for one in accused(result)] == []
    assert not any(reason.startswith(OF_BASELINE) for reason in texts(result.reasons))


@pytest.mark.parametrize(("cut", "width"), [(Cut(), 2), (Cut(), 5), (Cut(), 20), (Cut(top_p=0.95), 20)], ids=str)
def test_greedy_rows_among_sampled_are_found(cut: Cut, width: int) -> None:
    result = compared(51 + width, GREEDY_ROWS, cut=cut, width=width, sharpness=(0.3, 3.0))
    found = accused(result)
    assert {one.key for one in found} == {key_of(row) for row in GREEDY_ROWS}
    for one in found:
        assert (one.kind, one.position, one.length) == (Kind.WRONG_TEMPERATURE, 0, LENGTH)
        assert isinstance(one.evidence, TemperatureEvidence)
        assert (one.evidence.asked, one.evidence.looks_like) == (0.8, 0.0)
        assert one.evidence.p_value is not None
        assert one.evidence.p_value < 0.001
    assert "looks like temperature 0, asked for was 0.8" in texts([one.evidence.why for one in found])


@pytest.mark.parametrize("temperature", [0.2, 2.0])
def test_a_neighbours_temperature_is_found(temperature: float) -> None:
    rows = {5: temperature, 50: temperature, 100: temperature}
    found = accused(compared(7, rows, width=20, sharpness=(0.3, 2.0)))
    assert {one.key for one in found} == {key_of(row) for row in rows}
    named = [one.evidence for one in found if isinstance(one.evidence, TemperatureEvidence)]
    assert len(named) >= 2
    assert all((one.looks_like < 0.5) == (temperature < 0.8) for one in named)


@pytest.mark.parametrize("sharpness", [(0.3, 1.0), (0.5, 5.0)], ids=["flat", "peaked"])
def test_greedy_rows_are_found_in_flat_and_peaked_languages(sharpness: tuple[float, float]) -> None:
    found = accused(compared(9, GREEDY_ROWS, sharpness=sharpness))
    assert {one.key for one in found} == {key_of(row) for row in GREEDY_ROWS}


def test_the_engines_own_lists_stand_in_for_scores() -> None:
    found = accused(compared(11, GREEDY_ROWS, scored=(False, False), own=True))
    assert {one.key for one in found} == {key_of(row) for row in GREEDY_ROWS}
    assert accused(compared(12, scored=(False, False), own=True)) == []


def test_rows_are_judged_without_scores_of_the_baseline() -> None:
    found = accused(compared(13, GREEDY_ROWS, scored=(False, True)))
    assert {one.key for one in found} == {key_of(row) for row in GREEDY_ROWS}


OF_BASELINE = "the baseline itself is drawn otherwise than asked"


@pytest.mark.parametrize("rows", [GREEDY_ROWS, {5: 2.0, 50: 2.0, 100: 2.0}, {7: 0.0}], ids=["greedy", "hot", "one"])
def test_rows_of_the_baseline_at_another_temperature_are_its_own_fault(rows: dict[int, float]) -> None:
    result = compared(53, rows, width=20, sharpness=(0.3, 2.0), where="cpu/base")
    assert (result.verdict, accused(result)) == (Verdict.INCONCLUSIVE, [])
    (said,) = (reason for reason in texts(result.reasons) if reason.startswith(OF_BASELINE))
    completions = "1 completion (" if len(rows) == 1 else f"{len(rows)} completions (first: "
    assert f"in {completions}{key_of(min(rows))}" in said


def test_a_row_of_the_baseline_at_fault_need_not_have_a_pair() -> None:
    language = Language(54, sharpness=(0.3, 2.0))
    head = {"temperature": 0.8, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS}
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for arm in ("cpu/base", "cpu/mtp"):
        rows = []
        for row in range(arm == "cpu/mtp", REQUESTS * SAMPLES):
            tokens = language.draw(row // SAMPLES, 0.8 if row else 0.0, Cut())
            rows.append(completion(tokens, f"p{row // SAMPLES}", sample=row % SAMPLES))
            known[ScoreKey(arm, *rows[-1].key)] = language.score(row // SAMPLES, tokens, 20)
        arms.append(capture(arm, *rows, **head))
    result = compare(arms[0], arms[1], known)
    assert [one.kind for one in result.corrupt] == [Kind.MISSING_COMPLETION]
    assert any(OF_BASELINE in reason for reason in texts(result.reasons))


@pytest.mark.parametrize("seed", range(2))
def test_an_engine_that_cuts_before_it_tempers_is_not_accused(seed: int) -> None:
    """Both arms have the habit."""
    result = compared(30 + seed, asked=0.5, cut=Cut(top_p=0.7, min_p=0.2), last=True)
    assert accused(result) == []
    assert not any(reason.startswith(OF_BASELINE) for reason in texts(result.reasons))


def test_both_arms_at_another_temperature_than_asked_is_a_habit_and_is_said() -> None:
    language = Language(1)
    rows = [
        completion(language.draw(n // SAMPLES, 1.6, Cut()), f"p{n // SAMPLES}", sample=n % SAMPLES)
        for n in range(REQUESTS * SAMPLES)
    ]
    head = {"temperature": 0.6, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS}
    tops = [language.score(n // SAMPLES, one.token_ids.tolist(), 5) for n, one in enumerate(rows)]
    known = {
        ScoreKey(arm, *one.key): top for arm in ("cpu/base", "cpu/mtp") for one, top in zip(rows, tops, strict=True)
    }
    result = compare(capture("cpu/base", *rows, **head), capture("cpu/mtp", *rows, **head), known)
    assert not any(one.kind is Kind.WRONG_TEMPERATURE for one in result.corrupt)
    assert any("does not draw at the temperature" in note for note in texts(result.notes))


def test_penalties_leave_it_open() -> None:
    language = Language(3)
    rows = [
        completion(language.draw(n // SAMPLES, 0.0, Cut()), f"p{n // SAMPLES}", sample=n % SAMPLES)
        for n in range(REQUESTS * SAMPLES)
    ]
    head = {"temperature": 0.8, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS, "repetition_penalty": 1.3}
    known = {
        ScoreKey("cpu/mtp", *one.key): language.score(n // SAMPLES, one.token_ids.tolist(), 5)
        for n, one in enumerate(rows)
    }
    result = compare(capture("cpu/base", *rows, **head), capture("cpu/mtp", *rows, **head), known)
    assert not any(one.kind is Kind.WRONG_TEMPERATURE for one in result.corrupt)


@pytest.mark.parametrize("asked", [0.5, 1.5])
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("width", [2, 8])
def test_the_bet_is_an_e_value(asked: float, cut: Cut, width: int) -> None:
    """Where tokens are drawn as asked it exceeds 20 at most once in 20 times."""
    language = Language(int(asked * 100) + width)
    many = []
    for row in range(160):
        tokens = language.draw(row % REQUESTS, asked, cut)
        top = language.score(row % REQUESTS, tokens, width)
        many.append(draws_of(top, np.array(tokens), width, WORDS)[0])
    won = np.array([one.log_won for one in bets(many, asked, cut) if one is not None])
    assert len(won) == 160
    assert (won > np.log(20)).sum() <= 8
    assert won.max() < np.log(160 / 0.01)


@pytest.mark.parametrize("asked", [0.3, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("width", [2, 8, 20])
@pytest.mark.parametrize("sharpness", [(0.2, 1.0), (3.0, 10.0)], ids=["flat", "peaked"])
def test_each_token_wins_nothing_on_average(asked: float, width: int, sharpness: tuple[float, float]) -> None:
    """By the chance of every token that could have come, what one wins has a mean of at most 1 under each bet."""
    logits = Language(41, sharpness=sharpness).logits[:8, 0, :]  # another position each
    logs = logits - np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
    logs -= logits.max(axis=1, keepdims=True)
    chances = np.exp((logs - logs.max(axis=1, keepdims=True)) / asked)
    for mine, chance in zip(logs, chances / chances.sum(axis=1, keepdims=True), strict=True):
        best = np.argsort(-mine)[:width]
        ids = np.concatenate([np.tile(best, (WORDS, 1)), np.arange(WORDS)[:, None]], axis=1)
        draws, places = draws_of(TopLogprobs(ids, mine[ids]), np.arange(WORDS), width, WORDS)
        ((_, won),) = winnings([draws], asked, Cut())
        assert len(places) == WORDS
        assert float((np.exp(won) * chance).sum(axis=1).max()) <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("asked", "drawn_at", "width", "sharpness", "least"),
    [(1.0, 0.0, 5, (1.0, 8.0), 90), (1.0, 0.0, 5, (2.0, 10.0), 12), (0.7, 1.2, 20, (0.3, 2.0), 70)],
    ids=["greedy", "greedy, peaked", "hotter"],
)
def test_most_rows_that_can_be_found_are(
    asked: float, drawn_at: float, width: int, sharpness: tuple[float, float], least: int
) -> None:
    """Of 96 rows, as one of 96 each."""
    language, many = Language(4_500_001, sharpness=sharpness), []
    for row in range(96):
        tokens = language.draw(row % REQUESTS, drawn_at, Cut())
        top = language.score(row % REQUESTS, tokens, width)
        many.append(draws_of(top, np.array(tokens), width, WORDS)[0])
    won = [one.log_won for one in bets(many, asked, Cut()) if one is not None]
    assert (np.array(won) >= np.log(96 / 0.001)).sum() >= least


def test_the_temperature_that_is_shown_is_near() -> None:
    language = Language(8)
    for temperature in (0.0, 0.4, 1.0, 1.8):
        tokens = language.draw(2, temperature, Cut())
        draws, places = draws_of(language.score(2, tokens, 20), np.array(tokens), 20, WORDS)
        assert len(places) == LENGTH
        assert abs(looks_like(draws, Cut()) - temperature) <= 0.35


def test_short_completions_and_lists_of_one_are_not_judged() -> None:
    language = Language(8)
    tokens = language.draw(2, 0.0, Cut())
    top = language.score(2, tokens, 5)
    few = draws_of(TopLogprobs(top.ids[:7], top.values[:7]), np.array(tokens[:7]), 5, WORDS)[0]
    alone = draws_of(language.score(2, tokens, 1), np.array(tokens), 1, WORDS)[0]
    assert bets([few], 0.8, Cut()) == [None]
    assert bets([alone], 0.8, Cut()) == [None]


# ------------------------------------------------------------------ cut-offs that were ignored

ODD_ROWS = (4, 19, 33, 47, 58, 70, 81, 95, 101, 110, 119, 126)
"""One in ten of 128."""


@pytest.mark.parametrize("cut", [Cut(top_k=8), Cut(top_p=0.8), Cut(min_p=0.1), Cut(20, 0.95, 0.02)], ids=str)
@pytest.mark.parametrize(("asked", "width"), [(0.6, 20), (1.0, 20), (1.4, 60)])
def test_rows_that_ignore_their_cut_off_are_found(asked: float, width: int, cut: Cut) -> None:
    result = compared(
        60, asked=asked, cut=cut, width=width, other_cut=dict.fromkeys(ODD_ROWS, Cut()), sharpness=(0.3, 2.0)
    )
    found = accused(result)
    assert {one.key for one in found} <= {key_of(row) for row in ODD_ROWS}
    assert len(found) >= (8 if 0 < cut.top_p < 1 else len(ODD_ROWS))  # a sum shows less than a rank does
    assert {one.kind for one in found} == {Kind.BEYOND_CUTOFF}
    for one in found:
        assert isinstance(one.evidence, CutoffEvidence)
        assert one.evidence.farthest >= 0.25
        assert one.position == one.evidence.positions[0]
        assert f"top_p={cut.top_p:g}" in str(one.evidence.why) or cut.top_p == 1


def test_a_list_that_is_shorter_than_top_k_accuses_nobody() -> None:
    result = compared(61, asked=1.0, cut=Cut(top_k=20), width=5, other_cut={3: Cut()}, sharpness=(0.3, 2.0))
    assert not any(one.kind is Kind.BEYOND_CUTOFF for one in accused(result))


def test_the_baselines_own_draws_beyond_a_cut_off_are_a_habit() -> None:
    """Both arms draw without the top_p that was asked for."""
    language = Language(62, sharpness=(0.3, 2.0))
    head = {"temperature": 1.0, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS, "top_p": 0.5}
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for arm in ("cpu/base", "cpu/mtp"):
        rows = []
        for row in range(REQUESTS * SAMPLES):
            tokens = language.draw(row // SAMPLES, 1.0, Cut())
            rows.append(completion(tokens, f"p{row // SAMPLES}", sample=row % SAMPLES))
            known[ScoreKey(arm, *rows[-1].key)] = language.score(row // SAMPLES, tokens, 20)
        arms.append(capture(arm, *rows, **head))
    result = compare(arms[0], arms[1], known)
    assert not any(one.kind is Kind.BEYOND_CUTOFF for one in result.corrupt)
    assert "beyond_cutoff.habit" in {one.id for one in result.notes}


def test_how_far_beyond_is_what_the_logits_would_have_to_move() -> None:
    top = TopLogprobs.from_json([[[1, -0.5], [2, -1.5], [3, -3.0], [4, -6.0]]])
    assert beyond(top, np.array([3]), {1.0}, Cut(top_k=2))[0] == pytest.approx(1.5)
    assert beyond(top, np.array([2]), {1.0}, Cut(top_k=2))[0] == 0
    assert beyond(top, np.array([4]), {1.0}, Cut(min_p=0.1))[0] == pytest.approx(5.5 + np.log(0.1))
    assert beyond(top, np.array([4]), {1.0}, Cut(top_p=0.6))[0] >= 0.5
    assert beyond(top, np.array([1]), {1.0}, Cut(top_p=0.01))[0] == 0
    assert beyond(top, np.array([9]), {1.0}, Cut(top_k=1))[0] == 0  # not listed: nothing is known of it


def test_what_the_engine_gave_a_token_itself_is_no_matter_of_the_cut_off() -> None:
    top = TopLogprobs.from_json([[[1, -0.5], [2, -1.5], [3, -3.0], [4, -9.0]]])

    def far(token: int, given: float) -> float:
        return float(beyond(top, np.array([token]), {1.0}, Cut(top_k=2), given=np.array([given]))[0])

    assert far(3, -2.5) == pytest.approx(1.0)
    assert far(3, -1.2) == 0
    assert far(3, -5.0) == far(3, np.nan) == pytest.approx(1.5)
    assert far(4, -0.1) == pytest.approx(9.0 - 1.5 - 4.0)  # no more than rounding, or another expert, ever moved one


def one_beyond(rows: Mapping[str, Collection[int]], *, given: float | None = None) -> Comparison:
    """Both arms draw with top_k = 8; these rows of each say once, at place 20, what the scores have as the 19th token.
    given: the engine's own logprob of it, where the engine gives some."""
    language, cut = Language(63, sharpness=(0.3, 2.0)), Cut(top_k=8)
    head = {"temperature": 1.0, "n": SAMPLES, "max_tokens": LENGTH, "vocab_size": WORDS, "top_k": 8}
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for arm in ("cpu/base", "cpu/mtp"):
        made = []
        for row in range(REQUESTS * SAMPLES):
            request, sample = divmod(row, SAMPLES)
            tokens = language.draw(request, 1.0, cut)
            if row in rows.get(arm, ()):
                tokens[20] = int(np.argsort(-language.logits[request, 20])[18])
            score = language.score(request, tokens, 20)
            own = score.values[:, -1:].copy()
            if row in rows.get(arm, ()) and given is not None:
                own[20] = given
            lists = None if given is None else TopLogprobs(score.ids[:, -1:], own)
            made.append(completion(tokens, f"p{request}", sample=sample, logprobs=lists))
            known[ScoreKey(arm, *made[-1].key)] = score
        arms.append(capture(arm, *made, **head))
    return compare(arms[0], arms[1], known)


def test_a_token_that_the_engine_has_moved_over_the_edge_accuses_nobody() -> None:
    assert [one.kind for one in accused(one_beyond({"cpu/mtp": [7]}, given=-9.0))] == [Kind.BEYOND_CUTOFF]
    assert accused(one_beyond({"cpu/mtp": [7]}, given=-2.2)) == []


def test_one_logprob_of_a_drawn_token_far_from_its_score_is_a_fault_from_four_nats_on() -> None:
    assert [one.kind for one in accused(one_beyond({"cpu/mtp": [7]}, given=-0.1))] == [Kind.LOGPROB_MISMATCH]


def test_what_the_baselines_own_completions_have_as_often_accuses_nobody() -> None:
    result = one_beyond({"cpu/base": [90], "cpu/mtp": [7]})
    assert accused(result) == []
    assert "beyond_cutoff.usual" in {one.id for one in result.notes}
    found = {one.key for one in accused(one_beyond({"cpu/base": [90], "cpu/mtp": range(7, 127, 8)}))}
    assert found <= {key_of(row) for row in range(7, 127, 8)}
    assert len(found) > 8  # of 15: where the 19th token is nearly as likely as the 8th, it may be rounding
