"""Tokens that `bad_words` forbade, taken out of scores and lists: which ones depends on what was said before.

vLLM takes the last token of a word away where the tokens before it were said last (`vllm/v1/sample/ops/bad_words.py`,
v0.32.0). So what the engine chose from is known, as soon as the checkpoint's tokenizer cuts the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from parity.comparator.inputs import servers
from parity.comparator.inputs.asked import requests_of
from parity.comparator.types import Tokenizer
from parity.records import Capture, Key, Scores, TokenIds, TopLogprobs

NAME = "bad_words"


class Word(tuple[int, ...]):
    """The tokens of one of `bad_words`."""

    text: str


def words_of(texts: tuple[str, ...], tokenizer: Tokenizer) -> tuple[Word, ...]:
    """Token sequences that end in a forbidden token (`SamplingParams.update_from_tokenizer`, v0.32.0): each word at
    the beginning of a text, and in the middle of one where that makes another first token and as many tokens."""
    found: list[Word] = []
    for text in texts:
        plain = _word(text, tokenizer.encode(text.lstrip()))
        spaced = _word(text, tokenizer.encode(" " + text.lstrip()))
        found += [plain] if plain else []
        if plain and spaced and spaced[0] != plain[0] and len(spaced) == len(plain):
            found.append(spaced)
    return tuple(found)


def _word(text: str, tokens: Sequence[int]) -> Word:
    word = Word(int(token) for token in tokens)
    word.text = text
    return word


def _asks_for_bad_words(arm: Capture) -> bool:
    """Does any request of this arm have some?"""
    own = (arm.completions[key].sampling for key in arm.own_sampling)
    return any(sampling.get(NAME) for sampling in (arm.header.sampling, *own))


def without_bad_words(
    baseline: Capture, candidate: Capture, scores: Scores, read: Callable[[tuple[str, ...]], Sequence[Word]] | None
) -> tuple[Capture, Capture, Scores, frozenset[str]]:
    """(captures and scores without the tokens that were forbidden there, the name of the parameter where that was
    done).

    `read` cuts texts into tokens by the engine's rule, None where nothing is known to. A server may forbid by a rule of
    its own, or not at all: where an arm is one, and where a score may be of either arm, everything stays as it is.
    """
    arms = baseline, candidate
    asked = read is not None and any(map(_asks_for_bad_words, arms))
    if not asked or any(servers.served(arm.header) for arm in arms) or arms[0].header.arm == arms[1].header.arm:
        return baseline, candidate, scores, frozenset()
    assert read is not None
    made = []
    found = dict(scores)
    by_key = {(key.arm, Key(*key[1:])): key for key in scores}
    for arm, other in (arms, arms[::-1]):
        requests = requests_of(arm, other.header)
        changed = {}
        for key, one in arm.completions.items():
            texts = requests.of(one).bad_words
            if not texts:
                continue
            words = read(texts)
            if one.lists is not None:
                changed[key] = replace(one, logprobs=without_words(one.lists, one.token_ids, words, own=True))
            name = by_key.get((arm.header.arm, key))
            if name is not None:
                found[name] = without_words(found[name], one.token_ids, words)
        made.append(arm.but(changed) if changed else arm)
    return made[0], made[1], found, frozenset({NAME})


def without_words(
    top: TopLogprobs, tokens: TokenIds, words: Sequence[Sequence[int]], *, own: bool = False
) -> TopLogprobs:
    """The list of each token (T,) without what was forbidden there, but for the token itself: an engine that ignored
    the ban is judged by the rule, not by this. Where a list names nothing but forbidden tokens and the chosen one,
    a better one may not be listed: nothing is left of a score, and of an engine's `own` list the chosen one alone."""
    covered = min(len(top), len(tokens))
    ids = top.ids[:covered]
    barred = np.zeros(ids.shape, dtype=np.bool_)
    for word in words:
        places = _after(tokens[:covered], word[:-1])
        barred[places] |= ids[places] == word[-1]
    is_chosen = ids == tokens[:covered, None]
    barred &= ~is_chosen
    if not barred.any():
        return top
    values = top.values[:covered]
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1)
    is_best = chosen >= np.nan_to_num(values, nan=-np.inf).max(axis=1)
    others = (~barred & ~is_chosen & np.isfinite(values)).any(axis=1)
    barred |= (barred.any(axis=1) & ~others & ~is_best)[:, None]
    if own:
        barred &= ~is_chosen
    new_ids, new_values = top.ids.copy(), top.values.copy()
    new_ids[:covered][barred], new_values[:covered][barred] = -1, np.nan
    return replace(top, ids=new_ids, values=new_values)


def _after(tokens: TokenIds, prefix: Sequence[int]) -> np.typing.NDArray[np.int64]:
    """Positions right after these tokens."""
    count = len(prefix)
    if not count:
        return np.arange(len(tokens), dtype=np.int64)
    if len(tokens) <= count:
        return np.array([], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, count)[: len(tokens) - count]
    return np.flatnonzero((windows == np.asarray(prefix)).all(axis=1)) + count
