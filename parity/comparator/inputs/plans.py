"""Captures of two different plans: what does the difference lie in, and what was not asked of one side at all?

Captures name their plan by a digest of its requests, rounds and sampling parameters (`plan_digest`). Where one has
none, or both the same, nothing is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parity.records import Capture, Completion, Json

SHOWN = 3
"""Requests named."""


@dataclass(frozen=True, slots=True)
class Plans:
    """`alone`: requests that only one side has, by arm: with two plans they were not asked of the other, so they are
    not missing there. `reasons` keep the run from a conclusion, `notes` do not."""

    alone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def not_asked(self) -> frozenset[str]:
        """Requests that were asked of one side alone."""
        return frozenset().union(*self.alone.values())


def differences(baseline: Capture, candidate: Capture, said: Sequence[str] = ()) -> Plans:
    """In what two plans differ, as far as their captures show it; `said` are `verdict.different_questions`."""
    digests = [capture.header.extra.get("plan_digest") for capture in (baseline, candidate)]
    if not all(isinstance(digest, str) for digest in digests) or digests[0] == digests[1]:
        return Plans()
    left, right = _first_of_each(baseline), _first_of_each(candidate)
    if not left or not right:
        return Plans()  # an arm without completions: that is told by itself
    alone = {
        baseline.header.arm: frozenset(left.keys() - right.keys()),
        candidate.header.arm: frozenset(right.keys() - left.keys()),
    }
    reasons = [
        f"the captures are of different plans: requests asked of {arm} alone, not compared: "
        f"{len(requests)} ({_some(sorted(requests))})"
        for arm, requests in alone.items()
        if requests
    ]
    notes = []
    parameters = _parameters(baseline.header.sampling, candidate.header.sampling)
    silent = [
        text
        for name, text in parameters.items()
        if not any(problem.startswith(f"sampling differs: {name} is ") for problem in said)
    ]
    if silent:
        notes.append(f"the captures are of different plans: {'; '.join(silent)}")
    if not (reasons or parameters or _rounds(baseline) != _rounds(candidate) or _other_requests(left, right)):
        reasons.append(
            "the captures are of different plans (plan_digest), and nothing in them shows in what these differ: "
            "the same may not have been asked"
        )
    return Plans(alone, tuple(reasons), tuple(notes))


def _first_of_each(capture: Capture) -> dict[str, Completion]:
    found: dict[str, Completion] = {}
    for completion in capture:
        found.setdefault(completion.key.request, completion)
    return found


def _rounds(capture: Capture) -> int:
    return max(key.round for key in capture.completions)


def _other_requests(left: Mapping[str, Completion], right: Mapping[str, Completion]) -> bool:
    """Whether a request of the same name has another prompt or limit; each such pair has a finding of its own."""
    return any(
        left[name].prompt_token_ids.tolist() != right[name].prompt_token_ids.tolist()
        or left[name].max_tokens != right[name].max_tokens
        for name in left.keys() & right.keys()
    )


def _parameters(left: Mapping[str, Json], right: Mapping[str, Json]) -> dict[str, str]:
    """Sampling parameters that are not the same, each with both values."""
    return {
        name: f"{name}: {left.get(name)!r}, {right.get(name)!r}"
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    }


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
