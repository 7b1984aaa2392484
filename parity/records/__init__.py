"""The words of the project as frozen types: what crosses a stage or a process.

Nothing here reads a file or starts a process. Token ids are int64 arrays of shape (T,), logprobs are
natural logarithms (nats), positions count output tokens from 0 (the prompt is not counted).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.records import kind_rows as kind_rows
from parity.records.evidence import Evidence as Evidence
from parity.records.evidence import RunEvidence
from parity.records.kinds import Kind as Kind
from parity.records.kinds import Severity as Severity
from parity.records.lazy import Index as Index
from parity.records.lazy import Lazy as Lazy
from parity.records.logprobs import TopLogprobs as TopLogprobs
from parity.records.logprobs import check_shape as check_shape
from parity.records.objects import texts_of
from parity.records.ragged import RaggedTokens as RaggedTokens
from parity.records.ragged import TokenIds as TokenIds
from parity.records.weight import weight_of
from parity.text import visible

Json = Any  # what json.loads gives

DEFAULT_TOLERANCE = 0.25
"""Nats by which a chosen token may lie below the best one and still count as justified.

vLLM's own end-to-end tests use 0.25 (`greedy_atol`, tests/v1/e2e/general/async_scheduling_utils.py). It is
two steps of a bf16 logit of magnitude 16 to 32 (2^-8 of the magnitude, 0.125 nats), the size of difference
that a change of kernel or batch shape makes. Clean runs of the embedded checkpoint stay below it in all but one of
10,000 tokens (largest gap seen: 0.44), which is why a lone token little beyond it proves nothing
(`parity.comparator.reference.tolerance.DOUBT`).
"""


RUN = "*"
"""Request of a finding about the run as a whole."""


class Key(NamedTuple):
    """Names one completion inside an arm: which request, which repetition, which of the n samples."""

    request: str
    round: int
    sample: int

    def __str__(self) -> str:
        return f"{self.request} round {self.round} sample {self.sample}"


class Verdict(StrEnum):
    PASS = "PASS"
    DIVERGED = "DIVERGED"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong (or benign) at one place of one completion of the candidate arm.

    `position` is the index of the first output token concerned (None: the completion as a whole), `length` the number
    of tokens concerned.
    """

    arm: str
    baseline: str
    request: str
    round: int
    sample: int
    kind: Kind
    severity: Severity
    position: int | None
    length: int | None
    evidence: Evidence

    @property
    def key(self) -> Key:
        return Key(self.request, self.round, self.sample)

    @property
    def weight(self) -> float:
        """How heavy its evidence is (`parity.records.weight`): the heaviest come first wherever findings are listed."""
        return weight_of(self.kind, self.severity, self.length, self.evidence)

    def to_json(self) -> dict[str, Json]:
        return {
            "arm": self.arm,
            "baseline": self.baseline,
            "request": self.request,
            "round": self.round,
            "sample": self.sample,
            "kind": str(self.kind),
            "severity": str(self.severity),
            "position": self.position,
            "length": self.length,
            "evidence": self.evidence.to_json(),
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Finding:
        """From `to_json`, of any version."""
        kind = Kind(value["kind"])
        evidence = evidence_from_json(kind, value["request"], value["evidence"])
        return Finding(**{**value, "kind": kind, "severity": Severity(value["severity"]), "evidence": evidence})


def evidence_from_json(kind: str, request: str, value: Mapping[str, Json]) -> Evidence:
    """What a finding of this kind about this request is checked by, from its JSON."""
    own = Kind(kind).row.evidence
    return (RunEvidence if request == RUN and not issubclass(own, RunEvidence) else own).from_json(value)


@dataclass(frozen=True, slots=True)
class SpecTrace:
    """Per decode step of one completion: draft tokens proposed and accepted (arrays of shape (S,))."""

    accepted: npt.NDArray[np.int64]
    drafted: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64] | None = None
    """The drafts themselves, step after step, shape (sum of drafted,): where the engine's steps were recorded. No part
    of a capture."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The token stream of one (request, round, sample) in one arm, as the engine returned it."""

    key: Key
    prompt_token_ids: TokenIds
    token_ids: TokenIds
    text: str | None
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: TopLogprobs | None = None
    """The engine's own, while it decoded: the chosen tokens', and others where they were asked for (`lists`)."""
    spec: SpecTrace | None = None
    line: int = 0
    """Line of the capture file, for messages; 0 where it did not come from a file."""
    max_tokens: int | None = None
    """This request's own limit of output tokens, where it is not the one of the header's `sampling`."""
    sampling: Mapping[str, Json] = field(default_factory=dict)
    """This request's own sampling parameters, those that are not the ones of the header's `sampling`."""
    server: Mapping[str, Json] | None = None
    """What a server said with its answer: see docs/capture.md."""
    aborted: bool = False
    """The one who asked took the request back while it ran: the tokens are a beginning, where they end says
    nothing. (A `finish_reason` of "abort" alone does not say so: that may be the engine's own doing.)"""

    @property
    def lists(self) -> TopLogprobs | None:
        """`logprobs` where they list rivals of the chosen tokens, None where they are of those tokens alone."""
        return None if self.logprobs is None or self.logprobs.of_chosen_alone else self.logprobs


@dataclass(frozen=True, slots=True)
class Header:
    """First record of a capture. The mappings are as written; see docs/capture.md for their keys."""

    arm: str
    backend: str
    variant: str
    model: str
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] | None = None
    engine: Mapping[str, Json] = field(default_factory=dict)
    sampling: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, Json] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Keys this version does not know, kept so that nothing is lost."""

    @property
    def plan_digest(self) -> str | None:
        """What every arm of the plan has in common, as one number; None where the capture does not say."""
        found = self.extra.get("plan_digest")
        return None if found is None else str(found)

    @property
    def replicas(self) -> int:
        """Engines that shared the arm's requests; 0 where the capture does not say."""
        named = self.extra.get("replicas")
        return len(named) if isinstance(named, list | tuple) else 0

    @property
    def model_fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of the checkpoint's parts by their names; empty where the capture does not say."""
        return texts_of(self.extra.get("model_fingerprint"))


@dataclass(frozen=True, repr=False)
class Capture:
    """Everything one arm produced. Completions keep the order of the file."""

    header: Header
    completions: Mapping[Key, Completion]
    scores: Scores
    counters: Mapping[str, Json] | None = None
    source: str = ""

    def __repr__(self) -> str:
        return visible(
            f"<parity.Capture {self.header.arm}: {len(self.completions)} completions of {self.header.model}>"
        )

    def __iter__(self) -> Iterator[Completion]:
        return iter(self.completions.values())

    def sampling_of(self, completion: Completion) -> Mapping[str, Json]:
        """The sampling parameters of a completion: the header's, and the request's own over them."""
        if completion.max_tokens is None and not completion.sampling:
            return self.header.sampling
        limit = {} if completion.max_tokens is None else {"max_tokens": completion.max_tokens}
        return {**self.header.sampling, **completion.sampling, **limit}

    @cached_property
    def keys(self) -> Sequence[Key]:
        return self.completions.order if isinstance(self.completions, Lazy) else tuple(self.completions)

    @cached_property
    def rows(self) -> Sequence[Completion]:
        """The completions by their place."""
        return self.completions.rows if isinstance(self.completions, Lazy) else tuple(self)

    def column(self, field: str) -> Iterator[Any]:
        """One field of all completions."""
        if isinstance(self.completions, Lazy):
            return self.completions.column(field)
        return map(attrgetter(field), self)

    def but(self, changed: Mapping[Key, Completion]) -> Capture:
        """The capture with these in place of its completions of the same keys; without any itself, with its columns."""
        if not changed:
            return self
        if isinstance(self.completions, Lazy):
            return replace(self, completions=self.completions.but(changed))
        return replace(self, completions={**self.completions, **changed})

    def has_keys_of(self, other: Capture) -> bool:
        """The same completions are in both, in whatever order."""
        if self.keys == other.keys:
            return True
        return len(self.keys) == len(other.keys) and all(key in other.completions for key in self.keys)

    def in_common_with(self, other: Capture) -> int:
        """Completions that are in both."""
        return len(self.keys) if self.keys == other.keys else sum(key in other.completions for key in self.keys)

    def shares_keys_with(self, other: Capture) -> bool:
        """Some completion is in both."""
        return any(key in other.completions for key in self.keys)

    # What a check asks of every completion is looked up once for a capture: most have nothing of the kind, and checks
    # are many.

    def _with(self, field: str) -> Sequence[Completion]:
        """Completions that have something in a field."""
        if isinstance(self.completions, Lazy):
            return self.completions.some(np.flatnonzero(self.completions.has(field)))
        of = attrgetter(field)
        return [one for one in self if of(one)]

    @cached_property
    def finish_reasons(self) -> frozenset[str | None]:
        """All that there are."""
        return frozenset(self.column("finish_reason"))

    @cached_property
    def stopped(self) -> Sequence[Completion]:
        """Completions that ended with "stop"."""
        if "stop" not in self.finish_reasons:
            return ()
        if not isinstance(self.completions, Lazy):
            return tuple(one for one in self if one.finish_reason == "stop")
        rows = [row for row, reason in enumerate(self.column("finish_reason")) if reason == "stop"]
        return self.completions.some(np.array(rows, dtype=np.int64))

    @cached_property
    def has_logprobs(self) -> bool:
        """Some completion has logprobs of its own."""
        if isinstance(self.completions, Lazy):
            return bool(self.completions.has("logprobs").any())
        return any(one.logprobs is not None for one in self)

    def with_logprobs(self) -> Iterator[Completion]:
        """Completions with logprobs of their own, but for those whose logprobs are a column: of their own tokens alone,
        one for each."""
        if not isinstance(self.completions, Lazy):
            some = self if self.has_logprobs else ()
            return iter([one for one in some if one.logprobs is not None])  # a generator costs a call for each
        rows = np.flatnonzero(self.completions.has("logprobs") & ~self.completions.has_own)
        return iter(self.completions.some(rows))

    def listing(self) -> Iterator[Completion]:
        """Completions with lists of rivals of the chosen tokens."""
        return (one for one in self.with_logprobs() if one.lists is not None)

    @cached_property
    def has_texts(self) -> bool:
        """Some completion has a text."""
        if isinstance(self.completions, Lazy):
            return bool(self.completions.has("text").any())
        return list(self.column("text")).count(None) < len(self.completions)

    @cached_property
    def answers(self) -> Sequence[Completion]:
        """Completions with what a server said besides."""
        return self._with("server")

    @cached_property
    def own_sampling(self) -> frozenset[Key]:
        """Completions of requests with sampling parameters of their own, a limit of tokens included."""
        if isinstance(self.completions, Lazy):
            own = self.completions.has("sampling") | self.completions.has("max_tokens")
            return frozenset([self.keys[row] for row in np.flatnonzero(own).tolist()])
        return frozenset([one.key for one in self if one.sampling or one.max_tokens is not None])

    @cached_property
    def aborted(self) -> frozenset[Key]:
        """Completions that were aborted while they ran."""
        return frozenset([one.key for one in self._with("aborted")])

    @cached_property
    def tokens(self) -> RaggedTokens:
        """Output tokens of all completions in a row, in the capture's order."""
        return self._streams("token_ids")

    @cached_property
    def prompts(self) -> RaggedTokens:
        """Prompt tokens of all completions in a row, in the capture's order."""
        return self._streams("prompt_token_ids")

    def _streams(self, field: str) -> RaggedTokens:
        if isinstance(self.completions, Lazy):
            return self.completions.streams(field)
        return RaggedTokens.of(list(self.column(field)))

    def share_columns(self, other: Capture) -> None:
        """Keeps the other's columns instead of its own where they hold the same: what is looked for in one of them is
        found in both, and they take memory once. Nothing that can be seen changes."""
        if isinstance(self.completions, Lazy):
            return
        for name, streams in (("tokens", "token_ids"), ("prompts", "prompt_token_ids")):
            if name not in vars(self) and getattr(other, name).holds(list(self.column(streams))):
                vars(self)[name] = getattr(other, name)


def rounds_of(keys: Sequence[Key]) -> Iterable[int]:
    """The round of each."""
    return map(int, keys.rounds_and_samples[:, 0]) if isinstance(keys, Index) else (key.round for key in keys)


def rounds_and_samples(keys: Sequence[Key]) -> tuple[set[int], set[int]]:
    """All rounds, and all samples."""
    if isinstance(keys, Index):
        rounds, samples = keys.rounds_and_samples.T
        return set(np.unique(rounds).tolist()), set(np.unique(samples).tolist())
    return {key.round for key in keys}, {key.sample for key in keys}


def first_asked(captures: Iterable[Capture]) -> Iterator[tuple[str, TokenIds]]:
    """Each request once, with its prompt where it first stands, in the order of the captures."""
    indices: list[Index[Key]] = []
    named: set[str] = set()
    for capture in captures:
        keys = capture.keys
        if any(keys is one for one in indices):
            continue
        rows = map(int, keys.firsts) if isinstance(keys, Index) else range(len(keys))
        for row in rows:
            name = keys[row].request
            if name in named or any(one.number(name) is not None for one in indices):
                continue
            if not isinstance(keys, Index):
                named.add(name)
            yield name, capture.prompts.row(row)
        if isinstance(keys, Index):
            indices.append(keys)


class ScoreKey(NamedTuple):
    """A score names the arm whose completion was teacher-forced, and the completion."""

    arm: str
    request: str
    round: int
    sample: int


Scores = Mapping[ScoreKey, TopLogprobs]


def all_scores(sources: Iterable[Scores]) -> Scores:
    """Those of all sources; where several have one, the last one's. Nothing is copied where one alone has any."""
    some = [one for one in sources if one]
    if len(some) < 2:
        return some[0] if some else {}
    merged: dict[ScoreKey, TopLogprobs] = {}
    for one in some:
        merged.update(one)
    return merged
