"""Requests under a grammar of an engine that lets a model think first: the grammar begins after that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from byte_tokens import Bytes, ids
from captures import EOS, capture, completion, header

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Completion, Kind, ScoreKey, TopLogprobs, Verdict

pytest.importorskip("llguidance")

THINK, THOUGHT = 600, 601
ENGINE = {"structured_outputs_config": {"reasoning_parser": "qwen3"}}
REGEX = {"regex": "[a-z]+ [a-z]+!"}


class Thinking(Bytes):
    """With the two tokens around what a model thinks."""

    named: ClassVar = {THINK: "<think>", THOUGHT: "</think>"}

    def __call__(self, ids: Sequence[int], /) -> str:
        return "".join(self.named.get(one) or super(Thinking, self).__call__([one]) for one in ids)

    def with_special(self, ids: Sequence[int], /) -> str:
        return "".join(self.named.get(one) or super(Thinking, self).with_special([one]) for one in ids)

    def encode(self, text: str, /) -> Sequence[int]:
        found = [token for token, named in self.named.items() if named == text]
        return found or ids(text)


TEXT = Thinking()


def said(*tokens: int, finish: str = "stop", **more: Any) -> Completion:
    every = [*tokens, EOS] if finish == "stop" else list(tokens)
    return completion(every, finish=finish, text=TEXT(tokens), **more)


def judged(
    baseline: Completion,
    candidate: Completion,
    lists: list[list[list[float]]] | None = None,
    engine: Any = ENGINE,
) -> Comparison:
    drafts = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    asked = {"max_tokens": 40, "structured_outputs": REGEX}
    base = capture(header("cpu/base", engine=engine, **asked), baseline)
    other = capture(header("cpu/mtp", engine={**drafts, **engine}, **asked), candidate)
    scores = {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json(lists)} if lists else {}
    return compare(base, other, scores, CompareOptions(detokenize=TEXT))


RIGHT = said(*ids("hm. 7?"), THOUGHT, *ids("the cat!"))


def test_the_grammar_holds_from_the_end_of_the_reasoning_on() -> None:
    wrong = said(*ids("hm. 7?"), THOUGHT, *ids("the 7 cats!"))
    (found,) = judged(RIGHT, wrong).corrupt
    assert (found.kind, found.position) == (Kind.GRAMMAR_VIOLATION, 11)
    assert judged(wrong, RIGHT).corrupt == []
    assert judged(RIGHT, RIGHT).verdict is Verdict.PASS


def test_what_never_ends_its_reasoning_follows_no_grammar() -> None:
    free = said(*ids("hm. 7, 8, 9"), finish="stop")
    result = judged(free, free)
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])


def test_after_a_prompt_that_ends_the_reasoning_the_grammar_holds_at_once() -> None:
    closed = (1, 2, THINK, THOUGHT, 300)
    right, wrong = (said(*ids(text), prompt=closed) for text in ("the cat!", "the 7 cats!"))
    (found,) = judged(right, wrong).corrupt
    assert (found.kind, found.position) == (Kind.GRAMMAR_VIOLATION, 4)


@pytest.mark.parametrize(
    ("prompt", "engine", "tokens"),
    [
        ((THINK, THOUGHT, 1, 2, 3, 4, 5), ENGINE, ids("the 7 cats!")),  # of an earlier turn
        ((1, 2, 3), {"reasoning_parser": "granite"}, ids("the 7 cats!")),
        ((1, 2, 3), ENGINE, [*ids("<tool_call> "), THOUGHT, *ids("the 7 cats!")]),
    ],
)
def test_where_nothing_says_where_it_begins_nobody_is_accused(prompt: Any, engine: Any, tokens: list[int]) -> None:
    right, wrong = said(*ids("the cat!"), prompt=prompt), said(*tokens, prompt=prompt)
    result = judged(right, wrong, engine=engine)
    assert Kind.GRAMMAR_VIOLATION not in {one.kind for one in result.corrupt}
    assert result.verdict is not Verdict.PASS


def test_a_grammar_that_holds_in_the_reasoning_too_holds_at_once() -> None:
    engine = {"structured_outputs_config": {"reasoning_parser": "qwen3", "enable_in_reasoning": True}}
    right, wrong = said(*ids("the cat!")), said(*ids("hm. 7?"), THOUGHT, *ids("the cat!"))
    (found,) = judged(right, wrong, engine=engine).corrupt
    assert (found.kind, found.position) == (Kind.GRAMMAR_VIOLATION, 2)


def scored(left: str, right: str, there: list[list[float]], *, begin: str, prompt: Sequence[int]) -> Comparison:
    """The candidate parts where the score lists `there`, after `begin` and the end of the reasoning, if it has one."""
    start = [*ids(begin), THOUGHT] if begin else []
    one, other = [*start, *ids(left)], [*start, *ids(right)]
    at = next(place for place, both in enumerate(zip(one, other, strict=True)) if both[0] != both[1])
    lists: list[list[list[float]]] = [[[token, -0.1], [998, -4.0]] for token in [*other, EOS]]
    lists[at] = there
    return judged(said(*one, prompt=prompt), said(*other, prompt=prompt), lists)


@pytest.mark.parametrize(("begin", "prompt"), [("hm. 7?", (1, 2, 3)), ("", (1, THINK, THOUGHT))])
def test_scores_are_masked_after_the_reasoning(begin: str, prompt: Sequence[int]) -> None:
    near = [[ids("7")[0], -0.1], [ids("r")[0], -3.0], [ids("c")[0], -3.1]]
    result = scored("the cat!", "the rat!", near, begin=begin, prompt=prompt)
    assert (result.verdict, result.stats.near_tie) == (Verdict.PASS, 1)
    far = [[ids("7")[0], -0.1], [ids("c")[0], -0.5], [ids("r")[0], -4.0]]
    result = scored("the cat!", "the rat!", far, begin=begin, prompt=prompt)
    assert [one.kind for one in result.corrupt] == [Kind.UNJUSTIFIED]


def test_in_the_reasoning_a_better_token_is_one_whatever_the_grammar_says() -> None:
    there = [[ids("7")[0], -0.1], [ids("r")[0], -3.0], [ids("c")[0], -3.1]]
    result = scored("the cat", "the rat", there, begin="", prompt=(1, 2, 3))
    assert result.stats.near_tie == 0
    assert result.verdict is not Verdict.PASS
