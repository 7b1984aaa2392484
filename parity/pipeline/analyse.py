"""Comparing two captures and making the outcome ready for the store and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from parity.comparator import DEFAULT_ALPHA, CompareOptions, Comparison, compare
from parity.comparator.types import Spread, alone
from parity.errors import ParityError
from parity.messages import message
from parity.plan import Arm, Model, Plan, Request
from parity.plan.apart import tokens_of
from parity.plan.digest import plan_hash
from parity.records import Capture, Finding, ScoreKey, Scores, TopLogprobs, first_asked
from parity.records.crossings import Crossed
from parity.records.many_findings import each
from parity.store import ArmComparison, ArmResult
from parity.store.plans import sampling_of

SHOWN_LOGPROBS = 5
"""Top tokens kept with each finding, per source."""


def analyse(
    baseline: Capture,
    candidate: Capture,
    scores: Scores,
    *,
    tolerance: float | str,
    model: Path | None,
    alpha: float = DEFAULT_ALPHA,
    crossed: Crossed | None = None,
    spread: Spread = alone,
) -> Comparison:
    """Compare, with the text check where the checkpoint's tokenizer is at hand."""
    options = CompareOptions(tolerance, detokenizer(model), alpha, spread)  # type: ignore[arg-type]
    comparison = compare(baseline, candidate, scores or None, options, crossed)

    def shown(finding: Finding) -> Finding:
        return with_logprobs(finding, baseline, candidate, scores)

    return replace(comparison, findings=each(comparison.findings, shown))


class CheckpointTokenizer:
    """`parity.comparator.types.Tokenizer` of a checkpoint directory."""

    def __init__(self, model: Path) -> None:
        self._tokens = tokens_of(model)

    def __call__(self, token_ids: Sequence[int], /) -> str:
        return self._tokens.decode(token_ids, skip=True)

    def with_special(self, token_ids: Sequence[int], /) -> str:
        return self._tokens.decode(token_ids)

    def encode(self, text: str, /) -> Sequence[int]:
        return self._tokens.encode(text)


def detokenizer(model: Path | None) -> CheckpointTokenizer | None:
    """Token ids to text with the checkpoint's tokenizer; None without one."""
    return None if model is None or not (model / "tokenizer.json").is_file() else CheckpointTokenizer(model)


def with_logprobs(finding: Finding, baseline: Capture, candidate: Capture, scores: Scores) -> Finding:
    """The finding with `logprobs` in its evidence: who thought what at its first token.

    {"reference": [[token_id, nats], …] or null, "candidate": …, "baseline": …}, best first. The baseline's
    own are given only where both completions were equal up to there, else they are about another text.
    """
    if finding.position is None:
        return finding
    ours = candidate.completions.get(finding.key)
    theirs = baseline.completions.get(finding.key)
    scored = scores.get(ScoreKey(candidate.header.arm, *finding.key)) or baseline.scores.get(
        ScoreKey(candidate.header.arm, *finding.key)
    )
    same_so_far = (
        ours is not None
        and theirs is not None
        and np.array_equal(ours.token_ids[: finding.position], theirs.token_ids[: finding.position])
    )
    listed = {
        "reference": _top(scored, finding.position),
        "candidate": _top(ours.logprobs if ours is not None else None, finding.position),
        "baseline": _top(theirs.logprobs if theirs is not None and same_so_far else None, finding.position),
    }
    if not any(listed.values()):
        return finding
    return replace(finding, evidence=structs.replace(finding.evidence, logprobs=listed))


def _top(logprobs: TopLogprobs | None, position: int) -> tuple[tuple[int, float], ...] | None:
    if logprobs is None or not 0 <= position < len(logprobs):
        return None
    pairs = [
        (int(token), float(value))
        for token, value in zip(logprobs.ids[position], logprobs.values[position], strict=True)
        if token >= 0 and np.isfinite(value)
    ]
    # An engine lists the chosen token beside its top ones, so the same one can stand there twice.
    best = sorted(dict(pairs).items(), key=lambda pair: -pair[1])
    return tuple((token, round(value, 4)) for token, value in best[: SHOWN_LOGPROBS + 1]) or None


def for_store(comparison: Comparison) -> ArmComparison:
    return ArmComparison(
        verdict=str(comparison.verdict),
        reasons=comparison.reasons,
        notes=comparison.notes,
        counts=comparison.counts,
        stats=comparison.stats.to_json(),
        classes={key: str(cls) for key, cls in comparison.classes.items()},
        first_divergence=comparison.first_divergence,
        findings=comparison.findings,
        gaps=comparison.candidate_gaps,
        baseline_gaps=comparison.baseline_gaps,
        next_steps=comparison.next_steps,
    )


def arm_result(capture: Capture) -> ArmResult:
    """Speed and acceptance from the counters of a capture's footer, where it has them."""
    counters: Mapping[str, Any] = capture.counters or {}
    seconds = _number(counters.get("generate_seconds"))
    tokens = capture.tokens.total
    drafts = _number(counters.get("drafts"))
    proposed = _number(counters.get("draft_tokens"))
    accepted = _number(counters.get("accepted_tokens"))
    return ArmResult(
        counters=dict(counters),
        # The footer's own figure is of the rounds that were timed; after a resume those may not be all.
        tokens_per_second=_number(counters.get("tokens_per_second")) or (tokens / seconds if seconds else None),
        acceptance_rate=accepted / proposed if proposed and accepted is not None else None,
        acceptance_length=1 + accepted / drafts if drafts and accepted is not None else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def plan_of_captures(baseline: Capture, candidates: Sequence[Capture], model: Path | None = None) -> Plan:
    """What stands in for the plan when captures are compared that parity did not make: its rounds are 0.

    Raises ParityError for two captures of one arm.
    """
    captures = (baseline, *candidates)
    if len({capture.header.arm for capture in captures}) < len(captures):
        raise ParityError(
            message("pipeline.same_arm", "two captures are of the same arm, {arm}", arm=baseline.header.arm),
            hint=message("pipeline.change_arm", "change the arm in the header of one of them"),
        )
    return Plan(
        model=Model(baseline.header.model, "" if model is None else str(model.absolute()), {}, None, ()),
        requests=tuple(requests_of(captures, held=True)),
        arms=tuple(Arm(h.arm, h.backend, h.variant, h.engine) for h in (capture.header for capture in captures)),
        baseline=baseline.header.arm,
        sampling=sampling_of(baseline.header.sampling),
        rounds=0,
    )


def requests_of(captures: Iterable[Capture], *, held: bool = False) -> Iterator[Request]:
    """What was asked, each once, in the order of the captures. `held`: all are kept, with one object for each number;
    as many objects as tokens would take four times the room."""
    numbers: dict[int, int] = {}
    for name, prompt in first_asked(captures):
        ids = prompt.tolist()
        yield Request(name, None, tuple(map(numbers.setdefault, ids, ids) if held else ids))


def hash_of_captures(baseline: Capture, candidate: Capture, model: Path | None = None) -> str:
    """`plan_hash` of `plan_of_captures`, of which only what is asked is made one at a time. Raises ParityError as it
    does."""
    empty = [replace(one, completions={}) for one in (baseline, candidate)]
    plan = plan_of_captures(empty[0], empty[1:], model)
    return plan_hash(plan, sampling=baseline.header.sampling, requests=requests_of((baseline, candidate)))
