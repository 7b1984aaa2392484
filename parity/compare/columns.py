"""Two captures side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Column, Completion, Key


@dataclass(frozen=True, slots=True)
class Pairs:
    """The completions both captures hold, in the candidate's order; P pairs."""

    keys: list[Key]
    baseline: list[Completion]
    candidate: list[Completion]
    identical: npt.NDArray[np.bool_]
    """Shape (P,): the token streams are equal."""
    same_prompt: npt.NDArray[np.bool_]
    """Shape (P,): the prompt token ids are equal."""
    candidate_tokens: Column


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
        tokens = Column.of([one.token_ids for one in right])
        other = Column.of([one.token_ids for one in left])
        prompts = Column.of([one.prompt_token_ids for one in right])
        other_prompts = Column.of([one.prompt_token_ids for one in left])
    return Pairs(keys, left, right, tokens.equal_rows(other), prompts.equal_rows(other_prompts), tokens)
