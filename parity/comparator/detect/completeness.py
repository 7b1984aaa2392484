"""Are all completions there, and are samples that should differ different?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set

import numpy as np

from parity.comparator.detect.bigrams import pairs_of
from parity.comparator.detect.findings import finding
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.plans import rounds, rounds_of_one
from parity.comparator.inputs.questions import highest_own_temperature, temperature_in
from parity.comparator.reference.listed import untold
from parity.comparator.reference.scores import Reference
from parity.comparator.statistics import in_two_stages
from parity.comparator.streams.alignment import common_prefix
from parity.comparator.sums import sums_of_rows
from parity.comparator.types import Remarks, reason
from parity.messages import message
from parity.records import Capture, Completion, Finding, Header, Index, Key, Kind, TokenIds, rounds_and_samples, words
from parity.records.evidence import CopyOfSampleEvidence, MissingEvidence, RoundsEvidence
from parity.records.many_findings import Placed
from parity.records.next_steps import NextStep, Step

COPIES_BY_CHANCE = 0.001
"""Pairs of equal samples expected by chance in the whole run from which on equal samples are no fault."""

LONG = 24
"""Tokens from which equal samples count as copies where no logprobs say how likely the text is and the
baseline's samples of the same length differ."""


def missing(inputs: Inputs) -> list[Finding]:
    """Completions that the baseline has and the candidate lacks. What the baseline lacks, or neither has though n asked
    for it, is no fault of the candidate's: see `not_returned`."""
    why = message("missing.candidate", "the candidate did not return this completion")
    return [
        finding(inputs.arms, key, Kind.MISSING_COMPLETION, MissingEvidence(why=why, missing_from="candidate"))
        for key in _lacking(inputs, inputs.baseline, inputs.candidate)
    ]


def _lacking(inputs: Inputs, whole: Capture, other: Capture) -> list[Key]:
    """Completions that one arm has and the other, which was asked for them as well, lacks."""
    if whole.has_keys_of(other):
        return []
    shared_rounds: set[int] = set()
    if rounds_of_one(inputs.baseline, inputs.candidate):
        if not whole.shares_keys_with(other):
            return []  # captures of other requests: nothing is missing, nothing was compared
        shared_rounds = rounds(whole) & rounds(other)
    return [
        key
        for key in whole.completions
        if key not in other.completions
        and (not shared_rounds or key.round in shared_rounds)
        and key.request not in inputs.plans.not_asked
    ]


def not_returned(inputs: Inputs) -> Remarks:
    """What the baseline lacks, and samples that `n` asked for and neither side returned."""
    return _missing_in_baseline(inputs) + _returned_by_none(inputs)


def _missing_in_baseline(inputs: Inputs) -> Remarks:
    lacking = _lacking(inputs, inputs.candidate, inputs.baseline)
    if not lacking:
        return Remarks()
    said = message(
        "missing.baseline",
        "the baseline did not return {completions} that the candidate has: not compared",
        completions=words.named(lacking),
    )
    return reason(said, Step.AGAIN, Step.SWAP)


def _returned_by_none(inputs: Inputs) -> Remarks:
    baseline, candidate = inputs.baseline, inputs.candidate
    asked = max(_asked(arm.header) for arm in (baseline, candidate))
    if asked == 1:
        return Remarks()
    known = baseline.completions.keys() | candidate.completions.keys()
    requests = {(key.request, key.round) for key in known}
    lacking = sum(Key(*request, sample) not in known for request in requests for sample in range(asked))
    if not lacking:
        return Remarks()
    said = message(
        "missing.by_none",
        "n is {asked}, and neither side returned {count} of {all} samples: what there is was compared. Take a "
        "server that honours n, or more requests (`parity run --n 1 --rounds {asked}`)",
        asked=asked,
        count=lacking,
        all=len(requests) * asked,
    )
    return reason(said, NextStep(Step.ONE_SAMPLE, said.id, asked))


def _asked(header: Header) -> int:
    value = header.sampling.get("n")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 4096 else 1


def duplicates(inputs: Inputs, reference: Reference, alpha: float) -> list[Finding]:
    """Samples of one request that are copies of each other though they were drawn at random.

    Where no logprobs say how likely a text is, the baseline's samples do: see `_copies_by_chance`, compared with
    `alpha`.
    """
    baseline, candidate = inputs.baseline, inputs.candidate
    if not (temperature_in(candidate.header.sampling) or highest_own_temperature(candidate)):
        return []
    found: list[Finding] = []
    groups = _groups(candidate)
    by_chance: float | None = None
    alike = (0, 0)
    pairs = sum(len(group) * (len(group) - 1) / 2 for group in groups.values())
    allowed = math.log(COPIES_BY_CHANCE / max(1.0, pairs))
    theirs = _groups(baseline)
    for name, group in groups.items():
        for copies in _copies_of(group):
            first, *others = copies
            length = len(first.token_ids)
            likelihood = _log_likelihood(first, inputs, reference)
            if likelihood is None and _copies_of(theirs.get(name, [])):
                continue  # what was asked may leave no choice
            if likelihood is not None:
                if likelihood > allowed:
                    continue
            elif length < LONG:
                continue
            else:
                if by_chance is None:
                    by_chance = _copies_by_chance(theirs, groups)
                    alike = _most_alike(theirs, groups)
                if by_chance >= alpha and not _stands_out(_new_in(first.token_ids), pairs, *alike):
                    continue
            for other in others:
                why = message(
                    "duplicate.why",
                    "the same {count} tokens as sample {sample} of this request",
                    count=length,
                    sample=first.key.sample,
                )
                evidence = CopyOfSampleEvidence(
                    why=why,
                    copy_of_sample=first.key.sample,
                    log_likelihood=None if likelihood is None else round(likelihood, 2),
                    p_value=by_chance if likelihood is None else None,
                )
                found.append(finding(inputs.arms, other.key, Kind.DUPLICATE_COMPLETION, evidence))
    return found


def _groups(capture: Capture) -> dict[tuple[str, int], list[Completion]]:
    """The samples of each request and round. One that was aborted while it ran is equal to no other, whatever it
    would have said."""
    groups: dict[tuple[str, int], list[Completion]] = defaultdict(list)
    for completion in capture:
        if not completion.aborted:
            groups[(completion.key.request, completion.key.round)].append(completion)
    return groups


def _copies_of(group: list[Completion]) -> list[list[Completion]]:
    by_tokens: dict[bytes, list[Completion]] = defaultdict(list)
    for completion in sorted(group, key=lambda one: one.key.sample):
        by_tokens[completion.token_ids.tobytes()].append(completion)
    return [same for same in by_tokens.values() if len(same) > 1]


def _stands_out(length: int, pairs: float, count: int, longest: int) -> bool:
    """Is an equal pair of `length` tokens beyond anything that the run's other pairs have in common?

    `longest` tokens in common, at most, in `count` other pairs: by the rule of three fewer than 3 in `count` agree for
    longer, and if agreeing does not get likelier as a text goes on, a pair does so for `length` tokens with that rate
    to the power of the stretches of `longest + 1` in them. Compared with COPIES_BY_CHANCE over all `pairs`. It does get
    likelier where a text repeats itself, so both lengths are of what is new (`_new_in`).
    """
    rate = min(1.0, 3 / count) if count else 1.0
    return pairs * rate ** (length // (longest + 1)) < COPIES_BY_CHANCE


def _new_in(tokens: TokenIds) -> int:
    """Tokens that do not stand after the same token before: two samples that are in one loop stay in it."""
    return min(1, len(tokens)) + len(np.unique(pairs_of(tokens)))


def _most_alike(
    baseline: Mapping[tuple[str, int], list[Completion]], candidate: Mapping[tuple[str, int], list[Completion]]
) -> tuple[int, int]:
    """(pairs of unequal samples of one request, of either arm; new tokens that the most alike of them begin with)."""
    count, longest = 0, 0
    for name, mine in candidate.items():
        texts = [one.token_ids for one in (*mine, *baseline.get(name, []))][:16]
        for index, one in enumerate(texts):
            for other in texts[:index]:
                if not np.array_equal(one, other):
                    count, longest = count + 1, max(longest, _new_in(one[: common_prefix(one, other)]))
    return count, longest


def _copies_by_chance(
    baseline: Mapping[tuple[str, int], list[Completion]], candidate: Mapping[tuple[str, int], list[Completion]]
) -> float:
    """p-value that the candidate's samples are no more often equal to each other than the baseline's are to theirs and
    to the candidate's: permutation of the arms' names within each request, over pairs of LONG tokens and more.

    Were both arms drawn from one distribution, their samples of a request would be interchangeable, however likely
    equal ones are at this temperature.
    """
    groups = []
    for name, mine in candidate.items():
        theirs = baseline.get(name, [])
        numbers: dict[bytes, int] = {}
        texts = [one.token_ids for one in (*mine, *theirs)]
        kinds = np.array(
            [
                numbers.setdefault(tokens.tobytes(), len(numbers)) if len(tokens) >= LONG else -1 - index
                for index, tokens in enumerate(texts)
            ]
        )
        same = np.triu(kinds[:, None] == kinds[None, :], 1)
        if same.any():
            groups.append((same.astype(np.float64), len(mine)))

    def test(draws: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        observed, simulated = 0.0, np.zeros(draws)
        for same, size in groups:
            observed += float(same[:size, :size].sum())
            of_candidate = (rng.random((draws, len(same))).argsort(axis=1) < size).astype(np.float64)
            simulated += np.einsum("di,ij,dj->d", of_candidate, same, of_candidate, optimize=True)
        return float(((simulated >= observed - 1e-9).sum() + 1) / (draws + 1))

    return in_two_stages(test)


def _log_likelihood(completion: Completion, inputs: Inputs, reference: Reference) -> float | None:
    """An upper bound on the log of the chance to draw this completion (nats); None where nothing says it: penalties,
    biases and forbidden tokens leave another distribution than lists show.

    Tokens that are not listed make the listed ones less likely, so leaving them out bounds from above; tokens
    without an entry count as certain.
    """
    arm = inputs.candidate
    top = reference.score(arm.header.arm, completion)
    if top is None:
        top = completion.lists
    if not reference.shaping(completion).none or top is None or len(top) != len(completion.token_ids):
        return None
    sampling = arm.sampling_of(completion)
    values = np.where(np.isnan(top.values), -np.inf, np.minimum(top.values, 0.0)) / inputs.temperature_of(completion)
    is_chosen = top.ids == completion.token_ids[:, None]
    if not len(top) or not is_chosen.any():
        return None
    # What truncation may leave of the listed tokens; the fewer, the likelier the chosen one.
    kept = np.ones(values.shape, dtype=np.bool_)
    top_k = sampling.get("top_k")
    if isinstance(top_k, int) and 0 < top_k < values.shape[1]:
        kept &= values >= np.sort(values, axis=1)[:, -top_k][:, None]
    highest = values.max(axis=1, keepdims=True)
    min_p = sampling.get("min_p")
    if isinstance(min_p, int | float) and min_p > 0:
        kept &= values >= highest + math.log(min_p)
    known = is_chosen.any(axis=1) & np.isfinite(highest[:, 0])
    known &= ~untold(top.ids, top.values < np.inf, completion.token_ids)
    values, highest, is_chosen, kept = values[known], highest[known], is_chosen[known], kept[known]
    own = np.where(is_chosen, values, -np.inf).max(axis=1)  # the chosen token may be listed twice
    others = sums_of_rows(np.where(kept & ~is_chosen, np.exp(values - highest), 0.0))
    logs = own - highest[:, 0] - np.log(others + np.exp(own - highest[:, 0]))
    top_p = sampling.get("top_p")
    if isinstance(top_p, int | float) and 0 < top_p < 1:
        logs = logs - math.log(top_p)
    return float(np.minimum(logs, 0.0).sum())


def nondeterminism(inputs: Inputs, corrupt: Iterable[Placed]) -> list[Finding]:
    """Greedy rounds of one request that differ where one of them is not supported.

    Rounds that part at a near-tie are noise; a round with a fault that another round of the same arm lacks is
    a fault that comes and goes.
    """
    faults: dict[Key, list[Placed]] = defaultdict(list)
    keys = inputs.candidate.keys
    once = isinstance(keys, Index) and len(rounds_and_samples(keys)[0]) < 2  # of others it takes as long to know
    for one in () if once else corrupt:
        if one.position is not None and one.kind.row.may_come_and_go and one.key in inputs.candidate.completions:
            faults[one.key].append(one)
    return [
        found
        for same in _rounds_of(inputs.candidate, {(key.request, key.sample) for key in faults})
        for completion in same
        if completion.key in faults
        if (found := _came_and_went(inputs.arms, completion, same, faults)) is not None
    ]


def _rounds_of(capture: Capture, wanted: Set[tuple[str, int]]) -> list[list[Completion]]:
    """The completions of each of these requests and samples, where there is more than one."""
    rounds: dict[tuple[str, int], list[Completion]] = defaultdict(list)
    names = {request for request, _ in wanted}
    for row, key in enumerate(capture.keys) if wanted else ():
        if key.request in names and (key.request, key.sample) in wanted:
            rounds[(key.request, key.sample)].append(capture.rows[row])
    return [same for same in rounds.values() if len(same) > 1]


def _came_and_went(
    arms: tuple[str, str], completion: Completion, same: list[Completion], faults: Mapping[Key, list[Placed]]
) -> Finding | None:
    """The finding about a faulty completion, where other rounds answer differently at its first fault."""
    mine = faults[completion.key]
    position = min(one.position or 0 for one in mine)
    differing = [one.key.round for one in same if one.key != completion.key and _parts_by(completion, one, position)]
    if not differing:
        return None
    why = message(
        "nondeterminism.why",
        "asked {count} times; {others} other rounds answer differently here",
        count=len(same),
        others=len(differing),
    )
    evidence = RoundsEvidence(
        why=why,
        differs_from_rounds=tuple(differing[:16]),
        rounds=len(same),
        faulty_rounds=tuple(sorted(one.key.round for one in same if one.key in faults)[:16]),
    )
    length = max(one.length or 1 for one in mine)
    return finding(arms, completion.key, Kind.NONDETERMINISM, evidence, position, length)


def _parts_by(a: Completion, b: Completion, position: int) -> bool:
    """Do the two part at or before `position`?"""
    size = min(len(a.token_ids), len(b.token_ids), position + 1)
    return size <= position or not np.array_equal(a.token_ids[:size], b.token_ids[:size])
