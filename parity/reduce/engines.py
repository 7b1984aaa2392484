"""The laboratory with real engines: the candidate's and the reference's stay up from one shot to the next.

They take turns: only one of them computes at a time. What the reference says does not depend on the rest of a batch
(up to near-ties, which its scores absorb), so its completions and scores are kept, and a shot whose output was seen
before costs the reference nothing. Engine settings need a restart: each setup that is asked about costs one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from parity.comparator import CompareOptions, compare
from parity.errors import BackendError
from parity.messages import Say, message
from parity.plan import Arm, Plan, Request, Sampling
from parity.plan.churn import Churn
from parity.records import Capture, Completion, Header, Json, Key, ScoreKey, TopLogprobs
from parity.records.objects import object_of
from parity.reduce.case import Case, CaseUnresolved, Setup, Shot, Unresolved
from parity.run import Interrupted
from parity.run.items import ScoreItem

Scored = tuple[tuple[int, ...], tuple[int, ...]]
"""Prompt and output: what a score depends on."""

RUN = "*"
"""A finding about the run as a whole; it names no completion and so shows nothing of one case."""


class Live(Protocol):
    """What this needs of an arm whose engine stays up; parity.run.live.LiveArm is one."""

    def engine(self) -> Header: ...

    def trial(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        churn: Churn = ...,
    ) -> tuple[list[Completion], Mapping[str, Json]]: ...

    def top_logprobs(self, items: Sequence[ScoreItem], *, top: int = 5) -> dict[ScoreKey, TopLogprobs]: ...


class Opener(Protocol):
    """Opens an arm of a plan whose engine stays up; parity.run.live.live_arm is one."""

    def __call__(self, plan: Plan, arm_name: str, log_path: Path, /) -> AbstractContextManager[Live]: ...


class Engines:
    """Runs shots. A context: the engines end with it.

    `plan` gives the model and what an engine must know; `tolerance` is in nats.
    """

    def __init__(
        self,
        plan: Plan,
        logs: Path,
        opener: Opener,
        *,
        tolerance: float,
        detokenize: Callable[[Sequence[int]], str] | None = None,
        say: Say = lambda line: None,
        started: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`started` hears how long each start of an engine took, in seconds."""
        self._plan, self._logs, self._opener, self._say, self._clock = plan, logs, opener, say, clock
        self._started = started
        self._options = CompareOptions(tolerance=tolerance, detokenize=detokenize)
        self._up: dict[str, tuple[str, Live, ExitStack]] = {}
        self._said: dict[tuple[str, tuple[int, ...], str], list[Completion]] = {}
        self._scores: dict[tuple[str, Scored], TopLogprobs] = {}
        self._logs_begun = 0

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the engines; the next shot starts new ones."""
        for role in list(self._up):
            self._end(role)

    # ------------------------------------------------------------------ shots

    def shot(self, case: Case, setup: Setup, number: int) -> Shot:
        """See parity.reduce.case.Laboratory. `seconds` does not count the start of engines."""
        candidate = self._engine("candidate", setup.candidate)
        reference = self._engine("reference", setup.reference)
        sampling = case.sampling_of(number)
        asked = [_request(request, case) for request in case.requests]
        began = self._clock()
        try:
            completions, counters = candidate.trial(asked, sampling, case.churn_of(number))
        except Interrupted:
            raise
        except BackendError as error:
            self._end("candidate")
            raise CaseUnresolved(str(error).splitlines()[0]) from error  # it names the arm
        expected = self._reference(reference, setup.reference, case, sampling)
        theirs = _capture(reference.engine(), expected, sampling)
        ours = _capture(candidate.engine(), completions, sampling, counters)
        scores = self._scored(reference, setup.reference, ours, theirs)
        comparison = compare(theirs, ours, scores or None, self._options)
        found = [finding for finding in comparison.corrupt if finding.request != RUN]
        found.sort(key=lambda finding: (finding.position is None, finding.position or 0))
        return Shot(
            failed=bool(found),
            kinds=tuple(sorted({str(finding.kind) for finding in found})),
            request=found[0].request if found else None,
            position=found[0].position if found else None,
            tokens=sum(len(completion.token_ids) for completion in completions),
            seconds=round(self._clock() - began, 3),
            streams=_streams(completions),
        )

    def _reference(self, engine: Live, arm: Arm, case: Case, sampling: Sampling) -> list[Completion]:
        """What the reference says to these requests, asked once for each prompt."""
        how = repr((_identity(arm), sampling))
        keys = {r.id: (how, r.prompt_token_ids, str(case.limit(r))) for r in case.requests}
        missing = {key: request for request in case.requests if (key := keys[request.id]) not in self._said}
        if missing:
            fresh, _ = engine.trial([_request(request, case) for request in missing.values()], sampling)
            by_request: dict[str, list[Completion]] = {}
            for completion in fresh:
                by_request.setdefault(completion.key.request, []).append(completion)
            for key, request in missing.items():
                self._said[key] = by_request.get(request.id, [])
        return [
            replace(completion, key=Key(request.id, 0, completion.key.sample))
            for request in case.requests
            for completion in self._said[keys[request.id]]
        ]

    def _scored(self, engine: Live, arm: Arm, ours: Capture, theirs: Capture) -> dict[ScoreKey, TopLogprobs]:
        """Scores of what differs from the reference's completions; each sequence is computed once."""
        who = _identity(arm)
        wanted: dict[ScoreKey, tuple[str, Scored]] = {}
        items: dict[tuple[str, Scored], ScoreItem] = {}
        for completion in ours:
            other = theirs.completions.get(completion.key)
            if other is not None and np.array_equal(other.token_ids, completion.token_ids):
                continue
            if not len(completion.token_ids):
                continue
            item = ScoreItem(
                ours.header.arm, *completion.key, completion.prompt_token_ids.tolist(), completion.token_ids.tolist()
            )
            place = (who, (tuple(item.prompt_token_ids), tuple(item.token_ids)))
            wanted[item.key] = place
            if place not in self._scores:
                items[place] = item
        fresh = engine.top_logprobs(list(items.values()))
        for place, item in items.items():
            if item.key in fresh:
                self._scores[place] = fresh[item.key]
        return {key: self._scores[place] for key, place in wanted.items() if place in self._scores}

    # ------------------------------------------------------------------ engines

    def _engine(self, role: str, arm: Arm) -> Live:
        """The engine of this role with this arm's settings; another one's is ended first.

        Raises Unresolved where it does not start; BackendError for a reference that every setup has.
        """
        identity = _identity(arm)
        if role in self._up:
            there, live, _ = self._up[role]
            if there == identity:
                return live
            self._end(role)
        plan = replace(self._plan, arms=(replace(arm, control=None),), baseline=arm.name, record=False, sketch="")
        self._logs_begun += 1
        log = self._logs / f"{self._logs_begun:03d}-{role}-{arm.name.replace('/', '-')}.log"
        self._say(message("reduce.starting", "starting {arm} ({role})", arm=arm.name, role=role))
        began = self._clock()
        stack = ExitStack()
        live = stack.enter_context(self._opener(plan, arm.name, log))
        try:
            header = live.engine()
        except Interrupted:
            stack.close()
            raise
        except BackendError as error:
            stack.close()
            if role == "reference" and "@" not in arm.backend:  # a version's own reference goes with the version
                raise
            said = str(error).splitlines()[0]
            raise Unresolved(
                message("reduce.does_not_start", "{arm} does not start: {said}", arm=arm.name, said=said)
            ) from error
        except BaseException:
            stack.close()
            raise
        self._started(self._clock() - began)
        dropped = object_of(header.engine.get("dropped"))
        if dropped:
            self._say(
                message(
                    "reduce.engine_no_left",
                    "{arm}: this engine has no {dropped}: left out",
                    arm=arm.name,
                    dropped=[*map(str, dropped)],
                )
            )
        self._up[role] = identity, live, stack
        return live

    def _end(self, role: str) -> None:
        _, _, stack = self._up.pop(role)
        stack.close()


def _request(request: Request, case: Case) -> Request:
    limit = case.limit(request)
    own = None if limit == case.sampling.max_tokens else limit
    return replace(request, prompt=None, messages=None, max_tokens=own)


def _capture(
    header: Header,
    completions: Sequence[Completion],
    sampling: Sampling,
    counters: Mapping[str, Json] | None = None,
) -> Capture:
    asked = replace(header, sampling=sampling.to_json())
    return Capture(asked, {completion.key: completion for completion in completions}, {}, counters)


def _streams(completions: Sequence[Completion]) -> str:
    text = repr(sorted((completion.key, completion.token_ids.tolist()) for completion in completions))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(arm: Arm) -> str:
    return repr((arm.backend, sorted(map(repr, arm.engine.items())), sorted(arm.env.items())))
