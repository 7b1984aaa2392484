"""Reports that others have filed and that have the same signature, so that nobody files a duplicate.

`data/known_bugs.json` is a list kept by hand; each entry names its threads. A signature is what can be seen
from outside: the kind of finding and the settings of the arm. It proves nothing about the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import orjson
from msgspec import Struct


class KnownBug(Struct, frozen=True):
    """One entry: what was seen, where it is reported, and when it happens."""

    name: str
    symptom: str
    threads: tuple[str, ...]
    kinds: frozenset[str]
    rules: frozenset[str]
    """Invariants of the engine's steps that it breaks."""
    when: tuple[str, ...]
    trigger: str
    state: str


class Match(Struct, frozen=True):
    """A known bug of the same kind; the conditions that hold here, and those that nobody can tell."""

    bug: KnownBug
    holds: tuple[str, ...]
    unknown: tuple[str, ...]


def link(thread: str) -> str:
    """The address of `vllm#45100`, `vllm-ascend#4930` or `owner/name#12`."""
    name, _, number = thread.partition("#")
    repository = name if "/" in name else f"vllm-project/{name}"
    return f"https://github.com/{repository}/issues/{number}"


@cache
def known_bugs() -> tuple[KnownBug, ...]:
    data = orjson.loads(resources.files("parity.report").joinpath("data/known_bugs.json").read_bytes())
    return tuple(
        KnownBug(
            item["name"],
            item["symptom"],
            tuple(item["threads"]),
            frozenset(item["kinds"]),
            frozenset(item.get("rules", ())),
            tuple(item["when"]),
            item["trigger"],
            item["state"],
        )
        for item in data["bugs"]
    )


def matches(
    kinds: Sequence[str], holding: Mapping[str, bool | None], *, rules: Sequence[str] = (), limit: int = 6
) -> list[Match]:
    """Known bugs of one of these kinds, or that break one of these rules, the most specific first; of none is a
    condition contradicted."""
    found = []
    for bug in known_bugs():
        alike = bug.kinds & set(kinds) or bug.rules & set(rules)
        if not alike or any(holding.get(name) is False for name in bug.when):
            continue
        holds = tuple(name for name in bug.when if holding.get(name))
        found.append(Match(bug, holds, tuple(name for name in bug.when if name not in holds)))
    return sorted(found, key=lambda match: (len(match.unknown) - len(match.holds), match.bug.name))[:limit]
