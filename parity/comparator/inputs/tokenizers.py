"""Is the tokenizer at hand the one that the captures were made with?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice

from msgspec import Struct

from parity.comparator.inputs.bad_words import Word, words_of
from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.said import Writer, is_written, writer_of
from parity.comparator.types import Tokenizer
from parity.records import Capture, Completion

Render = Callable[[Sequence[int]], str]

_LOOKED_AT = 32
"""Texts that show whether a tokenizer made them, and how."""


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
    """The tokenizer, if it is the one these captures were made with: it must reproduce most texts of either arm."""
    return given if any(_writes(given, arm) for arm in (baseline, candidate)) else None


def _writes(given: Render, arm: Capture) -> bool:
    every = _with_text(arm)
    stops_at = terminators(arm.header)
    ended = [one for one in every if int(one.token_ids[-1]) in stops_at][:_LOOKED_AT]  # is the EOS shown in the text?
    writer = writer_of(arm, arm, given)
    wrong = [
        sum(not _is_written_by(writer, one) for one in group) * 4 > len(group) for group in (every[:_LOOKED_AT], ended)
    ]
    return bool(every) and not any(wrong)


def _is_written_by(writer: Writer, one: Completion) -> bool:
    return is_written(one, writer.requests.of(one), writer)


def goes_on(render: Render | None, arm: Capture, other: Capture) -> bool | None:
    """Are an arm's texts written as what goes on after their prompts, rather than alone? Those of another arm of the
    same backend say it as well. None: these are the same, or as many say one as the other."""
    if render is None:
        return None
    more = 0
    for one in (arm, other) if arm.header.backend == other.header.backend else (arm,):
        some = list(islice((each for each in one if _has_text(each)), _LOOKED_AT)) if one.has_texts else []
        for how in (True, False):
            writer = writer_of(one, one, render, goes_on=how)
            more += (1 if how else -1) * sum(_is_written_by(writer, each) for each in some)
    return None if not more else more > 0


def _with_text(arm: Capture) -> list[Completion]:
    return [one for one in arm if _has_text(one)]


def _has_text(one: Completion) -> bool:
    return one.text is not None and len(one.token_ids) > 0
