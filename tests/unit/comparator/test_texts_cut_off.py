"""Texts of servers that a stop string cut off, or the end in the middle of a character."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import capture, completion
from server_habits import detokenize, tokenizer

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Json, Kind, TopLogprobs, Verdict


def ids_of(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def served(*completions: Completion, **said: Json) -> Capture:
    arm = capture("server/one", *completions, vocab_size=None)
    return replace(arm, header=replace(arm.header, backend="server", extra={"served": said}))


def ask(baseline: Capture, candidate: Capture) -> Comparison:
    return compare(baseline, candidate, None, CompareOptions(detokenize=detokenize))


TEXTS = (" of the", " and the", " in the", " to the")
STOP = {"stop": ["e"], "include_stop_str_in_output": False}


def stripped(last: str | None = None) -> tuple[Capture, Capture]:
    """A server that takes blanks off the beginning of its texts, two of which a stop string ended. last: the text of
    the last one."""
    base, other = [], []
    for number, text in enumerate(TEXTS):
        own = STOP if number > 1 else {}
        said = text[: text.index("e")] if own else text
        one = completion(ids_of(text), f"r{number}", finish="stop" if own else "length", stop="e" if own else None)
        base.append(replace(one, text=said, sampling=own))
        other.append(replace(base[-1], text=said.lstrip()))
    if last is not None:
        other[-1] = replace(other[-1], text=last)
    return capture("cpu/base", *base, vocab_size=None), served(*other)


def test_blanks_that_are_taken_off_are_off_before_a_stop_string_too() -> None:
    result = ask(*stripped())
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    assert "text.habit_left" in [note.parameters["what"].id for note in result.notes if note.id == "inputs.habit"]


@pytest.mark.parametrize("last", ["to t", "o th", "to the"])
def test_a_text_that_lacks_more_than_blanks_is_a_fault_all_the_same(last: str) -> None:
    assert [(one.kind, one.request) for one in ask(*stripped(last)).corrupt] == [(Kind.TEXT_MISMATCH, "r3")]


@pytest.mark.parametrize("kept", [False, True])
def test_one_text_without_its_blanks_shows_that_a_server_strips_them(kept: bool) -> None:
    """Unless another has kept its own."""
    texts = [" of the", "ing the", "ed in the"] + ([" and the"] if kept else [])
    base = [completion(ids_of(text), f"r{n}", text=text) for n, text in enumerate(texts)]
    candidate = served(replace(base[0], text=texts[0].strip()), *base[1:])
    found = [(one.kind, one.request) for one in ask(capture("cpu/base", *base, vocab_size=None), candidate).corrupt]
    assert found == ([(Kind.TEXT_MISMATCH, "r0")] if kept else [])


def text_alone(*completions: Completion) -> Capture:
    return served(*completions, token_source="retokenised")


@pytest.mark.parametrize(("said", "accused"), [("", []), ("e", [Kind.OVERRUN])])
def test_a_text_that_a_stop_string_ended_may_go_on_otherwise(said: str, accused: list[Kind]) -> None:
    """The baseline's next token was the stop string's; where that is in its text, going on is a fault."""
    own: dict[str, Json] = {"stop": ["e"], "include_stop_str_in_output": bool(said)}
    ended = replace(completion(ids_of(said), finish="stop", stop="e", text=said), sampling=own)
    base = text_alone(ended)
    base = replace(base, header=replace(base.header, arm="server/base"))
    longer = replace(completion(ids_of(said + " to"), text=said + " to"), sampling=own)
    assert [one.kind for one in ask(base, text_alone(longer)).corrupt] == accused


@pytest.mark.parametrize(("text", "verdict"), [(" the\ufffd of", Verdict.INCONCLUSIVE), (" the and", Verdict.DIVERGED)])
def test_bytes_that_make_no_character_are_no_token_that_the_baseline_rejects(text: str, verdict: Verdict) -> None:
    said = ids_of(" the of")
    lists = TopLogprobs.from_json([[[token, -0.1], [token + 1, -9.0]] for token in said])
    base = capture("cpu/base", completion(said, text=" the of", logprobs=lists), vocab_size=None)
    assert ask(base, text_alone(completion(ids_of(text), text=text))).verdict is verdict
