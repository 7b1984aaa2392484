"""A finding in a few words, for a row of a list: what stood there and what came, from its evidence alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parity.language import render
from parity.records.evidence import LeakEvidence, TokensEvidence
from parity.store import FindingRow
from parity.tui.format import plain
from parity.tui.names import FIELDS
from parity.tui.tokens import Decoder
from parity.tui.widgets.table import Column

FROM_WIDTH = 100
"""Columns of a table from which its rows have one."""
MOST = 24
"""Tokens of a side."""


def column(decoder: Callable[[], Decoder | None]) -> Column[FindingRow]:
    """`decoder` gives None before it was loaded."""
    return Column(FIELDS["text"], 0, lambda row: (snippet(row, decoder()), "dim"), from_width=FROM_WIDTH, least=24)


def snippet(row: FindingRow, decoder: Decoder | None) -> str:
    """`decoder`: None before it was loaded. Without tokens in the evidence, why it is a finding."""
    try:
        facts = row.facts
    except (ValueError, LookupError, TypeError, AttributeError):  # damaged: opening it says so
        return ""
    if decoder is not None and decoder.problem is None and isinstance(facts, TokensEvidence):
        leaked = facts.leaked_tokens if isinstance(facts, LeakEvidence) else None
        before, after = _text(facts.baseline_tokens, decoder), _text(leaked or facts.candidate_tokens, decoder)
        if before and after:
            return f"{before} → {after}"
        if before or after:
            return f"- {before}" if before else f"+ {after}"
    return plain(render(facts.said))


def _text(tokens: Sequence[int] | None, decoder: Decoder) -> str:
    return "".join(decoder.piece(int(token)).text for token in (tokens or ())[:MOST])
