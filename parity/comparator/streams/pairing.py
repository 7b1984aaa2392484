"""Two captures side by side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Completion, Key, RaggedTokens


@dataclass(frozen=True, slots=True)
class Pairs:
    """The completions both captures hold, in the candidate's order; P pairs."""

    keys: list[Key]
    baseline: list[Completion]
    candidate: list[Completion]
    parts_at: npt.NDArray[np.int64]
    """Shape (P,): position of the first token that differs, the shorter length where one stream begins the other,
    -1 where the streams are equal."""
    identical: npt.NDArray[np.bool_]
    """Shape (P,): the token streams are equal."""
    same_prompt: npt.NDArray[np.bool_]
    """Shape (P,): the prompt token ids are equal, and so are the requests' own limits where they have some."""
    candidate_tokens: RaggedTokens


def pair_up(baseline: Capture, candidate: Capture) -> Pairs:
    """Pair completions by key."""
    keys = list(candidate.completions)
    if keys == list(baseline.completions):
        # The usual case: both in plan order. The captures' own columns serve as they are.
        left, right = list(baseline), list(candidate)
        tokens, other = candidate.tokens, baseline.tokens
        prompts, other_prompts = candidate.prompts, baseline.prompts
    else:
        keys = [key for key in keys if key in baseline.completions]
        left = [baseline.completions[key] for key in keys]
        right = [candidate.completions[key] for key in keys]
        tokens = RaggedTokens.of([one.token_ids for one in right])
        other = RaggedTokens.of([one.token_ids for one in left])
        prompts = RaggedTokens.of([one.prompt_token_ids for one in right])
        other_prompts = RaggedTokens.of([one.prompt_token_ids for one in left])
    parts_at = first_differences(tokens, other)
    same_prompt = first_differences(prompts, other_prompts) < 0
    if any(one.max_tokens is not None for one in chain(left, right)):
        limits = [limit(baseline, one) for one in left], [limit(candidate, one) for one in right]
        same_prompt &= [None in pair or pair[0] == pair[1] for pair in zip(*limits, strict=True)]
    return Pairs(keys, left, right, parts_at, parts_at < 0, same_prompt, tokens)


def limit(capture: Capture, completion: Completion) -> int | None:
    """The most output tokens this request asked for; None where nothing says it."""
    asked = capture.header.sampling.get("max_tokens") if completion.max_tokens is None else completion.max_tokens
    return asked if isinstance(asked, int) else None


def first_differences(mine: RaggedTokens, theirs: RaggedTokens) -> npt.NDArray[np.int64]:
    """Stream by stream, where two columns of P streams first differ; see `Pairs.parts_at`. Shape (P,).

    Streams of equal length lie side by side in both columns, so a run of them is compared at once.
    """
    sizes, other_sizes = np.diff(mine.offsets), np.diff(theirs.offsets)
    result = np.full(len(sizes), -1, dtype=np.int64)
    uneven = np.flatnonzero(sizes != other_sizes)
    for row in uneven.tolist():
        size = int(min(sizes[row], other_sizes[row]))
        a = mine.flat[mine.offsets[row] : mine.offsets[row] + size]
        b = theirs.flat[theirs.offsets[row] : theirs.offsets[row] + size]
        different = np.flatnonzero(a != b)
        result[row] = different[0] if len(different) else size
    begin = 0
    for end in [*uneven.tolist(), len(sizes)]:
        if end > begin:
            _even_run(mine, theirs, begin, end, result)
        begin = end + 1
    return result


def _even_run(mine: RaggedTokens, theirs: RaggedTokens, begin: int, end: int, result: npt.NDArray[np.int64]) -> None:
    """`first_differences` of streams [begin, end), which have the same lengths in both columns."""
    offsets = mine.offsets[begin : end + 1]
    a = mine.flat[offsets[0] : offsets[-1]]
    b = theirs.flat[theirs.offsets[begin] : theirs.offsets[end]]
    different = np.flatnonzero(a != b)
    if not len(different):
        return
    starts = offsets - offsets[0]
    place = np.searchsorted(different, starts[:-1])
    first = different[np.minimum(place, len(different) - 1)]
    parts = (place < len(different)) & (first < starts[1:])
    result[begin:end][parts] = (first - starts[:-1])[parts]
