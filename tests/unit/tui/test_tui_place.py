"""Where the view of tokens is scrolled to does not depend on the order in which sizes and data come."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
from textual.app import App, ComposeResult

from parity.tui.tokens import Piece
from parity.tui.widgets.sides import Content
from parity.tui.widgets.tokenview import TokenView
from parity.view.alignment import align

TOKENS = np.arange(60)
CONTENT = Content(align(TOKENS, TOKENS), [Piece("a")] * 60, [Piece("a")] * 60)


class Shown(App[None]):
    def compose(self) -> ComposeResult:
        yield TokenView(id="tokens")


async def top_after(before: tuple[int, int], *, extras: bool, row: int) -> int:
    """The first line in view at 80 by 24, of tokens that were shown in another size."""
    app = Shown()
    async with app.run_test(size=before) as pilot:
        view = app.query_one(TokenView)
        view.show(CONTENT, row)
        if extras:
            view.show(replace(CONTENT, found=frozenset({row})), row)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        return round(view.scroll_y)


def test_what_comes_between_two_sizes_does_not_move_the_view() -> None:
    for row in (17, 30):
        first = asyncio.run(top_after((80, 24), extras=False, row=row))
        assert first == (0 if row == 17 else row - 11)
        for size in ((80, 3), (80, 12), (80, 24)):
            assert asyncio.run(top_after(size, extras=True, row=row)) == first, (size, row)
