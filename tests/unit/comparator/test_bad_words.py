"""Requests with bad words: what the engine chose from is known where the checkpoint's tokenizer cuts the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byte_tokens import Bytes, ids
from captures import capture, completion, header, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.inputs.bad_words import without_words
from parity.records import ScoreKey, TopLogprobs, Verdict

SAID, OTHER = ids("the cat sat on the mats"), ids("the cat ran to the door")
PARTS = 8
"""Where `OTHER` says "r" for "s"."""


def judged(lists: Sequence[Sequence[float]], words: list[str], *, whole: bool = True, **more: Any) -> Comparison:
    """The candidate parts where the score lists these (token, logprob); elsewhere its token is the best."""
    engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    asked = {"max_tokens": len(OTHER), "bad_words": words, **more}
    rest = [completion(ids(text), f"o{n}", text=text) for n in range(6) for text in [(f"number {n}" * 3)[: len(OTHER)]]]
    base = capture("cpu/base", *rest, completion(SAID, text=Bytes()(SAID)), **asked)
    other = capture(header("cpu/mtp", engine=engine, **asked), *rest, completion(OTHER, text=Bytes()(OTHER)))
    plain = [[[token, -0.1], [998, -4.0], [997, -5.0]] for token in OTHER]
    known = TopLogprobs.from_json([*plain[:PARTS], lists, *plain[PARTS + 1 :]])
    options = CompareOptions(detokenize=Bytes() if whole else None)
    return compare(base, other, {ScoreKey("cpu/mtp", "p0", 0, 0): known}, options)


@pytest.mark.parametrize("word", ["x", "cat x"])
def test_the_best_token_that_was_left_is_supported(word: str) -> None:
    result = judged([[ids("x")[0], -0.1], [ids("r")[0], -3.0], [ids("s")[0], -3.1]], [word])
    assert (result.verdict, result.stats.near_tie) == (Verdict.PASS, 1)


@pytest.mark.parametrize("word", ["y", "dog x", "x cat"])
def test_a_token_that_was_not_forbidden_there_is_better(word: str) -> None:
    """Than the baseline's as well, which lies as far below: neither of the two is accused of it."""
    result = judged([[ids("x")[0], -0.1], [ids("r")[0], -3.0], [ids("s")[0], -3.1]], [word])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {"conclude.by_few", "conclude.baseline_rejected"} <= {one.id for one in result.reasons}


def test_a_token_far_below_the_best_that_was_left_is_a_fault() -> None:
    result = judged([[ids("x")[0], -0.1], [ids("s")[0], -0.5], [ids("r")[0], -4.0]], ["x"])
    assert [(one.request, one.position) for one in result.corrupt] == [("p0", PARTS)]


def test_a_list_of_nothing_but_forbidden_tokens_decides_nothing() -> None:
    result = judged([[ids("x")[0], -0.1], [ids("z")[0], -1.0], [ids("r")[0], -6.0]], ["x", "z"])
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_the_forbidden_token_itself_is_found_whatever_the_score_says() -> None:
    result = judged([[ids("r")[0], -0.1], [ids("s")[0], -3.0], [997, -5.0]], ["cat r"])
    assert [(str(one.kind), one.position) for one in result.corrupt] == [("forbidden_token", PARTS)]


def test_without_a_tokenizer_it_stays_open() -> None:
    result = judged([[ids("x")[0], -0.1], [ids("r")[0], -3.0], [ids("s")[0], -3.1]], ["x"], whole=False)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any("bad_words changed" in reason for reason in texts(result.reasons))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3),
)
def test_lists_lose_what_the_rule_forbids_and_nothing_else(tokens: list[int], words: list[list[int]]) -> None:
    """The two ways to read a ban agree: a token is out of the list where saying it would break the rule."""
    said = np.array(tokens)
    width = 5
    top = TopLogprobs(np.tile(np.arange(width), (len(said), 1)), np.tile(-1.0 - np.arange(width), (len(said), 1)))
    left = without_words(top, said, words)
    for place in range(len(said)):
        for token in range(width):
            ends_in = [*tokens[:place], token]
            forbidden = any(ends_in[-len(word) :] == word for word in words)
            assert (token in left.ids[place]) == (not forbidden or token == said[place])


@pytest.mark.parametrize("alone", [True, False], ids=["bad words", "with allowed ids"])
def test_own_lists_of_which_bans_leave_the_chosen_token_alone_accuse_nobody(*, alone: bool) -> None:
    """Raw lists know no ban: below five better tokens that were all forbidden stands the one that was chosen."""
    said, word, outside = ids("the cat"), ids("x")[0], ids("z")[0]
    entries = [[[token, -0.1], [998, -4.0]] for token in said]
    entries[4] = [[said[4], -14.0], [word, -0.1], *([] if alone else [[outside, -2.0]])]
    asked: dict[str, Any] = {} if alone else {"allowed_token_ids": sorted({*said, word, 998})}
    arms = [
        capture(
            name,
            *(completion(said, f"p{n}", text="the cat", logprobs=TopLogprobs.from_json(entries)) for n in range(4)),
            max_tokens=len(said),
            bad_words=["x"],
            **asked,
        )
        for name in ("cpu/base", "cpu/other")
    ]
    result = compare(*arms, None, CompareOptions(detokenize=Bytes()))
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
