"""Is the tokenizer at hand the one that the captures were made with?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parity.comparator.detect.said import writer_of
from parity.comparator.detect.wording import text_mismatch
from parity.comparator.inputs.bans import terminators
from parity.comparator.types import CompareOptions, Tokenizer
from parity.records import Capture


def trusted_detokenizer(options: CompareOptions, baseline: Capture) -> Callable[[Sequence[int]], str] | None:
    """The tokenizer, if it is the one these captures were made with: it must reproduce the baseline's text."""
    if options.detokenize is None:
        return None
    with_text = [one for one in baseline if one.text is not None and len(one.token_ids)][:32]
    if not with_text:
        return None
    stops_at = terminators(baseline.header)
    ended = [one for one in baseline if one.text is not None and len(one.token_ids)]
    ended = [one for one in ended if int(one.token_ids[-1]) in stops_at][:32]  # is the EOS shown in the text?
    writer = writer_of(baseline, baseline, options.detokenize)
    for group in (with_text, ended):
        wrong = sum(text_mismatch(one, writer) is not None for one in group)
        if wrong * 4 > len(group):
            return None
    return options.detokenize


def words_tokenizer(
    options: CompareOptions, trusted: Callable[[Sequence[int]], str] | None, baseline: Capture
) -> Tokenizer | None:
    """What cuts bad words into tokens: a whole tokenizer, unless the captures have texts that are not of it."""
    given = options.detokenize
    if not isinstance(given, Tokenizer) or (trusted is None and any(one.text is not None for one in baseline)):
        return None
    return given
