"""What is said of tokens in doubt: each way in which they are doubted has a sentence of its own, and steps."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparator.conclude.doubted import doubtful
from parity.comparator.detect.cases import Doubted, InDoubt
from parity.comparator.detect.pairs import Judged
from parity.comparator.reference.floor import Floor
from parity.records import Key
from parity.records.next_steps import Step

FLOOR = Floor(tokens=100, largest=0.1, mean=0.01, share_flat=0.0, wide=np.array([0.1]))


def of(*ways: Doubted) -> Judged:
    """A completion for each of them, the last one's token the farthest below the best."""
    return Judged(doubtful={Key(f"p{n}", 0, 0): InDoubt(3, 0.3 + n / 10, how) for n, how in enumerate(ways)})


def test_each_way_has_a_sentence_of_its_own() -> None:
    said = [doubtful(of(how), None, 0.25) for how in Doubted]
    assert len({one.reasons[0].id for one in said}) == len(Doubted)
    assert all(str(one.reasons[0]) and one.next_steps for one in said)
    assert all(step.settles == one.reasons[0].id for one in said for step in one.next_steps)


@pytest.mark.parametrize("other", [how for how in Doubted if how is not Doubted.IN_A_ROW])
def test_of_several_ways_one_is_said_with_its_own_completions(other: Doubted) -> None:
    (said,) = doubtful(of(Doubted.IN_A_ROW, other, Doubted.IN_A_ROW, other), FLOOR, 0.25).reasons
    assert said.id == "conclude.in_a_row"
    assert said.parameters["gap"] == pytest.approx(0.5)
    assert "2 completions" in str(said)


def test_scores_are_asked_for_first_where_the_baseline_has_none() -> None:
    ways = {scored: doubtful(of(Doubted.IN_A_ROW), FLOOR if scored else None, 0.25) for scored in (False, True)}
    assert [step.step for step in ways[False].next_steps] == [Step.SCORE, Step.ARBITER, Step.LONGER]
    assert [step.step for step in ways[True].next_steps] == [Step.ARBITER, Step.LONGER]


def test_a_larger_run_is_asked_for_with_its_size() -> None:
    steps = doubtful(of(Doubted.UNSAID), FLOOR, 0.25).next_steps
    assert [(one.step, one.number) for one in steps] == [(Step.LOGPROBS, None), (Step.ARBITER, None), (Step.LONGER, 4)]


def test_nothing_in_doubt_says_nothing() -> None:
    nothing = doubtful(Judged(), FLOOR, 0.25)
    assert not nothing.reasons
    assert not nothing.notes
