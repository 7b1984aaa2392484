"""What only the capture files hold: top logprobs and acceptance traces of one completion.

The files may be large, far away or gone, so this looks at one completion only and runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.capture import find_completion, find_score
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message
from parity.records import Completion, Json, Key, ScoreKey, SpecTrace, TopLogprobs
from parity.store import ArmRow, RunRow
from parity.view.timeline import Timeline, timeline_beside

T = TypeVar("T")


class Extras(Struct, frozen=True):
    """None where the files do not say. Arrays go with the tokens of the named completion."""

    reference: TopLogprobs | None = None
    """The score of each candidate token."""
    candidate: TopLogprobs | None = None
    baseline: TopLogprobs | None = None
    """The baseline's own, or else the score of its tokens."""
    spec: SpecTrace | None = None
    """Of the candidate."""
    gaps: npt.NDArray[np.float64] | None = None
    """Nats, shape (T,): of each candidate token, by the reference."""
    timeline: Timeline | None = None
    """The engine's steps around the candidate; None where they were not recorded."""
    problem: Message | None = None
    """What could not be read, where something could not."""


def load_extras(run: RunRow, baseline: ArmRow | None, candidate: ArmRow | None, key: Key) -> Extras:
    """Everything the files of a run say about one completion. Never raises for a file that is not there."""
    problems: list[Message] = []
    arms = [arm for arm in (baseline, candidate) if arm is not None]
    files = {arm.name: path for arm in arms if (path := _capture_of(run, arm)) is not None}
    scores = Path(run.directory) / "scores.jsonl" if run.directory else None
    places = [*([scores] if scores is not None and is_file(scores) else []), *files.values()]

    def own(arm: ArmRow | None) -> Completion | None:
        path = files.get(arm.name) if arm is not None else None
        return None if path is None else _asked(lambda: find_completion(path, key), problems)

    def scored(arm: ArmRow | None) -> TopLogprobs | None:
        if arm is None:
            return None
        wanted = ScoreKey(arm.name, *key)
        found = (_asked(lambda path=path: find_score(path, wanted), problems) for path in places)  # type: ignore[misc]
        return next((one for one in found if one is not None), None)

    steps = files.get(candidate.name) if candidate is not None else None
    ours, theirs, reference = own(candidate), own(baseline), scored(candidate)
    return Extras(
        reference=reference,
        candidate=ours.logprobs if ours else None,
        baseline=None if theirs is None else theirs.lists or scored(baseline) or theirs.logprobs,
        spec=ours.spec if ours else None,
        gaps=_gaps(ours, reference, run.plan.sampling.to_json()),
        timeline=None if steps is None else _asked(lambda: timeline_beside(steps, key), problems),
        problem=problems[0] if problems else None,
    )


def _gaps(
    completion: Completion | None, score: TopLogprobs | None, sampling: Mapping[str, Json]
) -> npt.NDArray[np.float64] | None:
    """As the comparison computes them. For runs that were stored before the gaps were."""
    from parity.comparator.reference.scores import gaps_of

    return None if completion is None or score is None else np.round(gaps_of(completion, score, sampling).gap, 4)


def _asked(question: Callable[[], T | None], problems: list[Message]) -> T | None:
    """The answer; what is wrong with the file goes to `problems`."""
    try:
        return question()
    except ParityError as error:
        problems.append(error.message)
        return None


def _capture_of(run: RunRow, arm: ArmRow) -> Path | None:
    """The capture of an arm: where the store says, else where a run's directory has it."""
    candidates = [Path(arm.capture)] if arm.capture else []
    if run.directory:
        candidates.append(Path(run.directory) / f"{arm.name.replace('/', '-')}.jsonl")
    return next((path for path in candidates if is_file(path)), None)
