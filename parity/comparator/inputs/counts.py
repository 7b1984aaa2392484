"""What a server's usage counts, against the tokens that it gave.

Not all count alike: the EOS that is left out of the answer, one sample of several. What an arm does throughout is taken
as its way of counting; an answer that does not follow it has lost or gained tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.finish_reasons import as_openai, limit_of, with_both_names
from parity.comparator.inputs.servers import is_streamed, text_alone
from parity.comparator.types import Remarks, note
from parity.messages import Message, joined, message
from parity.records import Capture, Completion, Key
from parity.records.objects import object_of

FEW = 4
"""Answers that it takes to learn a way of counting."""

Answer = Sequence[Completion]
"""The samples of one request and round."""

Counted: TypeAlias = tuple[str, ...]
"""What sets a way of counting apart: names in `WHAT`, none where all tokens are counted."""


def _all(answer: Answer) -> int:
    return sum(len(one.token_ids) for one in answer)


Way: TypeAlias = Callable[[Answer], int]


def ways(arm: Capture) -> Mapping[Counted, Way]:
    """How tokens may be counted. Where several count an answer alike, the first is taken."""
    stops = terminators(arm.header)

    def ended(one: Completion) -> bool:
        """Has it stopped, as far as its reason says that? Some give one for every end, or none."""
        limit = limit_of(arm, one)
        return one.finish_reason in ("stop", None) and (limit is None or len(one.token_ids) < limit)

    def kept(one: Completion) -> bool:
        """Does it give the token at which it stops?"""
        return bool(len(one.token_ids)) and int(one.token_ids[-1]) in stops

    ends: Mapping[Counted, Callable[[Completion], int]] = {
        (): lambda _: 0,
        ("ends",): ended,
        ("kept",): lambda one: -kept(one),
    }
    samples: Mapping[Counted, Callable[[Answer], Answer]] = {(): lambda answer: answer, ("first",): lambda a: a[:1]}

    def way(of: Callable[[Answer], Answer], end: Callable[[Completion], int]) -> Way:
        return lambda answer: sum(len(one.token_ids) + end(one) for one in of(answer))

    return {(*first, *some): way(of, end) for first, of in samples.items() for some, end in ends.items()}


WHAT: Mapping[str, Message] = {
    "ends": message("counts.ends", "the tokens at which it stops as well, which it leaves out of the answers"),
    "kept": message("counts.kept", "all but the tokens at which it stops, which it gives in the answers"),
    "first": message("counts.first", "the first sample of a request alone"),
}


class Counts(Struct, frozen=True):
    """`wrong`: completions whose answer does not follow the arm's way of counting, each with what is said of it."""

    wrong: Mapping[Key, Message] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)


def counted(capture: Capture) -> Counts:
    """The usage of all answers of an arm against their tokens; nothing where these were made from the text."""
    if text_alone(capture.header):
        return Counts()
    if all(_all(answer) == said_tokens(answer[0]) for answer in _answers(capture)):
        return Counts()
    capture, _ = with_both_names(as_openai(capture)[0])  # what stopped is to be known by one name
    every = _answers(capture)
    known = ways(capture)
    fits = {name: _fitting(way, every) for name, way in known.items()}
    # Where others do not fit, one answer alone may have a token too many.
    name = max(fits, key=lambda one: fits[one] - ("kept" in one and fits[one] < len(every)))
    fitting = fits[name]
    streamed = is_streamed(capture.header)
    offsets = {(said_tokens(answer[0]) or 0) - _all(answer) for answer in every}
    if len(every) < FEW or fitting * 2 < len(every) or (fitting < len(every) and len(offsets) == 1):
        if len(every) >= FEW and len(offsets) == 1 and not streamed:
            return Counts(remarks=Remarks(reasons=(_counts_otherwise(capture.header.arm, offsets.pop()),)))
        if len(every) >= FEW and not streamed:
            return Counts(remarks=Remarks(reasons=(_counts_unlike(capture.header.arm, every, offsets),)))
        name = ()
    wrong = _wrong(every, known[name], streamed=streamed)
    if not name:
        return Counts(wrong)
    what = joined([WHAT[one] for one in name], "; ")
    return Counts(
        wrong,
        note(message("inputs.counts", "the usage of {arm} counts {what}", arm=capture.header.arm, what=what)),
    )


def _answers(capture: Capture) -> list[list[Completion]]:
    """Those that say how many tokens they have, sample by sample."""
    answers: dict[tuple[str, int], list[Completion]] = {}
    for one in capture.answers:
        if said_tokens(one) is not None and not one.aborted:
            answers.setdefault((one.key.request, one.key.round), []).append(one)
    return list(answers.values())


def _fitting(way: Way, answers: Iterable[Answer]) -> int:
    """Answers whose usage is counted in this way."""
    return sum(way(answer) == said_tokens(answer[0]) for answer in answers)


def _wrong(answers: Iterable[Answer], way: Way, *, streamed: bool) -> dict[Key, Message]:
    return {
        one.key: _contradiction(_all(answer), said_tokens(answer[0]), streamed=streamed)
        for answer in answers
        if way(answer) != said_tokens(answer[0])
        for one in answer
    }


def _contradiction(found: int, said: int | None, *, streamed: bool) -> Message:
    if streamed:
        return message(
            "text.usage_of_chunks",
            "the chunks have {found} tokens, the server's usage says {said}",
            found=found,
            said=said,
        )
    return message(
        "text.usage", "the answer has {found} tokens, the server's usage says {said}", found=found, said=said
    )


def said_tokens(one: Completion) -> int | None:
    """What the usage of its answer says that was generated."""
    value = object_of((one.server or {}).get("usage")).get("completion_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _counts_otherwise(arm: str, offset: int) -> Message:
    return message(
        "inputs.counts_otherwise",
        "{arm}: in every answer the usage differs from the number of tokens by {offset}: the server counts otherwise, "
        "or all its answers have lost or gained tokens (ask it again with `--server-option stream=true`, and compare)",
        arm=arm,
        offset=offset,
    )


def _counts_unlike(arm: str, answers: Sequence[Answer], offsets: Collection[int]) -> Message:
    odd, of = len(answers) - _fitting(_all, answers), len(answers)
    return message(
        "inputs.counts_unlike",
        "{arm}: in {odd} of {of} answers the usage is not the number of tokens, but off by {least} to {most}: a proxy "
        "that counts with another tokenizer, or tokens that are not in the answer (reasoning, the prompt); where "
        "answers have lost tokens, this does not show it",
        arm=arm,
        odd=odd,
        of=of,
        least=f"{min(offsets):+d}",
        most=f"{max(offsets):+d}",
    )
