"""Finding a place in a completion by text, token id or number, and taking what is there to the clipboard."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from parity.language import render
from parity.messages import Message, message
from parity.records import TokenIds
from parity.tui.drawing import Drawing
from parity.tui.format import plain
from parity.tui.screens.dialogs import AskText, Pick
from parity.tui.screens.triaging import TriageScreen
from parity.tui.tokens import Piece
from parity.tui.widgets.tokenview import TokenView

if TYPE_CHECKING:
    from collections.abc import Iterator


READING = message("tui.reading_tokens", "Reading and aligning the tokens …")


class SeekingScreen(TriageScreen):
    """A screen with tokens: `drawing` is what they are."""

    drawing: Drawing | None
    sought = ""

    @property
    def tokens(self) -> TokenView:
        return self.query_one(TokenView)

    def action_seek(self) -> None:
        if self.drawing is None:
            self.tell(READING)
            return
        heading = message("tui.seek", "Search in both sides")
        detail = render(message("tui.seek.what", "text, or #1234 for a token id; the same again goes on to the next"))

        def answered(text: str | None) -> None:
            if text:
                self.sought = text
                self._seek(text)

        self.app.push_screen(AskText(heading, self.sought, detail), answered)

    def _seek(self, text: str) -> None:
        drawing = self.drawing
        if drawing is None:
            return
        rows = hits(drawing, text)
        if not len(rows):
            self.tell(message("tui.not_there", '"{text}" is in neither side', text=plain(text)))
            return
        beyond = rows[rows > self.tokens.cursor]
        self.tokens.go(int(beyond[0] if len(beyond) else rows[0]), middle=True)
        at = int(np.searchsorted(rows, self.tokens.cursor)) + 1
        self.tell(message("tui.hit", "{at:,} of {count:,}", at=at, count=len(rows)))

    def action_go_to(self) -> None:
        if self.drawing is None:
            self.tell(READING)
            return

        def answered(text: str | None) -> None:
            if text and text.isdecimal() and self.drawing is not None:
                self.tokens.go(self.drawing.view.alignment.row_of(int(text)), middle=True)
            elif text:
                self.tell(message("tui.no_number", "{text} is no number of a token", text=plain(text)))

        self.app.push_screen(AskText(message("tui.go_to", "Go to token"), "", ""), answered)

    def action_copy_menu(self) -> None:
        choices = list(self._copies())

        def answered(at: int | None) -> None:
            if at is not None:
                self.app.copy_to_clipboard(choices[at][1])
                said = message("tui.copied_what", "copied, where the terminal allows it: {what}", what=choices[at][0])
                self.tell(said)

        self.app.push_screen(Pick(message("tui.copy", "Copy"), choices), answered)

    def _copies(self) -> Iterator[tuple[Message, str]]:
        """What there is to copy, the command line of what is on the screen first."""
        finding, drawing = self.current(), self.drawing
        words = ["parity", "report", f"finding:{finding.id}"] if finding else ["parity", "runs", "show", self.run.id]
        command = shlex.join([*words, "--db", str(self.parity.database)])
        yield message("tui.copy.command", "the command that prints this"), command
        if drawing is None:
            return
        left, right = self.tokens.position
        for name, at, stream, pieces in (
            (message("tui.copy.candidate_token", "the candidate's token"), right, drawing.view.right, drawing.right),
            (message("tui.copy.baseline_token", "the baseline's token"), left, drawing.view.left, drawing.left),
        ):
            if at >= 0:
                yield name, f"{at}: {int(stream[at])} {pieces[at].text!r}"
        yield message("tui.copy.candidate_text", "the candidate's text"), "".join(one.text for one in drawing.right)
        yield message("tui.copy.baseline_text", "the baseline's text"), "".join(one.text for one in drawing.left)
        request = drawing.view.request
        if request is not None:
            text = request.prompt if request.prompt is not None else drawing.decoder.text(request.prompt_token_ids)
            yield message("tui.copy.prompt", "the prompt"), text
        if finding is not None:
            yield message("tui.copy.fingerprint", "the fingerprint"), finding.fingerprint


def hits(drawing: Drawing, text: str) -> np.ndarray:
    """Rows at which the text, or the token id after `#`, begins on either side; ascending."""
    view = drawing.view
    found: set[int] = set()
    for stream, pieces, column in (
        (view.left, drawing.left, view.alignment.left),
        (view.right, drawing.right, view.alignment.right),
    ):
        places = _ids(stream, text) if text[:1] == "#" and text[1:].isdecimal() else _text(pieces, text)
        found.update(_rows(column, places))
    return np.array(sorted(found), dtype=np.int64)


def _ids(stream: TokenIds, text: str) -> Sequence[int]:
    return np.flatnonzero(stream == int(text[1:])).tolist()


def _text(pieces: Sequence[Piece], text: str) -> Sequence[int]:
    """Tokens in which it begins; case does not matter."""
    starts = [0, *accumulate(len(piece.text) for piece in pieces)]
    whole, wanted, found, at = "".join(piece.text for piece in pieces).lower(), text.lower(), [], -1
    while (at := whole.find(wanted, at + 1)) >= 0:
        found.append(bisect_right(starts, at) - 1)
    return found


def _rows(column: np.ndarray, places: Sequence[int]) -> list[int]:
    known = np.flatnonzero(column >= 0)
    return known[list(places)].tolist() if len(places) else []
