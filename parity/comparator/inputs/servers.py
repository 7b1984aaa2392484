"""Answers of servers: text alone where there are no token ids, and answers that contradict themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.comparator.types import Remarks
from parity.messages import Message, joined, message, words_heard
from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity
from parity.records.evidence import TextEvidence
from parity.records.objects import object_of

RETOKENISED = "retokenised"
"""`token_source` in a header's `served`: the ids were made from the text, by parity."""

MOST_SHOWN = 8
"""Sentences shown of what a server's answer contradicts, and of what could not be checked."""


def _served(header: Header) -> Mapping[str, Any]:
    """What a header says of the arm's server; {} for other arms."""
    return object_of(header.extra.get("served"))


def served(header: Header) -> bool:
    """Was this arm a server that somebody else runs? Captures made by hand may name the backend alone."""
    return header.backend == "server" or bool(_served(header))


def address(header: Header) -> Any:
    """The URL that an arm's server was asked at; None where none was recorded."""
    return object_of(_served(header).get("server")).get("url")


def by_others(header: Header) -> bool:
    """Was this capture written by something else than a worker of parity's on an engine: for a server, or by a script
    of its reader's? Then how it writes things down is its own. A recording that is replayed is its writer's."""
    replayed = object_of(header.extra.get("replayed"))
    return served(header) or "asked" not in header.engine or (bool(replayed) and not replayed.get("asked"))


def asks_one_seed(arm: Capture) -> bool:
    """Were all requests of a script asked with one seed? Engines may draw the same numbers for each then. parity gives
    each request its own, whatever seed the header says."""
    header = arm.header
    if served(header) or not by_others(header):
        return False
    of_run = header.sampling.get("seed")
    seeds = {arm.completions[key].sampling.get("seed", of_run) for key in arm.own_sampling}
    if len(arm.own_sampling) < len(arm.completions):
        seeds.add(of_run)
    return len(seeds) == 1 and isinstance(seeds.pop(), int)


def gives_no_scores(header: Header) -> bool:
    """Is this arm a server that says nothing of tokens it is given (`prompt_logprobs` is vLLM's)?"""
    about = _served(header)
    if not about:
        return header.backend == "server"
    dialect = object_of(about.get("server")).get("dialect")
    return dialect != "vllm" or about.get("token_source") != "server"


def text_alone(header: Header) -> bool:
    """Has this arm given text without token ids?"""
    return _served(header).get("token_source") == RETOKENISED


def is_streamed(header: Header) -> bool:
    """Has this arm given its answers in chunks?"""
    return _served(header).get("stream") is True


def contradictions(
    baseline: Capture, candidate: Capture, miscounted: Mapping[Key, Message], every: Capture
) -> list[Finding]:
    """Answers of the candidate that do not add up: a stream's chunks against each other, tokens against the usage
    (`miscounted`, see counts.py). What every answer of a server has, of `every` one that it gave, is its habit
    (`same_problems`)."""
    if not candidate.answers and not miscounted:
        return []
    found = []
    usual = _in_every_answer(every)
    for completion in candidate:
        shown = [said for words, said in _problems(completion).items() if words not in usual][:MOST_SHOWN]
        if completion.key in miscounted:
            shown.append(miscounted[completion.key])
        if not shown:
            continue
        found.append(
            Finding(
                arm=candidate.header.arm,
                baseline=baseline.header.arm,
                request=completion.key.request,
                round=completion.key.round,
                sample=completion.key.sample,
                kind=Kind.TEXT_MISMATCH,
                severity=Severity.CORRUPT,
                position=0,
                length=len(completion.token_ids),
                evidence=TextEvidence(
                    why=message(
                        "text.answer",
                        "the server's answer does not add up: {problems}",
                        problems=joined(shown, "; "),
                    ),
                    problems=tuple(map(str, shown)),
                ),
            )
        )
    return found


FEW = 4
"""Answers that it takes to call a problem a habit."""


def _problems(completion: Completion) -> dict[str, Message]:
    """What the worker found wrong with an answer, by its words."""
    if not completion.server:
        return {}
    problems = completion.server.get("problems")
    said = [words_heard(one) for one in problems] if isinstance(problems, list) else []
    return {str(one): one for one in said}


def _in_every_answer(capture: Capture) -> dict[str, Message]:
    """Problems, word for word, of all answers of an arm."""
    if len(capture.completions) < FEW:
        return {}
    usual = _problems(next(iter(capture)))
    return {words: said for words, said in usual.items() if all(words in _problems(one) for one in capture)}


def same_problems(capture: Capture) -> Remarks:
    """What is odd in every answer of an arm is said once, and keeps the run from saying PASS."""
    return Remarks(
        reasons=tuple(
            message(
                "inputs.every_answer",
                "{arm}: of every answer: {problem}. A habit of this server, or a fault that hits all: look at one by "
                "hand (`curl`)",
                arm=capture.header.arm,
                problem=problem,
            )
            for _, problem in sorted(_in_every_answer(capture).items())
        )
    )


def remarks(baseline: Capture, candidate: Capture) -> Remarks:
    """What a verdict about these two must not be read as saying, and what could not be looked at in them."""
    arms: dict[str, tuple[Message, list[str]]] = {}
    for capture in (baseline, candidate):
        unchecked: Any = _served(capture.header).get("unchecked")
        for one in unchecked[:MOST_SHOWN] if isinstance(unchecked, list) else ():
            said = words_heard(one)
            arms.setdefault(str(said), (said, []))[1].append(capture.header.arm)
    return same_problems(candidate) + Remarks(
        limits=tuple(
            message("inputs.text_alone", "{arm}: text alone was compared, not token ids", arm=capture.header.arm)
            for capture in (baseline, candidate)
            if text_alone(capture.header)
        ),
        notes=tuple(
            message("inputs.not_checked", "not checked in {arms}: {what}", arms=_and(names), what=what)
            for what, names in arms.values()
        ),
    )


def _and(names: list[str]) -> str | Message:
    return names[0] if len(names) == 1 else message("inputs.both", "{one} and {other}", one=names[0], other=names[1])
