"""Is the tokenizer at hand the one that the captures were made with?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from msgspec import Struct

from parity.comparator.inputs.bad_words import Word, words_of
from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.said import Writer, is_of_tokens, said, writer_of
from parity.comparator.types import Tokenizer
from parity.records import Capture, Completion

Render = Callable[[Sequence[int]], str]


class Tokenizers(Struct, frozen=True):
    """What makes text of tokens and tokens of text, where it is the captures' own."""

    render: Render | None = None
    read_words: Callable[[tuple[str, ...]], tuple[Word, ...]] | None = None
    """The token sequences of bad words."""


def tokenizers_of(given: Render | None, baseline: Capture, candidate: Capture) -> Tokenizers:
    """`given`: as `CompareOptions.detokenize`."""
    if given is None:
        return Tokenizers()
    render = _trusted(given, baseline, candidate)
    # What cuts words into tokens is a whole tokenizer, unless the captures have texts that are not of it.
    if not isinstance(given, Tokenizer) or (render is None and baseline.has_texts):
        return Tokenizers(render)
    return Tokenizers(render, cache(partial(words_of, tokenizer=given)))


def _trusted(given: Render, baseline: Capture, candidate: Capture) -> Render | None:
    """The tokenizer, if it is the one these captures were made with: it must reproduce the baseline's text, or most of
    the candidate's where the baseline has none."""
    arm, every = next(
        ((arm, some) for arm in (baseline, candidate) if (some := _with_text(arm))), (baseline, list[Completion]())
    )
    if not every:
        return None
    with_text, stops_at = every[:32], terminators(arm.header)
    ended = [one for one in every if int(one.token_ids[-1]) in stops_at][:32]  # is the EOS shown in the text?
    writer = writer_of(arm, arm, given)
    for group in (with_text, ended):
        wrong = sum(not _is_written_by(writer, one) for one in group)
        if wrong * 4 > len(group):
            return None
    return given


def _is_written_by(writer: Writer, one: Completion) -> bool:
    asked = writer.requests.of(one)
    return is_of_tokens(one.text or "", one, asked, said(one, asked, writer))


def _with_text(arm: Capture) -> list[Completion]:
    return [one for one in arm if one.text is not None and len(one.token_ids)]
