"""n-gram proposals."""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import drafts


def propose(tokens: list[int], sampled: list[int], *, discard: bool = False, least: int = 2, k: int = 3):
    ids = torch.zeros(1, 16, dtype=torch.int32)
    ids[0, : len(tokens)] = torch.tensor(tokens)
    made = drafts.npu_ngram_spec_decode(
        ids, torch.tensor([len(tokens)]), torch.tensor([sampled], dtype=torch.int32), torch.tensor([discard]), 100,
        least, 3, k,
    )  # fmt: skip
    return made[0][0].tolist(), int(made[1][0]), made[2][0].tolist(), int(made[3][0])


def check_what_followed_the_same_tokens_first_is_proposed() -> None:
    ids, last, proposed, count = propose([1, 2, 7, 8, 1, 2, 9, 1], [2, -1])
    assert ids[8] == 2
    assert (last, proposed, count) == (2, [7, 8, 1], 3)


def check_nothing_is_proposed_where_nothing_repeats_or_the_row_is_thrown_away() -> None:
    assert propose([1, 2, 3], [4])[2:] == ([-1, -1, -1], 0)
    ids, last, proposed, count = propose([1, 2, 1], [2], discard=True)
    assert (ids[3], last, proposed, count) == (0, 1, [-1, -1, -1], 0)


def check_a_proposal_ends_with_the_text() -> None:
    assert propose([5, 6, 5], [6], k=3)[2:] == ([5, 6, -1], 2)


def check_tokens_outside_the_vocabulary_are_none() -> None:
    ids, last, _, _ = propose([1, 2, 3], [100, -1])
    assert (ids[3], last) == (0, 3)
