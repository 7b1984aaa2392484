"""Comparison where sampling is random (temperature above 0): tokens need not be equal, distributions must.

Two levels. Each completion alone: is it so unlikely under the reference that no sampler draws it? (Garbage must
be found whatever the temperature.) The run: do likelihood, length, stop reasons, loops and wording have the
baseline's distribution? Every p-value is conservative, and all of a run's are adjusted together (Holm for the
run's tests, Bonferroni over all windows of all completions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.comparator.population.rates import loop_period
from parity.comparator.population.statistics import (
    FloatArray,
    chi_square_homogeneity,
    gamma_tail,
    holm,
    in_two_stages,
    mann_whitney,
    mcnemar_more,
    mean_difference,
    sign_flip_more,
)
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.stats import SamplingStats
from parity.records import Completion, Key, TokenIds, TopLogprobs

WINDOWS = (1, 2, 4, 8, 16, 32)
"""Lengths of the stretches looked at, in tokens."""

SLACK = 0.1
"""Nats by which another backend may see a token as less likely without a fault; taken off each token."""

ORDINARY = 3.0
"""Nats of surprisal that one drawn token in twenty has."""

RARE = 4.6
"""Nats of surprisal that a sampler gives to one token in a hundred: next to a stretch that no sampler draws, such a
token belongs to it."""

HABIT = 0.05
"""p-value of the baseline's own tokens by its own lists, below which these are not what it drew from."""

ENOUGH = 0.02
"""Nats per token by which two clean backends may differ in mean surprisal: rounding alone makes tokens less likely to
another engine, and a large run would see that."""

MOST = 30.0
"""Nats of surprisal that count at most for one token in a mean: a token that is not listed has no bound of its own."""

FEATURES = 512
"""Hash buckets for pairs of adjacent tokens in the two-sample test."""


@dataclass(frozen=True, slots=True)
class Unlikely:
    """A stretch of a sampled completion that the reference's distribution does not explain."""

    position: int
    length: int
    p_value: float
    """Chance of such a stretch anywhere in the run (adjusted for every window looked at)."""


def tail_logs(top: TopLogprobs, tokens: TokenIds, temperature: float, vocab_size: int | None) -> FloatArray:
    """log of an upper bound on P(a token at most as likely as the chosen one), shape (T,).

    For a token really drawn from the reference at this temperature, P(tail <= x) <= x: a conservative p-value.
    top_p, top_k and min_p only leave out tokens less likely than those drawn, so the bound holds under them too.
    The mass that is not listed is bounded by what is left of 1 and by the number of tokens there are.
    NaN where the score does not list the chosen token.
    """
    length = min(len(tokens), len(top))
    result = np.full(len(tokens), np.nan)
    if not length or not top.ids.shape[1]:
        return result
    ids, values = top.ids[:length], top.values[:length]
    listed = np.where(np.isnan(values), -np.inf, np.minimum(values, 0.0))
    is_chosen = ids == tokens[:length, None]
    chosen = np.where(is_chosen, listed, -np.inf).max(axis=1)
    power = 1.0 / temperature
    vocabulary = float(vocab_size or 200_000)
    weights = np.exp(listed * power)
    total = weights.sum(axis=1)
    rest = np.clip(1.0 - np.exp(listed).sum(axis=1), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        unlisted = rest * np.exp(chosen * (power - 1)) if power >= 1 else vocabulary ** (1 - power) * rest**power
        unlisted = np.minimum(unlisted, vocabulary * np.exp(chosen * power))
        lower = np.where(listed <= chosen[:, None], weights, 0.0).sum(axis=1)
        logs = np.log(np.minimum(1.0, (lower + unlisted) / total))
    result[:length] = np.where(np.isneginf(chosen) & ~is_chosen.any(axis=1), np.nan, logs)
    return result


def mean_surprisal(logs: FloatArray) -> float:
    """Nats per token of a completion by its tail_logs: at most 1 on average for tokens that were drawn; NaN without."""
    known = -logs[np.isfinite(logs) | np.isneginf(logs)]
    return float(np.minimum(known, MOST).mean()) if len(known) else float("nan")


def find_unlikely(logs: FloatArray, windows_in_run: int, alpha: float, slack: float = SLACK) -> list[Unlikely]:
    """Stretches of one completion whose chance, over the whole run, is below alpha; by position.

    `slack`: nats taken off each token's surprisal.
    """
    surprisal = np.clip(np.nan_to_num(-logs, nan=0.0, posinf=1e4) - slack, 0.0, 1e4)
    found: list[Unlikely] = []
    remaining = surprisal.copy()
    for _ in range(4):
        best: Unlikely | None = None
        sums = np.concatenate([[0.0], np.cumsum(remaining)])
        for size in WINDOWS:
            if size > len(remaining):
                break
            window = sums[size:] - sums[:-size]
            at = int(window.argmax())
            p_value = min(1.0, gamma_tail(size, float(window[at])) * windows_in_run)
            if p_value < alpha and (best is None or p_value < best.p_value):
                first, end = _core(remaining, at, at + size)
                best = Unlikely(first, end - first, p_value)
        if best is None:
            break
        found.append(best)
        remaining[best.position : best.position + best.length] = 0.0
    return _joined(found)


def _core(surprisal: FloatArray, begin: int, end: int) -> tuple[int, int]:
    """Where in a window the unlikely tokens are: the part with the most surprisal above ORDINARY a token, grown over
    rare tokens at either side."""
    best, first, last, total, start = -np.inf, begin, end, 0.0, begin
    for place in range(begin, end):
        if total <= 0:
            total, start = 0.0, place
        total += float(surprisal[place]) - ORDINARY
        if total > best:
            best, first, last = total, start, place + 1
    while first > 0 and surprisal[first - 1] > RARE:
        first -= 1
    while last < len(surprisal) and surprisal[last] > RARE:
        last += 1
    return first, last


def _joined(found: list[Unlikely]) -> list[Unlikely]:
    joined: list[Unlikely] = []
    for one in sorted(found, key=lambda item: item.position):
        if joined and one.position - (joined[-1].position + joined[-1].length) <= 8:
            before = joined[-1]
            end = one.position + one.length
            joined[-1] = Unlikely(before.position, end - before.position, min(before.p_value, one.p_value))
        else:
            joined.append(one)
    return joined


def run_tests(
    baseline: Sequence[Completion],
    candidate: Sequence[Completion],
    baseline_views: Mapping[Key, TokenGaps],
    candidate_views: Mapping[Key, TokenGaps],
    surprisals: tuple[Sequence[float], Sequence[float]] = ((), ()),
    *,
    temperature: float = 1.0,
) -> SamplingStats:
    """Two-sample tests over the whole run: raw and Holm-adjusted p-values by name.

    likelihood: mean log-likelihood per token of the candidate other than the baseline's, paired by request.
    surprisal: `surprisals`, the mean of each scored completion of baseline and candidate, by permutation. What is
    likely at a place is in it already, so completions of all requests count alike, where likelihood has as many values
    as there are requests.
    length: Mann-Whitney over completion lengths. finish_reason: permutation chi-square over the reasons.
    loops: McNemar exact, completions that end in a loop. wording: MMD over hashed token pairs, labels permuted
    within each request (Gretton et al. 2012; for model equality Gao et al. 2024, arXiv:2410.20247).
    """
    p_values: dict[str, float] = {}
    differences = _per_request(baseline_views) - _align(_per_request_map(candidate_views), baseline_views)
    if np.isfinite(differences).sum() >= 8:
        finite = differences[np.isfinite(differences)]
        p_values["likelihood"] = min(1.0, 2 * min(sign_flip_more(finite), sign_flip_more(-finite)))
    known = [np.array([value for value in arm if np.isfinite(value)]) for arm in surprisals]
    if min(map(len, known)) >= 8:
        a, b = known
        more = in_two_stages(lambda draws, seed: mean_difference(a + ENOUGH, b, draws=draws, seed=seed))
        less = in_two_stages(lambda draws, seed: mean_difference(b + ENOUGH, a, draws=draws, seed=seed))
        p_values["surprisal"] = min(1.0, 2 * min(more, less))
    lengths = [np.array([len(one.token_ids) for one in arm], dtype=float) for arm in (baseline, candidate)]
    if min(map(len, lengths)) >= 8:
        p_values["length"] = mann_whitney(lengths[0], lengths[1])
    reasons = sorted({str(one.finish_reason) for one in [*baseline, *candidate]})
    counts = [
        [sum(str(one.finish_reason) == reason for one in arm) for reason in reasons] for arm in (baseline, candidate)
    ]
    if len(reasons) > 1:
        p_values["finish_reason"] = in_two_stages(
            lambda draws, seed: chi_square_homogeneity(counts[0], counts[1], draws=draws, seed=seed)
        )
    looping = [{one.key: loop_period(one.token_ids) is not None for one in arm} for arm in (baseline, candidate)]
    shared = [key for key in looping[0] if key in looping[1]]
    p_values["loops"] = mcnemar_more(
        sum(looping[1][key] and not looping[0][key] for key in shared),
        sum(looping[0][key] and not looping[1][key] for key in shared),
    )
    if mmd(baseline, candidate, draws=1) is not None:
        p_values["wording"] = in_two_stages(
            lambda draws, seed: mmd(baseline, candidate, draws=draws, seed=seed) or 1.0, many=20_000
        )
    return SamplingStats(
        p_values=p_values,
        adjusted=holm(p_values),
        mean_surprisal=_pair_of_means(known),
        mean_length=_pair_of_means(lengths),
        finish_reasons={reason: (counts[0][n], counts[1][n]) for n, reason in enumerate(reasons)},
        distinct_samples=(_distinct(baseline), _distinct(candidate)),
        scored=len(candidate_views),
        temperature=temperature,
    )


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

    None with fewer than 8 requests answered by both.
    """
    groups: dict[str, tuple[list[Completion], list[Completion]]] = {}
    for side, arm in enumerate((baseline, candidate)):
        for completion in arm:
            groups.setdefault(completion.key.request, ([], []))[side].append(completion)
    usable = [(a[:16], b[:16]) for a, b in groups.values() if a and b][:most_requests]
    if len(usable) < 8:
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
