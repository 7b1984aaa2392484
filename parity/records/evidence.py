"""What a person can check a finding by: one typed class for each family of kinds.

In files evidence is one flat JSON object (docs/kinds.md lists its keys). A field without a default is always written,
as null where there is none; a field that is None by default is written where it is something.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import structs

from parity.messages import Message, message, verbatim

Json = Any


class JudgedBy(StrEnum):
    """What says that the tokens of a finding are wrong, or a near-tie."""

    SCORES = "scores"
    BASELINE_LIST = "logprobs at the first divergent token"
    CANDIDATE_LIST = "the candidate's own logprobs"
    OWN_LIST = "the engine's own logprobs"
    ARBITER = "an arbiter"
    NO_OTHER_SPAN = "no two requests of the baseline have nearly as long a span in common"
    NO_OTHER_COPY = "the baseline says nothing nearly as long twice"


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What the reference says of the finding's first token; nats."""

    gap: float | None
    gap_is_lower_bound: bool = False
    best_token: int | None = None
    best_logprob: float | None = None
    chosen_logprob: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What any finding may have, and all that one of an unknown kind has."""

    why: Message
    ambiguous: Message | None = None
    """What the tokens do not decide."""
    corroborated_by: Message | None = None
    """What says the same as the tokens do."""
    candidate_token: int | None = None
    baseline_token: int | None = None
    numbers: Numbers | None = None
    tolerance: float | None = None
    """Nats, in force where the gap was judged."""
    judged_by: JudgedBy | None = None
    unsupported_positions: tuple[int, ...] | None = None
    largest_gap: float | None = None
    first_divergent_token: int | None = None
    logprobs: Mapping[str, tuple[tuple[int, float], ...] | None] | None = None
    """The top tokens at the finding's position and their logprobs (nats), by who says so."""
    arbiter: Mapping[str, Json] | None = None
    other: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Keys that this version does not know, and values that are not of their key's type: kept as they are."""

    @property
    def said(self) -> Message:
        """The sentence for people: why, and what the tokens leave open of it."""
        if self.ambiguous is None:
            return self.why
        return message("evidence.ambiguous", "{why}; {left_open}", why=self.why, left_open=self.ambiguous)

    @property
    def gap(self) -> float | None:
        """Nats from the reference's best token to the one chosen."""
        return None if self.numbers is None else self.numbers.gap

    def to_json(self) -> dict[str, Json]:
        found = dict(self.other)
        for name, may_be_left_out in _written(type(self)):
            value = getattr(self, name)
            if value is None and may_be_left_out:
                continue
            if isinstance(value, Numbers):
                found |= structs.asdict(value)
            else:
                found[name] = (
                    value
                    if type(value) in _OF_JSON
                    else value.to_json()
                    if isinstance(value, Message)
                    else _plain(value)
                )
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Evidence:
        """From `to_json`, of any version. What does not fit is in `other`; where a field that this class must have is
        missing, the result is a bare Evidence."""
        fields: Any = cls
        known, other = _read(fields, value)
        if cls is not Evidence and any(name not in known for name in _required(fields)):
            return Evidence.from_json(value)
        return cls(**{"why": verbatim(""), **known}, other=other)


class NearTieEvidence(Evidence, frozen=True, kw_only=True):
    gap_of_baseline_token: float | None = None
    gap_of_baseline_token_is_lower_bound: bool | None = None
    gap_of_ending_here: float | None = None
    finish_reason: str | None = None
    would_be: str | None = None
    """The kind that a token little beyond the tolerance would have."""
    looked_until: int | None = None
    limit: Message | None = None
    """What could not be judged."""


class TokensEvidence(Evidence, frozen=True, kw_only=True):
    """Tokens that are not the baseline's."""

    baseline_tokens: tuple[int, ...] | None = None
    candidate_tokens: tuple[int, ...] | None = None
    agree_again_for: int | None = None
    """Tokens after it that both streams have in common."""
    unsupported_tokens: int | None = None
    p_value: float | None = None
    period: int | None = None
    copies: float | None = None
    source_start: int | None = None
    source_end: int | None = None


class LeakEvidence(TokensEvidence, frozen=True, kw_only=True):
    donor_request: str
    donor_part: str
    donor_start: int
    donor_end: int
    expected_by_chance: float
    requests_with_this_span: int
    leaked_tokens: tuple[int, ...] | None = None
    donor_round: int | None = None
    """None: the donor is a prompt, which all rounds and samples of the request have."""
    donor_sample: int | None = None

    @property
    def donor(self) -> str:
        """The donor's name: of a completion, where that is known, as `parity.records.Key` says it."""
        if self.donor_round is None or self.donor_sample is None:
            return self.donor_request
        return f"{self.donor_request} round {self.donor_round} sample {self.donor_sample}"


class TemperatureEvidence(Evidence, frozen=True, kw_only=True):
    """Tokens that look as if drawn at another temperature."""

    asked: float
    looks_like: float
    """0 is greedy."""
    p_value: float | None = None
    """Times the completions of the run."""


class CutoffEvidence(Evidence, frozen=True, kw_only=True):
    """Tokens that top_k, top_p or min_p had cut off."""

    asked: Mapping[str, float]
    positions: tuple[int, ...]
    """The first 32."""
    farthest: float
    """Nats by which the reference's logits would have to be off."""


class InvalidTokenEvidence(Evidence, frozen=True, kw_only=True):
    token_ids: tuple[int, ...]
    vocab_size: int | None


class EndEvidence(Evidence, frozen=True, kw_only=True):
    finish_reason: str | None = None
    baseline_finish_reason: str | None = None
    gap_of_ending_here: float | None = None
    terminator: int | None = None
    max_tokens: int | None = None
    p_value: float | None = None


class RuleEvidence(Evidence, frozen=True, kw_only=True):
    """Of a rule that the request itself made."""

    rule: str
    """The sampling parameter."""
    forbidden: tuple[int, ...] | None = None
    """The token sequence whose last token was forbidden, or the token."""
    word: str | None = None
    """Of `bad_words`."""
    character: int | None = None
    text: str | None = None
    """Around that character."""


class LogprobEvidence(Evidence, frozen=True, kw_only=True):
    count: int = 0
    """Positions that are off; 0 in files of an older parity."""
    positions: tuple[int, ...] | None = None
    """The first of them."""
    worst_position: int | None = None
    logprob: float | None
    score: float | None


OTHER_TEXT = "text.differs"
"""Id of the sentence for equal tokens with another text than the baseline's."""


class TextEvidence(Evidence, frozen=True, kw_only=True):
    character: int | None = None
    text: str | None = None
    expected: str | None = None
    problems: tuple[str, ...] | None = None

    @property
    def by_baseline(self) -> bool:
        """Whether `expected` is the baseline's text; else it is what the completion's own token ids say."""
        return self.why is not None and self.why.id == OTHER_TEXT


AROUND_PARTING = 12
"""Tokens of two prompts kept on either side of the place where they part."""


class InputEvidence(Evidence, frozen=True, kw_only=True):
    prompt_position: int | None = None
    baseline_prompt_length: int | None = None
    candidate_prompt_length: int | None = None
    prompts_from: int | None = None
    """The place of the first token of the two below."""
    baseline_prompt: tuple[int, ...] | None = None
    """Around the place where they part."""
    candidate_prompt: tuple[int, ...] | None = None
    baseline_max_tokens: int | None = None
    candidate_max_tokens: int | None = None


class MissingEvidence(Evidence, frozen=True, kw_only=True):
    missing_from: str


class CopyOfSampleEvidence(Evidence, frozen=True, kw_only=True):
    copy_of_sample: int
    log_likelihood: float | None
    p_value: float | None = None


class RoundsEvidence(Evidence, frozen=True, kw_only=True):
    rounds: int
    differs_from_rounds: tuple[int, ...]
    faulty_rounds: tuple[int, ...]


class RunEvidence(Evidence, frozen=True, kw_only=True):
    """Of a finding about the run as a whole."""

    test: str | None = None
    p_value: float | None = None
    both: int | None = None
    only_baseline: int | None = None
    only_candidate: int | None = None
    p_candidate_loops_more: float | None = None


class NumericsEvidence(RunEvidence, frozen=True, kw_only=True):
    """Of an arm whose numerics differ: sizes are the candidate's against the baseline's."""

    tests: tuple[str, ...] = ()
    """Those that failed."""
    more_than_one_unit: bool = False
    """Noise of one bf16 unit on every logit does not explain it."""
    tokens: int | None = None
    completions: int | None = None
    scale_ratio: float | None = None
    """Of the logit noise."""
    logit_noise_in_units: float | None = None
    mean_shift: float | None = None
    """Nats."""
    extra_wide_per_10_000: float | None = None
    """Residuals beyond 0.1 nats, more than the baseline's in 10,000 tokens."""
    largest_residual: float | None = None
    mean_gap_ratio: float | None = None
    leaning_tokens: tuple[tuple[int, float, int], ...] | None = None
    """[token, nats by which its logprobs are off the same way, places] of those of which that is surest."""
    other_kernels: tuple[str, ...] | None = None
    """Settings by which the arms are known to compute otherwise."""


class ViolationEvidence(Evidence, frozen=True, kw_only=True):
    """Of an equality of the engine's bookkeeping that a step broke."""

    invariant: str
    step: int
    row: int
    expected: int | tuple[int, ...]
    found: int | tuple[int, ...]
    broken: tuple[str, ...] = ()
    """All invariants that this row-step broke."""
    row_steps: int = 1
    """Row-steps of this completion that broke any."""
    places: tuple[tuple[int, int, int], ...] = ()
    """[step, row, output position] of the first of them."""
    row_before: str | None = None
    """Whose row it was in the step before."""
    shared_with: str | None = None
    """Who has the same row, block or state slot in this step."""


class LocatedEvidence(Evidence, frozen=True, kw_only=True):
    """Of activations: the first module beyond the run's own noise, or a token that its own logits did not choose."""

    answer: str
    """"module" or "sampler"."""
    module: str
    """Its path in the model; "logits", or "sampler"."""
    input_position: int
    """Of the token that went in, in prompt and completion."""
    step: int
    row: int
    module_type: str = ""
    """Its class, where it has one."""
    distance: float = 0.0
    """Relative difference from the reference's prefill, and the median of that in this run."""
    usual: float = 0.0
    input_clean: bool = True
    """All that ran before it in this token was within noise."""
    tokens_beyond: int = 0
    """Tokens of this completion with a module beyond noise, from here on."""
    handed_out: int | None = None
    own_best: int | None = None
    """Of "sampler": the token that came out, and the argmax of its own logits."""
    strip_modules: tuple[str, ...] = ()
    strip_positions: tuple[int, ...] = ()
    strip: tuple[tuple[float, ...], ...] = ()
    """Modules by tokens around it: spreads above the usual, as a share of what accuses."""


_OF_JSON = frozenset({int, float, str, bool, type(None)})


def _plain(value: Json) -> Json:
    if isinstance(value, tuple):
        return [one if type(one) in _OF_JSON else _plain(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, str) else value


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {one.name: hints[one.name] for one in structs.fields(cls) if one.name not in ("numbers", "other")}


@cache
def _written(cls: type[Any]) -> tuple[tuple[str, bool], ...]:
    """Fields in their order, and whether None is not written."""
    return tuple((one.name, one.default is None) for one in structs.fields(cls) if one.name != "other")


@cache
def _required(cls: type[Any]) -> frozenset[str]:
    return frozenset(one.name for one in structs.fields(cls) if one.required) - {"why"}


def _read(cls: Any, value: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """(fields of `cls`, what is none of them)."""
    known: dict[str, Json] = {}
    other = dict(value)
    try:
        numbers = msgspec.convert({name: value[name] for name in _NUMBERS if name in value}, Numbers)
    except msgspec.ValidationError:
        pass  # they stay in `other`
    else:
        known["numbers"] = numbers
        for name in _NUMBERS:
            other.pop(name, None)
    for name, hint in _hints(cls).items():
        if name not in value:
            continue
        try:
            known[name] = (
                Message.from_json(value[name])
                if hint in (Message, Message | None)
                else msgspec.convert(value[name], hint)
            )
        except (ValueError, msgspec.ValidationError):
            continue
        other.pop(name)
    return known, other


_NUMBERS = Numbers.__struct_fields__
