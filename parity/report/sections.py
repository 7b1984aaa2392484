"""What a report shows of a finding, as data that every format draws for itself."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from parity.messages import Message, verbatim
from parity.records import TokenIds
from parity.report.escape import block, table
from parity.report.prose import in_markdown
from parity.report.texts import Texts
from parity.store import CompletionRow
from parity.text import clip, visible
from parity.view import FindingView, RunView
from parity.view.tokens import CLOSE, OPEN

COLUMNS: Final = 400
"""Width of the texts shown around a token."""
AROUND: Final = 12
"""Token ids shown on either side of the token in question."""

_IN_WORD: Final = re.compile("[A-Za-z0-9]")

Cell = Message | str


class Verbatim(Struct, frozen=True):
    """Somebody's text as it is: a prompt, a donor's tokens."""

    text: str
    grid: bool = False
    """Drawn in columns: its lines must not be folded."""


class Stream(Struct, frozen=True):
    """A completion around the place of a finding. `position`: the token in question; None where it is about the whole.

    `parted`: the first divergent token. `length`: tokens of the finding from `position` on, where it is the
    candidate's. `label`: what stands before the token ids. `other`: the text of the side it is compared with.
    """

    row: CompletionRow
    position: int | None
    parted: int | None
    length: int
    label: Message
    other: str | None = None

    @property
    def start(self) -> int:
        """The first token whose id is shown."""
        return max(0, (self.position or 0) - AROUND)

    @property
    def ids(self) -> str:
        at = self.position or 0
        return " ".join(map(str, self.row.token_ids[self.start : at + AROUND].tolist()))


class Rows(Struct, frozen=True):
    """A table."""

    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]


Part = Message | Verbatim | Stream | Rows


class Section(Struct, frozen=True):
    """Parts below a heading, named as in `texts.ENGLISH`; None: below none."""

    heading: str | None
    parts: tuple[Part, ...]


def sections_in_markdown(sections: Iterable[Section], view: RunView, texts: Texts) -> list[str]:
    """Each as a text of its own."""
    found = []
    for one in sections:
        head = [] if one.heading is None else [f"#### {texts(one.heading)}"]
        found.append("\n\n".join([*head, *(_part(part, view, texts) for part in one.parts)]))
    return found


def _part(part: Part, view: RunView, texts: Texts) -> str:
    if isinstance(part, Message):
        return in_markdown(part, texts.language)
    if isinstance(part, Verbatim):
        return block(part.text)
    if isinstance(part, Stream):
        return block(f"{text_of(part, view)}\n\n{texts.said(part.label).strip()}: {part.ids}")
    rows = [[in_markdown(cell, texts.language) for cell in row] for row in part.rows]
    return table([in_markdown(cell, texts.language) for cell in part.head], rows)


def text_of(stream: Stream, view: RunView) -> str:
    """The text around the place, the token in question between >> and <<; without a tokenizer the capture's own
    text, around the place where it parts from the other side's, else token ids."""
    row, position = stream.row, stream.position
    if (own := _own(stream, view)) is not None:
        return own
    if position is None:
        return clip(view.text.decode(row.token_ids[:COLUMNS]), COLUMNS)
    return view.text.marked(row.token_ids, position, COLUMNS)


def shown_around(view: RunView, row: CompletionRow, finding: FindingView) -> str:
    """A completion's text around the place of a finding, in one line."""
    other = finding.baseline if row is finding.candidate else finding.candidate
    said = None if other is None else other.text
    return text_of(Stream(row, finding.position, finding.first_divergence, 1, verbatim(""), said), view)


def _own(stream: Stream, view: RunView) -> str | None:
    """The text that the capture holds, where nothing can decode its tokens and it shows what the tokens would."""
    text = stream.row.text
    if text is None or view.text.knows or text == stream.other:
        return None
    return _own_text(visible(text), None if stream.other is None else visible(stream.other))


def _own_text(text: str, other: str | None) -> str:
    at = shared_start(text, other) if other is not None else 0
    if other is None or at == len(text) == len(other):
        return clip(text, COLUMNS)
    start, end = _word_around(text, at)
    before = clip(text[:start], COLUMNS * 6 // 10, from_end=True)
    return f"{before}{OPEN}{text[start:end] or '(end)'}{CLOSE}{clip(text[end:], COLUMNS * 4 // 10)}"


def _word_around(text: str, at: int) -> tuple[int, int]:
    """Where the word begins and ends that holds a character: a mark inside of it would be taken for a token's. A
    character that is no ASCII letter or digit is by itself."""
    if not _IN_WORD.fullmatch(text[at : at + 1]):
        return at, at + 1
    start, end = at, at + 1
    while start and _IN_WORD.fullmatch(text[start - 1]):
        start -= 1
    while end < len(text) and _IN_WORD.fullmatch(text[end]):
        end += 1
    return start, end


def shared_start(a: str, b: str) -> int:
    """Characters at the start of both."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def runs(stream: Stream, view: RunView, tokens: int) -> list[tuple[str, str]]:
    """The text in pieces, each with its mark, of so many tokens around the place at most: "x" the token in question,
    "f" the rest of the finding, "p" what comes after the first divergent token."""
    ids = stream.row.token_ids
    if (own := _own(stream, view)) is not None:
        before, mark, rest = own.partition(OPEN)
        token, _, after = rest.partition(CLOSE)
        return [("", before), *([("x", token), ("p", after)] if mark else [])]
    middle = stream.position if stream.position is not None else stream.parted or 0
    start = max(0, min(middle - tokens // 2, len(ids) - tokens))
    stop = min(len(ids), start + tokens)
    cuts = {start, stop}
    if stream.position is not None:
        cuts |= {stream.position, stream.position + 1, stream.position + max(1, stream.length)}
    if stream.parted is not None:
        cuts.add(stream.parted)
    edges = sorted(cut for cut in cuts if start <= cut <= stop)
    found = [(_mark(stream, a), _text(ids[a:b], view)) for a, b in itertools.pairwise(edges)]
    head = [("", "… ")] if start > 0 else []
    ends_here = stream.position is not None and stream.position >= len(ids)
    tail = [("", " …")] if stop < len(ids) else [("x", "(end)")] if ends_here else []
    return [*head, *found, *tail]


def _mark(stream: Stream, at: int) -> str:
    position = stream.position
    if position is not None and at == position:
        return "x"
    if position is not None and position < at < position + stream.length:
        return "f"
    return "p" if stream.parted is not None and at >= stream.parted else ""


def _text(ids: TokenIds, view: RunView) -> str:
    return view.text.plain(int(ids[0])) if len(ids) == 1 else view.text.decode(ids)
