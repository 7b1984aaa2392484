"""What both arms do alike is no fault of one of them, though each looks odd by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion

from parity.comparator import compare
from parity.records import Capture, Kind, ScoreKey, Scores, TopLogprobs, Verdict
from parity.records.next_steps import Step


def test_lists_of_the_best_tokens_alone_in_both_arms_are_a_habit() -> None:
    """A script that writes down the likeliest tokens leaves out what was drawn beyond them, in both arms."""
    rng = np.random.default_rng(3)

    def arm(name: str, *, wide: bool = False) -> Capture:
        rows = []
        for number in range(12):
            tokens = rng.choice(TEXT, 30)
            best = [[[7, -1.0], [8, -1.2]] + ([[int(token), -3.0]] if wide else []) for token in tokens]
            drawn_best = rng.random(30) < 0.6
            tokens = np.where(drawn_best, 7, tokens)
            rows.append(completion(tokens, f"p{number}", logprobs=TopLogprobs.from_json(best)))
        return capture(name, *rows, temperature=1.0, max_tokens=30)

    result = compare(arm("cpu/base"), arm("cpu/mtp"))
    assert not result.corrupt
    assert "inputs.best_alone" in {one.id for one in result.notes}
    alone = compare(arm("cpu/base", wide=True), arm("cpu/mtp"))
    assert {one.kind for one in alone.corrupt} >= {Kind.LOGPROB_MISMATCH}


def best_three(name: str, seed: int, *, kept: bool = False, odd: int = 0, flat: float = 0.25) -> Capture:
    """Lists of the three best of eight tokens, the eight of one arm those of the other. `kept`: the chosen token takes
    the last place of its list; `odd`: so many completions have the lists of another one."""
    rng, probability = np.random.default_rng(seed), np.random.default_rng(1).dirichlet(np.full(8, flat), (40, 24))
    ranked = np.sort(probability, axis=2)[:, :, ::-1]
    rows = []
    for number, own in enumerate(ranked):
        tokens = np.array([rng.choice(8, p=one) for one in own]) + 8 * np.arange(24)
        ids = np.tile(np.arange(3), (24, 1)) + 8 * np.arange(24)[:, None]
        if kept:
            ids[:, 2] = np.where((ids == tokens[:, None]).any(axis=1), ids[:, 2], tokens)
        logs = np.log(np.take_along_axis(own, ids - 8 * np.arange(24)[:, None], axis=1) + 1e-12)
        lists = TopLogprobs(np.asarray(ids + 3 * (number < odd) + 100, dtype=np.int32), logs)
        rows.append(completion(tokens + 100, f"p{number}", logprobs=lists))
    return capture(name, *rows, engine={"logprobs_mode": "raw_logprobs"}, temperature=1.0, max_tokens=24)


@pytest.mark.parametrize("seed", range(4))
def test_a_token_or_two_that_lists_of_the_best_leave_out_are_no_fault(seed: int) -> None:
    """One completion in ten or fewer has such a token, in one arm or in both."""
    arms = [best_three(name, 2 * seed + n, flat=0.03) for n, name in enumerate(("cpu/base", "cpu/mtp"))]
    lacking = [sum(bool((one.logprobs.ids != one.token_ids[:, None]).all(axis=1).any()) for one in arm) for arm in arms]
    assert max(lacking) >= 1
    assert min(lacking) <= 4
    assert not compare(*arms).corrupt


def test_lists_that_leave_out_what_they_call_likely_are_a_fault() -> None:
    kept = best_three("cpu/base", 1, kept=True)
    assert Kind.LOGPROB_MISMATCH in {one.kind for one in compare(kept, best_three("cpu/mtp", 2)).corrupt}
    assert Kind.LOGPROB_MISMATCH in {one.kind for one in compare(kept, best_three("cpu/mtp", 2, odd=1)).corrupt}
    of_another = compare(best_three("cpu/base", 1), best_three("cpu/mtp", 2, odd=1))
    assert [one.key[0] for one in of_another.corrupt] == ["p0"]


@pytest.mark.parametrize("seed", range(3))
def test_of_two_engines_one_may_list_the_best_alone(seed: int) -> None:
    """A server beside an engine that puts the chosen token into each list, or beside another server."""
    kept, alone = best_three("cpu/base", seed, kept=True), best_three("server", seed + 5)
    result = compare(kept, alone)
    assert not result.corrupt
    assert "inputs.best_alone_in_one" in {one.id for one in result.notes}
    assert not compare(alone, kept).corrupt
    faulty = compare(kept, best_three("server", seed + 5, odd=1))
    assert [one.key[0] for one in faulty.corrupt] == ["p0"]


def test_stop_tokens_that_are_named_do_not_say_that_the_eos_is_kept() -> None:
    """Both arms leave the EOS out and keep the request's own stop tokens, of which the reason is told."""
    rng = np.random.default_rng(4)

    def arm(name: str) -> Capture:
        ends = rng.permutation([None] * 6 + [50] * 20)
        rows = [
            completion([*rng.choice(TEXT, 9), *([] if end is None else [end])], f"p{n}", finish="stop", stop=end)
            for n, end in enumerate(ends)
        ]
        return capture(name, *rows, temperature=1.0, stop_token_ids=[50])

    assert not compare(arm("cpu/base"), arm("cpu/mtp")).corrupt


def test_a_bias_is_counted_though_the_lists_do_not_show_a_repetition_penalty() -> None:
    """One token is lifted by 100 nats and drawn again and again; raw lists hold it for next to impossible."""
    rows = [completion([50] * 30, f"p{n}", repetition_penalty=1.2, logit_bias={"50": 100}) for n in range(8)]
    arms = [capture(name, *rows, temperature=0.7, max_tokens=30) for name in ("cpu/base", "cpu/mtp")]
    entry = TopLogprobs.from_json([[[7, -0.3], [50, -12.0]]] * 30)
    scores = {ScoreKey("cpu/mtp", *one.key): entry for one in rows}
    assert not compare(*arms, scores).corrupt


def test_greedy_rounds_that_one_arm_alone_has_are_not_taken_for_drawn() -> None:
    """The run's temperature is 1, that of one request 0: each of its tokens is the best, by its own lists too."""
    rng = np.random.default_rng(2)

    def arm(name: str, rounds: int) -> Capture:
        rows = []
        for round_ in range(rounds):
            for number in range(6):
                greedy = number == 0
                rank = np.zeros(32, dtype=np.int64) if greedy else rng.integers(0, 4, 32)
                lists = [[[100 + 4 * at + k, np.log(0.25) - 0.001 * k] for k in range(4)] for at in range(32)]
                own = {"temperature": 0.0, "presence_penalty": 0.5} if greedy else {}
                tokens, top = 100 + 4 * np.arange(32) + rank, TopLogprobs.from_json(lists)
                rows.append(completion(tokens, f"p{number}", round=round_, logprobs=top, **own))
        return capture(name, *rows, engine={"logprobs_mode": "raw_logprobs"}, temperature=1.0, max_tokens=32)

    result = compare(arm("cpu/base", 3), arm("cpu/mtp", 12))
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_candidate_that_leaves_out_the_eos_is_not_accused_beside_named_stop_tokens() -> None:
    """The baseline happens to end at the request's own stop tokens alone."""
    rng = np.random.default_rng(5)
    ended = [completion([*rng.choice(TEXT, 9), 50], f"p{n}", finish="stop", stop=50) for n in range(9)]
    base = capture("cpu/base", *ended, completion(TEXT[:60], "q"), temperature=1.0, stop_token_ids=[50])
    made = capture("cpu/mtp", *ended, completion(TEXT[:9], "q", finish="stop"), temperature=1.0, stop_token_ids=[50])
    assert not compare(base, made).corrupt


def test_what_greedy_completions_show_of_the_eos_holds_for_drawn_ones() -> None:
    """Neither arm keeps its EOS; of the drawn ones only one ever ended at it, in the candidate."""
    greedy = [completion(TEXT[: 5 + n], f"g{n}", finish="stop", temperature=0.0) for n in range(4)]
    base = capture("cpu/base", *greedy, completion(TEXT[:60], "d"), temperature=1.0)
    made = capture("cpu/mtp", *greedy, completion(TEXT[:9], "d", finish="stop"), temperature=1.0)
    assert not compare(base, made).corrupt


@pytest.mark.parametrize(
    ("seed", "engine", "length", "is_accused"),
    [(17, {}, 6, False), (None, {}, 6, True), (17, {"asked": {}}, 6, True), (17, {}, 16, True)],
    ids=["one seed", "no seed", "parity's own", "one seed, and draws that differ at many places"],
)
def test_one_seed_for_all_requests_accuses_nobody_by_the_run(
    seed: int | None, engine: dict[str, Any], length: int, is_accused: bool
) -> None:
    """What tests of many completions take for their number may be one chance; parity gives each a seed of its own."""
    rng = np.random.default_rng(8)

    def arm(name: str, best: float) -> tuple[Capture, Scores]:
        rows, known = [], {}
        for number in range(640 // length):
            rank = np.where(rng.random(length) < best, 0, rng.integers(0, 4, length))
            lists = [[[100 + 4 * at + k, np.log(0.25) - 0.001 * k] for k in range(4)] for at in range(length)]
            one = completion(100 + 4 * np.arange(length) + rank, f"p{number}")
            rows.append(one)
            known[ScoreKey(name, *one.key)] = TopLogprobs.from_json(lists)
        return capture(name, *rows, engine=engine, temperature=1.0, max_tokens=length, seed=seed), known

    (base, known), (made, more) = arm("cpu/base", 0.0), arm("cpu/mtp", 0.5)
    result = compare(base, made, known | more)
    assert bool(result.corrupt) is is_accused
    assert ("conclude.of_one_seed" in {one.id for one in result.reasons}) is not is_accused
    assert (Step.OWN_SEEDS in {one.step for one in result.next_steps}) is not is_accused


@pytest.mark.parametrize("kept", [(0,), tuple(range(1, 12))])
@pytest.mark.parametrize("both", [True, False])
def test_empty_lists_in_every_completion_say_as_little_as_none(kept: tuple[int, ...], both: bool) -> None:
    """A script that writes one entry for each token, and nothing into those of which it has no logprobs."""

    def arm(name: str, *, empty: bool) -> Capture:
        rows = []
        for number in range(12):
            tokens = [100 + (7 * number + at) % 50 for at in range(12)]
            lists = [[[token, -0.5]] if at in kept or not empty else [] for at, token in enumerate(tokens)]
            rows.append(completion(tokens, f"p{number}", logprobs=TopLogprobs.from_json(lists)))
        return capture(name, *rows, max_tokens=12)

    result = compare(arm("cpu/base", empty=both), arm("cpu/mtp", empty=True))
    assert not result.corrupt
    assert "inputs.habit" in {one.id for one in result.notes}


def test_empty_lists_in_one_completion_are_a_fault() -> None:
    def arm(name: str, *odd: int) -> Capture:
        rows = []
        for number in range(12):
            tokens = [100 + (7 * number + at) % 50 for at in range(12)]
            lists = [[] if number in odd and at else [[token, -0.5]] for at, token in enumerate(tokens)]
            rows.append(completion(tokens, f"p{number}", logprobs=TopLogprobs.from_json(lists)))
        return capture(name, *rows, max_tokens=12)

    found = compare(arm("cpu/base"), arm("cpu/mtp", 3)).corrupt
    assert [(one.key.request, one.kind) for one in found] == [("p3", Kind.LOGPROB_MISMATCH)]


def chosen_alone(name: str, seed: int, odd: tuple[int, ...], **sampling: Any) -> tuple[Capture, Scores]:
    """Lists of the chosen token alone, and scores of the eight best; `odd`: completions that have another one's
    lists."""
    rng, ranked = np.random.default_rng(seed), np.sort(np.random.default_rng(1).dirichlet(np.full(8, 0.5), (24, 20)))
    drawn = [np.array([rng.choice(8, p=one) for one in own]) for own in ranked]
    ids = 100 + 8 * np.arange(20)[:, None] + np.arange(8)
    rows, scores = [], {}
    for number, own in enumerate(ranked):
        listed = (number + 1) % 24 if number in odd else number
        logs = np.log(ranked[listed][np.arange(20), drawn[listed]] + 1e-9)
        lists = TopLogprobs((ids[np.arange(20), drawn[listed]] + 300 * (listed != number))[:, None], logs[:, None])
        rows.append(completion(ids[np.arange(20), drawn[number]], f"p{number}", logprobs=lists))
        scores[ScoreKey(name, *rows[-1].key)] = TopLogprobs(ids, np.log(own + 1e-9))
    asked = {"temperature": 1.0, "max_tokens": 20, **sampling}
    return capture(name, *rows, engine={"logprobs_mode": "raw_logprobs"}, **asked), scores


@pytest.mark.parametrize("sampling", [{}, {"min_tokens": 4}, {"frequency_penalty": 0.3}, {"min_p": 0.001}])
def test_lists_of_the_chosen_tokens_alone_are_not_of_the_best(sampling: dict[str, float]) -> None:
    """A few completions with wrong lists do not make them so."""
    baseline, scores = chosen_alone("cpu/base", 1, (), **sampling)
    candidate, more = chosen_alone("cpu/mtp", 2, (3, 7), **sampling)
    found = compare(baseline, candidate, {**scores, **more})
    assert {one.key.request for one in found.corrupt if one.kind is Kind.LOGPROB_MISMATCH} == {"p3", "p7"}
    assert not any(one.id.startswith("inputs.best_alone") for one in found.notes)


def test_lists_of_the_chosen_tokens_alone_are_not_of_the_best_though_both_arms_have_wrong_ones() -> None:
    """Nothing is scored: lists of the best tokens would leave out far more of those that were drawn."""
    found = compare(chosen_alone("cpu/base", 1, (5,))[0], chosen_alone("cpu/mtp", 2, (3,))[0])
    assert not any(one.id.startswith("inputs.best_alone") for one in found.notes)
    assert {one.key.request for one in found.corrupt} <= {"p3"}


def test_outputs_that_begin_with_their_prompt_may_be_filled_up_as_well() -> None:
    """As the batch of `generate` comes: its rows differ in length by their prompts."""
    ends = [4, 7, 10, 12, 5, 12]

    def arm(name: str, *, whole: bool) -> Capture:
        rows = []
        for number, end in enumerate(ends):
            prompt, tokens = list(range(300, 305 + number)), [100 + 9 * number + at for at in range(end)]
            tokens[-1] = 0 if end < 12 else tokens[-1]
            said = [*prompt, *tokens, *[999] * (12 - end)] if whole else tokens
            finish = "stop" if end < 12 else "length"
            rows.append(completion(said, f"p{number}", prompt=prompt, finish=finish))
        return capture(name, *rows, max_tokens=12)

    result = compare(arm("cpu/base", whole=False), arm("cpu/mtp", whole=True))
    assert not result.corrupt
    assert {"inputs.echo", "inputs.padding"} <= {one.id for one in result.notes}


def filled(name: str, ends: list[int], token: int) -> Capture:
    """Twelve tokens an output, whatever fills it up after its end."""
    rows = []
    for number, end in enumerate(ends):
        tokens = [100 + 9 * number + at for at in range(end)]
        tokens[-1] = 0 if end < 12 else tokens[-1]
        finish = "stop" if end < 12 else "length"
        rows.append(completion([*tokens, *[token] * (12 - end)], f"p{number}", finish=finish))
    return capture(name, *rows, max_tokens=12)


def test_two_outputs_that_are_filled_up_are_how_arms_write_them_where_both_do() -> None:
    """One row that is filled up in one arm alone may be an engine that went on: nobody is accused."""
    base, candidate = filled("cpu/base", [4, 12, 12, 12], 999), filled("cpu/mtp", [4, 12, 12, 12], 999)
    result = compare(base, candidate)
    assert not result.corrupt
    assert [one.id for one in result.notes].count("inputs.padding") == 2
    for other in (filled("cpu/base", [12, 12, 12, 12], 999), filled("cpu/base", [4, 12, 12, 12], 998)):
        for result in (compare(other, candidate), compare(candidate, other)):
            assert not result.corrupt
            assert "inputs.perhaps_padding" in {one.id for one in result.reasons}
            assert Step.LONGER in {one.step for one in result.next_steps}


def test_lists_that_are_all_empty_beside_scores_are_read() -> None:
    rows = [
        completion([100 + number, 0], f"p{number}", finish="stop", logprobs=lists_of(number)) for number in range(6)
    ]
    arms = [capture(name, *rows, temperature=1.0, max_tokens=9) for name in ("cpu/base", "cpu/mtp")]
    entry = TopLogprobs.from_json([[[100, -1.8], [101, -1.8], [102, -1.8]], [[0, -0.1]]])
    scores = {ScoreKey(arm.header.arm, *one.key): entry for arm in arms for one in arm}
    assert compare(*arms, scores).verdict is not Verdict.ERROR


def lists_of(number: int) -> TopLogprobs:
    """Of one completion nothing at all."""
    return TopLogprobs.from_json([[], []] if number == 2 else [[[100 + number, -1.8]], [[0, -0.1]]])


@pytest.mark.parametrize(("at_limit", "ended", "is_habit"), [(3, 0, True), (1, 0, True), (3, 5, True), (1, 5, False)])
def test_a_script_with_one_name_for_every_end_is_no_early_stop(at_limit: int, ended: int, *, is_habit: bool) -> None:
    """No completion of it says "length". Of one among several that may be a fault."""
    rows = [completion(TEXT[:12], f"p{n}") for n in range(at_limit)]
    others = [completion([*TEXT[:5], EOS], f"e{n}", finish="stop") for n in range(ended)]
    named = [replace(one, finish_reason="stop") for one in rows]
    result = compare(
        capture("cuda/base", *rows, *others, max_tokens=12), capture("cuda/mtp", *named, *others, max_tokens=12)
    )
    assert bool(result.corrupt) is not is_habit
    assert ("inputs.never_length" in {one.id for one in result.notes}) is is_habit
