"""A completion of a run as it is drawn: what its tokens look like, and the marks beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from parity.language import render
from parity.messages import message
from parity.plan.checkpoint import shipped_checkpoint
from parity.records.steps import TokenSteps
from parity.store import RunRow
from parity.tui.format import plain
from parity.tui.spread import spread_both
from parity.tui.tokens import Decoder, Piece
from parity.tui.widgets.sides import Content
from parity.view.completion import CompletionView, whole

DONOR_CONTEXT = 12
"""Tokens of the donor shown before and after what leaked."""

_decoders: dict[str, Decoder] = {}


def decoder_of(run: RunRow) -> Decoder:
    """The decoder of the run's model; one per checkpoint, since loading a tokenizer takes a while."""
    shipped = None if run.plan.model.path else shipped_checkpoint(run.model)
    name = run.plan.model.path or str(shipped or "")
    if name not in _decoders:
        _decoders[name] = Decoder(Path(name) if name else None)
    return _decoders[name]


@dataclass(frozen=True)
class Drawing:
    """A completion and what the tokens of both its sides look like."""

    view: CompletionView
    decoder: Decoder
    left: list[Piece]
    right: list[Piece]
    trace: str = ""
    """As `trace_marks`."""
    loading: bool = True
    """The capture files were not read yet."""

    @staticmethod
    def of(view: CompletionView) -> Drawing:
        decoder = decoder_of(view.run)
        return Drawing(view, decoder, decoder.pieces(view.left), decoder.pieces(view.right))

    def showing(self, view: CompletionView) -> Drawing:
        """The same completion, from another finding."""
        return replace(self, view=view)

    def having(self, view: CompletionView) -> Drawing:
        """The same completion with what the capture files hold."""
        return replace(self, view=view, trace=trace_marks(view.steps), loading=False)

    def content(self) -> Content:
        view, donor = self.view, self._donor_pieces()
        leaked = view.leak.donor if donor and view.leak else None
        title = "" if leaked is None else render(message("tui.donor", "donor {request}", request=plain(leaked)))
        return Content(
            view.alignment,
            self.left,
            self.right,
            view.gaps,
            view.tolerance,
            view.covered,
            view.lost,
            view.copies,
            self.trace,
            donor,
            (plain(view.run.baseline), plain(view.arm), title),
            None if self.decoder.problem is None else spread_both(view),
        )

    def _donor_pieces(self) -> dict[int, tuple[Piece, bool]]:
        """By position of the candidate: the donor's token opposite, and whether it is the same."""
        view = self.view
        tokens, finding, leak, right = view.donor_tokens, view.finding, view.leak, view.right
        if tokens is None or finding is None or leak is None or finding.position is None:
            return {}
        shift = whole(leak.donor_start) - finding.position
        first = max(0, -shift, finding.position - DONOR_CONTEXT)
        last = min(len(right), len(tokens) - shift, finding.position + (finding.length or 1) + DONOR_CONTEXT)
        if last <= first:
            return {}
        pieces = self.decoder.pieces(tokens[first + shift : last + shift])
        return {
            j: (piece, bool(tokens[j + shift] == right[j])) for j, piece in zip(range(first, last), pieces, strict=True)
        }


def trace_marks(steps: TokenSteps | None) -> str:
    """One character per output token: `1`, `2` … for an accepted draft, `·` for a token that was sampled."""
    if steps is None:
        return ""
    made = zip(steps.place.tolist(), steps.is_draft.tolist(), strict=True)
    return "".join(str(min(9, place + 1)) if is_draft else "·" for place, is_draft in made)
