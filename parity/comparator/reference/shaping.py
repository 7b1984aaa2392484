"""What an engine chose a token from, where that is not what scores and raw logprobs show: penalties and biases.

Bans are applied before (inputs/bans.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.comparator.inputs.bans import APPLIED
from parity.records import Completion, Json, TokenIds
from parity.records.sampling import Effect, Parameter, parameters


@dataclass(frozen=True, slots=True)
class Shaping:
    """What sampling parameters do to the logits of a completion."""

    penalises: bool = False
    """A penalty lowers tokens that were seen before."""
    counts_prompt: bool = False
    """Those of the prompt as well."""
    unknown: tuple[str, ...] = ()
    """Parameters that move logits in ways that nothing here can compute: that a token is not the best of the raw ones
    says nothing then."""

    def penalised(self, completion: Completion) -> TokenIds | None:
        """Tokens that are lowered from the start, shape (P,); None without a penalty. Those of the output are lowered
        once they were chosen."""
        if not self.penalises:
            return None
        return completion.prompt_token_ids if self.counts_prompt else np.empty(0, dtype=np.int64)


def shaping_of(sampling: Mapping[str, Json]) -> Shaping:
    """From sampling parameters by name (rows of parity/records/sampling.py)."""
    penalties, unknown = [], []
    for row in parameters():
        if row.effect not in (Effect.PENALISES, Effect.SHAPES) or row.name in APPLIED:
            continue
        if not _is_on(row, sampling.get(row.name)):
            continue
        if row.effect is Effect.PENALISES and not _raises(row, sampling[row.name]):
            penalties.append(row)
        else:
            unknown.append(row.name)
    return Shaping(bool(penalties), any(row.counts_prompt for row in penalties), tuple(unknown))


def _is_on(row: Parameter, value: Json) -> bool:
    plain = row.plain(value)
    return bool(plain) and plain != row.plain(row.default)


def _raises(row: Parameter, value: Json) -> bool:
    """A penalty below its neutral value makes tokens that were seen more likely."""
    return isinstance(value, int | float) and isinstance(row.default, int | float) and value < row.default
