"""Whether one text is that of its tokens, and in which way it is not."""

from __future__ import annotations

from parity.comparator.detect.events import Event
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.said import Said, Writer, is_written, said
from parity.comparator.inputs.text import first_difference
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import TextEvidence


def text_mismatch(completion: Completion, writer: Writer) -> Event | None:
    """The text is not what the token ids say.

    Engines detokenise as tokens come: bytes that do not yet make a character are held back at the end (those of the
    prompt too), and a stop string is cut off. Both are allowed for. Raises AssertionError without a tokenizer.
    """
    if completion.text is None:
        return None
    asked = writer.requests.of(completion)
    if is_written(completion, asked, writer):
        return None
    usual = next(writer.ways(completion, asked))
    found = said(completion, asked, usual)
    if found.match is None and not writer.has_ids:
        return None  # the ids were made from texts, which may have begun with the prompt: they prove none wrong
    expected = found.right[0]
    at = first_difference(completion.text, expected)
    tokens = completion.token_ids.tolist()
    position = min(max(0, usual.tokens_for(at + 1, tokens, asked) - 1), max(0, len(tokens) - 1))
    evidence = text_evidence(_why(completion.text, found, asked), completion.text, expected, at)
    return Event(Kind.TEXT_MISMATCH, position, max(1, len(tokens) - position), evidence)


def _why(text: str, found: Said, asked: Asked) -> Message:
    expected, match = found.right[0], found.match
    if match is not None:
        if not asked.includes_stop and text.startswith(found.text[: match.end]):
            return stop_left(match.stop)
        if asked.includes_stop and text == found.text[: match.start]:
            return stop_gone(match.stop)
        if expected.startswith(text):
            return message(
                "text.missing_before_stop", "text is missing before the stop string {stop!r}", stop=match.stop
            )
        if text.startswith(expected):
            return after_stop(match.stop)
    return message("text.not_the_tokens", "the text is not what the token ids detokenise to")


def stop_left(stop: str) -> Message:
    return message("text.stop_left", "the stop string {stop!r} is left in the text", stop=stop)


def stop_gone(stop: str) -> Message:
    return message(
        "text.stop_gone",
        "the stop string {stop!r} is not in the text, though include_stop_str_in_output was asked",
        stop=stop,
    )


def after_stop(stop: str) -> Message:
    return message("text.after_stop", "the text goes on after the stop string {stop!r}", stop=stop)


def text_evidence(why: Message, text: str, expected: str, at: int) -> TextEvidence:
    around = slice(max(0, at - 20), at + 40)
    return TextEvidence(why=why, character=at, text=text[around], expected=expected[around])
