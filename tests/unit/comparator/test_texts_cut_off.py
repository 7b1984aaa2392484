"""Texts of servers that a stop string cut off, or the end in the middle of a character."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from byte_tokens import Bytes
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


@pytest.mark.parametrize("swapped", [False, True])
def test_a_stop_string_left_in_all_texts_is_a_habit_in_those_that_part_as_well(swapped: bool) -> None:
    """transformers serve 5.19.0 stops at the token that completes a stop string, and leaves all of it."""
    own: dict[str, Json] = {"stop": ["th"]}
    base, other = [], []
    for number, text in enumerate((" of the", " and the", " in the", " to the", " on the", " if the")):
        one = completion(ids_of(text), f"r{number}", finish="stop", stop="th", text=text[: text.index("th")])
        base.append(replace(one, sampling=own))
        other.append(replace(base[-1], text=text, stop_reason=None))
    parted = " or and the"
    other[0] = replace(other[0], text=parted, token_ids=np.array(ids_of(parted)))
    arms = capture("cpu/base", *base, vocab_size=None), text_alone(*other)
    result = ask(*(arms[::-1] if swapped else arms))
    assert result.corrupt == []
    assert "text.habit_stop_left" in [note.parameters["what"].id for note in result.notes if note.id == "inputs.habit"]
    some = text_alone(*other[:2], *(replace(one, text=base[n].text) for n, one in enumerate(other) if n > 1))
    if not swapped:
        assert [(one.kind, one.request) for one in ask(arms[0], some).corrupt] == [(Kind.TEXT_MISMATCH, "r0")]


@pytest.mark.parametrize(("said", "accused"), [("", []), ("e", [Kind.OVERRUN])])
def test_a_text_that_a_stop_string_ended_may_go_on_otherwise(said: str, accused: list[Kind]) -> None:
    """The baseline's next token was the stop string's; where that is in its text, going on is a fault."""
    own: dict[str, Json] = {"stop": ["e"], "include_stop_str_in_output": bool(said)}
    ended = replace(completion(ids_of(said), finish="stop", stop="e", text=said), sampling=own)
    base = text_alone(ended)
    base = replace(base, header=replace(base.header, arm="server/base"))
    longer = replace(completion(ids_of(said + " to"), text=said + " to"), sampling=own)
    assert [one.kind for one in ask(base, text_alone(longer)).corrupt] == accused


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("reason", ["stop", None])
def test_a_text_may_show_the_end_that_its_ids_leave_out(reason: str | None, *, read: bool) -> None:
    texts = [TEXTS[n] * (n + 1) for n in range(4)]
    base = [completion(ids_of(text), f"r{n}", text=text, finish="stop") for n, text in enumerate(texts)]
    other = [replace(one, text=f"{one.text}<|im_end|>", finish_reason=reason) for one in base]
    options = CompareOptions(detokenize=detokenize if read else None)
    result = compare(capture("cpu/base", *base, vocab_size=None), served(*other), None, options)
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    other[1] = replace(other[1], text=other[0].text)
    result = compare(capture("cpu/base", *base, vocab_size=None), served(*other), None, options)
    assert Kind.TEXT_MISMATCH in [one.kind for one in result.corrupt]


@pytest.mark.parametrize("reason", ["tool_calls", "function_call", "abort"])
def test_an_answer_that_calls_a_tool_did_not_just_end(reason: str) -> None:
    """What it calls with is in no text."""
    base = [completion(ids_of(text), f"r{n}", text=text) for n, text in enumerate(TEXTS)]
    called = completion([], "r2", text="", finish=reason)
    result = ask(capture("cpu/base", *base, vocab_size=None), text_alone(*base[:2], called, base[3]))
    assert [one.kind for one in result.corrupt] == ([Kind.EARLY_STOP] if reason == "abort" else [])
    assert result.verdict is (Verdict.DIVERGED if reason == "abort" else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(("text", "verdict"), [(" the\ufffd of", Verdict.INCONCLUSIVE), (" the and", Verdict.DIVERGED)])
def test_bytes_that_make_no_character_are_no_token_that_the_baseline_rejects(text: str, verdict: Verdict) -> None:
    said = ids_of(" the of")
    lists = TopLogprobs.from_json([[[token, -0.1], [token + 1, -9.0]] for token in said])
    base = capture("cpu/base", completion(said, text=" the of", logprobs=lists), vocab_size=None)
    assert ask(base, text_alone(completion(ids_of(text), text=text))).verdict is verdict


BYTES = Bytes()


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        (b"a\xffb", b"acd"),  # of the baseline one byte that makes no character
        ("aéb".encode(), "aèb".encode()),  # characters that begin with the same byte
        ("a😀b".encode(), "a😁b".encode()),
    ],
)
def test_texts_that_part_inside_a_character_part_at_one_of_its_bytes(theirs: bytes, mine: bytes) -> None:
    """Where they part the baseline's list holds both tokens for as good."""
    said, other = ([256 + byte for byte in text] for text in (theirs, mine))
    parts = next(n for n, pair in enumerate(zip(said, other, strict=False)) if pair[0] != pair[1])
    rows = [
        [[token, -0.1], [other[n] if n == parts else 7, -0.1 if n == parts else -9.0]] for n, token in enumerate(said)
    ]
    base = capture("cpu/base", completion(said, logprobs=TopLogprobs.from_json(rows)), vocab_size=None)
    base = replace(base, completions={key: replace(one, text=BYTES(said)) for key, one in base.completions.items()})
    text = completion(other, text=BYTES(other))
    result = compare(base, text_alone(text), None, CompareOptions(detokenize=BYTES))
    assert [(one.kind, one.position) for one in result.findings] == [(Kind.NEAR_TIE, parts)]


def test_a_byte_that_makes_no_character_before_texts_part_accuses_nobody() -> None:
    """Made again from the text it is three tokens. That the next one is as good as the baseline's nobody sees then."""
    byte = next(one for one in range(1, 2048) if detokenize([one]) == "\ufffd")
    first, then, otherwise = (ids_of(text)[0] for text in (" of", " the", " to"))
    rows = [[[first, -0.1], [7, -9.0]], [[byte, -0.1], [7, -9.0]], [[then, -0.7], [otherwise, -0.7]]]
    said = [first, byte, then]
    one = completion(said, logprobs=TopLogprobs.from_json(rows), text=detokenize(said))
    text = detokenize([first, byte, otherwise])
    result = ask(capture("cpu/base", one, vocab_size=None), text_alone(completion(ids_of(text), text=text)))
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_a_token_across_prompt_and_output_proves_no_text_wrong() -> None:
    """Of a server that gives the prompt as well, and text alone: " the" and "re" are one token there."""
    texts = {" of the": "re is", " in the": " end", " to the": " end", " and the": " end"}

    def arm(name: str, *, echoes: bool) -> Capture:
        made = text_alone(
            *(
                completion(ids_of(said), f"r{n}", prompt=ids_of(prompt), text=said)
                for n, (prompt, text) in enumerate(texts.items())
                for said in [prompt * echoes + text]
            )
        )
        drawn = {**made.header.sampling, "temperature": 1.0}
        return replace(made, header=replace(made.header, arm=name, sampling=drawn))

    result = ask(arm("server/base", echoes=True), arm("server/one", echoes=False))
    assert "inputs.echo" in [note.id for note in result.notes]
    assert not result.corrupt
