"""Copies of what an engine step holds, by `parity_backends.worker.copies.StepCopies`."""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

Copy = Callable[..., Any]
"""`StepCopies.of`: an array with the values of a tensor, or of its first rows."""

FEW = 128
"""Rows whose numbers are read one by one in less time than numpy's calls take."""


def first_best(copy: Copy, logits: Any) -> Any:
    """The first of the largest logits of each row, as torch.argmax has it, shape (rows,).

    On a CPU torch's own takes ten times as long and more. Positive floats are in the order of their bits as integers;
    where the largest of a row is none, torch is asked. After the layers, whose caches the processor's are, any call of
    another kind costs 20 to 60 us: so there are few.
    """
    torch = sys.modules["torch"]  # as `import` says it, which takes 4 us then
    if logits.is_cpu and logits.dtype == torch.float32:
        return logits.numpy().argmax(axis=1)
    if logits.is_cpu and logits.dtype in (torch.bfloat16, torch.float16):
        bits = logits.view(torch.int16).numpy()
        best = bits.argmax(axis=1)
        if len(best) > FEW:
            largest = bits[np.arange(len(best)), best].min()
        else:
            largest = min(map(bits.item, range(len(best)), best.tolist()), default=1)
        if largest > 0:
            return best
    return copy(logits.argmax(-1))


def copied(copy: Copy, owner: Any, name: str, stop: Optional[int] = None) -> Any:
    """Of an attribute that is a tensor, None where it is none."""
    tensor = getattr(owner, name, None)
    return None if tensor is None else copy(tensor, stop)


class LengthParts(NamedTuple):
    """Sequence lengths as MLA's metadata has them: of rows that decode, then of pieces of prompts. Rows with drafts are
    pieces to a backend that decodes single tokens alone."""

    decoding: Any
    """Shape (decoding rows,); None without any."""
    pieces: Any
    """Shape (pieces,); None without any, and where they follow from the other two."""
    starts: Any
    """Where the tokens of each piece start, and the last one ends; shape (pieces + 1,)."""
    before: Any
    """Tokens before each piece, shape (pieces,), or of each chunk of them, shape (chunks, pieces); None where no piece
    has any."""

    def whole(self) -> Any:
        """Shape (rows,), once the copies are there."""
        parts = [one for one in (self.decoding, self.pieces) if one is not None]
        if self.starts is not None:
            before = 0 if self.before is None else self.before.reshape(-1, len(self.starts) - 1).sum(axis=0)
            parts.append(np.diff(self.starts) + before)
        return np.concatenate(parts)


def sequence_lengths(copy: Copy, given: Any, rows: int) -> Any:
    """Of all rows, from an attention's metadata: an array, or `LengthParts`; None where it has not all.

    vllm-ascend's MLA keeps there those of the decoding rows alone once it has made their part, and all in `prefill`
    (0.18.0 to 0.26.0rc1, attention/mla_v1.py, `build`).
    """
    for owner in (given, getattr(given, "prefill", None)):
        found = copied(copy, owner, "seq_lens", rows)
        if found is not None and len(found) == rows:
            return found
    return _length_parts(copy, given, rows)


def _length_parts(copy: Copy, given: Any, rows: int) -> Optional[LengthParts]:
    """Of MLA (vLLM 0.23.0 and 0.32.0, model_executor/layers/attention/mla_attention.py): rows that decode come first.

    What comes before a piece is taken in chunks; the older one has the lengths of these alone.
    """
    decodes, pieces = getattr(given, "num_decodes", None), getattr(given, "num_prefills", None)
    if not isinstance(decodes, int) or not isinstance(pieces, int) or decodes + pieces != rows:
        return None
    decoding = whole = starts = before = None
    if decodes:
        decoding = copied(copy, getattr(given, "decode", None), "seq_lens", decodes)
        if decoding is None or decoding.shape != (decodes,):
            return None
    if pieces:
        prefill = getattr(given, "prefill", None)
        # what AMX_MLA goes by (v1/attention/backends/mla/amx_mla.py)
        whole = copied(copy, prefill, "cpu_seq_lens", pieces)
        if whole is None:
            context = getattr(prefill, "chunked_context", None)
            starts = copied(copy, prefill, "query_start_loc", pieces + 1)
            before = copied(copy, context, "context_lens", pieces)
            if before is None:
                before = copied(copy, context, "seq_lens")
            if starts is None or (context is not None and before is None):
                return None
    return LengthParts(decoding, whole, starts, before)


STATE_MASKS = ("spec_sequence_masks_cpu", "spec_sequence_masks")
"""Where a gated delta net's metadata says which rows speculate: on the host from vLLM 0.31.0 on, else on the device."""


STATE_TENSORS = (
    ("mask", STATE_MASKS[0]),
    ("accepted", "num_accepted_tokens"),
    ("spec_slots", "spec_state_indices_tensor"),
    ("other_slots", "non_spec_state_indices_tensor"),
    ("initial", "has_initial_state"),
    ("spec_tokens", "spec_token_indx"),
    ("other_tokens", "non_spec_token_indx"),
)
"""What is read of it, and where it has that."""


def is_of_state(given: Any) -> bool:
    """Whether this is metadata of a gated delta net (vllm/v1/attention/backends/gdn_attn.py)."""
    return hasattr(given, "num_spec_decodes") and (hasattr(given, STATE_MASKS[0]) or hasattr(given, STATE_MASKS[1]))


def state_readings(copy: Copy, given: Any) -> dict[str, Any]:
    """Metadata of a gated delta net as arrays."""
    found: dict[str, Any] = {"decodes": int(given.num_decodes)}
    for key, name in STATE_TENSORS:
        tensor = getattr(given, name, None)
        found[key] = None if tensor is None else copy(tensor)
    if found["mask"] is None:
        found["mask"] = copied(copy, given, STATE_MASKS[1])
    return found


def block_size(runner: Any, group: int) -> int:
    """Tokens in a block as the scheduler counts them; 0 where that cannot be seen."""
    groups = getattr(getattr(runner, "kv_cache_config", None), "kv_cache_groups", [])
    return int(groups[group].kv_cache_spec.block_size) if group < len(groups) else 0
