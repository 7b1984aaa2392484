"""How many ids a vocabulary has, where a header says fewer than the captures themselves show.

`tokenizer.vocab_size` of transformers, which scripts write down, leaves out the tokens that were added: often the one
that every answer ends with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.servers import by_others
from parity.comparator.inputs.text import INT32_MAX
from parity.comparator.types import Remarks, note
from parity.messages import message
from parity.records import Capture

FEW = 2
"""Completions of a script's baseline that say an id, from which on it is in the vocabulary."""


class Vocabulary(Struct, frozen=True):
    size: int | None
    """None where nobody says it."""
    remarks: Remarks = field(default_factory=Remarks)


def vocabulary(baseline: Capture, candidate: Capture) -> Vocabulary:
    """By the headers; ids that are larger count where both were asked with them, may end with them, or the baseline
    says them as well."""
    named = candidate.header.vocab_size or baseline.header.vocab_size
    if named is None or candidate.tokens.all_below(named):
        return Vocabulary(named)
    largest = max((one for one in _known(baseline, candidate, named) if one < INT32_MAX), default=named - 1)
    if largest < named:
        return Vocabulary(named)
    said = note(
        message(
            "inputs.more_ids",
            "`vocab_size` is {named} in the header, and id {largest} is in use (in prompts, as an end, or in "
            "completions of the baseline): ids up to that are taken for tokens (`tokenizer.vocab_size` counts none "
            "that were added)",
            named=named,
            largest=largest,
        )
    )
    return Vocabulary(largest + 1, said)


def _known(baseline: Capture, candidate: Capture, named: int) -> Iterator[int]:
    yield from terminators(baseline.header) | terminators(candidate.header)
    for row in baseline.prompts.beyond(named):
        yield int(baseline.prompts.row(row).max())
    if by_others(baseline.header):
        rows = (baseline.tokens.row(row) for row in baseline.tokens.beyond(named))
        counted = Counter(one for ids in rows for one in set(ids[ids >= named].tolist()))
        yield from (one for one, count in counted.items() if count >= FEW)
