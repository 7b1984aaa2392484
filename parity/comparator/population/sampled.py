"""Comparison where sampling is random (temperature above 0): tokens need not be equal, distributions must.

Two levels. Each completion alone: is it so unlikely under the reference that no sampler draws it? (Garbage must
be found whatever the temperature.) The run: do likelihood, length, stop reasons, loops and wording have the
baseline's distribution? Every p-value is conservative, and all of a run's are adjusted together (Holm for the
run's tests, Bonferroni over all windows of all completions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from parity.comparator.detect.draft_acceptance import Accepted
from parity.comparator.detect.drawn_places import Tested
from parity.comparator.detect.temperatures import HEAVY
from parity.comparator.inputs.finish_reasons import KNOWN
from parity.comparator.population.drawn import Drawn
from parity.comparator.population.mixtures import Mixed
from parity.comparator.population.numerics import UNIT
from parity.comparator.population.rates import loop_period
from parity.comparator.population.residual_tests import LEAST_SHIFT, SELECTION
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.surprisal import COLDEST
from parity.comparator.statistics import (
    FloatArray,
    chi_square_homogeneity,
    holm,
    in_two_stages,
    mann_whitney,
    mcnemar_more,
    mean_difference,
    symmetric_sum,
)
from parity.comparator.stats import DrawsSeen, Numerics, SamplingStats
from parity.comparator.sums import Sums
from parity.records import Completion, Key, TokenIds

ENOUGH = 0.02
"""Nats per token by which two clean backends may differ in mean surprisal: rounding alone makes tokens less likely to
another engine, and a large run would see that."""

FEWEST = 8
"""Values of either arm below which there is no test."""

WEIGHTS = {"draws": HEAVY, "mixture": HEAVY}
"""Of tests that have more than others of the error rate: faults of the drawing that they alone see are the smallest."""

FEATURES = 512
"""Hash buckets for pairs of adjacent tokens in the two-sample test."""


def run_tests(
    baseline: Sequence[Completion],
    candidate: Sequence[Completion],
    baseline_views: Mapping[Key, TokenGaps],
    candidate_views: Mapping[Key, TokenGaps],
    surprisals: tuple[Sequence[float], Sequence[float]] = ((), ()),
    *,
    places: Tested | None = None,
    accepted: Accepted | None = None,
    draws: Drawn | None = None,
    draws_seen: DrawsSeen | None = None,
    mixed: Mixed | None = None,
    baseline_draws_at: float | None = None,
    draws_of_either: bool = False,
    temperature: float = 1.0,
    rounding: float = 0.0,
    noise_shared_by: tuple[str, ...] = (),
    own_ids: bool = True,
    names_tell: bool = True,
) -> SamplingStats:
    """Two-sample tests over the whole run: raw and Holm-adjusted p-values by name.

    likelihood: mean log-likelihood per token of the candidate other than the baseline's, paired by request, by more
    than `rounding` explains (nats per token, `allowed_for_rounding`); a bound, since 40,000 flips of signs happen to
    say 0.00003 of what is 0.0001.
    surprisal: `surprisals`, the mean of each scored completion of baseline and candidate, by permutation. What is
    likely at a place is in it already, so completions of all requests count alike, where likelihood has as many values
    as there are requests.
    length: Mann-Whitney over completion lengths. finish_reason: permutation chi-square over the reasons.
    loops: McNemar exact, completions that end in a loop. wording: MMD over hashed token pairs, labels permuted
    within each request (Gretton et al. 2012; for model equality Gao et al. 2024, arXiv:2410.20247).
    places: `places`, that tokens at some place of the completions are drawn otherwise than asked (e-values).
    drafts: `accepted`, that drafts are accepted more often than at their probability (e-values).
    baseline_draws_at, draws_of_either: as in the statistics; then nothing is tested.
    noise_shared_by: as in the statistics.
    mixture: `mixed`, that some of the candidate's completions, or all, are drawn otherwise than asked (e-values).
    draws: `draws`, that those of all completions are, or of one round, sample or length of prompts.
    own_ids: whether the token ids of both arms are their engines'. Those made again from a text are fewer, and other
    pairs: then lengths and wording are not compared. names_tell: whether finish reasons are those of ends.
    """
    arms = baseline, candidate
    known = [np.array([value for value in arm if np.isfinite(value)]) for arm in surprisals]
    lengths = [np.array([len(one.token_ids) for one in arm], dtype=float) for arm in arms]
    reasons = _reasons(baseline, candidate)
    found = {
        "likelihood": _likelihood_test(baseline_views, candidate_views, rounding),
        "surprisal": _surprisal_test(*known),
        "length": mann_whitney(*lengths) if own_ids and _enough(lengths) else None,
        "finish_reason": _reason_test(reasons) if names_tell else None,
        "loops": _loop_test(baseline, candidate),
        "wording": _wording_test(baseline, candidate) if own_ids else None,
        "places": None if places is None else places.p_value,
        "draws": None if draws is None else draws.p_value,
        "mixture": None if mixed is None else mixed.p_value,
        "drafts": None if accepted is None else accepted.p_value,
    }
    if baseline_draws_at is not None or draws_of_either:  # that the arms differ says nothing of the candidate then
        found = {}
    p_values = {name: value for name, value in found.items() if value is not None}
    return SamplingStats(
        p_values=p_values,
        adjusted=holm(p_values, WEIGHTS),
        mean_surprisal=_pair_of_means(known),
        mean_length=_pair_of_means(lengths),
        finish_reasons=reasons,
        distinct_samples=(_distinct(baseline), _distinct(candidate)),
        scored=len(candidate_views),
        temperature=temperature,
        allowed_for_rounding=rounding,
        odd_places=() if places is None else places.odd,
        draws_seen=draws_seen,
        baseline_draws_at=baseline_draws_at,
        draws_of_either=draws_of_either,
        noise_shared_by=noise_shared_by,
    )


def allowed_for_rounding(found: Numerics | None, temperature: float) -> float:
    """Nats per token by which the mean log-likelihood of two clean arms may differ, whatever their number of tokens.

    Logits that are off by noise of variance v lift unlikely tokens more than likely ones: tokens drawn from them are
    less likely to another engine, by v Cov(p, log p) / T² nats on average, where the covariance is below 0.5. v is the
    run's own, that of its residuals, and that of one bf16 unit on every logit where it measured none.
    """
    sides = [] if found is None else [one.sd**2 for one in (found.baseline, found.candidate) if one is not None]
    variance = sum(sides) if sides else UNIT**2
    return min(ENOUGH, LEAST_SHIFT + SELECTION * variance / min(1.0, max(temperature, COLDEST)) ** 2)


def _enough(values: Sequence[FloatArray]) -> bool:
    return min(map(len, values)) >= FEWEST


def _likelihood_test(
    baseline: Mapping[Key, TokenGaps], candidate: Mapping[Key, TokenGaps], rounding: float
) -> float | None:
    differences = _per_request(baseline) - _align(_per_request_map(candidate), baseline)
    finite = differences[np.isfinite(differences)]
    if len(finite) < FEWEST:
        return None
    return min(1.0, 2 * min(symmetric_sum(Sums.of(sign * finite - rounding)) for sign in (1.0, -1.0)))


def _surprisal_test(a: FloatArray, b: FloatArray) -> float | None:
    if not _enough((a, b)):
        return None
    more = in_two_stages(lambda draws, seed: mean_difference(a + ENOUGH, b, draws=draws, seed=seed))
    less = in_two_stages(lambda draws, seed: mean_difference(b + ENOUGH, a, draws=draws, seed=seed))
    return min(1.0, 2 * min(more, less))


def _reasons(baseline: Sequence[Completion], candidate: Sequence[Completion]) -> dict[str, tuple[int, int]]:
    """How often each finish reason was given, by either arm."""
    counts = [Counter(str(one.finish_reason) for one in arm) for arm in (baseline, candidate)]
    return {reason: (counts[0][reason], counts[1][reason]) for reason in sorted({*counts[0], *counts[1]})}


def _reason_test(reasons: Mapping[str, tuple[int, int]]) -> float | None:
    """None where an arm mostly gives none, or names that nobody else has: that is its habit."""
    known = [sum(counts[side] for name, counts in reasons.items() if name in KNOWN) for side in (0, 1)]
    given = [sum(counts[side] for counts in reasons.values()) for side in (0, 1)]
    if len(reasons) < 2 or any(2 * of_known < of_all for of_known, of_all in zip(known, given, strict=True)):
        return None
    a, b = (list(arm) for arm in zip(*reasons.values(), strict=True))
    return in_two_stages(lambda draws, seed: chi_square_homogeneity(a, b, draws=draws, seed=seed))


def _loop_test(baseline: Sequence[Completion], candidate: Sequence[Completion]) -> float:
    looping = [{one.key: loop_period(one.token_ids) is not None for one in arm} for arm in (baseline, candidate)]
    shared = [key for key in looping[0] if key in looping[1]]
    return mcnemar_more(
        sum(looping[1][key] and not looping[0][key] for key in shared),
        sum(looping[0][key] and not looping[1][key] for key in shared),
    )


def _wording_test(baseline: Sequence[Completion], candidate: Sequence[Completion]) -> float | None:
    if mmd(baseline, candidate, draws=1) is None:
        return None
    return in_two_stages(lambda draws, seed: mmd(baseline, candidate, draws=draws, seed=seed) or 1.0, many=20_000)


def _pair_of_means(values: Sequence[FloatArray]) -> tuple[float | None, float | None]:
    first, second = (float(one.mean()) if len(one) else None for one in values)
    return first, second


def _per_request_map(views: Mapping[Key, TokenGaps]) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for key, view in views.items():
        known = view.chosen[np.isfinite(view.chosen)]
        if len(known):
            sums.setdefault(key.request, []).append(float(known.mean()))
    return {request: float(np.mean(values)) for request, values in sums.items()}


def _per_request(views: Mapping[Key, TokenGaps]) -> FloatArray:
    return np.array(list(_per_request_map(views).values()))


def _align(values: Mapping[str, float], like: Mapping[Key, TokenGaps]) -> FloatArray:
    return np.array([values.get(request, np.nan) for request in _per_request_map(like)])


def _distinct(completions: Sequence[Completion]) -> float | None:
    if not completions:
        return None
    seen = {(one.key.request, one.token_ids.tobytes()) for one in completions}
    return len(seen) / len(completions)


def mmd(
    baseline: Sequence[Completion],
    candidate: Sequence[Completion],
    *,
    draws: int = 5_000,
    most_requests: int = 512,
    seed: int = 0,
) -> float | None:
    """Permutation p-value that both arms' completions of each request come from one distribution.

    None with fewer than FEWEST requests answered by both.
    """
    groups: dict[str, tuple[list[Completion], list[Completion]]] = {}
    for side, arm in enumerate((baseline, candidate)):
        for completion in arm:
            groups.setdefault(completion.key.request, ([], []))[side].append(completion)
    usable = [(a[:16], b[:16]) for a, b in groups.values() if a and b][:most_requests]
    if len(usable) < FEWEST:
        return None
    rng = np.random.default_rng(seed)
    observed = 0.0
    simulated = np.zeros(draws)
    for a, b in usable:
        size = min(len(a), len(b))
        features = np.stack([_features(one.token_ids) for one in [*a[:size], *b[:size]]])
        gram = features @ features.T
        labels = np.array([1.0] * size + [-1.0] * size)
        observed += float(labels @ gram @ labels) / size**2
        order = rng.random((draws, 2 * size)).argsort(axis=1)
        shuffled = labels[order]
        simulated += np.einsum("di,ij,dj->d", shuffled, gram, shuffled, optimize=True) / size**2
    return float(((simulated >= observed - 1e-9).sum() + 1) / (draws + 1))


def _features(tokens: TokenIds) -> FloatArray:
    if len(tokens) < 2:
        return np.zeros(FEATURES)
    mixed = (tokens[:-1] * 1_000_003 + tokens[1:]) % 2_147_483_647 % FEATURES
    counts = np.bincount(mixed, minlength=FEATURES).astype(float)
    norm = float(np.sqrt((counts**2).sum()))
    return counts / norm if norm else counts
