"""What the numbers of a run as a whole say besides its findings: one function for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import structs

from parity.comparator.conclude.reasons import FLAT, MOST_LISTED
from parity.comparator.inputs.servers import by_others
from parity.comparator.inputs.settings import Differences, of_other_precision
from parity.comparator.population.noise_floor import as_note
from parity.comparator.population.numerics import DOUBT, ROUNDING, beyond_any_kernels
from parity.comparator.population.numerics_said import of_few_tokens
from parity.comparator.population.rounds import MEASURES
from parity.comparator.population.whose import FEW_LOOPS
from parity.comparator.reference.floor import Floor
from parity.comparator.stats import (
    DraftsOff,
    Drift,
    Loops,
    NoiseFloor,
    NoisyPart,
    Numerics,
    OddRows,
    OverRounds,
    SamplingStats,
)
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, message
from parity.records import DEFAULT_TOLERANCE, RUN, Finding, Header, Kind, Severity
from parity.records.next_steps import NextStep, Step


def blind(chance: float | None, completions: int) -> Remarks:
    """Distributions so flat that wrong tokens pass as well (`chance_to_pass`)."""
    if chance is None or chance <= FLAT:
        return Remarks()
    return reason(
        message(
            "conclude.blind",
            "{count} completion parts at a near-tie, and after it up to {chance:.0%} of all tokens would pass (random "
            "weights, or too wide a tolerance?): what was compared there says little",
            plural="{count} completions part at near-ties, and after these up to {chance:.0%} of all tokens would pass "
            "(random weights, or too wide a tolerance?): what was compared there says little",
            count=completions,
            chance=chance,
        ),
        Step.CALIBRATE,
    )


_BY_LIKELIHOOD = frozenset({"likelihood", "surprisal", "places", "draws"})
"""Tests that ask how likely the tokens are."""


COVERED: Final = 0.5
"""Share of the drawn completions that differ which must be scored for a PASS: text alone that is cut into other tokens
than the engine's has no scores of its own."""


def random_sampling(
    tests: SamplingStats,
    pairs: Pairs,
    baseline_scored: bool,
    headers: tuple[Header, Header],
    covered: tuple[int, int],
) -> Remarks:
    """What could not be tested where sampling is random. headers: of baseline and candidate. covered: of how many of
    the candidate's drawn completions that differ there are scores, and how many these are."""
    found = Remarks()
    equal = len(pairs.keys) and bool((pairs.identical & pairs.same_prompt).all())
    some, differing = covered
    if tests.baseline_draws_at is not None:
        return reason(
            message(
                "conclude.baseline_draws",
                "by the scores the baseline's own tokens are drawn at {times:.2f} times the temperature that was asked "
                "for: it is at fault itself, or the scores are not those of its logits (raw, before the temperature)",
                times=tests.baseline_draws_at,
            ),
            Step.SWAP,
            Step.SCORE,
            Step.REFERENCE,
        )
    if tests.baseline_drafts is not None:
        found += _baseline_drafts(tests.baseline_drafts)
    if tests.draws_of_either:
        said = message(
            "conclude.draws_of_either",
            "the arms draw otherwise, and nothing says which of them as asked: the lists are too short to show where "
            "the cut-off lies",
        )
        return reason(said, NextStep(Step.SCORE_TOP, said.id, MOST_LISTED), Step.REFERENCE)
    if tests.of_either:
        found += _of_either(tests)
    if tests.noise_shared_by:
        shared = message(
            "conclude.noise_shared",
            "the completions of {arms} draw alike at the same places, as with one seed for all requests: each was "
            "judged, but of what holds for all of them together one counts; give each request a seed of its own",
            arms=list(tests.noise_shared_by),
        )
        found += reason(shared, _apart(shared, tests.noise_shared_by, *headers))
    if not tests.scored and not equal:  # equal draws need no distribution
        found += reason(
            message(
                "conclude.random_unscored",
                "sampling is random and there are no scores: only the run's statistics could be compared",
            ),
            Step.SCORE,
            Step.REFERENCE,
        )
    elif some < COVERED * differing:
        found += reason(
            message(
                "conclude.random_few_scored",
                "of {of} completions that are drawn otherwise than the baseline's, {some} are scored: of the others "
                "only the run's statistics could be compared",
                of=differing,
                some=some,
            ),
            Step.SCORE,
            Step.REFERENCE,
        )
    elif tests.scored and not baseline_scored and not equal and not _BY_LIKELIHOOD & tests.adjusted.keys():
        found += reason(
            message(
                "conclude.random_half_scored",
                "sampling is random and nothing is known of how likely the baseline's own tokens are: whether all of "
                "the candidate's are drawn alike could not be tested",
            ),
            Step.SCORE,
            Step.REFERENCE,
        )
    elif tests.scored and "likelihood" not in tests.adjusted:
        found += note(
            message("conclude.too_few_requests", "the likelihood of the arms was not compared: it takes 8 requests")
            if baseline_scored
            else message(
                "conclude.likelihood_not_compared",
                "the likelihood of the arms was not compared: it needs scores of both, for 8 requests or more "
                "(`parity run --score all`)",
            )
        )
    return found


def _of_either(tests: SamplingStats) -> Remarks:
    names = [name.replace("_", " ") for name in tests.of_either]
    p_value = min(tests.adjusted[name] for name in tests.of_either)
    if tests.one_seed_for:
        said = message(
            "conclude.of_one_seed",
            "the samples of the arms differ as a whole ({tests}; p = {p_value:.2g}), which may be one chance that all "
            "requests share, for {arms} gave one seed to all: give each request a seed of its own",
            tests=names,
            p_value=p_value,
            arms=list(tests.one_seed_for),
        )
        return reason(said, Step.OWN_SEEDS)
    said = message(
        "conclude.of_either",
        "the samples of the arms differ as a whole ({tests}; p = {p_value:.2g}), and nothing says which of them is not "
        "as asked",
        tests=names,
        p_value=p_value,
    )
    scored = () if tests.scored else (Step.SCORE,)
    return reason(said, *scored, Step.REFERENCE, Step.SWAP)


def _baseline_drafts(off: DraftsOff) -> Remarks:
    how = (
        message(
            "conclude.baseline_rejects",
            "rejected more often than by their probability (of {drafts} it accepted {accepted}, where {worth:.0f} are "
            "due at least)",
            drafts=off.drafts,
            accepted=off.accepted,
            worth=off.worth,
        )
        if off.too_few
        else message(
            "conclude.baseline_accepts",
            "accepted more often than at their probability (it accepted {accepted} of {drafts}, as many as "
            "{worth:.0f} drafts would give)",
            accepted=off.accepted,
            drafts=off.drafts,
            worth=off.worth,
        )
    )
    said = message(
        "conclude.baseline_drafts",
        "by the scores the baseline's own drafts are {how}, p = {p_value:.2g}: it is at fault itself",
        how=how,
        p_value=off.p_value,
    )
    return reason(said, Step.SWAP, Step.REFERENCE)


def looping(found: Loops | None, findings: Sequence[Finding]) -> Remarks:
    """Greedy completions that end in loops in one arm, where nothing says whether it or the other one is off."""
    named = any(one.kind is Kind.REPETITION and one.request == RUN for one in findings)
    if found is None or named or found.p_candidate_loops_more >= FEW_LOOPS:
        return Remarks()
    said = message(
        "conclude.loops_of_either",
        "{count} completions end in a loop in the candidate only, {other} in the baseline only (p = {p_value:.2g}), "
        "and nothing says which arm is off",
        count=found.only_candidate,
        other=found.only_baseline,
        p_value=found.p_candidate_loops_more,
    )
    return reason(said, Step.SCORE, Step.ARBITER, Step.REFERENCE)


def _apart(shared: Message, arms: Collection[str], baseline: Header, candidate: Header) -> NextStep:
    """What tells one seed for all requests from an engine that draws alike: where parity gave each request its own and
    the baseline keeps to them, more tokens do (population/drawn_findings.py)."""
    if baseline.arm in arms or by_others(candidate):
        return NextStep(Step.OWN_SEEDS, shared.id)
    return NextStep(Step.LONGER, shared.id, number=4)


def flat(floor: Floor | None) -> Remarks:
    """A checkpoint whose distributions leave little power."""
    if floor is None or floor.share_flat <= FLAT:
        return Remarks()
    return note(
        message(
            "conclude.flat",
            "at {share:.0%} of positions the five best tokens lie within {tolerance} nats (random weights?): a fault "
            "that takes one of them cannot be seen there",
            share=floor.share_flat,
            tolerance=DEFAULT_TOLERANCE,
        )
    )


def drifted(drift: Drift | None, found: Numerics | None) -> Remarks:
    """A systematic difference that no single token shows, where it is no finding (`numerics`)."""
    if drift is None or not drift.drifted or (found is not None and {"gaps", "gaps_beyond"} & set(found.failed)):
        return Remarks()
    return note(
        message(
            "conclude.drifted",
            "the candidate's mean gap is {candidate:.4f} nats, the baseline's {baseline:.4f} (p = {p_value:.2g}): a "
            "small systematic difference",
            candidate=drift.candidate_mean_gap,
            baseline=drift.baseline_mean_gap,
            p_value=drift.p_value,
        )
    )


def numerics(
    found: Numerics | None, findings: Sequence[Finding], untested: Message | None, differences: Differences
) -> Remarks:
    """The arm's numerics as a whole, where they keep a run from saying PASS, or must be known beside the verdict."""
    said = next((one for one in findings if one.kind is Kind.NUMERICS), None)
    if found is not None and DOUBT in found.baseline_off:
        others = structs.replace(found, baseline_off=tuple(one for one in found.baseline_off if one != DOUBT))
        return _baseline_in_doubt(found) + numerics(others, findings, untested, differences)
    if untested is not None:
        return _differing(found, said, differences) + note(
            message(
                "conclude.numerics_untested",
                "whether the numerics of the arms differ as a whole was not tested: {why}",
                why=untested,
            )
        )
    if found is not None and found.baseline_off:
        return _baseline_off(found)
    if found is not None and said is None and found.odd_rows is not None:
        return _odd_rows(found.odd_rows, other_kernels=bool(found.other_kernels))
    if found is not None and said is None and found.noisy_part is not None:
        return _noisy_part(found.noisy_part, other_kernels=bool(found.other_kernels))
    return _differing(found, said, differences)


def _differing(found: Numerics | None, said: Finding | None, differences: Differences) -> Remarks:
    """`said`: that they do. Of kernels that are known to be others, rounding is reported; what is beyond it is
    left open, unless the arms are known to compute in other precision."""
    if found is None or said is None:
        return Remarks()
    if said.severity is Severity.CORRUPT:
        return _one_engine() if found.source != "own" else _neither_scored()
    if found.unknown_kernels:
        differs = _differs(said)
        return reason(differs, NextStep(Step.REFERENCE, differs.id))
    if not found.other_kernels:
        differs = _differs(said)
        scored = [Step.SCORE] if of_few_tokens(found) else []
        return reason(differs, *scored, NextStep(Step.LONGER, differs.id, number=4))
    if of_other_precision(differences) or not beyond_any_kernels(found):
        return Remarks(limits=(_differs(said),))
    beyond = message(
        "conclude.numerics_beyond",
        "{differs}. Other kernels of the same precision differ by less; quantised weights and a cache of 8 bits do "
        "that, and so do wrong numbers",
        differs=_differs(said),
    )
    return reason(beyond, Step.SAME_PRECISION)


def _differs(said: Finding) -> Message:
    return message(
        "conclude.numerics",
        "the numerics of the run as a whole differ from the baseline's: {why}",
        why=said.evidence.why,
    )


def _one_engine() -> Remarks:
    """Which arm is off is known by the scores, and these by one engine."""
    limit = message(
        "conclude.numerics_one_engine",
        "that it is the candidate rests on the scores: if the baseline's own engine made them, and is wrong in prompts "
        "and decode steps alike, it may be the baseline; scores of another engine would tell",
    )
    return Remarks(limits=(limit,), next_steps=(NextStep(Step.REFERENCE, limit.id),))


def _neither_scored() -> Remarks:
    limit = message(
        "conclude.numerics_unscored",
        "nothing says which of the two arms is off: their own logprobs were compared with each other, and nothing was "
        "scored",
    )
    return Remarks(limits=(limit,), next_steps=(NextStep(Step.SCORE, limit.id),))


def _odd_rows(found: OddRows, *, other_kernels: bool) -> Remarks:
    odd = message(
        "conclude.odd_rows",
        "{count} completion ({named}) lies farther off its scores than chance explains: its logits are {times:.1f} "
        "times as noisy as usual or more (the baseline's completions that are, for their length: {own}; p = "
        "{p_value:.1g}); a fault of this row leaves that, and so does a harmless cause that met only it, such as "
        "another kernel for a small batch: more rounds say whether it comes again, and to whom",
        plural="{count} completions ({named}) lie farther off their scores than chance explains: their logits are "
        "{times:.1f} times as noisy as usual or more (the baseline's completions that are, for their length: {own}; "
        "p = {p_value:.1g}); a fault of these rows leaves that, and so does a harmless cause that met only them, such "
        "as another kernel for a small batch: more rounds say whether it comes again, and to whom",
        count=found.completions,
        named=list(found.named),
        times=found.times,
        own=found.baseline_completions,
        p_value=found.p_value,
    )
    return Remarks(limits=(odd,)) if other_kernels else reason(odd, NextStep(Step.ROUNDS, odd.id, number=4))


def _noisy_part(found: NoisyPart, *, other_kernels: bool) -> Remarks:
    noisy = message(
        "conclude.noisy_part",
        "{part} the candidate's logits are {ratio:.1f} times as noisy as the baseline's, in all the rest "
        "{elsewhere:.1f} times ({tokens} tokens of {completions} completions, p = {p_value:.1g}): numbers that "
        "are wrong there leave that, and so does another kernel that an engine takes there",
        part=_part(found),
        ratio=found.ratio,
        elsewhere=found.ratio_elsewhere,
        tokens=found.tokens,
        completions=found.completions,
        p_value=found.p_value,
    )
    return Remarks(limits=(noisy,)) if other_kernels else reason(noisy, NextStep(Step.LONGER, noisy.id, number=4))


def _part(found: NoisyPart) -> Message:
    return {
        "place": message("conclude.from_place", "after {count} output tokens", count=found.bound),
        "context": message("conclude.from_context", "after {count} tokens of prompt and output", count=found.bound),
        "prompt": message("conclude.from_prompt", "after prompts of {count} tokens and more", count=found.bound),
        "since": message("conclude.from_round", "from round {number} on", number=found.bound),
        "round": message("conclude.in_round", "in round {number}", number=found.bound),
        "sample": message("conclude.in_sample", "in sample {number}", number=found.bound),
    }[found.by]


def _baseline_in_doubt(found: Numerics) -> Remarks:
    said = message(
        "conclude.baseline_in_doubt",
        "in {count} completions of the baseline a token lies a little beyond the tolerance when scored, where none of "
        "the candidate's does, and in {other} it is the other way round: the baseline is at fault, or the scores are "
        "not those of its numerics",
        count=found.farther_in_baseline,
        other=found.farther_in_candidate,
    )
    return reason(said, Step.SWAP, Step.REFERENCE)


def _baseline_off(found: Numerics) -> Remarks:
    if found.other_kernels and set(found.baseline_off) <= set(ROUNDING):
        noisier = message(
            "conclude.baseline_noisier",
            "the baseline's logprobs lie further from their scores than the candidate's; the arms differ in "
            "{settings}, and so in their kernels, which may be all there is to it",
            settings=list(found.other_kernels),
        )
        return Remarks(limits=(noisier,))
    off = message(
        "conclude.baseline_off",
        "the baseline's own logprobs lie off their scores everywhere, the candidate's do not: the baseline is at "
        "fault, or the scores are not those of its numerics",
    )
    return reason(off, NextStep(Step.SWAP, off.id), NextStep(Step.REFERENCE, off.id))


def changed(found: Mapping[str, OverRounds]) -> Remarks:
    """Numbers of the candidate that changed in the middle of the run, which no single round shows."""
    remarks = Remarks()
    for name, one in found.items():
        if one.changed:
            said = message(
                "conclude.changed",
                "{measure} changed in the middle of the run, since about round {since}, from {before:.4g} to "
                "{after:.4g} (evidence {e_value:.2g} over {rounds} rounds)",
                measure=MEASURES[name],
                since=one.since,
                before=one.before,
                after=one.after,
                e_value=10 ** min(one.log10_e, 300.0),
                rounds=one.rounds,
            )
            remarks += reason(said, NextStep(Step.ROUNDS, said.id, number=2))
    return remarks


def noise(floor: NoiseFloor | None) -> Remarks:
    """How often the arms differ from the baseline's first round."""
    return Remarks() if floor is None else note(as_note(floor))
