"""What lists of some tokens say of draws: at ties, in flat text, and where a cut-off lies beyond them."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparator.detect.shared_noise import Row, agreement
from parity.comparator.reference.drawn_lists import Cut, draws_of, listed_width
from parity.comparator.reference.temperature import Beyond, beyond, cut_within, shares_kept
from parity.records import TokenIds, TopLogprobs

WORDS, LISTED = 4000, 20


def _listed(logits: np.ndarray, tokens: TokenIds) -> TopLogprobs:
    """The best tokens of each place, after the chosen one, as engines list them."""
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    places = []
    for row, token in zip(logs, tokens.tolist(), strict=True):
        best = [one for one in np.argsort(-row, kind="stable")[:LISTED].tolist() if one != token]
        places.append([[one, float(row[one])] for one in (token, *best)])
    return TopLogprobs.from_json(places)


def test_a_chosen_token_as_likely_as_the_last_of_the_best_is_none_of_them() -> None:
    rng = np.random.default_rng(1)
    logits = np.zeros((200, WORDS))
    logits[:, : LISTED - 1] = 5.0
    tokens = rng.integers(LISTED - 1, WORDS, 200)  # all as likely as the last that is listed
    top = _listed(logits, tokens)
    draws, places = draws_of(top, tokens, LISTED, WORDS)
    assert len(places) == 200
    assert (draws.drawn < LISTED).sum() == (tokens == LISTED - 1).sum()


def test_among_equals_inside_longer_lists_the_chosen_token_decides_nothing() -> None:
    first = draws_of(TopLogprobs.from_json([[[7, -1.0], [5, -1.0], [3, -1.0]]]), np.array([7]), 1, WORDS)[0]
    assert first.drawn.tolist() == [1]
    last = draws_of(TopLogprobs.from_json([[[3, -1.0], [5, -1.0], [7, -1.0]]]), np.array([3]), 1, WORDS)[0]
    assert last.drawn.tolist() == [0]


@pytest.mark.parametrize("flat", [False, True])
def test_lists_are_as_wide_as_what_is_listed_beside_the_chosen_token(flat: bool) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0.0, 0.1 if flat else 4.0, (64, WORDS))
    weights = np.exp(logits)
    tokens = np.array([rng.choice(WORDS, p=row / row.sum()) for row in weights])
    top = _listed(logits, tokens)
    assert listed_width([top], [tokens]) == LISTED


def test_a_cut_beyond_the_lists_is_not_known() -> None:
    wide, sharp = np.zeros((1, 200)), np.zeros((1, 200))
    sharp[:, :2] = 15.0
    for logits, is_known in ((wide, False), (sharp, True)):
        top = _listed(logits, np.array([0]))
        left_out = beyond(top, top, np.zeros(1))
        for temperature in (0.7, 1.0, 1.4):
            known = cut_within(top, left_out, np.array([0]), LISTED, temperature, Cut(top_p=0.9), 180)
            assert known.tolist() == [is_known]
        assert cut_within(top, left_out, np.array([0]), LISTED, 1.0, Cut(top_k=5), 180).all()
        assert cut_within(top, left_out, np.array([0]), LISTED, 1.0, Cut(top_k=5, top_p=0.9), 180).all()


def test_what_is_left_out_weighs_at_least_what_it_does() -> None:
    rng = np.random.default_rng(3)
    logs = np.sort(rng.normal(0.0, 2.0, 500))[::-1]
    left_out = Beyond(np.array([np.log(np.exp(logs).sum())]), logs[:1].copy())
    for temperature in (0.3, 0.7, 1.0, 1.5, 3.0):
        assert left_out.weight(temperature, 500)[0] >= np.exp(logs / temperature).sum() * (1 - 1e-9)


def test_a_cut_that_leaves_one_token_leaves_nothing_to_draw() -> None:
    shares = np.array([[0.5, 0.3, 0.2]])
    drawn = np.array([[True, False, False]])
    assert shares_kept(shares, drawn, Cut(top_k=1)).tolist() == [[1.0, 0.0, 0.0]]
    assert shares_kept(shares, drawn, Cut(top_p=0.6))[0].tolist() == pytest.approx([0.625, 0.375, 0.0])


def test_requests_that_ask_alike_with_top_k_1_share_no_noise() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(0.0, 0.5, (48, 50))
    tokens = logits.argmax(axis=1)
    top = _listed(logits, tokens)
    assert agreement([Row.of(tokens, top, 1.0)] * 12) is not None
    assert agreement([Row.of(tokens, top, 1.0, Cut(top_k=1))] * 12) is None
