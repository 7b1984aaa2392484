"""Wald's test keeps to its error rates, and Clopper and Pearson's interval is theirs."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.reduce.sequential import (
    Answer,
    Question,
    Tally,
    certain,
    clopper_pearson,
    in_rounds,
    per_round,
    predictive,
    repeated,
    rounds_predicted,
)

RATES = (0.01, 0.03, 0.1, 0.3, 0.7, 0.95)


def expected_shots(question: Question, p: float) -> float:
    """About how many shots it takes where a shot fails with probability p (Wald's identity, no overshoot)."""
    if question.p1 == 1:  # until the first clean shot, or until enough failures
        needed = math.ceil(question.upper / question.per_failure - 1e-9)
        return float(needed) if p >= 1 else (1 - p**needed) / (1 - p)
    drift = p * question.per_failure + (1 - p) * question.per_clean
    if abs(drift) < 1e-9:
        return -question.upper * question.lower / (p * question.per_failure**2 + (1 - p) * question.per_clean**2)
    fails = operating(question, p)
    return (fails * question.upper + (1 - fails) * question.lower) / drift


def operating(question: Question, p: float) -> float:
    """Chance of FAILS at p: Wald's operating characteristic, its root found by bisection."""
    if p <= 0:
        return 0.0
    if p >= 1:
        return 1.0

    def moment(h: float) -> float:
        return p * math.exp(h * question.per_failure) + (1 - p) * math.exp(h * question.per_clean) - 1

    drift = p * question.per_failure + (1 - p) * question.per_clean
    sign = -1.0 if drift > 0 else 1.0  # the root other than 0 lies on the side that the drift points away from
    far = sign
    while moment(far) < 0 and abs(far) < 1e3:
        far *= 2
    near = sign * 1e-9
    for _ in range(200):
        middle = (near + far) / 2
        near, far = (near, middle) if moment(middle) > 0 else (middle, far)
    h = (near + far) / 2
    up, down = h * question.upper, h * question.lower
    return (1 - math.exp(down)) / (math.exp(up) - math.exp(down))


def ask(question: Question, p: float, seed: object) -> Tally:
    draw = random.Random(repr(seed))
    tally = Tally(question)
    while tally.answer is None:
        tally.add(draw.random() < p)
    return tally


@pytest.mark.parametrize("p1", RATES)
def test_the_error_rates_are_kept_and_the_expected_number_of_shots_is_right(p1: float) -> None:
    question = Question(p1 / 4, p1, alpha=0.05, beta=0.05)
    for p, wrong in ((question.p0, Answer.FAILS), (p1, Answer.CLEAN)):
        tallies = [ask(question, p, (p1, p, run)) for run in range(400)]
        errors = sum(tally.answer is wrong for tally in tallies)
        assert errors <= 34  # 20 of 400 are allowed; 34 is passed once in a thousand
        shots = sum(tally.shots for tally in tallies) / len(tallies)
        # The overshoot of the last step makes it longer than the formula, by one failure's worth at most.
        assert 0.8 * expected_shots(question, p) <= shots <= 1.25 * expected_shots(question, p) + 2 / p


def exact(question: Question, p: float) -> tuple[float, float]:
    """Chances of FAILS and CLEAN at p, summed over everything that the shots can be (what is left is below 1e-9)."""
    open_, fails, clean = {(0, 0): 1.0}, 0.0, 0.0
    while sum(open_.values()) > 1e-9:
        after: dict[tuple[int, int], float] = {}
        for (shots, failures), chance in open_.items():
            for failed, share in ((True, p), (False, 1 - p)):
                tally = Tally(question, shots, failures)
                tally._ratio = failures * question.per_failure
                tally._ratio += (shots - failures) * question.per_clean if shots > failures else 0.0
                answer = tally.add(failed)
                if answer is Answer.FAILS:
                    fails += chance * share
                elif answer is Answer.CLEAN:
                    clean += chance * share
                else:
                    place = tally.shots, tally.failures
                    after[place] = after.get(place, 0.0) + chance * share
        open_ = after
    return fails, clean


@pytest.mark.parametrize(
    ("p1", "apart", "alpha", "beta"),
    [
        (0.0487, 4.0, 0.05, 0.05),
        (0.139, 4.0, 0.05, 0.05),
        (0.139, 4.0, 0.4, 0.4),
        (0.5, 1.5, 0.05, 0.05),
        (0.5, 4.0, 0.01, 0.2),
        (0.5, 2.0, 0.3, 0.001),
        (0.95, 1.2, 0.2, 0.2),
        (1.0, 4.0, 0.05, 0.05),
    ],
)
def test_neither_error_rate_is_ever_passed(p1: float, apart: float, alpha: float, beta: float) -> None:
    """No simulation: the chances themselves. Stopping as soon as the shots allow it is part of them."""
    question = Question(p1 / apart, p1, alpha, beta)
    assert exact(question, question.p0)[0] <= alpha
    assert exact(question, question.p1)[1] <= beta


def test_what_repeated_itself_is_asked_about_in_a_few_shots() -> None:
    assert exact(repeated(), 0.125)[0] <= 0.05
    assert exact(repeated(), 0.5)[1] <= 0.05
    failing, clean = Tally(repeated()), Tally(repeated())
    while failing.answer is None:
        failing.add(True)
    while clean.answer is None:
        clean.add(False)
    assert (failing.shots, clean.shots) == (3, 6)


def test_a_certain_failure_takes_one_shot_either_way() -> None:
    for alpha, beta in ((0.05, 0.05), (0.01, 0.1), (0.2, 0.001)):
        failing, clean = Tally(certain(alpha, beta)), Tally(certain(alpha, beta))
        assert failing.add(True) is Answer.FAILS
        assert clean.add(False) is Answer.CLEAN
        assert expected_shots(certain(alpha, beta), 1.0) == 1


def test_an_answered_question_takes_no_more_shots() -> None:
    tally = Tally(certain())
    tally.add(True)
    with pytest.raises(ValueError, match="answered already"):
        tally.add(True)


@settings(deadline=None)
@given(
    p1=st.floats(0.02, 1.0),
    ratio=st.floats(0.05, 0.8),
    shots=st.lists(st.booleans(), max_size=200),
)
def test_any_run_of_shots(p1: float, ratio: float, shots: list[bool]) -> None:
    """The answer never comes from the wrong side, and more failures never turn FAILS into CLEAN."""
    question = Question(p1 * ratio, p1)
    tally, worse = Tally(question), Tally(question)
    for failed in shots:
        if tally.answer is None:
            tally.add(failed)
        if worse.answer is None:
            worse.add(True)
    if tally.answer is Answer.FAILS:
        assert tally.failures > 0
        assert worse.answer is Answer.FAILS
        assert worse.shots <= tally.shots
    if tally.answer is Answer.CLEAN:
        assert tally.failures < tally.shots
    if shots and tally.answer is None:
        assert tally.shots == len(shots)


@settings(deadline=None)
@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_questions_that_make_no_sense_are_refused(a: float, b: float) -> None:
    if a >= b:
        with pytest.raises(ValueError, match="wanted 0 < p0 < p1"):
            Question(a, b)
    else:
        assert Question(a, b).lower < 0 < Question(a, b).upper


def tail(failures: int, shots: int, p: Fraction) -> Fraction:
    """P(X >= failures), in exact fractions."""
    return sum(
        (math.comb(shots, k) * p**k * (1 - p) ** (shots - k) for k in range(failures, shots + 1)), start=Fraction(0)
    )


@pytest.mark.parametrize(("failures", "shots"), [(0, 20), (1, 20), (7, 20), (20, 20), (3, 120)])
def test_clopper_pearson_bounds_are_where_the_binomial_tails_are_a_fortieth(failures: int, shots: int) -> None:
    low, high = clopper_pearson(failures, shots)
    if failures:
        assert float(tail(failures, shots, Fraction(low))) == pytest.approx(0.025, rel=1e-6)
    else:
        assert low == 0
    if failures < shots:
        assert float(1 - tail(failures + 1, shots, Fraction(high))) == pytest.approx(0.025, rel=1e-6)
    else:
        assert high == 1


def test_clopper_pearson_without_a_failure_is_the_closed_form() -> None:
    assert clopper_pearson(0, 20)[1] == pytest.approx(1 - 0.025 ** (1 / 20), abs=1e-9)
    assert clopper_pearson(20, 20)[0] == pytest.approx(0.025 ** (1 / 20), abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.data())
def test_clopper_pearson_holds_the_share_and_narrows(shots: int, data: st.DataObject) -> None:
    failures = data.draw(st.integers(0, shots))
    low, high = clopper_pearson(failures, shots)
    assert low <= failures / shots <= high
    wider = clopper_pearson(failures, shots, confidence=0.99)
    assert wider[0] <= low
    assert high <= wider[1]


def test_no_shots_say_nothing() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="3 failures of 2 shots"):
        clopper_pearson(3, 2)


@settings(deadline=None)
@given(st.floats(0.5, 0.999), st.integers(1, 100))
def test_so_many_rounds_reach_the_goal(goal: float, rounds: int) -> None:
    assert math.isclose(in_rounds(per_round(goal, rounds), rounds), goal, rel_tol=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 200))
def test_what_is_predicted_is_the_mean_over_the_prior(failures: int, shots: int, rounds: int) -> None:
    failures = min(failures, shots)
    at = [(index + 0.5) / 1000 for index in range(1000)]
    # p = sin(x)^2 makes Jeffreys' prior flat in x, so the sum below has no poles.
    ps = [math.sin(math.pi / 2 * x) ** 2 for x in at]
    logs = [failures * math.log(p) + (shots - failures) * math.log1p(-p) for p in ps]
    weights = [math.exp(value - max(logs)) for value in logs]
    mean = sum(w * in_rounds(p, rounds) for w, p in zip(weights, ps, strict=True)) / sum(weights)
    assert predictive(failures, shots, rounds) == pytest.approx(mean, abs=2e-3)


@settings(deadline=None)
@given(st.floats(0.5, 0.99), st.integers(1, 60), st.integers(1, 60))
def test_rounds_reach_what_is_predicted_and_one_less_does_not(goal: float, failures: int, shots: int) -> None:
    failures = min(failures, shots)
    rounds = rounds_predicted(goal, failures, shots, 100_000)
    assert rounds == 100_000 or predictive(failures, shots, rounds) >= goal
    assert rounds == 1 or predictive(failures, shots, rounds - 1) < goal
    assert rounds_predicted(goal, failures, shots, 20) == min(rounds, 20)


@pytest.mark.parametrize("p", [0.03, 0.07, 0.1, 0.3, 0.7])
def test_a_plan_fails_as_often_as_is_stated_of_it(p: float) -> None:
    """Over all that sixty shots can show of a rate: what is stated on average is not above what is true."""
    stated = true = plugged = 0.0
    for failures in range(1, 61):
        chance = math.comb(60, failures) * p**failures * (1 - p) ** (60 - failures)
        rounds = rounds_predicted(0.95, failures, 60, 10_000)
        stated += chance * predictive(failures, 60, rounds)
        true += chance * in_rounds(p, rounds)
        share = failures / 60
        needed = math.ceil(math.log(0.05) / math.log1p(-share)) if share < 1 else 1
        plugged += chance * (in_rounds(p, needed) - in_rounds(share, needed))
    assert stated <= true + 0.002
    assert true <= stated + 0.02  # nor far below
    if p < 0.3:
        assert plugged < -0.01  # which the share put in for the probability would be
