"""Text alone, answers that contradict themselves, and what could not be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from captures import capture, completion

from parity.comparator import compare
from parity.records import Capture, Key, Kind, Verdict

KEY = Key("p0", 0, 0)


def answered(
    arm: str, tokens: Sequence[int], text: str | None, *, finish: str = "length", served: Any = None, **server: Any
) -> Capture:
    one = completion(tokens, text=text, finish=finish, server=server or None)
    return capture(arm, one, max_tokens=3, extra={} if served is None else {"served": served})


TEXT = {"token_source": "retokenised", "unchecked": ["token ids: none were given"]}


def test_equal_texts_are_equal_however_they_are_cut_into_tokens() -> None:
    ids = answered("one", [5, 6, 7], "abc")
    text = answered("two", [8, 9], "abc", served=TEXT)
    for baseline, candidate in ((ids, text), (text, ids)):
        result = compare(baseline, candidate)
        assert result.verdict is Verdict.PASS
        assert result.classes[KEY] == "identical"
        assert "two: text alone was compared, not token ids" in [str(one) for one in result.reasons]
        assert "not checked in two: token ids: none were given" in [str(one) for one in result.notes]


def test_texts_that_end_otherwise_are_not_equal() -> None:
    result = compare(answered("one", [5, 6, 7], "abc"), answered("two", [8, 9], "abc", served=TEXT, finish="stop"))
    assert result.classes[KEY] != "identical"


def test_without_text_alone_nothing_is_normalised() -> None:
    result = compare(answered("one", [5, 6, 7], "abc"), answered("two", [5, 8, 7], "abc"))
    assert result.classes[KEY] != "identical"


def test_an_answer_that_contradicts_itself_is_a_text_mismatch() -> None:
    told = "the chunks have 12 tokens, the server's usage says 16"
    result = compare(answered("one", [5, 6, 7], "abc"), answered("two", [5, 6, 7], "abc", problems=[told]))
    assert result.verdict is Verdict.DIVERGED
    (finding,) = result.findings
    assert finding.kind is Kind.TEXT_MISMATCH
    assert finding.evidence.to_json()["problems"] == [told]
    assert result.classes[KEY] == "corrupt"


def test_nonsense_from_a_far_host_does_not_crash_it() -> None:
    odd = {"unchecked": {"a": 1}, "token_source": 7}
    for problems in ("text", [], [1, None], {"x": 1}):
        one = answered("one", [5, 6, 7], "abc", served="nonsense")
        compare(one, answered("two", [5, 6, 7], "abc", served=odd, problems=problems))
