"""Captures of two different plans: what does the difference lie in, and what was not asked of one side at all?

Captures name their plan by a digest of its requests, rounds and sampling parameters (`plan_digest`). Where one has
none, or both the same, nothing is said here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Json
from parity.records.next_steps import NextStep, Step

SHOWN = 3
"""Requests named."""


class Plans(Struct, frozen=True):
    """`alone`: requests that only one side has, by arm: with two plans they were not asked of the other, so they are
    not missing there."""

    alone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def not_asked(self) -> frozenset[str]:
        """Requests that were asked of one side alone."""
        return frozenset().union(*self.alone.values())


def differences(baseline: Capture, candidate: Capture, reported: Collection[str] = ()) -> Plans:
    """In what two plans differ, as far as their captures show it.

    `reported`: sampling parameters that are known to differ (`questions.Questions.parameters`).
    """
    digests = [capture.header.plan_digest for capture in (baseline, candidate)]
    if None in digests or digests[0] == digests[1]:
        return Plans()
    left, right = _first_of_each(baseline), _first_of_each(candidate)
    if not left or not right:
        return Plans()  # an arm without completions: that is reported by itself
    alone = {
        baseline.header.arm: frozenset(left.keys() - right.keys()),
        candidate.header.arm: frozenset(right.keys() - left.keys()),
    }
    reasons = [
        message(
            "inputs.asked_of_one",
            "the captures are of different plans: requests asked of {arm} alone, not compared: {number} ({requests})",
            arm=arm,
            number=len(requests),
            requests=_some(sorted(requests)),
        )
        for arm, requests in alone.items()
        if requests
    ]
    parameters = _parameters(baseline.header.sampling, candidate.header.sampling)
    silent = [text for name, text in parameters.items() if name not in reported]
    notes: list[Message] = []
    if silent:
        notes.append(
            message(
                "inputs.other_plan_parameters",
                "the captures are of different plans: {parameters}",
                parameters="; ".join(silent),
            )
        )
    if not (reasons or parameters or max(rounds(baseline)) != max(rounds(candidate)) or _other_requests(left, right)):
        reasons.append(
            message(
                "inputs.other_plan",
                "the captures are of different plans (plan_digest), and nothing in them shows in what these differ: "
                "the same may not have been asked",
            )
        )
    return Plans(alone, as_remarks(reasons) + Remarks(notes=tuple(notes)))


def as_remarks(reasons: Sequence[Message]) -> Remarks:
    """Each of these is settled by asking both sides the same."""
    return Remarks(tuple(reasons), next_steps=tuple(NextStep(Step.SAME_QUESTIONS, one.id) for one in reasons))


def _first_of_each(capture: Capture) -> dict[str, Completion]:
    found: dict[str, Completion] = {}
    for completion in capture:
        found.setdefault(completion.key.request, completion)
    return found


def rounds(capture: Capture) -> set[int]:
    """The rounds that a capture has completions of."""
    return {key.round for key in capture.completions}


def rounds_of_one(baseline: Capture, candidate: Capture) -> tuple[Message, ...]:
    """Whole rounds, or everything, that only one side has: it was not asked of the other, so nothing is missing there.

    An arm without any completion was asked and gave none, and so was one whose header names the same plan.
    """
    if baseline.has_keys_of(candidate):
        return ()
    left, right = rounds(baseline), rounds(candidate)
    digests = [capture.header.plan_digest for capture in (baseline, candidate)]
    if not left or not right or (digests[0] is not None and digests[0] == digests[1]):
        return ()
    if not left & right or not candidate.shares_keys_with(baseline):
        return (
            message(
                "inputs.nothing_in_common",
                "the captures have no completion in common: they are of other requests or rounds",
            ),
        )
    return tuple(
        message(
            "inputs.more_rounds",
            "{arm} has {count} round that {other} has not: it was not compared",
            plural="{arm} has {count} rounds that {other} has not: those were not compared",
            arm=capture.header.arm,
            other=other.header.arm,
            count=len(more),
        )
        for capture, other, more in ((baseline, candidate, left - right), (candidate, baseline, right - left))
        if more
    )


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
