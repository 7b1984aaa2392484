"""Stop strings: tokens that go on after one, a text that is not cut there, an end that claims one."""

from __future__ import annotations

from collections.abc import Iterator

from parity.comparator.detect import wording
from parity.comparator.detect.events import Event
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.said import Said, Writer, first_match, said
from parity.comparator.inputs.servers import by_others
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import EndEvidence, TextEvidence

CHARACTERS = 16
"""Characters of a long token: text left by a step of several tokens, where no tokenizer says which token it is of."""


def is_unread(completion: Completion, asked: Asked, writer: Writer) -> bool:
    """Does nothing say whether it kept to its stop strings? A text without a tokenizer does not where one that comes
    before min_tokens counts for nothing."""
    if not asked.stops or completion.aborted or _has_tokens(writer):
        return False
    return completion.text is None or bool(asked.min_tokens)


def _has_tokens(writer: Writer) -> bool:
    return writer.render is not None and writer.has_ids


def broken(completion: Completion, asked: Asked, writer: Writer) -> Iterator[Event]:
    """What a completion makes wrong of the stop strings that were asked."""
    if not asked.stops or completion.aborted:
        return
    for_nothing = _ends_for_nothing(completion, asked, writer)
    if for_nothing is not None:
        yield for_nothing
    elif _has_tokens(writer):
        yield from _by_tokens(completion, asked, writer)
    else:
        yield from _by_text(completion, asked, writer)


def _by_tokens(completion: Completion, asked: Asked, writer: Writer) -> Iterator[Event]:
    ways = (said(completion, asked, way) for way in writer.ways(completion, asked))
    found = next(ways)
    gone_on = _goes_on(completion, found, writer)
    claimed = _claims(completion, asked, found, writer)
    if gone_on is not None or claimed is not None:
        others = list(ways)
        gone_on = gone_on if all(_goes_on(completion, one, writer) for one in others) else None
        claimed = claimed if all(_claims(completion, asked, one, writer) for one in others) else None
    if gone_on is not None:
        yield gone_on
    if claimed is not None:
        yield claimed
    text = wording.text_mismatch(completion, writer)
    if text is not None and gone_on is None:
        yield text


def _ends_for_nothing(completion: Completion, asked: Asked, writer: Writer) -> Event | None:
    """An end that neither its last token nor a stop string made: parity's workers name the stop string that did."""
    header, tokens = writer.requests.arm.header, completion.token_ids
    if completion.finish_reason != "stop" or completion.stop_reason is not None or by_others(header):
        return None
    if asked.grammar is not None or not asked.eos or not len(tokens) or int(tokens[-1]) in asked.eos | asked.stop_ids:
        return None
    if _has_tokens(writer) and any(said(completion, asked, way).match for way in writer.ways(completion, asked)):
        return None
    why = message("early_stop.for_nothing", "stopped at a token that ends nothing, and names no stop string")
    return Event(Kind.EARLY_STOP, len(tokens), 0, EndEvidence(why=why, finish_reason="stop"))


def _goes_on(completion: Completion, found: Said, writer: Writer) -> Event | None:
    after = len(completion.token_ids) - found.tokens
    if found.match is None or after <= writer.step:
        return None
    why = message(
        "overrun.stop_string",
        "the stop string {stop!r} is complete at token {position}; {count} tokens follow",
        stop=found.match.stop,
        position=found.tokens - 1,
        count=after,
    )
    return Event(Kind.OVERRUN, found.tokens, after, EndEvidence(why=why, finish_reason=completion.finish_reason))


def _claims(completion: Completion, asked: Asked, found: Said, writer: Writer) -> Event | None:
    """It says that a stop string ended it, and its tokens say none."""
    if found.match is not None or completion.finish_reason != "stop" or writer.is_server:
        return None
    if not isinstance(completion.stop_reason, str):
        return None
    stop = completion.stop_reason
    if asked.min_tokens and stop in found.text:
        why = message(
            "early_stop.stop_string_too_early",
            "ends at the stop string {stop!r}, which counts only after {least} tokens (min_tokens)",
            stop=stop,
            least=asked.min_tokens,
        )
    else:
        why = message(
            "early_stop.no_stop_string", "ends at the stop string {stop!r}, which its tokens do not say", stop=stop
        )
    return Event(
        Kind.EARLY_STOP, len(completion.token_ids), 0, EndEvidence(why=why, finish_reason=completion.finish_reason)
    )


def _by_text(completion: Completion, asked: Asked, writer: Writer) -> Iterator[Event]:
    """Without a tokenizer: what the text alone proves."""
    text = completion.text
    if text is None or is_unread(completion, asked, writer):
        return
    match = first_match(text, asked.stops)
    by_string = completion.finish_reason == "stop" and isinstance(completion.stop_reason, str)
    if match is None:
        if isinstance(completion.stop_reason, str) and by_string and asked.includes_stop:
            yield _text_event(completion, wording.stop_gone(completion.stop_reason), len(text))
        return
    rest = len(text) - match.end
    stopped = completion.finish_reason == "stop"
    if asked.includes_stop and stopped and rest == 0:
        return
    if by_string and match.stop != completion.stop_reason and rest <= CHARACTERS * (writer.step + 1):
        return  # several in one step, or in one token
    of_one_token = writer.is_server and rest <= CHARACTERS  # some servers stop at it, and leave its whole token
    if stopped and (rest == 0 or by_string or of_one_token):
        why = wording.after_stop(match.stop) if asked.includes_stop else wording.stop_left(match.stop)
        yield _text_event(completion, why, match.start)
        return
    why = message(
        "overrun.stop_text",
        "the stop string {stop!r} stands at character {character} of the text, and {count} characters follow",
        stop=match.stop,
        character=match.start,
        count=rest,
    )
    yield Event(
        Kind.OVERRUN, 0, len(completion.token_ids), EndEvidence(why=why, finish_reason=completion.finish_reason)
    )


def _text_event(completion: Completion, why: Message, at: int) -> Event:
    text = completion.text or ""
    evidence = TextEvidence(why=why, character=at, text=text[max(0, at - 20) : at + 40])
    return Event(Kind.TEXT_MISMATCH, 0, len(completion.token_ids), evidence)
