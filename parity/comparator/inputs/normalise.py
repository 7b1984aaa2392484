"""The first floor: both captures as they are compared, and whether the same was asked of both arms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from msgspec import Struct, structs

from parity.comparator.inputs import plans, resolved, servers, settings
from parity.comparator.inputs.bad_words import without_bad_words
from parity.comparator.inputs.conventions import same_habits
from parity.comparator.inputs.counts import Counts, counted
from parity.comparator.inputs.exercised import exercised
from parity.comparator.inputs.finish_reasons import as_openai, with_both_names, with_context
from parity.comparator.inputs.grammar_masks import without_refused
from parity.comparator.inputs.own_lists import as_natural_logs
from parity.comparator.inputs.padding import without_padding
from parity.comparator.inputs.prompts import as_asked
from parity.comparator.inputs.questions import (
    Questions,
    different_questions,
    highest_own_temperature,
    temperature_in,
)
from parity.comparator.inputs.retokenised import on_the_same_tokens
from parity.comparator.inputs.said import Writer, writer_of
from parity.comparator.inputs.said_again import without_prompts
from parity.comparator.inputs.score_numbers import natural_scores
from parity.comparator.inputs.text_habits import as_written
from parity.comparator.inputs.tokenizers import Tokenizers, goes_on, tokenizers_of
from parity.comparator.inputs.traces import without_prompt_steps
from parity.comparator.inputs.vocabulary import vocabulary
from parity.comparator.stats import Exercised
from parity.comparator.types import Remarks
from parity.records import Capture, Completion, Finding, Key, Scores


class Inputs(Struct, frozen=True):
    """Two captures without what is mere habit of whoever made them, and what can be said before any token is compared.

    `given` are the captures as they came, but for what a server does to prompts, texts and the names of ends; all else
    is about the normalised ones.
    """

    given: tuple[Capture, Capture]
    baseline: Capture
    candidate: Capture
    scores: Scores
    """All there are: those of the captures among them."""
    candidate_drops_eos: bool
    """The candidate leaves out the token that it stopped at, and the baseline keeps it."""
    ends_of_one_arm: frozenset[int]
    """As in `conventions.SameHabits`: what the arms say as a whole is compared without them."""
    one_seed_for: tuple[str, ...]
    """Arms of a script that gave all requests one seed: an engine may draw the same numbers for each."""
    temperature: float
    """The run's, or the highest of a request's own where the run's is 0; 0 is greedy decoding."""
    questions: Questions
    counts: Counts
    """What the candidate's usage counts."""
    vocab_size: int | None
    """Ids from here on are of no token; None where nobody says it."""
    plans: plans.Plans
    differences: settings.Differences
    """How the arms differ besides what is compared."""
    exercised: Exercised
    remarks: Remarks
    """All of these in words, but for `questions`."""
    contradictions: tuple[Finding, ...]
    """Answers of the candidate's server that do not add up."""
    tokenizers: Tokenizers
    writers: tuple[Writer, Writer]
    """How either arm makes text of tokens."""
    masked: frozenset[str] = frozenset()
    """Sampling parameters whose forbidden tokens are out of the scores and lists of greedy completions, besides those
    that always are (bans.py)."""

    @property
    def arms(self) -> tuple[str, str]:
        """Names of baseline and candidate."""
        return self.baseline.header.arm, self.candidate.header.arm

    @property
    def is_random(self) -> bool:
        """Some completions are drawn at random (`Pairs.random` says which)."""
        return self.temperature > 0

    def is_drawn(self, completion: Completion) -> bool:
        """Was a completion of either arm drawn at random?"""
        if not self.is_random:
            return False
        if "temperature" in completion.sampling:
            return temperature_in(completion.sampling) > 0
        return max(temperature_in(arm.header.sampling) for arm in (self.baseline, self.candidate)) > 0

    def temperature_of(self, completion: Completion) -> float:
        """The one that a completion of either arm was drawn at, which is no 0."""
        return temperature_in(completion.sampling) or self.temperature

    def drawn_alone(self, greedy: Collection[Key]) -> Inputs:
        """The same without greedy completions: these, which both arms have, and those that only one has."""
        return self.without([*greedy, *self._of_one_arm(drawn=False)])

    def greedy_alone(self, drawn: Collection[Key]) -> Inputs:
        """The same without drawn completions: these, which both arms have, and those that only one has."""
        return self.without([*drawn, *self._of_one_arm(drawn=True)])

    def _of_one_arm(self, *, drawn: bool) -> Iterator[Key]:
        """The drawn or the greedy ones of the completions that only one arm has, where a run has both kinds."""
        arms = self.baseline, self.candidate
        if not any(arm.own_sampling for arm in arms) or self.baseline.has_keys_of(self.candidate):
            return
        for arm, other in (arms, arms[::-1]):
            alone = (key for key in arm.completions if key not in other.completions)
            yield from (key for key in alone if self.is_drawn(arm.completions[key]) == drawn)

    def without(self, keys: Collection[Key]) -> Inputs:
        """The same without the completions of these keys."""
        if not keys:
            return self
        gone = frozenset(keys)
        sides = (
            replace(arm, completions={key: one for key, one in arm.completions.items() if key not in gone})
            for arm in (self.baseline, self.candidate)
        )
        baseline, candidate = sides
        return structs.replace(self, baseline=baseline, candidate=candidate)


def _writer(arm: Capture, other: Capture, known: Tokenizers) -> Writer:
    return writer_of(arm, other, known.render, goes_on=goes_on(known.render, arm, other))


def _without_padding(baseline: Capture, candidate: Capture) -> tuple[tuple[Capture, Remarks], tuple[Capture, Remarks]]:
    return without_padding(baseline, candidate), without_padding(candidate, baseline)


def normalise(
    baseline: Capture,
    candidate: Capture,
    scores: Scores | None,
    detokenize: Callable[[Sequence[int]], str] | None = None,
) -> Inputs:
    """Both captures ready to be compared; `scores` are added to those in the captures. `detokenize`: as in
    `CompareOptions`."""
    candidate.share_columns(baseline)
    counts = counted(candidate)
    baseline, steps_of_baseline = without_prompt_steps(baseline)
    candidate, steps_of_candidate = without_prompt_steps(candidate)
    (baseline, padding_of_baseline), (candidate, padding_of_candidate) = _without_padding(baseline, candidate)
    padding = padding_of_baseline + padding_of_candidate
    baseline, ends_of_baseline = as_openai(baseline)
    candidate, ends_of_candidate = as_openai(candidate)
    said_by_candidate = without_prompts(candidate, baseline, detokenize)
    said_by_baseline = without_prompts(baseline, said_by_candidate.arm, detokenize)
    asked = as_asked(said_by_baseline.arm, said_by_candidate.arm)
    echoed = {**said_by_baseline.echoed, **said_by_candidate.echoed, **asked.echoed}
    whole = asked.whole()
    if asked.echoed:  # what a batch is filled up with stands after the prompts as well
        (first, padding_of_first), (second, padding_of_second) = _without_padding(*whole)
        whole, padding = (first, second), padding + padding_of_first + padding_of_second
    baseline, names_of_baseline = with_both_names(whole[0])
    candidate, names_of_candidate = with_both_names(whole[1])
    baseline, candidate, texts = as_written(baseline, candidate, detokenize)
    given = asked.without(baseline), asked.without(candidate)
    known, kinds = natural_scores(*given, scores, echoed)
    baseline, candidate, lists = as_natural_logs(baseline, candidate, known)
    sides = baseline, candidate
    baseline, candidate = asked.without(baseline), asked.without(candidate)
    aligned = on_the_same_tokens(baseline, candidate, known, detokenize, sides)
    filled = with_context(aligned.candidate, aligned.baseline, aligned.scores)
    both = with_context(filled.other, filled.arm, filled.scores)
    same = same_habits(both.arm, both.other, both.scores)
    tokenizers = tokenizers_of(detokenize, same.baseline, same.candidate)
    baseline, candidate, known, masked = without_bad_words(
        same.baseline, same.candidate, same.scores, tokenizers.read_words
    )
    writers = _writer(baseline, candidate, tokenizers), _writer(candidate, baseline, tokenizers)
    known, under_grammars = without_refused(writers, known)
    habits = padding + ends_of_baseline + ends_of_candidate + asked.remarks + texts
    habits += said_by_baseline.remarks + said_by_candidate.remarks
    habits += names_of_baseline + names_of_candidate
    habits += steps_of_baseline + steps_of_candidate + lists + kinds + aligned.remarks + filled.remarks + both.remarks
    questions = different_questions(baseline, candidate)
    other_plans = plans.differences(baseline, candidate, questions.parameters)
    differences = settings.differences(baseline.header, candidate.header)
    proof, path = exercised(candidate)
    ids = vocabulary(baseline, candidate)
    return Inputs(
        given=given,
        baseline=baseline,
        candidate=candidate,
        scores=known,
        candidate_drops_eos=same.candidate_drops_eos,
        ends_of_one_arm=same.ends_of_one_arm,
        one_seed_for=tuple(arm.header.arm for arm in (baseline, candidate) if servers.asks_one_seed(arm)),
        temperature=next(
            (found for arm in (candidate, baseline) if (found := temperature_in(arm.header.sampling))),
            highest_own_temperature(baseline, candidate),
        ),
        questions=questions,
        plans=other_plans,
        differences=differences,
        exercised=proof,
        counts=counts,
        vocab_size=ids.size,
        contradictions=tuple(servers.contradictions(baseline, candidate, counts.wrong, whole[1])),
        tokenizers=tokenizers,
        writers=writers,
        masked=masked | under_grammars,
        remarks=Remarks(notes=same.notes)
        + habits
        + counts.remarks
        + ids.remarks
        + other_plans.remarks
        + path
        + resolved.remarks(baseline.header, candidate.header)
        + plans.as_remarks(plans.rounds_of_one(baseline, candidate))
        + Remarks(notes=settings.as_notes(differences))
        + servers.remarks(*whole),
    )
