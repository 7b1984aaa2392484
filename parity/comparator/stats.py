"""The numbers of a comparison: what a report shows, a store keeps and a script reads.

A field that does not apply to a run (a loop test where sampling is random) is UNSET and is left out of the JSON;
None says that it applies and that there is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from parity.records import Json


class _Numbers(msgspec.Struct, frozen=True, kw_only=True):
    def to_json(self) -> dict[str, Json]:
        """As JSON gives them, by the names of the fields."""
        found: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self, enc_hook=_plain))
        return found


def _plain(value: Any) -> Any:
    return value.item()  # a numpy number


class Rate(_Numbers, frozen=True, kw_only=True):
    """Completions with findings of one kind, as a share of all, with its 95 % Wilson interval."""

    completions: int
    rate: float
    interval_95: tuple[float, float]


class FloorStats(_Numbers, frozen=True, kw_only=True):
    """How far the baseline's own tokens lie below the best when scored (nats)."""

    tokens: int
    largest_gap: float
    mean_gap: float
    share_of_flat_positions: float
    rejected_tokens: int | UnsetType = UNSET


class Loops(_Numbers, frozen=True, kw_only=True):
    """Completions that differ and end in a loop, by the arms in which they do; McNemar, exact, one-sided."""

    both: int
    only_baseline: int
    only_candidate: int
    p_candidate_loops_more: float


class Differing(_Numbers, frozen=True, kw_only=True):
    """Completions that differ, as a share of those compared, with its 95 % Wilson interval."""

    differing: int
    completions: int
    rate: float
    interval_95: tuple[float, float]


class NoiseFloor(_Numbers, frozen=True, kw_only=True):
    """How often the baseline differs from itself, and the candidate from it."""

    baseline_from_itself: Differing
    candidate_from_baseline: Differing
    p_candidate_differs_more: float


class Drift(_Numbers, frozen=True, kw_only=True):
    """Mean gaps of both arms (nats), paired by completion; one-sided sign-flip test."""

    completions: int
    baseline_mean_gap: float
    candidate_mean_gap: float
    ratio: float | None
    p_value: float
    baseline_quantiles: Mapping[str, float]
    candidate_quantiles: Mapping[str, float]
    drifted: bool


class Unsupported(_Numbers, frozen=True, kw_only=True):
    """Tokens, and how many of them the reference does not support."""

    tokens: int
    unsupported: int


class PositionInStep(_Numbers, frozen=True, kw_only=True):
    """Unsupported tokens by their place in the decode step, and after a rejected draft; Fisher, exact, one-sided."""

    by_place: Mapping[str, Unsupported]
    after_rejection: Unsupported
    elsewhere: Unsupported
    p_more_after_rejection: float


class DrawsSeen(_Numbers, frozen=True, kw_only=True):
    """How little of what is wrong with all draws of an arm would have been seen with a chance of 95 %."""

    tokens: int
    temperature_times: float | None
    """A temperature so many times the one that was asked for; None: none was."""
    best_taken: float | None
    """The best token taken in the place of one drawn, at this share of places."""


class WaySeen(_Numbers, frozen=True, kw_only=True):
    """A way to draw otherwise than asked (parity/comparator/reference/other_draws.py), and the smallest share of the
    completions drawn so that would have been seen with a chance of 95 %."""

    way: str
    size: float
    completions: int
    """For which it is another one than asked."""
    share: float | None
    """None: not even all of them."""


class DraftsOff(_Numbers, frozen=True, kw_only=True):
    """Drafts that are not accepted at their probability: the accepted ones are as many as `worth` drafts would give, or
    too few, where `worth` are due."""

    drafts: int
    accepted: int
    worth: float
    too_few: bool
    p_value: float
    of_few: int = 0
    """In so many completions, and in no others."""


class SamplingStats(_Numbers, frozen=True, kw_only=True):
    """Two-sample tests of a run with random sampling; pairs are [baseline's, candidate's]."""

    p_values: Mapping[str, float]
    adjusted: Mapping[str, float]
    """The same after Holm's adjustment."""
    mean_surprisal: tuple[float | None, float | None]
    """Nats per token."""
    mean_length: tuple[float | None, float | None]
    finish_reasons: Mapping[str, tuple[int, int]]
    distinct_samples: tuple[float | None, float | None]
    scored: int
    """Completions of the candidate that are scored."""
    temperature: float
    allowed_for_rounding: float = 0.0
    """Nats per token by which the arms' mean log-likelihood may differ."""
    failed: tuple[str, ...] = ()
    """Tests in which the arms differ."""
    of_either: tuple[str, ...] = ()
    """Those of them of which nothing says which arm is not as asked."""
    one_seed_for: tuple[str, ...] = ()
    """Arms that were asked with one seed for all requests, where that may be what the failed tests found."""
    odd_places: tuple[str, ...] = ()
    """Where tokens look as if drawn at another temperature, worst first (detect/drawn_places.py)."""
    draws_seen: DrawsSeen | None = None
    """Of the test `draws`."""
    ways_seen: tuple[WaySeen, ...] = ()
    """Of the test `mixture`."""
    unchecked_drafts_seen: float | None = None
    """Of the rejected drafts: had this share been accepted unchecked, it would have been seen with a chance of 95 %."""
    baseline_draws_at: float | None = None
    """Times the temperature asked for, that explain the baseline's own draws by its scores, where 1 does not."""
    baseline_drafts: DraftsOff | None = None
    """Of the baseline, where its drafts are not accepted at their probability."""
    draws_of_either: bool = False
    """The arms draw otherwise, and the lists do not show which as asked: they leave out where a cut-off lies."""
    noise_shared_by: tuple[str, ...] = ()
    """Arms whose completions draw with the same noise (detect/shared_noise.py): of these one counts."""


class Exercised(_Numbers, frozen=True, kw_only=True):
    """What is known of the path that a run set out to test, from the candidate's counters and traces."""

    speculates: bool
    draft_tokens: int | float | UnsetType = UNSET
    accepted_tokens: int | float | UnsetType = UNSET
    steps: int | float | UnsetType = UNSET
    arrivals_while_decoding: int | float | UnsetType = UNSET
    aborted: int | float | UnsetType = UNSET
    rows_joined: int | float | UnsetType = UNSET
    rows_left: int | float | UnsetType = UNSET
    rows_moved: int | float | UnsetType = UNSET
    preemptions: int | float | UnsetType = UNSET


class Suspected(_Numbers, frozen=True, kw_only=True):
    """What a completion that nothing judges looks like."""

    request: str
    round: int
    sample: int
    looks_like: str
    position: int
    length: int


class Doubtful(_Numbers, frozen=True, kw_only=True):
    """A completion with nothing wrong but a token or two a little beyond the tolerance: the worst of them."""

    request: str
    round: int
    sample: int
    position: int
    gap: float


class ArbiterStats(_Numbers, frozen=True, kw_only=True):
    """Completions that differ, by whom the arbiter supports; its tolerance in nats."""

    arm: str
    tolerance: float
    baseline: int
    candidate: int
    both: int
    neither: int
    baseline_at_fault: bool | UnsetType = UNSET
    """It supports the candidate throughout, and not the baseline."""


class Residuals(_Numbers, frozen=True, kw_only=True):
    """An engine's own logprobs of its tokens minus their scores (nats), as far as both arms have them."""

    tokens: int
    mean: float
    sd: float
    median_size: float
    quantiles: Mapping[str, float]
    """Of the absolute value."""
    beyond: Mapping[str, float]
    """Share of tokens beyond so many nats."""
    largest: float
    logit_noise: float
    """Nats by which the chosen token's logit is off on average."""


class Detectable(_Numbers, frozen=True, kw_only=True):
    """The smallest effects that a run would have seen with 95 % probability, from its own noise; None where it would
    have seen none of any size."""

    mean_shift: float | None
    """Nats of bias on every token."""
    scale_factor: float | None
    """Ratio of the arms' logit noise."""
    wide_per_10_000: float | None
    """Residuals beyond 0.1 nats in 10,000 tokens."""
    noise_per_token: float
    """Standard deviation of the paired difference of residuals that a token contributes (nats)."""
    relative_scale_noise: float | None
    """The same of the logit noise, as a share of the baseline's."""


class LeaningToken(_Numbers, frozen=True, kw_only=True):
    """A token whose logprobs the candidate has off the same way in both halves of the completions."""

    token: int
    nats: float
    """On average, how much more they lie off their scores than the baseline's."""
    places: int


class LeaningPattern(_Numbers, frozen=True, kw_only=True):
    """What the ids have in common whose logprobs the candidate has off the same way."""

    by: str
    """ "modulo": every `of`-th id, `number` left over; "shard": shard `number`, from 0, of as many as `of`."""
    of: int
    number: int
    tokens: int
    """Ids of it that were seen often enough."""
    nats: float
    """By which these are off, on average over their places."""
    others: float
    """The same of all other ids."""
    p_value: float


class NoisySpots(_Numbers, frozen=True, kw_only=True):
    """Where the candidate's residuals are larger than elsewhere, the same in both halves of the completions."""

    size: float
    """Of the mean noise, by which it is larger there."""
    found: tuple[int, ...] = ()
    """Output positions, or numbers of tokens before (the prompt's included), the first of them."""
    by_context: bool = False
    """They count the prompt's tokens."""


class OddRows(_Numbers, frozen=True, kw_only=True):
    """Completions of the candidate that lie farther off their scores than chance and the baseline's explain."""

    completions: int
    named: tuple[str, ...] = ()
    """The farthest of them."""
    times: float
    """The logit noise of the least of them, over the arm's usual one."""
    baseline_times: float
    """The same of the baseline's farthest completion."""
    baseline_completions: int = 0
    """Of the baseline's, as far off as the least of them, for its length."""
    p_value: float
    """The chance of as many among clean arms whose rows lie apart by chance."""


class NoisyPart(_Numbers, frozen=True, kw_only=True):
    """A part of the tokens in which the candidate is noisier than the baseline, by more than in the rest."""

    by: str
    """What cuts it off: "place" (output tokens before), "context" (those of the prompt as well), "prompt" (tokens
    of the prompt), "since" (rounds), "round" or "sample"."""
    bound: int
    """Where it begins; which round or sample it is."""
    tokens: int
    completions: int
    ratio: float
    """Of the arms' logit noise there."""
    ratio_elsewhere: float
    p_value: float


class RowsSeen(_Numbers, frozen=True, kw_only=True):
    """So many completions whose logits are `times` as noisy as usual would have kept the run from a PASS."""

    completions: int
    times: float


class Numerics(_Numbers, frozen=True, kw_only=True):
    """The numerics of the run as a whole: residuals of both arms, the tests of them and of the gaps."""

    source: str
    """What the candidate's logprobs were compared with: "scores", "own" (the baseline's own logprobs of the same
    tokens), or "gaps" where the arms have no logprobs and gaps alone were tested."""
    tokens: int = 0
    completions: int = 0
    unit: float | None = None
    """The bf16 unit of the chosen tokens' logits, nats."""
    unit_is_measured: bool = False
    baseline: Residuals | None = None
    candidate: Residuals | None = None
    mean_shift: float | None = None
    leaning: Mapping[str, float] = {}
    """Nats by which the logprobs of the same tokens ("ids"), or of the same places, lean the same way in both halves of
    the completions."""
    leaning_tokens: tuple[LeaningToken, ...] = ()
    """Where those of the same tokens do: the ones of which that is surest."""
    leaning_pattern: LeaningPattern | None = None
    spots: NoisySpots | None = None
    odd_rows: OddRows | None = None
    noisy_part: NoisyPart | None = None
    rows_seen: tuple[RowsSeen, ...] = ()
    scale_ratio: float | None = None
    """Of the arms' logit noise."""
    extra_wide_per_10_000: float | None = None
    """Residuals beyond 0.1 nats in 10,000 tokens, more than the baseline's."""
    logit_noise_in_units: float | None = None
    """The candidate's, in bf16 units."""
    gaps_of_one_unit: float | None = None
    """The mean gap that one bf16 unit of noise on every logit would make (nats)."""
    p_values: Mapping[str, float] = {}
    adjusted: Mapping[str, float] = {}
    """The same after Holm's adjustment."""
    failed: tuple[str, ...] = ()
    baseline_off: tuple[str, ...] = ()
    """Tests by which it is the baseline that lies off its scores, and the candidate less."""
    farther_in_baseline: int = 0
    farther_in_candidate: int = 0
    """Completions with a token a little beyond the tolerance where the other arm's has none, each text once."""
    more_than_one_unit: bool = False
    """Of what failed, something is more than one bf16 unit of noise on every logit explains."""
    other_kernels: tuple[str, ...] = ()
    """Settings by which the arms are known to compute otherwise."""
    unknown_kernels: bool = False
    """Nothing says whether they compute alike."""
    detectable: Detectable | None = None


class OverRounds(_Numbers, frozen=True, kw_only=True):
    """One number of the candidate, round after round, and the evidence that it changed."""

    rounds: int
    log10_e: float
    """Of the e-value (a test martingale): above 10 ** x at any round with a chance of at most 10 ** -x."""
    since: int
    """The round with which a change most likely began."""
    before: float
    after: float
    """Means of the rounds before and since."""
    changed: bool


class Moved(_Numbers, frozen=True, kw_only=True):
    """Greedy choices of the candidate that are not the reference's, benign or not."""

    turned: int
    tokens: int
    """Choices that were looked at."""
    unseen: int
    """Choices after a parting that nothing was known of."""
    at_most: float
    """Share of choices that can have been turned, at 95 %."""


class Missed(_Numbers, frozen=True, kw_only=True):
    """A way to be wrong, and how often a completion could be so without being seen in this run."""

    fault: str
    """Its name, parity/comparator/population/missed.py."""
    size: float
    """Nats or tokens."""
    seen: float
    """Share of hits that this run would have seen."""
    rate: float | None
    """The rate that the run's clean completions exclude at 95 %; None where they exclude none."""
    needed: int | None = None
    """Completions that would exclude one of ten; None where no number would, or `rate` says enough."""


class Rates(_Numbers, frozen=True, kw_only=True):
    """Completions by class, and corrupt ones by kind."""

    completions: int = 0
    identical: int = 0
    near_tie: int = 0
    corrupt: int = 0
    """Of those that came; tables and verdicts count `missing` among the corrupt as well."""
    unjudged: int = 0
    missing: int = 0
    """Completions of the baseline that the candidate did not return."""
    sampled: int = 0
    judged: int = 0
    rates: Mapping[str, Rate] = {}
    first_faults: Mapping[str, int] = {}
    """Completions by the kind of their first fault, the most frequent first: what comes later in a completion mostly
    follows from it. Findings about the run as a whole count in it as well."""
    of_run: Mapping[str, int] = {}
    """Findings about the run as a whole, by kind."""


class FirstFault(_Numbers, frozen=True, kw_only=True):
    """Where a completion goes wrong first. position, token: None where it does as a whole."""

    request: str
    round: int
    sample: int
    position: int | None
    token: int | None
    """The candidate's."""


class Stats(Rates, frozen=True, kw_only=True):
    """All numbers of a comparison."""

    tolerance: float = 0.0
    """Nats."""
    tokens: int = 0
    """Output tokens of the candidate's completions that were compared."""
    exercised: Exercised = Exercised(speculates=False)
    differences: Mapping[str, Mapping[str, tuple[Json, Json]]] = {}
    """How the arms differ besides: versions, precision, engine, checkpoint; name to [baseline's, candidate's]."""
    floor: FloorStats | None = None
    loops: Loops | UnsetType = UNSET
    noise_floor: NoiseFloor | UnsetType | None = UNSET
    drift: Drift | UnsetType | None = UNSET
    position_in_step: PositionInStep | UnsetType | None = UNSET
    sampling: SamplingStats | UnsetType = UNSET
    over_rounds: Mapping[str, OverRounds] | UnsetType = UNSET
    """By measure (parity/comparator/population/rounds.py), where the run has several rounds."""
    aborted: int | UnsetType = UNSET
    tokens_not_judged: int | UnsetType = UNSET
    """Tokens after near-ties on which the reference says nothing."""
    suspects: tuple[Suspected, ...] | UnsetType = UNSET
    doubtful: tuple[Doubtful, ...] | UnsetType = UNSET
    numerics: Numerics | UnsetType | None = UNSET
    chance_that_any_token_passes: float | UnsetType = UNSET
    missed: tuple[Missed, ...] = ()
    """What a run without a corrupt completion could have missed."""
    fault_rate_not_excluded: float | None = None
    """The largest rate in `missed`; None where completions are corrupt or nothing is excluded."""
    moved: Moved | UnsetType = UNSET
    """Of what was decoded greedily."""
    arbiter: ArbiterStats | UnsetType = UNSET
    recorded: tuple[str, str] | UnsetType = UNSET
    """Where one of the arms is a recording: the names of the arms that baseline and candidate are of."""
    faults_at: tuple[FirstFault, ...] = ()
    """Of some of the corrupt completions, the same ones in every arm that has them: do arms go wrong alike?"""

    @property
    def baseline_at_fault(self) -> bool:
        """An arbiter supports the candidate throughout, and not the baseline."""
        return not isinstance(self.arbiter, UnsetType) and self.arbiter.baseline_at_fault is True

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Stats:
        """From `to_json`, also that of an earlier parity. Raises msgspec.ValidationError for anything else."""
        sampling = value.get("sampling")
        if isinstance(sampling, Mapping) and "mean_surprise" in sampling:
            value = {**value, "sampling": {**sampling, "mean_surprisal": sampling["mean_surprise"]}}
        return msgspec.convert(value, Stats)
