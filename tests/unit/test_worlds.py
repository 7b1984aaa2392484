"""The small engine of tests/worlds does what it claims: rounding as real engines have it, rules kept, truth true."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, SMALL, SURE, WIDE, Fault, Made, Shape, World, catalogue, speculating
from worlds.choosing import Chooser, Lapse
from worlds.claims import ADMITTED, EXCLUDED, NOT_TESTED, UNSPOKEN, Planted, planted, spoken
from worlds.rounding import bf16, fp8, int8
from worlds.trials import Faulty
from worlds.world import WORDS

from parity.capture import check_capture, read_capture, write_capture
from parity.comparator import conclude
from parity.comparator.stats import Missed, Numerics, RowsSeen, SamplingStats, Stats, WaySeen
from parity.messages import message
from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs
from parity.records.steps import steps_of

TOKENS = 96
WRITTEN = Path(conclude.__file__).parent


def streams(made: Made) -> dict[Key, list[int]]:
    return {key: one.token_ids.tolist() for key, one in made.capture.completions.items()}


def chosen(top: TopLogprobs, tokens: np.ndarray) -> np.ndarray:
    return np.where(top.ids == tokens[:, None], top.values, -np.inf).max(axis=1)


def residuals(capture: Capture, scores: Scores) -> np.ndarray:
    return np.concatenate(
        [
            one.logprobs.values[:, 0] - chosen(scores[ScoreKey(capture.header.arm, *one.key)], one.token_ids)
            for one in capture
            if one.logprobs is not None
        ]
    )


def apart(one: Made, other: Made) -> float:
    """Greedy choices that differ, as a share of those made before and at the first."""
    flips = seen = 0
    for key, tokens in streams(one).items():
        pairs = list(zip(tokens, streams(other)[key], strict=False))
        first = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        flips, seen = flips + (first is not None), seen + (len(pairs) if first is None else first + 1)
    return flips / seen


def test_numbers_are_rounded_to_the_bits_they_name() -> None:
    values = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    rounded = bf16(values.copy())
    assert not (rounded.view(np.uint32) & 0xFFFF).any()
    assert np.abs(rounded / values - 1).max() <= 2**-8
    assert len(np.unique(int8(values)[:, 0])) <= 255
    errors = np.abs(fp8(values) / values - 1)[np.abs(values) > 0.1]
    assert 0.02 < errors.max() <= 2**-4 * 1.01


def test_all_is_made_from_the_seed() -> None:
    def made(seed: int) -> tuple[Made, Scores]:
        world = World(seed)
        one = world.run(world.requests(6), speculating(2), max_tokens=TOKENS, temperature=0.7, n=2)
        return one, world.score(one.capture)

    (one, first), (again, second), (other, _) = made(3), made(3), made(4)
    assert streams(one) == streams(again)
    assert all(np.array_equal(first[key].values, second[key].values, equal_nan=True) for key in first)
    assert streams(one) != streams(other)


@pytest.mark.parametrize(
    ("shape", "sd", "flips"),
    [
        (FLAT, (0.010, 0.022), (1 / 400, 1 / 60)),
        (PEAKED, (0.006, 0.015), (1 / 1500, 1 / 250)),
        (SURE, (0.003, 0.01), None),
    ],
    ids=["flat", "peaked", "sure"],
)
def test_clean_arms_differ_by_rounding(
    shape: Shape, sd: tuple[float, float], flips: tuple[float, float] | None
) -> None:
    world = World(1, shape)
    asked = world.requests(96)
    base = world.run(asked, max_tokens=TOKENS)
    arms = [world.run(asked, arm, max_tokens=TOKENS) for arm in (speculating(2), SMALL, WIDE)]
    found = residuals(base.capture, world.score(base.capture))
    assert sd[0] < found.std() < sd[1]
    assert abs(found.mean()) < 0.0015
    assert np.quantile(np.abs(found), 0.99) > 2.58 * found.std()  # heavier than normal
    assert np.abs(found).max() < 0.3
    rates = [apart(base, arm) for arm in arms]
    assert 0 < max(rates) < 1 / 50
    if flips:
        assert flips[0] < np.mean(rates) < flips[1]


def test_a_score_in_the_order_of_the_decode_is_what_the_engine_said() -> None:
    world = World(2)
    base = world.run(world.requests(5), replace(BASE, orders=SMALL.orders), max_tokens=TOKENS, logprobs=3)
    scores = world.score(base.capture, arm=replace(BASE, orders=SMALL.orders), top=3)
    assert np.abs(residuals(base.capture, scores)).max() < 0.1
    for one in base.capture:
        assert one.logprobs is not None
        top = scores[ScoreKey("cuda/base", *one.key)]
        assert (one.logprobs.ids[:, 0] == one.token_ids).all()
        assert (one.logprobs.ids[:, 1] == one.token_ids).all()  # greedy
        assert (top.ids[:, 0] == one.token_ids).mean() > 0.98


def test_the_trace_covers_all_tokens_and_drafts_are_taken() -> None:
    world = World(0)
    made = world.run(world.requests(8), speculating(3), max_tokens=TOKENS)
    for one in made.capture:
        assert one.spec is not None
        beyond = len(steps_of(one.spec.accepted)) - len(one.token_ids)
        assert beyond in (0, 1)  # after a last draft that is accepted the engine makes one more token
        assert (one.spec.accepted <= one.spec.drafted).all()
    assert made.capture.counters["accepted_tokens"] > 0.3 * made.capture.counters["draft_tokens"]  # type: ignore[index]


def test_what_it_writes_is_a_valid_capture(tmp_path: Path) -> None:
    world = World(0)
    made = world.run(world.requests(4, own=[{}, {"max_tokens": 7, "bad_ids": [[3]]}]), speculating(1), max_tokens=20)
    write_capture(tmp_path / "arm.jsonl", made.capture)
    assert not check_capture(tmp_path / "arm.jsonl")
    read = read_capture(tmp_path / "arm.jsonl")
    assert {key: one.token_ids.tolist() for key, one in read.completions.items()} == streams(made)
    assert read.completions[Key("r1", 0, 0)].sampling["bad_words"] == [WORDS([3]).strip()]
    assert len(read.completions[Key("r1", 0, 0)].token_ids) <= 7


# ------------------------------------------------------------------ rules


def choose(logits: list[float], said: list[int] | None = None, prompt: list[int] | None = None, **rules: object) -> int:
    lapses = {0: lapse} if isinstance(lapse := rules.pop("lapse", None), Lapse) else {}
    chooser = Chooser([rules], [prompt or [0]], [1], lapses, len(logits))
    for at, token in enumerate(said or []):
        chooser.note(np.array([token]), np.array([True]), np.array([at]))
    return int(chooser.choose(np.array([logits], dtype=np.float32), np.array([len(said or [])]))[0])


def test_penalties_are_those_of_vllm() -> None:
    logits = [0.0, 4.0, 3.5, -1.0]
    assert choose(logits) == 1
    assert choose(logits, prompt=[1], repetition_penalty=1.2) == 2  # 4 / 1.2 = 3.33; prompts count
    assert choose([-5.0, -1.0, -1.1], prompt=[1], repetition_penalty=1.2) == 2  # below 0 it multiplies
    assert choose(logits, prompt=[1], presence_penalty=1.0) == 1  # prompts do not count here
    assert choose(logits, said=[1], presence_penalty=1.0) == 2
    assert choose(logits, said=[1, 1], presence_penalty=0.4) == 1
    assert choose(logits, said=[1, 1], frequency_penalty=0.4) == 2
    assert choose(logits, said=[1], frequency_penalty=0.4) == 1


def test_the_order_of_rules_is_that_of_vllm() -> None:
    assert choose([4.0, 3.0, 2.0], ignore_eos=False, min_tokens=1) == 1
    assert choose([4.0, 3.0, 2.0], said=[1], min_tokens=1) == 0
    assert choose([4.0, 3.0, 2.0], allowed_token_ids=[2]) == 2
    assert choose([1.0, 3.0, 2.0], bad_ids=[[1]]) == 2
    assert choose([1.0, 3.0, 2.0], bad_ids=[[2, 1]]) == 1
    assert choose([1.0, 3.0, 2.0], said=[2], bad_ids=[[2, 1]]) == 2
    assert choose([1.0, 3.0, 2.0], logit_bias={"2": 2.0}) == 2
    assert choose([0.0, 3.0, 2.0], said=[1], logit_bias={"1": 3.0}, repetition_penalty=4.0) == 2  # bias, then penalty


def test_a_lapse_forgets_a_rule_from_a_token_on() -> None:
    rule = {"presence_penalty": 1.0}
    assert choose([0.0, 4.0, 3.5], said=[1], lapse=Lapse(values={"presence_penalty": None}), **rule) == 1
    assert choose([0.0, 4.0, 3.5], said=[1], lapse=Lapse(start=2, values={"presence_penalty": None}), **rule) == 2
    assert choose([0.0, 4.0, 3.5], said=[1], lapse=Lapse(late=1), **rule) == 1
    assert choose([0.0, 4.0, 3.5], said=[1, 2], lapse=Lapse(late=1), **rule) == 2


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"temperature": 1.0}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, [0.6849, 0.2466, 0.0616, 0.0068]),
        ({"temperature": 1.0, "top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.8}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "min_p": 0.2}, [0.5263, 0.3158, 0.1579, 0]),
    ],
)
def test_draws_follow_the_distribution(rules: dict[str, float], expected: list[float]) -> None:
    rows = 4000
    logits = np.repeat(np.log(np.array([[0.5, 0.3, 0.15, 0.05]], dtype=np.float32)), rows, axis=0)
    chooser = Chooser([rules] * rows, [[0]] * rows, list(range(rows)), {}, 4)
    drawn = Counter(chooser.choose(logits, np.zeros(rows, dtype=np.int64)).tolist())
    for token, share in enumerate(expected):
        assert abs(drawn[token] / rows - share) <= 4.5 * (share * (1 - share) / rows) ** 0.5


def test_rules_are_kept_where_nothing_is_wrong() -> None:
    world = World(5)
    asked = world.requests(24)
    ban = world.run(asked, max_tokens=TOKENS, bad_ids=[[3], [5, 6]], min_tokens=64)
    for tokens in streams(ban).values():
        assert 3 not in tokens
        assert (5, 6) not in itertools.pairwise(tokens)
        assert len(tokens) >= 64
    allowed = world.run(asked, max_tokens=TOKENS, allowed_token_ids=list(range(256)))
    assert max(max(tokens) for tokens in streams(allowed).values()) < 256
    stopped = world.run(asked, max_tokens=TOKENS, stop_token_ids=[1, 2, 3, 4])
    ends = [one for one in stopped.capture if one.stop_reason is not None]
    assert ends
    assert all(one.token_ids[-1] == one.stop_reason for one in ends)
    assert {len(one) for one in streams(world.run(asked, max_tokens=30, ignore_eos=True)).values()} == {30}


# ------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    "fault", [one for one in catalogue() if one.hits_rows], ids=lambda one: f"{one.name}-{one.size}"
)
def test_the_truth_of_a_row_fault_is_true(fault: Fault) -> None:
    world = World(7, Shape(vocabulary=320, contexts=2048))
    asked = world.requests(24)
    made = world.run(asked, speculating(1), fault=replace(fault, share=max(fault.share, 0.25)), max_tokens=80)
    clean = world.run(asked, speculating(1), max_tokens=80, **fault.rules)
    assert made.truth.rows
    for key, tokens in streams(clean).items():
        hit = made.truth.rows.get(key)
        if fault.missing:
            assert (key in made.capture.completions) == (hit is None)
        elif hit is None:
            assert streams(made)[key] == tokens
        else:
            got = streams(made)[key]
            assert got[: hit.position] == tokens[: hit.position]
            assert got != tokens
            assert got[hit.position : hit.position + 1] != tokens[hit.position : hit.position + 1]


def test_wrong_numbers_show_in_the_residual_and_hardly_in_the_tokens() -> None:
    world = World(1, FLAT)
    asked = world.requests(48)
    clean = world.run(asked, max_tokens=TOKENS)
    usual = residuals(clean.capture, world.score(clean.capture)).std()
    for fault in catalogue():
        if fault.family != "numerics" or fault.size not in ("fp8", "int8", "0.2 nats", "1 step in 5", "2 bf16 units"):
            continue
        made = world.run(asked, fault=fault, max_tokens=TOKENS)
        assert residuals(made.capture, world.score(made.capture)).std() > 1.15 * usual, fault
        assert apart(clean, made) < 0.1


def test_a_pass_is_held_against_what_was_planted() -> None:
    ways = tuple(
        WaySeen(way="temperature", size=size, completions=64, share=share) for size, share in ((1.3, 0.2), (1.07, None))
    )
    sampling = SamplingStats(
        p_values={}, adjusted={}, mean_surprisal=(None, None), mean_length=(None, None), finish_reasons={},
        distinct_samples=(None, None), scored=64, temperature=1.0, ways_seen=ways,
    )  # fmt: skip
    said = Stats(sampling=sampling)
    hot = Planted(share=0.3, moved=0.1, completions=64, drawn=True, way="temperature", size=1.4)
    assert spoken(said, hot)[0] == EXCLUDED
    assert spoken(said, replace(hot, share=0.1))[0] == ADMITTED
    assert spoken(said, replace(hot, size=1.1))[0] == ADMITTED
    assert spoken(said, replace(hot, size=0.5))[0] == ADMITTED
    assert spoken(Stats(), hot)[0] == UNSPOKEN
    wrong = Planted(share=0.1, moved=0.001, completions=64, drawn=False, below=(3.0, 2.0, 0.1))
    missed = Missed(fault="wrong_token", size=0.25, seen=1.0, rate=0.05)
    assert spoken(Stats(missed=(missed,)), wrong)[0] == ADMITTED
    assert spoken(Stats(missed=(missed,)), replace(wrong, below=(3.0,) * 4))[0] == EXCLUDED


def test_what_a_pass_says_in_messages_counts() -> None:
    """What was not tested is said in a message, perhaps within another; it speaks of such faults alone."""
    biased = Planted(share=1.0, moved=0.01, completions=64, drawn=True, wrong_numbers=True)
    note = message("conclude.numerics_untested", "not tested: {why}", why=message("numerics.no_logprobs", "none"))
    assert spoken(Stats(), biased, [note]) == (ADMITTED, "conclude.numerics_untested")
    assert spoken(Stats(), biased, [message("any", "{parts}", parts=["x", note])])[0] == ADMITTED
    assert spoken(Stats(), replace(biased, wrong_numbers=False), [note])[0] == UNSPOKEN
    untried = message("conclude.untried_ways", "of other ways no size is known")
    assert spoken(Stats(), biased, [untried])[0] == UNSPOKEN
    assert spoken(Stats(), replace(biased, wrong_numbers=False), [untried])[0] == ADMITTED
    seen = Numerics(source="scores", rows_seen=(RowsSeen(completions=4, times=1.5),))
    assert spoken(Stats(numerics=seen), replace(biased, of_rows=(1.6,) * 3))[0] == ADMITTED
    assert spoken(Stats(numerics=seen), replace(biased, of_rows=(1.6,) * 4))[0] == EXCLUDED
    written = "".join(path.read_text() for path in WRITTEN.glob("*.py"))
    assert [name for name in NOT_TESTED if f'"{name}"' not in written] == []


def test_what_is_planted_is_known_by_numbers() -> None:
    """Of every second-best token its distance from the best; of a temperature how much and in how many rows."""
    faulty = Faulty(7, FLAT, first=8, max_tokens=32)
    second = Fault("second", "", "t", (), lapse=Lapse(second=True, start=9, stop=10))
    trial = faulty.trial(second, 1)
    found = planted(second, faulty, trial, 0.0)
    assert len(found.below) == len(trial.truth.lapsed)
    assert min(found.below) > 0
    warm = Fault("warm", "", "t", (), lapse=Lapse(values={"temperature": 1.2}), share=0.5, rules={"temperature": 0.8})
    trial = faulty.trial(warm, 1)
    found = planted(warm, faulty, trial, 0.0)
    assert (found.way, found.size, found.share, found.places) == ("temperature", pytest.approx(1.5), 0.5, 1.0)
