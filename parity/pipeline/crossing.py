"""Whose are the tokens that a completion's own prompt does not explain? The baseline's engine, while it is up, scores
them after the text of other requests.

What is asked is written down before (`crossings.json`), so that a resumed run asks the same, and each answer is a score
under the number of its question (`crossings.jsonl`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec
import orjson

from parity.capture import ScoreFile
from parity.comparator import compare
from parity.comparator.detect.crossings import crossings, sequence
from parity.errors import ParityError
from parity.messages import message
from parity.pipeline.directory import RunDirectory, write_json
from parity.plan import Plan
from parity.records import Capture, ScoreKey
from parity.records.crossings import Crossed, Crossing
from parity.run import ScoreItem


class _Asked(msgspec.Struct, frozen=True):
    """What was asked; the number of a question is its place."""

    arms: tuple[str, ...] = ()
    """Arms whose completions were looked at."""
    crossings: tuple[Crossing, ...] = ()


def crossing_items(plan: Plan, directory: RunDirectory, captures: Mapping[str, Capture]) -> list[ScoreItem]:
    """What the baseline is to be asked, once its scores are there; nothing where all is decoded greedily."""
    if plan.score.mode == "none" or not _draws(plan) or not directory.scores.exists():
        return []
    asked = _read(directory)
    every = (plan.baseline, *(arm.name for arm in plan.candidates))
    others = [name for name in every if name in captures and name not in asked.arms]
    if others:
        asked = _Asked((*asked.arms, *others), (*asked.crossings, *_chosen(plan, directory, captures, others)))
        _write(directory, asked)
    return [
        ScoreItem(*_key(number, one), *sequence(one, captures[one.arm]))
        for number, one in enumerate(asked.crossings)
        if one.arm in captures
    ]


def crossed(directory: RunDirectory, arms: Set[str]) -> Crossed:
    """The answers about the completions of these arms; none where nothing was asked."""
    asked = _read(directory)
    if not asked.crossings or not directory.crossings.exists():
        return {}
    answers = ScoreFile(directory.crossings).of(arms)
    return {one: answers[key] for number, one in enumerate(asked.crossings) if (key := _key(number, one)) in answers}


def _key(number: int, crossing: Crossing) -> ScoreKey:
    return ScoreKey(crossing.arm, str(number), 0, 0)


def _draws(plan: Plan) -> bool:
    return any(plan.sampling_of(request).temperature > 0 for request in plan.requests)


def _chosen(
    plan: Plan, directory: RunDirectory, captures: Mapping[str, Capture], arms: Sequence[str]
) -> list[Crossing]:
    scores, found = ScoreFile(directory.scores), list[Crossing]()
    baseline = captures[plan.baseline]
    order = [request.id for request in plan.requests]
    for name in arms:
        arm, known = captures[name], scores.of({name, plan.baseline})
        # Of the baseline nothing is found by itself: its most surprising completions are asked about.
        findings = () if arm is baseline else compare(baseline, arm, known).findings
        found += crossings(arm, findings, order, known)
    seen = {request.id for request in plan.requests if request.has_images}
    return [one for one in found if not seen & {one.receiver.request, one.donor.request}]


def _write(directory: RunDirectory, asked: _Asked) -> None:
    try:
        write_json(directory.crossings_asked, msgspec.to_builtins(asked))
    except OSError as error:
        raise ParityError(
            message(
                "pipeline.cannot_write",
                "cannot write {plan_file}: {strerror}",
                plan_file=str(directory.crossings_asked),
                strerror=error.strerror,
            ),
            hint=message("pipeline.make_run_directory", "make the run directory writable"),
        ) from error


def _read(directory: RunDirectory) -> _Asked:
    """Nothing where nothing was written yet, or what is there is none of it: then it is chosen anew."""
    try:
        return msgspec.convert(orjson.loads(directory.crossings_asked.read_bytes()), _Asked)
    except (OSError, ValueError, msgspec.ValidationError):
        return _Asked()
