"""Was a planted fault found, in the right rows, at the right token, under the right name?

The truth comes from the plugin's log (which rows, from which token on) and from the scores: a planted row
counts as damaged when the reference leaves at least one of its tokens unjustified, when the tokens handed out
are not those that were made, or when the logprobs handed out are not those of the tokens. A planted row that is
none of this has come out with tokens that the model itself might have chosen; by its tokens nobody can tell it
from a near-tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from parity_faults import FAULTS, prompt_key

from parity.comparator.detect.off_logprobs import LOGPROB_TOLERANCE
from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs


@dataclass
class Truth:
    """One planted row. `first` and `last` bound the first offending token (inclusive); None: not damaged."""

    request: str
    planted: int
    first: int | None = None
    last: int | None = None

    @property
    def damaged(self) -> bool:
        return self.first is not None


@dataclass
class Judgement:
    """What a comparison made of one planted run."""

    fault: str
    verdict: str
    truths: list[Truth]
    found: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """First corrupt finding by request: kind and position."""

    @property
    def damaged(self) -> list[Truth]:
        return [truth for truth in self.truths if truth.damaged]

    @property
    def caught(self) -> list[Truth]:
        return [truth for truth in self.damaged if truth.request in self.found]

    @property
    def accused(self) -> list[str]:
        """Requests with a corrupt finding that were not planted at all. What is said of the run as a whole ("*") is
        true of one in which something was: rows whose tokens all passed moved its gaps, on some processors."""
        planted = {truth.request for truth in self.truths} | ({"*"} if self.damaged else set())
        return sorted(request for request in self.found if request not in planted)

    @property
    def right_kind(self) -> list[Truth]:
        expected = FAULTS[self.fault].expected
        return [truth for truth in self.caught if self.found[truth.request][0] in expected]

    @property
    def right_token(self) -> list[Truth]:
        def right(truth: Truth) -> bool:
            position = self.found[truth.request][1]
            assert truth.first is not None
            assert truth.last is not None
            return position is not None and truth.first <= position <= truth.last

        return [truth for truth in self.caught if right(truth)]


def chosen(entries: TopLogprobs, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logprob (nats) of each token of shape (T,); minus infinity where it was not listed."""
    values: np.ndarray[Any, Any] = np.where(entries.ids == tokens[:, None], entries.values, -np.inf).max(axis=1)
    return values


def gaps(entries: TopLogprobs, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Nats by which each token lies below the reference's best, shape (T,); inf where it was not listed."""
    best: np.ndarray[Any, Any] = np.nanmax(entries.values, axis=1) - chosen(entries, tokens)
    return best


def shifted(tokens: Sequence[int], start: int, length: int) -> tuple[int, int]:
    """All starts of a chunk of this length that leave the same tokens when taken out: first and last."""
    first = last = start
    while first > 0 and tokens[first - 1] == tokens[first - 1 + length]:
        first -= 1
    while last + length < len(tokens) and tokens[last] == tokens[last + length]:
        last += 1
    return first, last


def truths(planted: Sequence[Mapping[str, Any]], candidate: Capture, scores: Scores, tolerance: float) -> list[Truth]:
    """The truth about each planted row, from the plugin's log and the scores."""
    by_prompt = {prompt_key(completion.prompt_token_ids): completion for completion in candidate}
    records: dict[str, list[Mapping[str, Any]]] = {}
    for record in planted:
        if record["record"] == "planted":
            records.setdefault(str(record["prompt"]), []).append(record)
    found = []
    for prompt, own in records.items():
        completion = by_prompt[prompt]
        key: Key = completion.key
        first = min(own, key=lambda record: int(record["position"]))
        position = int(first["position"])
        truth = Truth(key.request, position)
        found.append(truth)
        fault = str(first["fault"])
        tokens = [int(token) for token in completion.token_ids]
        entries = scores[ScoreKey(candidate.header.arm, key.request, key.round, key.sample)] if tokens else None
        bad = np.zeros(0, dtype=np.int64)
        if fault == "wrong_logprobs" and entries is not None and completion.logprobs is not None:
            told = chosen(completion.logprobs, completion.token_ids)
            off = np.abs(told - chosen(entries, completion.token_ids)) > LOGPROB_TOLERANCE
            bad = np.flatnonzero(off[position:])
        elif entries is not None:
            bad = np.flatnonzero(gaps(entries, completion.token_ids)[position:] > tolerance)
        if fault == "chunk_twice":
            truth.first, truth.last = shifted(tokens, position, len(first["before"]))
        elif fault == "bonus_lost":
            lost = [int(token) for token in first["before"][len(first["after"]) :]]
            whole = [*tokens[:position], *lost, *tokens[position:]]
            truth.first, truth.last = shifted(whole, position, len(lost))
        elif len(bad):
            truth.first, truth.last = position, position + int(bad[0])
    return found


def judge(
    fault: str,
    comparison: Mapping[str, Any],
    planted: Sequence[Mapping[str, Any]],
    candidate: Capture,
    scores: Scores,
    tolerance: float = 0.25,
) -> Judgement:
    """Sets a comparison (the JSON of `parity compare --json`) against what was planted."""
    result = Judgement(fault, str(comparison["verdict"]), truths(planted, candidate, scores, tolerance))
    for finding in comparison["findings"]:
        if finding["severity"] != "corrupt":
            continue
        place = (str(finding["kind"]), finding["position"])
        old = result.found.get(finding["request"])
        if old is None or _before(place[1], old[1]):
            result.found[finding["request"]] = place
    return result


def _before(a: int | None, b: int | None) -> bool:
    return a is not None and (b is None or a < b)
