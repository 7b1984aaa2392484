"""Completions that come to one phrase make one choice in it, and that counts once."""

from __future__ import annotations

import math

import numpy as np
from captures import capture, completion

from parity.comparator.population.fresh_gaps import Fresh
from parity.comparator.population.rates import drift, no_more_than
from parity.records import Capture, Key

PHRASE = [901, 902, 903, 904, 905]


def arm(phrases: int) -> Capture:
    """32 completions of tokens of their own, of which so many come to the phrase."""
    rows = []
    for row in range(32):
        tokens = list(range(1000 + 20 * row, 1012 + 20 * row))
        rows.append(completion(tokens[:6] + PHRASE + tokens[6:] if row < phrases else tokens, f"p{row}"))
    return capture("cuda/mtp", *rows)


def gaps(made: Capture) -> dict[Key, np.ndarray]:
    """1.2 nats at the phrase's fourth token, and 0.001 to 0.003 at each second token."""
    found = {}
    for row, one in enumerate(made):
        values = np.where(np.arange(len(one.token_ids)) % 2, 0.001 * (1 + row % 3), 0.0)
        values[one.token_ids == PHRASE[3]] = 1.2
        found[one.key] = values
    return found


def test_a_phrase_counts_where_it_comes_first() -> None:
    made = arm(10)
    known = Fresh(made, gaps(made))
    fresh = [known.of(key, one) for key, one in gaps(made).items()]
    assert fresh[0][9] == 1.2
    assert all(np.isnan(one[9:11]).all() for one in fresh[1:10])  # its last two of five stand after it alone
    others = np.concatenate(fresh[10:])
    assert np.isnan(others).mean() < 0.2  # what shares a name with others by chance
    assert known.of(Key("other", 0, 0), np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_one_choice_in_a_phrase_is_no_drift_of_the_arm() -> None:
    own, other = arm(0), arm(10)
    found = drift(gaps(own), gaps(other), list(own.completions))
    assert found is not None
    assert found.drifted
    known = Fresh(own, own.completions), Fresh(other, other.completions)
    masked = [{key: one.of(key, values) for key, values in gaps(of).items()}
              for one, of in zip(known, (own, other), strict=True)]  # fmt: skip
    fresh = drift(*masked, list(own.completions))
    assert fresh is not None
    told = no_more_than(found, fresh)
    assert not told.drifted
    assert told.p_value > 0.05
    assert told.candidate_mean_gap == found.candidate_mean_gap


def test_gaps_of_their_own_are_one() -> None:
    own = arm(0)
    wider = {key: values * 5 for key, values in gaps(own).items()}
    found = drift(gaps(own), wider, list(own.completions))
    assert found is not None
    assert no_more_than(found, found) == found
    assert math.isclose(no_more_than(found, None).p_value, 1.0)
