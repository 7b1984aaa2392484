"""Text alone, answers that contradict themselves, and what could not be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from captures import capture, completion
from parity_backends.worker.sentences import message as said

from parity.comparator import compare
from parity.language import render
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


def test_what_the_worker_said_by_its_id_is_in_the_readers_language() -> None:
    problem = said("server.no_finish_reason", "it has no finish_reason")
    unchecked = said("server.not_taken", "{name}={value}: the server takes no such parameter, it was not sent",
                     name="min_p", value="0.1")  # fmt: skip
    served = {"token_source": "server", "unchecked": [unchecked]}
    two = answered("two", [5, 6, 7], "abc", served=served, problems=[problem])
    result = compare(answered("one", [5, 6, 7], "abc"), two)
    (finding,) = result.findings
    assert "it has no finish_reason" in str(finding.evidence.why)
    assert "缺少 finish_reason" in render(finding.evidence.why, "zh")
    (note,) = [one for one in result.notes if "min_p" in str(one)]
    assert str(note) == "not checked in two: min_p=0.1: the server takes no such parameter, it was not sent"
    assert "服务器不接受该参数" in render(note, "zh")
