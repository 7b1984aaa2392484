"""Which tokens of a run top-k and top-p would have left out, by its scores: those that vLLM's rule does not keep."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def records(file: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Those of this kind in a file of JSON Lines."""
    with file.open(encoding="utf-8") as lines:
        yield from (record for line in lines if (record := json.loads(line))["record"] == kind)


def kept(row: Sequence[tuple[int, float]], k: int, p: float, temperature: float) -> set[int]:
    """Of these tokens and logprobs the k best, and of those the fewest that have a share p of them."""
    best = sorted(row, key=lambda one: -one[1])[:k]
    weights = [math.exp(logprob / temperature) for _, logprob in best]
    before = itertools.accumulate(weights, initial=0.0)
    return {token for (token, _), sum_ in zip(best, before, strict=False) if sum_ <= p * sum(weights)}


def beyond_the_cut(out: Path) -> dict[str, tuple[int, int]]:
    """By arm of a run that is scored: of the completions asked for with both, tokens beyond the cut, and all."""
    shared = json.loads((out / "plan.json").read_text(encoding="utf-8"))["sampling"]
    scores = {(one["arm"], one["request"]): one["logprobs"] for one in records(out / "scores.jsonl", "score")}
    found: dict[str, tuple[int, int]] = {}
    for arm in dict.fromkeys(arm for arm, _ in scores):
        cut: list[bool] = []
        for one in records(out / f"{arm.replace('/', '-')}.jsonl", "completion"):
            asked = {**shared, **one.get("sampling", {})}
            if not asked.get("top_k") or asked.get("top_p", 1.0) == 1.0:
                continue
            for token, row in zip(one["token_ids"], scores[arm, one["request"]], strict=True):
                cut.append(token not in kept(row, asked["top_k"], asked["top_p"], asked["temperature"]))
        if cut:
            found[arm] = sum(cut), len(cut)
    return found
