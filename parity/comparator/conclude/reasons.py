"""What keeps a run from saying PASS, and what a reader of its verdict must know: one function for each."""

from __future__ import annotations

from parity.comparator.detect import stops
from parity.comparator.detect.pairs import Judged
from parity.comparator.population.noise_floor import as_note
from parity.comparator.reference.floor import NOT_NOISE, Floor
from parity.comparator.reference.references import References
from parity.comparator.stats import Drift, NoiseFloor, SamplingStats
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import DEFAULT_TOLERANCE

FLAT = 0.2
"""Share of flat positions from which a checkpoint's distributions leave little power."""


def nothing_compared(pairs: Pairs) -> Remarks:
    """Captures without a completion, or without a token, in common."""
    if not pairs.keys:
        return _reason(
            message("conclude.no_pairs", "no completion is in both captures: nothing was compared"),
        )
    if pairs.aborted == len(pairs.keys) and not len(pairs.candidate_tokens.flat):
        return _reason(
            message("conclude.all_aborted", "every completion was aborted before its first token: nothing was compared")
        )
    if not any(len(a.token_ids) and len(b.token_ids) for a, b in zip(pairs.baseline, pairs.candidate, strict=True)):
        return _reason(
            message("conclude.no_tokens", "no completion has a token in both arms: nothing was compared"),
        )
    return Remarks()


def cut_off(pairs: Pairs) -> Remarks:
    """Completions that are a beginning only."""
    count = pairs.aborted
    notes = _note(
        message(
            "conclude.aborted",
            "{count} completion was aborted while it ran: compared as far as it goes",
            plural="{count} completions were aborted while they ran: compared as far as they go",
            count=count,
        )
    )
    broken = [
        b.key
        for a, b in zip(pairs.baseline, pairs.candidate, strict=True)
        if b.finish_reason in stops.BROKEN_OFF and a.finish_reason in stops.BROKEN_OFF and not b.aborted
    ]
    reasons = Remarks()
    if broken:
        reasons = _reason(
            message(
                "conclude.broken_off",
                "{number} completions were broken off in both arms (first: {first}): nothing says how they go on",
                number=len(broken),
                first=str(broken[0]),
            )
        )
    return reasons + notes if count else reasons


def shaped(pairs: Pairs, references: References) -> Remarks:
    """Logits changed by the request, which neither scores nor logprobs show."""
    names = references.lookup.shaped_by
    if not names or bool((pairs.identical & pairs.same_prompt).all()):
        return Remarks()
    return _reason(
        message(
            "conclude.shaped",
            "the engines chose from logits that {parameters} changed, which scores and logprobs do not show: only "
            "tokens that were the best even so are judged",
            parameters=names,
        )
    )


def unjudged(judged: Judged, number: int) -> Remarks:
    """Completions that differ and that nothing judges; `number` as in the statistics."""
    at_fault = set(judged.contradicted) | set(judged.baseline_ends)
    left = number - sum(judged.classes[key] == "unjudged" for key in at_fault)
    if not left:
        return Remarks()
    return _reason(
        message(
            "conclude.unjudged",
            "{number} completions differ and nothing says whether that is noise: score them "
            "(`parity run --score all`) or capture with --logprobs{suspects}",
            number=left,
            suspects=_suspicion(judged),
        )
    )


def _suspicion(judged: Judged) -> Message | str:
    if not judged.suspects:
        return ""
    key, event = next(iter(judged.suspects.items()))
    return message(
        "conclude.suspects",
        "; {number} of them look like tokens lost, emitted again or another request's (first: {first}, {kind} of "
        "{length} tokens at {position}), which a near-tie can look like as well",
        number=len(judged.suspects),
        first=str(key),
        kind=str(event.kind),
        length=event.length,
        position=event.position,
    )


def limited(completions: int, tokens: int, judged: Judged, references: References) -> Remarks:
    """Tokens after near-ties that were not judged (`tokens_not_judged`)."""
    if not completions:
        return Remarks()
    if references.lookup and judged.gaps:
        return _reason(
            message(
                "conclude.not_covered",
                "the scores do not cover {tokens} tokens of {completions} completions",
                tokens=tokens,
                completions=completions,
            )
        )
    return _note(
        message(
            "conclude.up_to_first_divergence",
            "{completions} completions could be judged only up to their first divergent token ({tokens} tokens after "
            "it not judged): there are no scores",
            completions=completions,
            tokens=tokens,
        )
    )


def faulty_baseline(judged: Judged, references: References) -> Remarks:
    """Where it is the baseline that is wrong, so that nothing follows for the candidate."""
    found = Remarks()
    if judged.contradicted:
        found += _reason(
            message(
                "conclude.baseline_rejected",
                "the scores reject the baseline's own token in {number} completions (first: {first}): the baseline is "
                "at fault there, or the scores are not of these arms",
                number=len(judged.contradicted),
                first=str(judged.contradicted[0]),
            )
        )
    if judged.baseline_ends:
        key, why = next(iter(judged.baseline_ends.items()))
        found += _reason(
            message(
                "conclude.baseline_ends",
                "the baseline itself ends where it should not in {number} completions (first: {first}: {why})",
                number=len(judged.baseline_ends),
                first=str(key),
                why=why,
            )
        )
    floor = references.floor
    if floor is not None and floor.rejected:
        wrong = [key for key, (gaps, _) in references.baseline.items() if bool((gaps.gap > NOT_NOISE).any())]
        found += _reason(
            message(
                "conclude.baseline_beyond_noise",
                "{rejected} of the baseline's own {tokens} tokens lie more than {limit:g} nats below the best when "
                "scored (first: {first}): the baseline is faulty itself, or the scores are not its own",
                rejected=floor.rejected,
                tokens=floor.tokens,
                limit=NOT_NOISE,
                first=str(wrong[0]),
            )
        )
    return found


def blind(chance: float | None, completions: int) -> Remarks:
    """Distributions so flat that wrong tokens pass as well (`chance_to_pass`)."""
    if chance is None or chance <= FLAT:
        return Remarks()
    return _reason(
        message(
            "conclude.blind",
            "{completions} completions part at near-ties, and after these up to {chance:.0%} of all tokens would pass "
            "(random weights, or too wide a tolerance?): what was compared there says little",
            completions=completions,
            chance=chance,
        )
    )


def doubtful(judged: Judged, floor: Floor | None) -> Remarks:
    """Tokens a little beyond the tolerance: noise where the baseline's own tokens show such gaps, else left open."""
    if not judged.doubtful:
        return Remarks()
    key, (position, gap) = max(judged.doubtful.items(), key=lambda item: item[1][1])
    what = message(
        "conclude.doubtful",
        "{number} completions have a token or two a little beyond the tolerance and nothing else wrong (the widest "
        "gap: {gap:.3f} nats, {completion} at {position})",
        number=len(judged.doubtful),
        gap=gap,
        completion=str(key),
        position=position,
    )
    if floor is not None:
        return _note(
            message(
                "conclude.doubtful_noise",
                "{what}; the baseline's own tokens lie up to {largest:.3f} nats below the best: noise",
                what=what,
                largest=floor.largest,
            )
        )
    return _reason(
        message(
            "conclude.doubtful_open",
            "{what}: score the baseline's own completions as well (`--score all`), or use `--tolerance auto`",
            what=what,
        )
    )


def random_sampling(tests: SamplingStats, pairs: Pairs) -> Remarks:
    """What could not be tested where sampling is random."""
    found = Remarks()
    equal = len(pairs.keys) and bool((pairs.identical & pairs.same_prompt).all())
    if not tests.scored and not equal:  # equal draws need no distribution
        found += _reason(
            message(
                "conclude.random_unscored",
                "sampling is random and there are no scores: only the run's statistics could be compared",
            )
        )
    if tests.scored and "likelihood" not in tests.adjusted:
        found += _note(
            message(
                "conclude.likelihood_not_compared",
                "the likelihood of the arms was not compared: it needs scores of both, for 8 requests or more "
                "(`parity run --score all`)",
            )
        )
    return found


def flat(floor: Floor | None) -> Remarks:
    """A checkpoint whose distributions leave little power."""
    if floor is None or floor.share_flat <= FLAT:
        return Remarks()
    return _note(
        message(
            "conclude.flat",
            "at {share:.0%} of positions the five best tokens lie within {tolerance} nats (random weights?): a fault "
            "that takes one of them cannot be seen there",
            share=floor.share_flat,
            tolerance=DEFAULT_TOLERANCE,
        )
    )


def drifted(drift: Drift | None) -> Remarks:
    """A systematic difference that no single token shows."""
    if drift is None or not drift.drifted:
        return Remarks()
    return _note(
        message(
            "conclude.drifted",
            "the candidate's mean gap is {candidate:.4f} nats, the baseline's {baseline:.4f} (p = {p_value:.2g}): a "
            "small systematic difference, though no single token shows it",
            candidate=drift.candidate_mean_gap,
            baseline=drift.baseline_mean_gap,
            p_value=drift.p_value,
        )
    )


def noise(floor: NoiseFloor | None) -> Remarks:
    """How often the arms differ from the baseline's first round."""
    return Remarks() if floor is None else _note(as_note(floor))


def _reason(one: Message) -> Remarks:
    return Remarks(reasons=(one,))


def _note(one: Message) -> Remarks:
    return Remarks(notes=(one,))
