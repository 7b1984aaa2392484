"""The logits of scored tokens, where the engine runs in this process."""

from __future__ import annotations

import math
from typing import Any, Optional

SPREAD = 0.5
"""Nats by which a logit less a logprob may differ within one position: both are computed in batches of their own."""


class RawLogits:
    """While open, what an engine in this process gives as logprobs of a prompt are logits.

    vLLM computes both by `Sampler.compute_logprobs` (v0.11.0 to v0.33.0); where a release, a runner or another process
    does it elsewhere, what comes back are logprobs still, and `logsumexps` says so.
    """

    def __enter__(self) -> RawLogits:
        self.sampler: Any = None
        try:
            from vllm.v1.sample.sampler import Sampler
        except ImportError:  # a release without it: its scores go without logits
            return self
        self.own = Sampler.__dict__.get("compute_logprobs")
        if self.own is not None:
            self.sampler = Sampler
            self.sampler.compute_logprobs = staticmethod(lambda logits: logits.float())
        return self

    def __exit__(self, *_: Any) -> None:
        if self.sampler is not None:
            self.sampler.compute_logprobs = self.own


def logsumexps(logprobs: Any, logits: Any) -> Optional[list[Optional[float]]]:
    """log(sum(exp(logits))) at each position, from [[token_id, number], …] of both; None where `logits` are none."""
    found: list[Optional[float]] = []
    for position, entry in enumerate(logprobs):
        listed = {token: value for token, value in entry if value is not None}
        raw = logits[position] if position < len(logits) else []
        differences = sorted(value - listed[token] for token, value in raw if value is not None and token in listed)
        known = bool(differences) and differences[-1] - differences[0] < SPREAD
        middle = differences[len(differences) // 2] if known else math.nan
        found.append(round(middle, 4) if known and math.isfinite(middle) else None)
    some = [abs(value) for value in found if value is not None]
    return found if some and max(some) > SPREAD else None
