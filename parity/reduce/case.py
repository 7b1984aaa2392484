"""What is being made smaller: a case, asked of a setup, and what one shot at it gave."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import orjson

from parity.plan import Arm, Request, Sampling
from parity.plan.churn import Churn
from parity.records import Json
from parity.records.engine_settings import without_speculation


@dataclass(frozen=True, slots=True)
class Case:
    """One round of a plan: requests in their order, and how they are sampled."""

    requests: tuple[Request, ...]
    sampling: Sampling
    churn: Churn = field(default_factory=Churn)
    _digest: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def limit(self, request: Request) -> int:
        """max_tokens of this request."""
        return min(request.max_tokens or self.sampling.max_tokens, self.sampling.max_tokens)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(request.prompt_token_ids) for request in self.requests)

    @property
    def tokens(self) -> int:
        """Prompt tokens and the output tokens that may come, of all requests and samples."""
        return self.prompt_tokens + sum(self.limit(request) for request in self.requests) * self.sampling.n

    def digest(self) -> str:
        """Made once: every shot is filed under it."""
        if not self._digest:
            made = _digest(
                {
                    "requests": [_asked(r, self.limit(r)) for r in self.requests],
                    "sampling": self.sampling.to_json(),
                    "churn": self.churn.to_json(),
                }
            )
            self._digest.append(made)
        return self._digest[0]

    def with_requests(self, requests: Sequence[Request]) -> Case:
        """The same with these requests; a needle that is none of them is one no longer."""
        lost = self.churn.needle not in {request.id for request in requests}
        churn = replace(self.churn, needle=None) if lost else self.churn
        return replace(self, requests=tuple(requests), churn=churn)

    def sampling_of(self, shot: int) -> Sampling:
        """Sampling parameters of this shot: the seed moves on, as between the rounds of a plan."""
        if self.sampling.temperature > 0 and self.sampling.seed is not None:
            return replace(self.sampling, seed=self.sampling.seed + shot * self.sampling.n)
        return self.sampling

    def churn_of(self, shot: int) -> Churn:
        """The churn of this shot: other random draws each time, as in the rounds of a plan."""
        return self.churn if self.churn == Churn() else replace(self.churn, seed=self.churn.seed + shot)


def _asked(request: Request, limit: int) -> list[Json]:
    return [list(request.prompt_token_ids), limit, *([request.own_json()] if request.sampling else [])]


@dataclass(frozen=True, slots=True)
class Setup:
    """The arm that fails, and the one whose engine is the reference: no speculation, so that it can score."""

    candidate: Arm
    reference: Arm

    def digest(self) -> str:
        return _digest([_arm(self.candidate), _arm(self.reference)])


@dataclass(frozen=True, slots=True)
class Shot:
    """One case run once. `streams` is a digest of all that the candidate said: equal for equal output."""

    failed: bool
    kinds: tuple[str, ...] = ()
    """Kinds of the corrupt findings, sorted, each once."""
    request: str | None = None
    position: int | None = None
    """Where the first of them is."""
    tokens: int = 0
    """Output tokens of the candidate."""
    seconds: float = 0.0
    streams: str = ""


class Unresolved(Exception):
    """This setup cannot be tried: its engine does not start. The message says why."""


class CaseUnresolved(Unresolved):
    """This case cannot be tried on this setup, whose engine starts: it ended of the case, or refused it."""


class Laboratory(Protocol):
    """Runs cases on setups. parity.reduce.engines.Engines is one; tests bring their own."""

    def shot(self, case: Case, setup: Setup, number: int) -> Shot:
        """Shot number `number` (from 0) at this case. Raises Unresolved, BackendError, Interrupted."""
        ...


def reference_of(arm: Arm) -> Arm:
    """The arm without speculation: what scores must not have it."""
    return replace(arm, engine=without_speculation(arm.engine), control=None)


def _arm(arm: Arm) -> Json:
    return [arm.backend, dict(arm.engine), dict(arm.env)]


def _digest(value: Json) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
