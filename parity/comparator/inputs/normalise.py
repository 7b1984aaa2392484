"""The first floor: both captures as they are compared, and whether the same was asked of both arms."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from parity.comparator.inputs import plans, resolved, servers, settings
from parity.comparator.inputs.conventions import same_habits
from parity.comparator.inputs.exercised import exercised
from parity.comparator.inputs.questions import (
    Questions,
    different_questions,
    highest_own_temperature,
    temperature,
    temperature_in,
)
from parity.comparator.stats import Exercised
from parity.comparator.types import Remarks
from parity.records import Capture, Completion, Key, Scores


@dataclass(frozen=True, slots=True)
class Inputs:
    """Two captures without what is mere habit of whoever made them, and what can be said before any token is compared.

    `given` are the captures as they came; all else is about the normalised ones.
    """

    given: tuple[Capture, Capture]
    baseline: Capture
    candidate: Capture
    scores: Scores
    """All there are: those of the captures among them."""
    candidate_drops_eos: bool
    """The candidate leaves out the token that it stopped at, and the baseline keeps it."""
    temperature: float
    """The run's, or the highest of a request's own where the run's is 0; 0 is greedy decoding."""
    questions: Questions
    plans: plans.Plans
    differences: settings.Differences
    """How the arms differ besides what is compared."""
    exercised: Exercised
    remarks: Remarks
    """All of these in words, but for `questions`."""

    @property
    def is_random(self) -> bool:
        """Some completions are drawn at random (`Pairs.random` says which)."""
        return self.temperature > 0

    def is_drawn(self, completion: Completion) -> bool:
        """Was a completion of either arm drawn at random?"""
        if "temperature" in completion.sampling:
            return temperature_in(completion.sampling) > 0
        return max(temperature(self.baseline), temperature(self.candidate)) > 0

    def temperature_of(self, completion: Completion) -> float:
        """The one that a completion of either arm was drawn at, which is no 0."""
        return temperature_in(completion.sampling) or self.temperature

    def without(self, keys: Collection[Key]) -> Inputs:
        """The same without the completions of these keys."""
        if not keys:
            return self
        sides = (
            replace(arm, completions={key: one for key, one in arm.completions.items() if key not in keys})
            for arm in (self.baseline, self.candidate)
        )
        baseline, candidate = sides
        return replace(self, baseline=baseline, candidate=candidate)


def normalise(baseline: Capture, candidate: Capture, scores: Scores | None) -> Inputs:
    """Both captures ready to be compared; `scores` are added to those in the captures."""
    given = baseline, candidate
    same = same_habits(*servers.same_ids_for_same_text(baseline, candidate), scores)
    baseline, candidate = same.baseline, same.candidate
    questions = different_questions(baseline, candidate)
    other_plans = plans.differences(baseline, candidate, questions.parameters)
    differences = settings.differences(baseline.header, candidate.header)
    proof, path = exercised(candidate)
    return Inputs(
        given=given,
        baseline=baseline,
        candidate=candidate,
        scores=same.scores,
        candidate_drops_eos=same.candidate_drops_eos,
        temperature=temperature(candidate) or temperature(baseline) or highest_own_temperature(baseline, candidate),
        questions=questions,
        plans=other_plans,
        differences=differences,
        exercised=proof,
        remarks=Remarks(notes=same.notes)
        + other_plans.remarks
        + path
        + resolved.remarks(baseline.header, candidate.header)
        + Remarks(plans.rounds_of_one(baseline, candidate))
        + Remarks(notes=settings.as_notes(differences))
        + servers.remarks(baseline, candidate),
    )
