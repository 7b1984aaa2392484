"""The logprobs of vLLM's outputs, as the records have them."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from parity_backends.worker.records import DECIMALS, number


def entries(logprobs: Any) -> Any:
    """[[token_id, logprob in nats], ...] per position, the chosen token first, from vLLM's list of dicts or its flat
    lists (vllm/logprobs.py, FlatLogprobs)."""
    if logprobs is None:
        return None
    if hasattr(logprobs, "start_indices"):  # a dict per position only where one asks
        return flat_entries(logprobs.token_ids, logprobs.logprobs, logprobs.start_indices, logprobs.end_indices)
    return [
        [] if entry is None else [[int(token), number(item.logprob)] for token, item in entry.items()]
        for entry in logprobs
    ]


def flat_entries(token_ids: list[int], logprobs: list[float], starts: list[int], ends: list[int]) -> list[Any]:
    """Of lists that hold the positions one after the other, none between them left out (else ValueError). The chosen
    token stands again where it is among the best: the first pair of each token stays."""
    ids, begin, end = (np.array(one, dtype=np.int64) for one in (token_ids, starts, ends))
    some = end > begin
    again = ids == np.repeat(ids[begin[some]], (end - begin)[some])
    again[begin[some]] = False
    pairs: list[Any] = list(map(list, zip(ids[~again].tolist(), numbers(logprobs, ~again))))  # noqa: B905 - Python 3.9
    left = np.concatenate(([0], np.cumsum(~again)))
    return [
        pairs[first:stop]
        for first, stop in zip(left[begin].tolist(), left[end].tolist())  # noqa: B905 - strict is Python 3.10
    ]


def numbers(logprobs: list[float], wanted: Any) -> list[Optional[float]]:
    """`number` of those that are wanted."""
    values = np.array(logprobs, dtype=np.float64)[wanted]
    if np.isfinite(values).all():
        return list(np.round(values, DECIMALS).tolist())
    return list(map(number, values.tolist()))
