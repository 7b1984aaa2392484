"""What completions that were drawn at random were drawn from, by their scores or their own lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect import logprobs, stops
from parity.comparator.detect.events import Event
from parity.comparator.detect.rules import Broken, Requested
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.said import Writer
from parity.comparator.reference import surprisal
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.scores import Reference
from parity.comparator.types import CompareOptions, Spread
from parity.records import Capture, Completion, Key, TopLogprobs
from parity.records.evidence import JudgedBy

HIGHEST_LOGIT = 40.0
"""Nats that logits are taken to stay below, where they are not recorded: those of checkpoints do. A repetition penalty
takes a share of the logit off a token seen before: one of 1.2 a sixth. A bias is part of the logit."""


class Draws(Struct, frozen=True):
    """The run as the rules find it."""

    baseline: Capture
    candidate: Capture
    reference: Reference
    temperature_of: Callable[[Completion], float]
    rules: stops.StopRules
    vocab_size: int | None
    scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]]
    """Of the candidate's completions."""
    lists_show_draws: bool
    """The engine's own lists are what it drew from."""
    windows: int
    """Stretches looked at in the whole run."""
    alpha: float
    writer: Writer
    broken: Broken
    spread: Spread

    def distribution(self, b: Completion) -> TopLogprobs | None:
        """What a completion was drawn from: its score, else its own lists where they show that; else None."""
        if self.reference.shaping(b).unknown:
            return None
        if b.key in self.scored:
            return self.scored[b.key][1]
        return b.lists if self.lists_show_draws and false_lists(b) is None else None

    def judged_by(self, b: Completion) -> JudgedBy:
        return JudgedBy.SCORES if b.key in self.scored else JudgedBy.OWN_LIST

    def of_baseline(self) -> dict[Key, TopLogprobs]:
        """What the baseline's completions were drawn from."""
        own = {one.key: one.lists for one in self.baseline if one.lists is not None} if self.lists_show_draws else {}
        scored = self.reference.all_gaps(self.baseline.header.arm, list(self.baseline))
        return own | {key: top for key, (_, top) in scored.items()}

    def tail_logs(self, one: Completion, top: TopLogprobs) -> tuple[FloatArray, float]:
        return tail_logs(one, top, self.reference, self.temperature_of(one), self.vocab_size)


def draws_of(inputs: Inputs, reference: Reference, options: CompareOptions, requested: Requested) -> Draws:
    """`inputs` are of drawn completions alone."""
    baseline, candidate = inputs.baseline, inputs.candidate
    rules = requested.ends
    windows = candidate.tokens.total * len(surprisal.WINDOWS)
    return Draws(
        baseline=baseline,
        candidate=candidate,
        reference=reference,
        temperature_of=inputs.temperature_of,
        rules=replace(rules, keeps_terminator=False) if inputs.candidate_drops_eos else rules,
        vocab_size=inputs.vocab_size,
        scored=reference.all_gaps(candidate.header.arm, list(candidate)),
        lists_show_draws=_lists_show_draws(inputs, reference, windows),
        windows=windows,
        alpha=options.alpha,
        writer=requested.writer,
        broken=requested.broken,
        spread=options.spread,
    )


def _lists_show_draws(inputs: Inputs, reference: Reference, windows: int) -> bool:
    """Are the engines' own lists what they drew from? The baseline's tokens are likely by its own, then."""
    lists = [(one, one.lists) for one in inputs.baseline if one.lists is not None]
    raw = inputs.candidate.header.engine.get("logprobs_mode") == "raw_logprobs"

    def is_unlikely(one: Completion, top: TopLogprobs) -> bool:
        logs, slack = tail_logs(one, top, reference, inputs.temperature_of(one), inputs.vocab_size)
        return bool(surprisal.find_unlikely(logs, windows, surprisal.HABIT, slack))

    return (raw or bool(lists)) and not any(is_unlikely(one, top) for one, top in lists)


def tail_logs(
    one: Completion, top: TopLogprobs, reference: Reference, temperature: float, vocab_size: int | None
) -> tuple[FloatArray, float]:
    """(`surprisal.tail_logs` under the request's penalties, nats of slack for each token). Where the lists do not show
    exactly what a repetition penalty leaves of them, the slack allows for it: on the likely tokens it makes others
    likelier by as much. All else that was asked is counted."""
    temperature = max(temperature, surprisal.COLDEST)
    slack = surprisal.slack_at(temperature)
    penalised = reference.shaping(one).penalised(one)
    if penalised is None or surprisal.shows_penalties(top, penalised):
        return surprisal.tail_logs(top, one.token_ids, temperature, vocab_size, penalised), slack
    logs = surprisal.tail_logs(top, one.token_ids, temperature, vocab_size, penalised.but(penalised.additive))
    asked = penalised.penalties
    highest = HIGHEST_LOGIT + max((abs(added) for _, added in asked.bias), default=0.0)
    return logs, slack + highest * abs(1.0 - 1.0 / asked.repetition) / temperature


def false_lists(b: Completion) -> Event | None:
    """Lists that are none, whatever was drawn."""
    return logprobs.broken_logprobs(b) or logprobs.unlisted_logprobs(b)
