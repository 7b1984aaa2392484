"""Random sampling: draws from a known model, with the true distribution as the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import capture, completion, texts
from msgspec import structs

from parity.comparator import Comparison, compare
from parity.comparator.population.sampled import ENOUGH, allowed_for_rounding, run_tests
from parity.comparator.reference.gaps import TokenGaps, no_gaps
from parity.comparator.reference.penalties import Penalised, Penalties
from parity.comparator.reference.surprisal import find_unlikely, tail_logs
from parity.comparator.statistics import in_two_stages
from parity.records import Capture, Completion, Key, Kind, ScoreKey, TopLogprobs, Verdict

WORDS, LISTED, LENGTH, REQUESTS, SAMPLES = 400, 12, 40, 24, 4
SAMPLING = {"temperature": 0.8, "n": SAMPLES, "max_tokens": LENGTH}


class Model:
    """A language without memory: each (request, position) has a distribution of its own, of Zipf's shape."""

    def __init__(self, rng: np.random.Generator) -> None:
        shape = (REQUESTS, LENGTH)
        self.order = rng.random((*shape, WORDS)).argsort(axis=-1) + 1  # token ids by rank; 0 is EOS
        raw = -2.0 * np.log(np.arange(1, WORDS + 1)) * rng.uniform(0.9, 1.2, (*shape, 1))
        self.logprobs = raw - np.log(np.exp(raw).sum(axis=-1, keepdims=True))

    def ranks(self, rng: np.random.Generator, temperature: float, top_k: int = WORDS) -> np.ndarray:
        """One draw for every request, sample and position, as ranks of shape (R, S, T)."""
        tempered = np.exp(self.logprobs[..., :top_k] / temperature)
        cumulated = tempered.cumsum(axis=-1) / tempered.sum(axis=-1, keepdims=True)
        noise = rng.random((REQUESTS, SAMPLES, LENGTH, 1))
        return np.minimum((noise > cumulated[:, None]).sum(axis=-1), top_k - 1)

    def score(self, request: int, ranks: np.ndarray) -> TopLogprobs:
        places = np.arange(LENGTH)
        column = np.concatenate([np.broadcast_to(np.arange(LISTED), (LENGTH, LISTED)), ranks[:, None]], axis=1)
        ids = self.order[request][places[:, None], column]
        values = self.logprobs[request][places[:, None], column]
        again = ranks < LISTED  # the chosen token is listed already
        ids[again, -1], values[again, -1] = -1, np.nan
        return TopLogprobs(ids, values)

    def arm(self, name: str, ranks: np.ndarray) -> tuple[Capture, dict[ScoreKey, TopLogprobs]]:
        run: list[Completion] = []
        known = {}
        for request in range(REQUESTS):
            for sample in range(SAMPLES):
                mine = ranks[request, sample]
                tokens = self.order[request][np.arange(LENGTH), mine]
                run.append(completion(tokens.tolist(), f"p{request}", sample=sample))
                known[ScoreKey(name, *run[-1].key)] = self.score(request, mine)
        return capture(name, *run, **SAMPLING), known


def compared(seed: int, *, temperature: float = 0.8, top_k: int = WORDS) -> Comparison:
    rng = np.random.default_rng(seed)
    model = Model(rng)
    base, known = model.arm("cpu/base", model.ranks(rng, 0.8))
    other, more = model.arm("cpu/mtp", model.ranks(rng, temperature, top_k))
    return compare(base, other, known | more)


def test_draws_from_the_same_model_pass_and_p_values_are_honest() -> None:
    results = [compared(seed) for seed in range(25)]
    assert {result.verdict for result in results} == {Verdict.PASS}
    for name in ("likelihood", "surprisal", "wording"):
        p_values = np.array([result.stats.to_json()["sampling"]["p_values"][name] for result in results])
        # 25 uniform draws: more than one below 0.01 comes in one of 40 tries, a median below 0.2 in one of 1,000.
        assert (p_values < 0.01).sum() <= 1
        assert np.median(p_values) > 0.2


@pytest.mark.parametrize("temperature", [0.5, 1.3])
def test_another_temperature_than_asked_is_seen(temperature: float) -> None:
    result = compared(1, temperature=temperature)
    assert result.verdict is Verdict.DIVERGED
    assert result.stats.to_json()["sampling"]["adjusted"]["likelihood"] < 0.001
    assert result.stats.to_json()["sampling"]["adjusted"]["surprisal"] < 0.001


def few(requests: int, temperature: float, *, seed: int) -> Comparison:
    """Two samples each of so few requests that pairing them by request can convict nobody."""
    rng = np.random.default_rng(seed)
    model = Model(rng)
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for name, drawn_at in (("cpu/base", 0.8), ("cpu/mtp", temperature)):
        whole, scores = model.arm(name, model.ranks(rng, drawn_at))
        known |= scores
        kept = [one for key, one in whole.completions.items() if int(key.request[1:]) < requests and key.sample < 2]
        arms.append(capture(name, *kept, **{**SAMPLING, "n": 2}))
    return compare(arms[0], arms[1], known)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_another_temperature_is_seen_in_twenty_completions(temperature: float) -> None:
    """No token is an impossible one."""
    result = few(10, temperature, seed=3)
    assert result.stats.to_json()["sampling"]["adjusted"]["likelihood"] > 0.001
    assert result.stats.to_json()["sampling"]["adjusted"]["surprisal"] < 0.001
    assert result.verdict is Verdict.DIVERGED
    (why,) = texts(result.reasons)
    assert why.startswith("the samples of the run as a whole differ from the baseline's: ")
    assert why.endswith("surprisal")


def test_few_draws_from_the_same_model_pass() -> None:
    assert {few(10, 0.8, seed=seed).verdict for seed in range(20)} == {Verdict.PASS}


def views(values: np.ndarray) -> dict[Key, TokenGaps]:
    """Completions of 4 tokens with these mean logprobs, one for each request."""
    return {
        Key(f"p{n}", 0, 0): structs.replace(no_gaps(4), chosen=np.full(4, value))
        for n, value in enumerate(values.tolist())
    }


def test_rounding_alone_accuses_no_large_run() -> None:
    """600 requests that are 0.0003 nats a token less likely with the other kernels, each by itself: a large run sees
    that, and it is less than the run's own noise explains."""
    rng = np.random.default_rng(6)
    base = rng.normal(-1.5, 0.3, 600)
    other = base - 0.0003 - rng.normal(0.0, 0.001, 600)

    def p_value(rounding: float) -> float:
        return run_tests([], [], views(base), views(other), rounding=rounding).p_values["likelihood"]

    allowed = allowed_for_rounding(None, 1.0)
    assert p_value(0.0) < 0.001
    assert p_value(allowed) == 1.0
    assert 0.0004 < allowed < allowed_for_rounding(None, 0.5) <= ENOUGH


def likelihood(differences: np.ndarray) -> float:
    """Its p-value for arms whose completions of each request are as much more likely as that."""

    def views(values: np.ndarray) -> dict[Key, TokenGaps]:
        return {
            Key(f"p{number}", 0, 0): structs.replace(no_gaps(1), chosen=np.array([value]))
            for number, value in enumerate(values.tolist())
        }

    return run_tests([], [], views(differences), views(np.zeros(len(differences)))).p_values["likelihood"]


def test_how_likely_the_arms_are_is_a_bound_and_no_luck_of_drawn_signs() -> None:
    """Where few of 40,000 flips of signs go as far, their number is chance itself: a clean arm was accused with none
    of them, where 6 were due."""
    differences = np.random.default_rng(11).normal(size=160)
    differences += 3.9 / np.sqrt(160) - differences.mean()
    rng = np.random.default_rng(1)
    flips = (rng.integers(0, 2, (20_000, 160), dtype=np.int8) * 2 - 1 for _ in range(10))
    as_far = float(np.mean([(signs @ differences >= differences.sum()).mean() for signs in flips]))
    assert likelihood(differences) > 2 * as_far > 5e-5
    assert likelihood(differences + 0.5) < 1e-12


def test_a_cut_off_distribution_accuses_no_token() -> None:
    """top_k leaves unlikely tokens out; no stretch is unlikely, whatever the run's tests say."""
    result = compared(2, top_k=20)
    assert all(one.request == "*" for one in result.corrupt)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_the_tail_is_a_conservative_p_value(temperature: float) -> None:
    rng = np.random.default_rng(7)
    model = Model(rng)
    ranks = model.ranks(rng, temperature)
    tails = np.concatenate(
        [
            tail_logs(
                model.score(request, ranks[request, 0]),
                model.order[request][np.arange(LENGTH), ranks[request, 0]],
                temperature,
                WORDS,
            )
            for request in range(REQUESTS)
        ]
    )
    assert np.isfinite(tails).all()
    for level in (0.5, 0.1, 0.01):
        share = float((tails <= np.log(level)).mean())
        assert share <= level + 4 * np.sqrt(level / len(tails))


def damaged(place: int, length: int, *, stop: bool = False) -> tuple[Comparison, Key]:
    """Tokens of rank 300 and more in one sample, from `place` on."""
    rng = np.random.default_rng(11)
    model = Model(rng)
    base, known = model.arm("cpu/base", model.ranks(rng, 0.8))
    ranks = model.ranks(rng, 0.8)
    ranks[5, 2, place - 1] = 0  # a likely token before it: nothing else could be the first
    ranks[5, 2, place : place + length] = rng.integers(300, WORDS, length)
    other, more = model.arm("cpu/mtp", ranks)
    key = Key("p5", 0, 2)
    if stop:
        one = other.completions[key]
        cut = replace(one, token_ids=np.append(one.token_ids[:place], 0), finish_reason="stop")
        other = replace(other, completions={**other.completions, key: cut})
        top = more[ScoreKey("cpu/mtp", *key)]
        ids, values = top.ids[: place + 1].copy(), top.values[: place + 1].copy()
        ids[-1, -1], values[-1, -1] = 0, -40.0
        more[ScoreKey("cpu/mtp", *key)] = TopLogprobs(ids, values)
    return compare(base, other, known | more), key


@pytest.mark.parametrize("length", [6, 10, 16])
def test_rubbish_in_one_sample_is_found_from_its_first_token(length: int) -> None:
    result, key = damaged(12, length)
    (found,) = [one for one in result.corrupt if one.request != "*"]
    assert (found.key, found.kind, found.position) == (key, Kind.GARBLED, 12)
    assert abs((found.length or 0) - length) <= 2


def test_an_impossible_stop_is_an_early_stop() -> None:
    result, key = damaged(12, 0, stop=True)
    assert [(one.key, one.kind, one.position) for one in result.corrupt] == [(key, Kind.EARLY_STOP, 12)]


def pair() -> tuple[Capture, Capture, dict[ScoreKey, TopLogprobs]]:
    rng = np.random.default_rng(21)
    model = Model(rng)
    base, known = model.arm("cpu/base", model.ranks(rng, 0.8))
    other, more = model.arm("cpu/mtp", model.ranks(rng, 0.8))
    return base, other, known | more


@pytest.mark.parametrize("with_scores", [True, False])
def test_a_sample_given_twice_is_found(with_scores: bool) -> None:
    base, other, known = pair()
    copy = replace(other.completions[Key("p3", 0, 1)], key=Key("p3", 0, 2))
    other = replace(other, completions={**other.completions, copy.key: copy})
    known[ScoreKey("cpu/mtp", *copy.key)] = known[ScoreKey("cpu/mtp", "p3", 0, 1)]
    result = compare(base, other, known if with_scores else None)
    assert [(one.key, one.kind) for one in result.corrupt] == [(copy.key, Kind.DUPLICATE_COMPLETION)]


def test_samples_that_fall_into_one_loop_may_be_equal() -> None:
    """Ten tokens, and from there on the same eight again and again: each repetition is no more to agree in."""
    base, other, _ = pair()
    looped = other.completions[Key("p3", 0, 1)].token_ids.copy()
    looped[10:] = np.resize(looped[2:10], len(looped) - 10)
    both = {Key("p3", 0, one): replace(other.completions[Key("p3", 0, one)], token_ids=looped) for one in (1, 2)}
    result = compare(base, replace(other, completions={**other.completions, **both}))
    assert not result.corrupt


def test_short_answers_may_be_equal() -> None:
    """Every request has the answer 'yes': samples and arms agree by right."""
    run = [completion([5, 0], f"p{n}", sample=sample, finish="stop") for n in range(12) for sample in range(SAMPLES)]
    entry = TopLogprobs.from_json([[[5, -0.05], [6, -3.0]], [[0, -0.01], [7, -5.0]]])
    known = {ScoreKey(arm, *one.key): entry for arm in ("cpu/base", "cpu/mtp") for one in run}
    result = compare(capture("cpu/base", *run, **SAMPLING), capture("cpu/mtp", *run, **SAMPLING), known)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_arms_with_the_same_seed_may_be_equal() -> None:
    base, _, known = pair()
    twin = capture("cpu/mtp", *base, **SAMPLING)
    known |= {ScoreKey("cpu/mtp", *one.key): known[ScoreKey("cpu/base", *one.key)] for one in base}
    assert compare(base, twin, known).verdict is Verdict.PASS


def test_a_sample_that_is_missing() -> None:
    base, other, known = pair()
    gone = Key("p3", 0, 3)
    left = {key: one for key, one in other.completions.items() if key != gone}
    result = compare(base, replace(other, completions=left), known)
    assert [(one.key, one.kind) for one in result.corrupt] == [(gone, Kind.MISSING_COMPLETION)]


def test_broken_logprobs_of_a_sample() -> None:
    base, other, known = pair()
    key = Key("p3", 0, 1)
    own = known[ScoreKey("cpu/mtp", *key)]
    values = own.values.copy()
    values[30][own.ids[30] == other.completions[key].token_ids[30]] = np.nan
    one = replace(other.completions[key], logprobs=TopLogprobs(own.ids, values))
    other = replace(other, completions={**other.completions, key: one})
    result = compare(base, other, known)
    assert [(found.key, found.kind, found.position) for found in result.corrupt] == [(key, Kind.LOGPROB_MISMATCH, 30)]


def test_without_scores_the_run_is_inconclusive() -> None:
    base, other, _ = pair()
    result = compare(base, other)
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_a_stretch_grows_over_rare_tokens_beside_it() -> None:
    logs = np.full(50, -0.5)
    logs[20:30] = -12.0
    logs[18:20] = -7.5
    (found,) = find_unlikely(logs, 10_000, 0.001)
    assert (found.position, found.length) == (18, 12)
    assert find_unlikely(np.full(50, -0.5), 10_000, 0.001) == []


def test_the_second_stage_draws_anew() -> None:
    asked: list[tuple[int, int]] = []

    def test(draws: int, seed: int) -> float:
        asked.append((draws, seed))
        return 0.04

    assert in_two_stages(test, few=10, many=100) == 0.04
    assert asked == [(10, 0), (100, 1)]
    assert in_two_stages(lambda draws, seed: 0.3) == 0.3


def test_a_large_bias_at_a_low_temperature_hides_no_token() -> None:
    """exp(2,000) is no number: what a biased token weighs is set against the best one."""
    tokens = np.array([7, 8])
    top = TopLogprobs.from_json([[[7, -0.5], [8, -1.0]], [[7, -0.5], [8, -1.0]]])
    biased = Penalised(Penalties(bias=((7, 100.0),)), np.array([1]))
    logs = tail_logs(top, tokens, 0.05, 512, biased)
    assert logs[0] == pytest.approx(0.0)
    assert logs[1] < -1000


@pytest.mark.parametrize("named", [None, "budget"])
def test_an_arm_that_names_no_end_as_others_do_is_not_tested_by_its_names(named: str | None) -> None:
    rng = np.random.default_rng(11)
    model = Model(rng)
    (base, known), (other, more) = (model.arm(name, model.ranks(rng, 0.8)) for name in ("cpu/base", "cpu/mtp"))
    half = {key: replace(one, finish_reason="stop") for n, (key, one) in enumerate(other.completions.items()) if n % 2}
    result = compare(base, replace(other, completions={**other.completions, **half}), known | more)
    assert result.stats.sampling is not None
    assert result.stats.sampling.failed == ("finish_reason",)
    unnamed = {key: replace(one, finish_reason=named) for key, one in other.completions.items()}
    result = compare(base, replace(other, completions=unnamed), known | more)
    assert result.stats.sampling is not None
    assert "finish_reason" not in result.stats.sampling.p_values
    assert result.verdict is not Verdict.DIVERGED


def test_ids_made_again_from_text_are_not_tested_by_their_number() -> None:
    rng = np.random.default_rng(12)
    model = Model(rng)
    (base, known), (other, _) = (model.arm(name, model.ranks(rng, 0.8)) for name in ("cpu/base", "server/one"))
    lost = {key: 4 + at % 5 for at, key in enumerate(other.completions)}  # all as long would be the server's context
    fewer = {key: replace(one, token_ids=one.token_ids[: -lost[key]]) for key, one in other.completions.items()}
    other = replace(other, completions=fewer)
    result = compare(base, other, known)
    assert result.stats.sampling is not None
    assert "length" in result.stats.sampling.failed
    served = {"served": {"token_source": "retokenised"}}
    text_alone = replace(other, header=replace(other.header, backend="server", extra={**other.header.extra, **served}))
    result = compare(base, text_alone, known)
    assert result.stats.sampling is not None
    assert not {"length", "wording"} & result.stats.sampling.p_values.keys()
