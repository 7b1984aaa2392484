"""Seeds of sampled requests: another for each request, round and sample."""

from __future__ import annotations

import zlib
from typing import Optional

from .asked import Sampling


def seed_of(sampling: Sampling, request: str, round_: int) -> Optional[int]:
    """The seed to send with this request in this round; None where decoding is greedy or no seed was asked for.

    Engines draw from the seed alone, so one seed for all requests would be one noise for all: requests that are alike
    would say the same, and what two runs differ by chance would add up over them instead of averaging out. Hence the
    request's name counts. Sample i gets the seed + i (vLLM does that), so rounds step over all samples of the round
    before. Below 2^31, since not every server takes more.
    """
    seed = sampling.get("seed")
    if seed is None or not (sampling.get("temperature") or 0.0) > 0:
        return None
    step = round_ * int(sampling.get("n") or 1)
    return int((int(seed) + zlib.crc32(request.encode("utf-8")) + step) % (1 << 31))
