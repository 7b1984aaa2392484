"""Does a completion follow the grammar that its request asked for? Recomputed from the text of its tokens."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_fields
from typing import NamedTuple

from msgspec.structs import replace

from parity.comparator import grammar
from parity.comparator.detect import forbidden
from parity.comparator.detect.events import Event
from parity.comparator.grammar import Spec, judge
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.bad_words import Word
from parity.comparator.inputs.pieces import UNREADABLE
from parity.comparator.inputs.said import Writer
from parity.comparator.inputs.thinking import after_thinking
from parity.comparator.types import Tokenizer
from parity.messages import message
from parity.records import Completion, Kind
from parity.records.evidence import RuleEvidence


class Look(NamedTuple):
    event: Event | None
    is_open: bool
    """Not all of it could be checked."""


FOLLOWS, OPEN = Look(None, False), Look(None, True)

MOST_TRIED = 1_000
"""Allowed tokens of which one is looked for that a grammar takes."""


class _Part(NamedTuple):
    """What the grammar is asked about."""

    text: str
    is_whole: bool
    tokens: list[int] | None
    """Those that the text is of, where a tokenizer can say so."""


def look(completion: Completion, asked: Asked, writer: Writer, words: Sequence[Word] = ()) -> Look:
    """A violation, if there is one. `words`: the tokens of its bad words."""
    spec = asked.grammar
    if spec is None:
        return FOLLOWS
    part = after_thinking(completion, asked, writer)
    if part is None or completion.finish_reason in ("tool_calls", "function_call"):
        return OPEN  # the grammar begins somewhere inside
    found = FOLLOWS
    for way in writer.ways(part.rest, _PLAIN) if _has_tokens(writer) else (writer,):
        found = _look(spec, part.rest, part.asked, way, words)
        if found.event is None:
            return found
    after = None if _has_tokens(writer) else _after_half_a_character(part.rest)
    if after is not None and _look(spec, after, part.asked, writer, words).event is None:
        return OPEN
    event = found.event
    return Look(replace(event, position=event.position + part.begin) if event is not None else None, found.is_open)


def _after_half_a_character(completion: Completion) -> Completion | None:
    """The completion without what of its text may be its prompt's: vLLM says with an output what it held back of a
    prompt that ends inside a character, which may be all of the prompt (`Writer.ways`). None where it has none."""
    text = completion.text or ""
    begin = text.rfind(UNREADABLE) + 1
    return replace_fields(completion, text=text[begin:]) if begin else None


def _look(spec: Spec, completion: Completion, asked: Asked, writer: Writer, words: Sequence[Word]) -> Look:
    """The same, of its text in one of the ways to write it."""
    part = _part(completion, asked, writer)
    if part is None:
        return OPEN
    special = _special(part, writer)
    text = part.text if special is None else writer.text(part.tokens[:special] if part.tokens else [], asked)
    answer = judge(spec, text, whole=part.is_whole and special is None)
    if answer.at is None and special is None:
        return OPEN if answer.is_open else FOLLOWS
    at = len(text) if answer.at is None else answer.at
    place = special if answer.at is None or part.tokens is None else _token_at(at, part, asked, writer)
    position = 0 if place is None else place
    is_alone = asked.allowed is None and not asked.bad_words and position >= asked.min_tokens
    if not is_alone and not _is_any_left(spec, completion, asked, writer, words, position):
        return OPEN  # the rules together may have left nothing to choose
    length = len(completion.token_ids) - position
    return Look(Event(Kind.GRAMMAR_VIOLATION, position, max(1, length), _evidence(spec, text, at, special)), False)


def _is_any_left(
    spec: Spec, completion: Completion, asked: Asked, writer: Writer, words: Sequence[Word], place: int
) -> bool:
    """Do the request's other rules leave a token that its grammar takes at this position? Of those allowed one is
    looked for, else of the tokens of single characters."""
    if asked.allowed is None and not asked.bad_words:
        return goes_on(completion, asked, writer, place)
    render = writer.render
    if not _has_tokens(writer) or not isinstance(render, Tokenizer) or (asked.bad_words and not words):
        return False
    before = completion.token_ids[:place].tolist()
    text = _render(before, writer)
    barred = forbidden.barred(completion.token_ids, place, asked, words) | asked.enders
    each = sorted(asked.allowed)[:MOST_TRIED] if asked.allowed is not None else _of_characters(render)
    for token in each:
        now = _render([*before, token], writer)
        if token in barred:
            continue
        if grammar.fate(spec, text, now) is grammar.Fate.TAKEN:
            return True
    return False


def _of_characters(render: Tokenizer) -> Iterator[int]:
    """Whitespace is no choice: some engines allow none."""
    each = map(render.encode, string.digits + string.ascii_letters + string.punctuation)
    return (int(tokens[-1]) for tokens in each if len(tokens))


def goes_on(completion: Completion, asked: Asked, writer: Writer, place: int) -> bool:
    """May tokens other than an end have followed the first `place` of a completion, as far as its grammar goes? Also
    where nothing is known of it: no."""
    spec = asked.grammar
    if spec is None:
        return True
    part = after_thinking(completion, asked, writer)
    if part is None:
        return False
    if place < part.begin:
        return True
    if _has_tokens(writer):
        tokens = part.rest.token_ids[: place - part.begin].tolist()
        return all(grammar.goes_on(spec, _render(tokens, way)) for way in writer.ways(part.rest, _PLAIN))
    if place < len(completion.token_ids) - 1 or completion.text is None:
        return False
    after = _after_half_a_character(completion)
    readings = [completion.text] if after is None else [completion.text, after.text or ""]
    return all(grammar.goes_on(spec, text) for text in readings)


def _evidence(spec: Spec, text: str, at: int, special: int | None) -> RuleEvidence:
    if at < len(text):
        why = message(
            "grammar.refused",
            "its {form} refuses the output from character {character} on",
            form=spec.form,
            character=at,
        )
    elif special is not None:
        why = message(
            "grammar.special", "a special token stands in the output, where its {form} has none", form=spec.form
        )
    else:
        why = message("grammar.unfinished", "the output ends where its {form} is not complete", form=spec.form)
    return RuleEvidence(why=why, rule="structured_outputs", character=at, text=text[max(0, at - 20) : at + 40])


def _part(completion: Completion, asked: Asked, writer: Writer) -> _Part | None:
    """None where nothing says what the text is."""
    last = asked.ends_with(completion)
    if _has_tokens(writer):
        tokens = completion.token_ids.tolist()
        ended = [place for place, token in enumerate(tokens) if token in asked.eos]
        if ended:  # what comes after it, where it is ignored, follows nothing
            tokens = tokens[: ended[0]]
            return _Part(_render(tokens, writer), True, tokens)
        if last is not None:
            tokens = tokens[:-1]
        return _Part(_render(tokens, writer), False, tokens)
    if completion.text is None or asked.ignores_eos or not asked.skips_special:
        return None
    stopped = completion.finish_reason == "stop" and not isinstance(completion.stop_reason, str | int)
    whole = stopped and not asked.stops and not asked.stop_ids and not completion.aborted
    return _Part(completion.text.rstrip("\ufffd"), whole, None)


def _has_tokens(writer: Writer) -> bool:
    """Do the tokens say what the text is?"""
    return writer.render is not None and writer.has_ids and not writer.is_server


def _render(tokens: list[int], writer: Writer) -> str:
    return writer.text(tokens, _PLAIN).rstrip("\ufffd")


_PLAIN = Asked()


def _special(part: _Part, writer: Writer) -> int | None:
    """The first special token inside."""
    if part.tokens is None or not isinstance(writer.render, Tokenizer):
        return None
    if writer.render.with_special(part.tokens).rstrip("\ufffd") == part.text:
        return None
    render = writer.render
    each = enumerate(part.tokens)
    return next((place for place, token in each if render.with_special([token]) and not render([token])), None)


def _token_at(character: int, part: _Part, asked: Asked, writer: Writer) -> int:
    """The token that a character belongs to; the one after the last where the text ends before it."""
    assert part.tokens is not None
    if character >= len(part.text):
        return len(part.tokens)
    return max(0, writer.tokens_for(character + 1, part.tokens, _PLAIN) - 1)
