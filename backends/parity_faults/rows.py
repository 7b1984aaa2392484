"""Rows of a running batch and the requests in them, as the plants read and write them."""

from __future__ import annotations

from typing import Any

DISCARDED = ("discard_request_mask", "discard_request_indices")
"""Where a model runner says which rows are in the middle of a chunked prefill, whose tokens are thrown away: by a mask,
by numbers, or both. vllm-ascend 0.12.0rc1 to 0.20.2rc1 inherit the mask and fill the numbers only
(`model_runner_v1.py`, `_prepare_inputs`), so what either says counts; docs/engine-contract.md has who writes which."""


def discarded_rows(runner: Any) -> set[int]:
    """Rows whose tokens of this step are thrown away."""
    found: set[int] = set()
    mask = getattr(runner, "discard_request_mask", None)
    if mask is not None:
        found.update(row for row, thrown in enumerate(mask.np[: runner.input_batch.num_reqs].tolist()) if thrown)
    numbers = getattr(runner, "discard_request_indices", None)
    if numbers is not None:
        found.update(int(row) for row in numbers.np[: runner.num_discarded_requests].tolist())
    return found


def sampling_rows(runner: Any) -> list[int]:
    """Rows that emit tokens in this step (not in the middle of a chunked prefill)."""
    discarded = discarded_rows(runner)
    return [row for row in range(runner.input_batch.num_reqs) if row not in discarded]


def request_of(runner: Any, row: int) -> str:
    return str(runner.input_batch.req_ids[row])


def held(runner: Any, row: int) -> Any:
    """The runner's own object for the request in this row."""
    return runner.requests[runner.input_batch.req_ids[row]]


def outputs_of(runner: Any, row: int) -> list[int]:
    return list(held(runner, row).output_token_ids)


def drafts_of(metadata: Any, row: int) -> list[int]:
    if metadata is None:
        return []
    counts = metadata.num_draft_tokens
    start = sum(counts[:row])
    return [int(token) for token in metadata.draft_token_ids[start : start + counts[row]].tolist()]


def tokens_of(sampled: Any, row: int) -> list[int]:
    return [int(token) for token in sampled[row].tolist() if token != -1]


def put(sampled: Any, row: int, tokens: list[int]) -> None:
    """Writes the tokens of one row, -1 after them."""
    import torch

    padded = tokens + [-1] * (sampled.shape[1] - len(tokens))
    sampled[row] = torch.tensor(padded, dtype=sampled.dtype, device=sampled.device)


def width_of(metadata: Any, row: int) -> int:
    """How many tokens the row may emit in this step."""
    return 1 if metadata is None else int(metadata.num_draft_tokens[row]) + 1


def drafting_rows(built: Any) -> list[bool] | None:
    """Of each row, whether it verifies drafts in this step, by the metadata of a recurrent layer; None where none does,
    and of other metadata.

    It has a copy on the host from vLLM 0.31.0 on only (docs/engine-contract.md); before, it is on the device.
    """
    masks = getattr(built, "spec_sequence_masks_cpu", None)
    masks = getattr(built, "spec_sequence_masks", None) if masks is None else masks
    return None if masks is None else [bool(one) for one in masks.tolist()]
