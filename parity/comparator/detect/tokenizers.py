"""Is the tokenizer at hand the one that the captures were made with?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from parity.comparator.detect.forbidden import Word, bad_words
from parity.comparator.detect.said import writer_of
from parity.comparator.detect.wording import text_mismatch
from parity.comparator.inputs.bans import terminators
from parity.comparator.types import CompareOptions, Tokenizer
from parity.records import Capture, Completion


def trusted_detokenizer(
    options: CompareOptions, baseline: Capture, candidate: Capture
) -> Callable[[Sequence[int]], str] | None:
    """The tokenizer, if it is the one these captures were made with: it must reproduce the baseline's text, or most of
    the candidate's where the baseline has none."""
    if options.detokenize is None:
        return None
    arm, every = next(
        ((arm, some) for arm in (baseline, candidate) if (some := _with_text(arm))), (baseline, list[Completion]())
    )
    if not every:
        return None
    with_text, stops_at = every[:32], terminators(arm.header)
    ended = [one for one in every if int(one.token_ids[-1]) in stops_at][:32]  # is the EOS shown in the text?
    writer = writer_of(arm, arm, options.detokenize)
    for group in (with_text, ended):
        wrong = sum(text_mismatch(one, writer) is not None for one in group)
        if wrong * 4 > len(group):
            return None
    return options.detokenize


def _with_text(arm: Capture) -> list[Completion]:
    return [one for one in arm if one.text is not None and len(one.token_ids)]


def words_tokenizer(
    options: CompareOptions, trusted: Callable[[Sequence[int]], str] | None, baseline: Capture
) -> Tokenizer | None:
    """What cuts bad words into tokens: a whole tokenizer, unless the captures have texts that are not of it."""
    given = options.detokenize
    if (
        given is None
        or not isinstance(given, Tokenizer)
        or (trusted is None and any(one.text is not None for one in baseline))
    ):
        return None
    return given


def words_of(
    options: CompareOptions, baseline: Capture, candidate: Capture
) -> Callable[[tuple[str, ...]], tuple[Word, ...]] | None:
    """What gives the token sequences of bad words; None without a tokenizer that these captures were made with."""
    tokenizer = words_tokenizer(options, trusted_detokenizer(options, baseline, candidate), baseline)
    return None if tokenizer is None else cache(partial(bad_words, tokenizer=tokenizer))
