"""Drawn rows with tokens of another request: whose they are, by the answers of the scorer after the text of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from captures import capture, completion

from parity.comparator import Comparison, compare
from parity.comparator.detect.crossings import EACH, SCORED, STRANGE, crossings, sequence
from parity.comparator.reference.crossed import Asked, log_won, set_apart
from parity.comparator.reference.drawn_lists import Cut
from parity.records import Capture, Completion, Kind, ScoreKey, TopLogprobs, Verdict
from parity.records.crossings import Crossed, Crossing
from parity.records.evidence import LeakEvidence
from parity.records.next_steps import EXCHANGED, NextStep, Step

WORDS, LENGTH, REQUESTS, LISTED = 200, 40, 24, 8
TEMPERATURE = 0.9
HEAD = {"temperature": TEMPERATURE, "max_tokens": LENGTH, "vocab_size": WORDS}


class Language:
    """A distribution for each (request, position); no token 0, which is the EOS."""

    def __init__(self, seed: int, noise: float = 0.02) -> None:
        self.rng, self.noise = np.random.default_rng(seed), noise
        self.logits = self.rng.gumbel(size=(REQUESTS, LENGTH, WORDS)) * self.rng.uniform(
            0.5, 3.0, (REQUESTS, LENGTH, 1)
        )
        self.logits[:, :, 0] = -1e9

    def draw(self, request: int) -> list[int]:
        noise = self.rng.gumbel(size=(LENGTH, WORDS))
        return [int(one) for one in (self.logits[request] / TEMPERATURE + noise).argmax(axis=1)]

    def score(self, request: int, tokens: np.ndarray, start: int = 0) -> TopLogprobs:
        logits = self.logits[request, start : start + len(tokens)]
        logits = logits + self.rng.normal(0, self.noise, logits.shape)
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        best = np.argsort(-logs, axis=1)[:, :LISTED]
        ids = np.concatenate([best, tokens[:, None]], axis=1)
        return TopLogprobs(ids, np.take_along_axis(logs, ids, 1))

    def arm(self, name: str, changed: Mapping[int, list[int]] | None = None, *, own: bool = False) -> Capture:
        rows = []
        for request in range(REQUESTS):
            said = np.array((changed or {}).get(request) or self.draw(request))
            lists = self.score(request, said) if own else None
            rows.append(completion(said, f"p{request}", prompt=(7, request + 10, 3), logprobs=lists))
        return capture(name, *rows, **HEAD)

    def scores(self, *arms: Capture) -> dict[ScoreKey, TopLogprobs]:
        return {
            ScoreKey(arm.header.arm, *one.key): self.score(number, one.token_ids)
            for arm in arms
            for number, one in enumerate(arm)
        }

    def answers(self, arm: Capture, asked: list[Crossing]) -> Crossed:
        """What a scorer says that knows the language: the donor's text at the same places."""
        found = {}
        for one in asked:
            prompt, tokens = sequence(one, arm)
            assert prompt.tolist()[:3] == arm.completions[one.donor].prompt_token_ids.tolist()
            assert len(prompt) == 3 + one.start
            found[one] = self.score(int(one.donor.request[1:]), tokens, one.start)
        return found

    def compared(self, base: Capture, other: Capture) -> tuple[Comparison, Comparison]:
        """Before the scorer was asked, and after."""
        scores = self.scores(base, other)
        first = compare(base, other, scores)
        answers = self.answers(other, crossings(other, first.findings))
        return first, compare(base, other, scores, None, answers)


def leaks(result: Comparison) -> dict[str, tuple[int, str]]:
    """Request to (position, donor) of its row leak; no other finding of a completion."""
    rows = [one for one in result.corrupt if one.request != "*"]
    assert {one.kind for one in rows} <= {Kind.ROW_LEAK}, [str(one.evidence.why) for one in rows]
    return {
        one.request: (one.position or 0, one.evidence.donor_request)
        for one in rows
        if isinstance(one.evidence, LeakEvidence)
    }


@pytest.mark.parametrize("seed", range(3))
def test_swapped_completions_name_each_other(seed: int) -> None:
    language = Language(seed)
    other = language.arm("cpu/mtp", {3: language.draw(17), 17: language.draw(3)})
    before, after = language.compared(language.arm("cpu/base"), other)
    assert {one.request for one in before.corrupt if one.request != "*"} == {"p3", "p17"}
    assert not any(one.kind is Kind.ROW_LEAK for one in before.corrupt)
    assert [one.step for one in before.next_steps] == ["donors"]
    assert leaks(after) == {"p3": (0, "p17"), "p17": (0, "p3")}
    assert after.next_steps == ()
    (evidence,) = (one.evidence for one in after.corrupt if one.request == "p3")
    assert isinstance(evidence, LeakEvidence)
    assert (evidence.donor, evidence.donor_part) == ("p17 round 0 sample 0", "continuation")
    assert evidence.expected_by_chance < 1e-6
    assert evidence.requests_with_this_span == 1


def test_rests_swapped_in_the_middle_begin_where_they_were_swapped() -> None:
    language = Language(5)
    one, two = language.draw(3), language.draw(17)
    other = language.arm("cpu/mtp", {3: [*one[:16], *two[16:]], 17: [*two[:16], *one[16:]]})
    _, after = language.compared(language.arm("cpu/base"), other)
    found = leaks(after)
    assert {request: donor for request, (_, donor) in found.items()} == {"p3": "p17", "p17": "p3"}
    assert all(16 <= position <= 24 for position, _ in found.values())


def fading(seed: int) -> Language:
    """A flat language that forgets its prompt after eight tokens: what is swapped there surprises hardly anybody."""
    language = Language(seed)
    language.logits[:, :8] = language.rng.gumbel(size=(REQUESTS, 8, WORDS))
    language.logits[:, 8:] = language.logits[:1, 8:]
    language.logits[:, :, 0] = -1e9
    return language


@pytest.mark.parametrize("seed", range(4_500_000, 4_500_006))
def test_the_most_surprising_rows_are_asked_about_each_other(seed: int) -> None:
    language = fading(seed)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", {3: language.draw(17), 17: language.draw(3)})
    scores = language.scores(base, other)
    first = compare(base, other, scores)
    assert list(first.corrupt) == []
    asked = crossings(other, first.findings, scores=scores)
    assert {"p3", "p17"} <= {one.receiver.request for one in asked}
    assert len(asked) <= STRANGE * (STRANGE - 1)
    assert {one.start for one in asked} == {0}
    assert first.next_steps == (NextStep(Step.DONORS, EXCHANGED),)
    after = compare(base, other, scores, None, language.answers(other, asked))
    assert after.next_steps == ()
    found = leaks(after)
    assert found == {"p3": (0, "p17"), "p17": (0, "p3")}


@pytest.mark.parametrize("seed", range(4_500_000, 4_500_006))
def test_the_baselines_most_surprising_rows_are_asked_about_too(seed: int) -> None:
    """Which arm's rows were swapped is said, and nobody passes by such a baseline."""
    language = fading(seed)
    base, other = language.arm("cpu/base", {3: language.draw(17), 17: language.draw(3)}), language.arm("cpu/mtp")
    scores = language.scores(base, other)
    asked = crossings(base, (), scores=scores)
    assert {"p3", "p17"} <= {one.receiver.request for one in asked}
    found = compare(base, other, scores, None, language.answers(base, asked))
    assert (found.verdict, list(found.corrupt)) == (Verdict.INCONCLUSIVE, [])
    (why,) = (one for one in found.reasons if one.id == "conclude.baseline_drawn")
    assert "2 completions (first: p" in str(why)
    assert "40 tokens are unlikely after this request's prompt and likely after the text of p" in str(why)


@pytest.mark.parametrize("seed", range(4))
def test_surprising_rows_of_sound_arms_are_nobody_elses(seed: int) -> None:
    language = fading(seed)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp")
    scores = language.scores(base, other)
    asked = crossings(other, compare(base, other, scores).findings, scores=scores)
    assert len(asked) == STRANGE * (STRANGE - 1)
    answers = {**language.answers(other, asked), **language.answers(base, crossings(base, (), scores=scores))}
    assert len(answers) == 2 * len(asked)
    found = compare(base, other, scores, None, answers)
    assert (leaks(found), [one for one in found.reasons if one.id == "conclude.baseline_drawn"]) == ({}, [])


def test_rows_whose_own_logprobs_tell_it_are_not_asked_about() -> None:
    language = fading(1)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", own=True)
    scores = language.scores(base, other)
    assert crossings(other, compare(base, other, scores).findings, scores=scores) == []


def test_own_logprobs_name_the_donor_where_the_tokens_hardly_do() -> None:
    """Every request says nearly the same, and each engine knows its own numbers."""
    language = Language(6)
    language.logits = language.logits[:1] + language.rng.normal(0, 0.5, language.logits.shape)
    language.logits[:, :, 0] = -1e9
    language.noise = 0.005
    rows = {3: language.draw(17), 17: language.draw(3)}
    other = language.arm("cpu/mtp", rows, own=True)
    swapped = {
        key: replace(one, logprobs=language.score(20 - int(key.request[1:]), one.token_ids))
        if key.request in ("p3", "p17")
        else one
        for key, one in other.completions.items()
    }
    _, after = language.compared(language.arm("cpu/base", own=True), replace(other, completions=swapped))
    assert leaks(after) == {"p3": (0, "p17"), "p17": (0, "p3")}


def test_garbage_has_no_donor() -> None:
    language = Language(7)
    garbage = language.rng.integers(1, WORDS, LENGTH).tolist()
    before, after = language.compared(language.arm("cpu/base"), language.arm("cpu/mtp", {5: garbage}))
    assert [one.kind for one in after.corrupt] == [one.kind for one in before.corrupt]
    assert Kind.ROW_LEAK not in {one.kind for one in after.corrupt}


def test_clean_rows_are_nobody_elses_whoever_is_asked() -> None:
    """Every row against five other requests, not only those that look odd."""
    language = Language(8)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp")
    keys = list(other.completions)
    asked = [
        Crossing("cpu/mtp", key, keys[(n + step) % len(keys)], start)
        for n, key in enumerate(keys)
        for step in range(1, 6)
        for start in (0, 12)
    ]
    result = compare(base, other, language.scores(base, other), None, language.answers(other, asked))
    assert result.corrupt == []


def test_the_ratio_is_an_e_value() -> None:
    """Over 20 at most once in 20 times, for texts that say nearly the same."""
    language, won = Language(9), []
    language.logits = language.logits[:1] + language.rng.normal(0, 0.3, language.logits.shape)
    language.logits[:, :, 0] = -1e9
    how = Asked(TEMPERATURE, Cut())
    for row in range(200):
        request, tokens = row % REQUESTS, np.array(language.draw(row % REQUESTS))
        texts = (language.score(one, tokens) for one in (request, (request + 5) % REQUESTS))
        won.append(log_won(next(texts), next(texts), tokens, (how, how), WORDS))
    assert (np.array(won) > np.log(20)).sum() <= 10
    assert max(won) < np.log(200 / 0.01)


def test_what_is_asked_is_bounded_and_begins_with_the_suspicious() -> None:
    language = Language(10)
    rows = {number: language.draw((number + 1) % 4) for number in range(4)}
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", rows)
    found = compare(base, other, language.scores(base, other)).findings
    asked = crossings(other, found, [f"p{number}" for number in range(REQUESTS)])
    by_row: dict[str, list[str]] = {}
    for one in asked:
        assert one.receiver.request != one.donor.request
        assert len(sequence(one, other)[1]) <= SCORED
        by_row.setdefault(one.receiver.request, []).append(one.donor.request)
    assert set(by_row) == {"p0", "p1", "p2", "p3"}
    for request, donors in by_row.items():
        assert len(donors) <= EACH
        assert set(dict.fromkeys(donors[:6])) >= {"p0", "p1", "p2", "p3"} - {request}


def test_requests_of_one_prompt_are_no_donors() -> None:
    language = Language(11)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", {3: language.draw(17)})

    def alike(arm: Capture) -> Capture:
        same = {key: replace(one, prompt_token_ids=np.array([7, 7])) for key, one in arm.completions.items()}
        return replace(arm, completions=same)

    scores = language.scores(base, other)
    first = compare(alike(base), alike(other), scores)
    assert {one.request for one in first.corrupt if one.request != "*"} == {"p3"}
    assert crossings(alike(other), first.findings) == []
    assert first.next_steps == ()


@pytest.mark.parametrize("seed", range(3))
def test_garbage_is_not_of_the_request_whose_text_leaves_most_open(seed: int) -> None:
    """Words drawn blindly: any word may come after the donor's text, so they are likelier there than anywhere else."""
    language = Language(20 + seed)
    language.logits[17] = 0.0
    language.logits[17, :, 0] = -1e9
    garbage = {3: language.rng.integers(1, WORDS, LENGTH).tolist()}
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", garbage)
    scores = language.scores(base, other)
    first = compare(base, other, scores)
    asked = crossings(other, first.findings, scores=scores)
    assert ("p3", "p17") in {(one.receiver.request, one.donor.request) for one in asked}
    after = compare(base, other, scores, None, language.answers(other, asked))
    rows = {one.request: one.kind for one in after.corrupt if one.request != "*"}
    assert set(rows) == {"p3"}
    assert rows["p3"] is not Kind.ROW_LEAK


def test_answers_of_other_tokens_say_nothing() -> None:
    language = Language(12)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp", {3: language.draw(17), 17: language.draw(3)})
    scores = language.scores(base, other)
    asked = crossings(other, compare(base, other, scores).findings)
    wrong = {one: language.score(0, np.array(language.draw(0))) for one in asked}
    result = compare(base, other, scores, None, wrong)
    assert Kind.ROW_LEAK not in {one.kind for one in result.corrupt}


def row_of(arm: Capture, request: str) -> Completion:
    return next(one for one in arm if one.key.request == request)


def test_a_copy_of_what_another_row_holds_needs_no_scorer() -> None:
    """The rest of a row is the rest of another one's, in either arm."""
    language = Language(13)
    base, other = language.arm("cpu/base"), language.arm("cpu/mtp")
    for giver in (base, other):
        said = row_of(giver, "p9").token_ids
        mine = row_of(other, "p2")
        copied = replace(mine, token_ids=np.concatenate([mine.token_ids[:14], said[14:]]))
        hurt = replace(other, completions={**other.completions, mine.key: copied})
        result = compare(base, hurt, language.scores(base, hurt))
        assert leaks(result) == {"p2": (14, "p9")}
        (found,) = (one.evidence for one in result.corrupt if one.request == "p2")
        assert isinstance(found, LeakEvidence)
        assert (found.donor_round, found.donor_sample) == (0, 0)
        assert "p9 round 0 sample 0" in str(found.why)


def test_own_logprobs_of_the_own_text_are_no_evidence_for_another() -> None:
    """The mean over rows made after their own prompt is at most 1, whatever lies between the texts."""
    rng = np.random.default_rng(8)
    sizes = np.sort(np.abs(0.01 * rng.standard_t(2, 3_000)))
    said = []
    for _ in range(2_000):
        count = int(rng.integers(8, 40))
        here, there = -rng.exponential(1.0, count), -rng.exponential(1.0, count)
        there = np.where(rng.random(count) < 0.5, here - rng.normal(0, 0.05, count), there)
        own = here + 0.01 * rng.standard_t(2, count)
        said.append(set_apart(*(_column(one) for one in (own, here, there)), np.arange(count), sizes))
    assert np.exp(np.minimum(said, 60.0)).mean() < 1.2
    assert max(said) < np.log(2_000 / 0.01)


def test_own_logprobs_of_the_other_text_are_evidence_within_eight_tokens() -> None:
    rng = np.random.default_rng(9)
    sizes = np.sort(np.abs(0.01 * rng.standard_t(3, 3_000)))
    here, there = -rng.uniform(2, 4, 8), -rng.uniform(0.2, 1, 8)
    own = there + 0.01 * rng.standard_t(3, 8)
    found = set_apart(*(_column(one) for one in (own, here, there)), np.arange(8), sizes)
    assert found > np.log(64 * 128 * 8 / 0.001)


def _column(values: np.ndarray) -> TopLogprobs:
    return TopLogprobs(np.arange(len(values))[:, None], np.minimum(values, 0.0)[:, None])
