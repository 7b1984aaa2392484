"""Grammar of small numbers: a template says "{count} completions are", and of one that becomes "1 completion is".

Templates name the number and the noun after it, so they can be made to agree in one place. Sentences that a number
changes further than that have a `plural` of their own (`parity.messages.message`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NOUNS: Final = {
    "answers": "answer",
    "arrivals": "arrival",
    "attempts": "attempt",
    "choices": "choice",
    "combinations": "combination",
    "packages": "package",
    "places": "place",
    "parameters": "parameter",
    "preemptions": "preemption",
    "tensors": "tensor",
    "arms": "arm",
    "blocks": "block",
    "bytes": "byte",
    "candidates": "candidate",
    "characters": "character",
    "completions": "completion",
    "conditions": "condition",
    "drafts": "draft",
    "entries": "entry",
    "events": "event",
    "faults": "fault",
    "findings": "finding",
    "groups": "group",
    "hits": "hit",
    "hours": "hour",
    "lines": "line",
    "logprobs": "logprob",
    "minutes": "minute",
    "numbers": "number",
    "nats": "nat",
    "near-ties": "near-tie",
    "ones": "one",
    "others": "other",
    "positions": "position",
    "problems": "problem",
    "probes": "probe",
    "prompts": "prompt",
    "records": "record",
    "requests": "request",
    "rounds": "round",
    "row-steps": "row-step",
    "rows": "row",
    "runs": "run",
    "samples": "sample",
    "scores": "score",
    "seconds": "second",
    "settings": "setting",
    "shards": "shard",
    "shots": "shot",
    "starts": "start",
    "steps": "step",
    "texts": "text",
    "times": "time",
    "tokens": "token",
    "values": "value",
    "versions": "version",
}
"""Plural and singular of what is counted."""

VERBS: Final = {
    "answer": "answers",
    "are": "is",
    "come": "comes",
    "count": "counts",
    "differ": "differs",
    "do": "does",
    "end": "ends",
    "exclude": "excludes",
    "follow": "follows",
    "have": "has",
    "hold": "holds",
    "lie": "lies",
    "part": "parts",
    "say": "says",
    "speak": "speaks",
    "stand": "stands",
    "tell": "tells",
    "were": "was",
}
"""Plural and singular of what they do."""

ADJECTIVES: Final = (
    "older", "more", "other", "output", "draft", "engine", "new", "clean", "corrupt", "sampled", "KV", "best",
    "prompt", "greedy", "random", "empty", "newest", "prefix", "cache",
)  # fmt: skip
"""Words that may stand between the number and the noun."""

_FIELD: Final = r"(?<!\{)\{%s(?:![rsa])?(?::[^{}]*)?\}"
_PHRASE: Final = (
    r"(?:" + _FIELD % r"(?P<part>\w+)" + r" of (?:the )?(?:same )?)?"
    + _FIELD % r"(?P<whole>\w+)"
    + rf"(?:(?: (?:{'|'.join(ADJECTIVES)}))* (?P<noun>{'|'.join(NOUNS)})\b(?!'))?"
    + rf"(?: that (?P<clause>{'|'.join(VERBS)})\b)?"
    + rf"(?:(?: of (?:\{{\w+\}}|the \w+)| \([^()]*\))? (?:could not be )?(?P<verb>{'|'.join(VERBS)})\b)?"
)  # fmt: skip
"""`re` compiles it once, when the first number is 1: not every command has one."""

REMEMBERED: Final = 1024
_AGREED: Final[dict[tuple[str, frozenset[str]], str]] = {}
"""No `lru_cache`: functions of a worker travel to the engine's ranks by value, and such a one cannot."""


def agreeing(template: str, parameters: Mapping[str, object]) -> str:
    """The template with nouns and verbs in the singular where their number is 1."""
    ones = frozenset(name for name, value in parameters.items() if _is_one(value) or _reads_one(template, name, value))
    return _agreeing(template, ones) if ones else template


def _is_one(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool) and value == 1) or value == "1"


def _reads_one(template: str, name: str, value: object) -> bool:
    """Is it a measure that is written as 1, rather than as 1.0?"""
    return isinstance(value, float) and value == 1 and re.search(rf"\{{{name}:(?:\.\d)?g\}}", template) is not None


def _agreeing(template: str, ones: frozenset[str]) -> str:
    """Remembered: a report says the same sentence of each of a thousand findings."""
    key = (template, ones)
    if key not in _AGREED:
        if len(_AGREED) >= REMEMBERED:
            _AGREED.clear()
        _AGREED[key] = _agreed(template, ones)
    return _AGREED[key]


def _agreed(template: str, ones: frozenset[str]) -> str:
    def phrase(found: re.Match[str]) -> str:
        text, begin = found.group(), found.start()
        changes: list[tuple[int, int, str]] = []
        subjects = {found["part"] or found["whole"], found["whole"]}  # none of one is no more than one
        if found["verb"] and subjects & ones:
            changes.append((*found.span("verb"), VERBS[found["verb"]]))
        if found["clause"] and found["whole"] in ones:
            changes.append((*found.span("clause"), VERBS[found["clause"]]))
        if found["noun"] and found["whole"] in ones:
            changes.append((*found.span("noun"), NOUNS[found["noun"]]))
        for first, last, word in changes:
            text = text[: first - begin] + word + text[last - begin :]
        return text

    return re.sub(_PHRASE, phrase, template)
