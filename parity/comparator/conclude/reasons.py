"""What keeps a run from saying PASS, and what a reader of its verdict must know: reasons and notes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.comparator.detect import stops
from parity.comparator.detect.pairs import Judged
from parity.comparator.reference.gaps import NOT_NOISE, Floor, TokenGaps
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import Pairs
from parity.records import DEFAULT_TOLERANCE, Json, Key, TopLogprobs

FLAT = 0.2
"""Share of flat positions from which a checkpoint's distributions leave little power."""


def coverage(pairs: Pairs, judged: Judged, reference: Reference, stats: dict[str, Json], notes: list[str]) -> list[str]:
    problems = []
    if not pairs.keys:
        problems.append("no completion is in both captures: nothing was compared")
    taken_back = sum(a.aborted or b.aborted for a, b in zip(pairs.baseline, pairs.candidate, strict=True))
    if taken_back:
        stats["aborted"] = taken_back
        notes.append(f"{taken_back} completions were taken back while they ran: compared as far as they go")
        if taken_back == len(pairs.keys) and not len(pairs.candidate_tokens.flat):
            problems.append("every completion was taken back before its first token: nothing was compared")
    if (
        pairs.keys
        and not any(len(a.token_ids) and len(b.token_ids) for a, b in zip(pairs.baseline, pairs.candidate, strict=True))
        and not problems
    ):
        problems.append("no completion has a token in both arms: nothing was compared")
    broken = [
        b.key
        for a, b in zip(pairs.baseline, pairs.candidate, strict=True)
        if b.finish_reason in stops.BROKEN_OFF and a.finish_reason in stops.BROKEN_OFF and not b.aborted
    ]
    if broken:
        problems.append(
            f"{len(broken)} completions were broken off in both arms (first: {broken[0]}): nothing says how they go on"
        )
    if reference.shaped_by and not bool((pairs.identical & pairs.same_prompt).all()):
        problems.append(
            f"the engines chose from logits that {', '.join(reference.shaped_by)} changed, which scores and logprobs "
            "do not show: only what was the best all the same is judged"
        )
    at_fault = set(judged.contradicted) | set(judged.baseline_ends)
    unjudged = stats["unjudged"] - sum(judged.classes[key] == "unjudged" for key in at_fault)
    if unjudged:
        problems.append(
            f"{unjudged} completions differ and nothing says whether that is noise: score them "
            "(`parity run --score all`) or capture with --logprobs" + _suspicions(judged, stats)
        )
    limited = {key: at for key, at in judged.limited.items() if judged.classes.get(key) == "near_tie"}
    if limited:
        skipped = sum(
            len(pairs.candidate[row].token_ids) - limited[key] for row, key in enumerate(pairs.keys) if key in limited
        )
        stats["tokens_not_judged"] = skipped
        message = f"{len(limited)} completions could be judged only up to their first divergent token"
        if reference and judged.gaps:
            problems.append(f"the scores do not cover {skipped} tokens of {len(limited)} completions")
        else:
            notes.append(f"{message} ({skipped} tokens behind it not judged): there are no scores")
    return problems


def faulty_baseline(
    judged: Judged, baseline_scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]], floor: Floor | None
) -> list[str]:
    """Where it is the baseline that is wrong, so that nothing follows for the candidate."""
    problems = []
    if judged.contradicted:
        problems.append(
            f"the scores reject the baseline's own token in {len(judged.contradicted)} completions "
            f"(first: {judged.contradicted[0]}): the baseline is at fault there, or the scores are not of these arms"
        )
    if judged.baseline_ends:
        key, why = next(iter(judged.baseline_ends.items()))
        problems.append(
            f"the baseline's own end cannot be right in {len(judged.baseline_ends)} completions (first: {key}: {why})"
        )
    if floor is not None and floor.rejected:
        wrong = [key for key, (view, _) in baseline_scored.items() if bool((view.gap > NOT_NOISE).any())]
        problems.append(
            f"{floor.rejected} of the baseline's own {floor.tokens} tokens lie more than {NOT_NOISE:g} nats below the "
            f"best when scored (first: {wrong[0]}): the baseline is faulty itself, or the scores are not its own"
        )
    return problems


def blind(pairs: Pairs, judged: Judged, vocab_size: int | None, tolerance: float, stats: dict[str, Json]) -> list[str]:
    """Where completions part at near-ties and the distributions behind are so flat that wrong tokens pass as well.

    At most exp(tolerance) / p tokens lie within the tolerance of one with probability p, so a token taken at random is
    justified with at most that over the vocabulary's size; its mean over the tokens judged.
    """
    if not vocab_size:
        return []
    best = [
        judged.gaps[key].best[max(0, int(pairs.parts_at[row])) :]
        for row, key in enumerate(pairs.keys)
        if judged.classes.get(key) == "near_tie" and key in judged.gaps
    ]
    known = np.concatenate(best) if best else np.empty(0)
    known = known[np.isfinite(known)]
    if not len(known):
        return []
    share = float(np.minimum(1.0, np.exp(tolerance - known) / vocab_size).mean())
    stats["chance_that_any_token_passes"] = round(share, 4)
    if share <= FLAT:
        return []
    return [
        f"{len(best)} completions part at near-ties, and behind these up to {share:.0%} of all tokens would pass "
        "(random weights, or too wide a tolerance?): what was compared there says little"
    ]


def _suspicions(judged: Judged, stats: dict[str, Json]) -> str:
    """What unjudged completions look like, for the reason and the statistics."""
    stats["suspects"] = [
        {"request": key.request, "round": key.round, "sample": key.sample, "looks_like": str(event.kind)}
        | {"position": event.position, "length": event.length}
        for key, event in list(judged.suspects.items())[:16]
    ]
    if not judged.suspects:
        return ""
    key, event = next(iter(judged.suspects.items()))
    return (
        f"; {len(judged.suspects)} of them look like tokens lost, emitted again or another request's (first: {key}, "
        f"{event.kind} of {event.length} tokens at {event.position}), which a near-tie can look like as well"
    )


def doubtful(judged: Judged, floor: Floor | None, stats: dict[str, Json], notes: list[str]) -> list[str]:
    """Tokens little beyond the tolerance: noise where the baseline's own tokens show such gaps, else left open."""
    if not judged.doubtful:
        return []
    stats["doubtful"] = [
        {"request": key.request, "round": key.round, "sample": key.sample, "position": at, "gap": round(gap, 4)}
        for key, (at, gap) in list(judged.doubtful.items())[:16]
    ]
    key, (at, gap) = max(judged.doubtful.items(), key=lambda item: item[1][1])
    what = (
        f"{len(judged.doubtful)} completions have a token or two little beyond the tolerance and nothing else wrong "
        f"(the widest gap: {gap:.3f} nats, {key} at {at})"
    )
    if floor is not None:
        notes.append(f"{what}; the baseline's own tokens lie up to {floor.largest:.3f} nats below the best: noise")
        return []
    return [f"{what}: score the baseline's own completions as well (`--score all`), or use `--tolerance auto`"]


def sampling_notes(sampling: dict[str, Json], pairs: Pairs) -> list[str]:
    if sampling["scored"] or (len(pairs.keys) and bool((pairs.identical & pairs.same_prompt).all())):
        return []  # equal draws need no distribution
    return ["sampling is random and there are no scores: only the run's statistics could be compared"]


def power_notes(floor: Floor | None) -> list[str]:
    notes = []
    if floor is not None and floor.share_flat > FLAT:
        notes.append(
            f"at {floor.share_flat:.0%} of positions the five best tokens lie within {DEFAULT_TOLERANCE} nats "
            "(random weights?): a fault that takes one of them cannot be seen there"
        )
    return notes
