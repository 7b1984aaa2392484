"""Text without token ids: the ids were made again from it, and the engine may have chosen others.

A text can be cut into tokens in several ways. So the stream of a server that gave text alone is brought to the other
arm's tokens as far as the texts agree, and where they part nothing is said of a token that only this way of cutting has
made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from msgspec import Struct, field

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.conventions import LIKE_IT
from parity.comparator.inputs.counts import said_tokens
from parity.comparator.inputs.finish_reasons import FEW, that_filled
from parity.comparator.inputs.pieces import UNREADABLE
from parity.comparator.inputs.servers import text_alone
from parity.comparator.inputs.text import INT32_MAX, first_difference, same_text
from parity.comparator.types import Remarks, reason
from parity.messages import message
from parity.records import Capture, Completion, Key, ScoreKey, Scores, TokenIds, TopLogprobs
from parity.records.next_steps import NextStep, Step

Detokenize = Callable[[Sequence[int]], str]


class Aligned(Struct, frozen=True):
    baseline: Capture
    candidate: Capture
    scores: Scores
    remarks: Remarks = field(default_factory=Remarks)


def on_the_same_tokens(
    baseline: Capture,
    candidate: Capture,
    scores: Scores,
    detokenize: Detokenize | None,
    whole: tuple[Capture, Capture] | None = None,
) -> Aligned:
    """Both captures with the same ids for the same beginning of a text, and scores that fit. whole: both with what is
    not compared, which shows the habits of an arm as well."""
    sides = [text_alone(arm.header) for arm in (baseline, candidate)]
    if not any(sides):
        return Aligned(baseline, candidate, scores)
    target, source = (candidate, baseline) if sides[1] else (baseline, candidate)
    if _is_silent(target):
        return Aligned(replace(baseline, completions={}), replace(candidate, completions={}), {}, _silence(target))
    source, made = _without_made_ends(source, target, dict(scores))
    changed: dict[Key, Completion] = {}
    read = _with_texts(source, detokenize)
    every, of_target = (read, target) if whole is None else whole if sides[1] else whole[::-1]
    every = _with_texts(every, detokenize)
    trim = _blanks(every, of_target)
    blank = _blank_first(every, of_target)
    unread: set[Key] = set()
    one_word = _one_word_for_all(every, of_target)
    left = 0
    end = _end_token(source, target)
    ends = terminators(source.header) | terminators(target.header)
    filled = _at_their_context(target, ends) if one_word else {}
    for key, given in target.completions.items():
        one = given if end is None else _ended(given, target, end)
        if key in filled:
            one = filled[key]
            if (named := ScoreKey(target.header.arm, *key)) in made:
                made[named] = made[named].part(stop=len(one.token_ids))
        other = read.completions.get(key)
        if other is None or one.text is None:
            continue
        if other.text is None:
            left += 1
            begins = _is_beginning(one, other) and _may_end_alike(other, one)  # without the blanks at its end, maybe
            ids = other.token_ids if begins else one.token_ids
            changed[key] = replace(one, token_ids=ids, text=None, logprobs=None)
            unread.add(key)
            made.pop(ScoreKey(target.header.arm, *key), None)
            continue
        begin = len(other.text) - len(other.text.lstrip())
        text = one.text[blank:]
        if trim or blank:  # blanks taken off, maybe one put there again
            text = max(text, other.text[:begin] + one.text.lstrip(), key=partial(first_difference, other.text))
        score_key = ScoreKey(target.header.arm, *key)
        if (one_word or _may_end_alike(other, one)) and _same(other.text, text):
            why = other.finish_reason if one_word else one.finish_reason
            changed[key] = replace(one, token_ids=other.token_ids, text=other.text, logprobs=None, finish_reason=why)
            made.pop(score_key, None)
        elif np.array_equal(one.token_ids, other.token_ids):
            changed[key] = replace(one, text=other.text)
        elif detokenize is None and _begins_alike(one, other):
            ids = other.token_ids if _may_end_alike(other, one) else _without_end(other.token_ids, ends)
            changed[key] = replace(one, token_ids=ids, text=other.text, logprobs=None)
            made.pop(score_key, None)
        elif detokenize is None:
            left += 1
            changed[key] = replace(one, text=None, logprobs=None)
            unread.add(key)
            made.pop(score_key, None)
        else:
            if UNREADABLE in text.rstrip(UNREADABLE):
                made.pop(score_key, None)  # what follows was scored after other bytes than the engine's
            shift = _before(one, text, detokenize)
            begun = replace(other, token_ids=_without_end(other.token_ids, ends))
            if _parts_unread(begun, text, detokenize):
                unread.add(key)
            changed[key], score = _one(one, begun, text, shift, made.get(score_key), detokenize)
            if score is None:
                made.pop(score_key, None)
            else:
                made[score_key] = score
    if detokenize is not None:
        made |= _supported_alone(source, made, frozenset(), detokenize)
        made |= _supported_alone(target, made, changed, detokenize)
    target = target.but(changed)
    without = {key: replace(source.completions[key], logprobs=None) for key in unread}
    source = source.but(without)
    remarks = Remarks()
    if left:
        remarks = reason(
            message(
                "inputs.text_needs_tokenizer",
                "{arm}: {count} texts differ, and without the tokenizer nobody can say at which token: name the "
                "checkpoint (`parity compare --model DIRECTORY`)",
                arm=target.header.arm,
                count=left,
            ),
            Step.TOKENIZER,
        )
    pair = (source, target) if sides[1] else (target, source)
    return Aligned(*pair, made, remarks)


def _parts_unread(other: Completion, text: str, detokenize: Detokenize) -> bool:
    """Do the texts part at bytes that make no character, or in the token after them? Nobody knows which tokens those
    were."""
    theirs = _Stream(other.token_ids, detokenize)
    common = first_difference(detokenize(theirs.readable), text)
    return UNREADABLE in text[theirs.end(theirs.whole(theirs.last_before(common))) : common + 1]


def _is_silent(arm: Capture) -> bool:
    """Is every text empty, though the usage says, or leaves open, that tokens were generated? A server that keeps what
    it thinks to itself does that."""
    if any(one.text or len(one.token_ids) > ONLY_AN_END for one in arm):
        return False
    said = [said_tokens(one) for one in arm]
    return len(said) >= FEW and not all(one is not None and one <= ONLY_AN_END for one in said)


ONLY_AN_END = 1
"""Tokens of an answer that ended at once."""


def _silence(arm: Capture) -> Remarks:
    why = message(
        "inputs.silent",
        "{arm} gives neither text nor token ids, in {count} answers: there is nothing to compare (a server that leaves "
        "out what it thinks gives the rest once it may say more: `--max-tokens`)",
        arm=arm.header.arm,
        count=len(arm.completions),
    )
    return reason(why, NextStep(Step.LONGER, why.id, number=4))


def _with_texts(arm: Capture, detokenize: Detokenize | None) -> Capture:
    """The capture with the texts of its ids, where it came without any and somebody can read them."""
    if detokenize is None or arm.has_texts:
        return arm
    texts = {one.key: detokenize([int(token) for token in one.token_ids if 0 <= token <= INT32_MAX]) for one in arm}
    return arm.but({one.key: replace(one, text=texts[one.key]) for one in arm})


def _may_end_alike(one: Completion, other: Completion) -> bool:
    """Nothing says that they ended otherwise."""
    return one.finish_reason == other.finish_reason or None in (one.finish_reason, other.finish_reason)


def _one_word_for_all(source: Capture, target: Capture) -> bool:
    """Does the target call every end "stop", where as many tokens as were allowed ended the same texts of the source?
    Then it says nothing."""
    if target.finish_reasons != {"stop"} or "length" not in source.finish_reasons:
        return False
    pairs = ((one, source.completions.get(one.key)) for one in target)
    same = (
        _same(other.text or "", one.text or "") for one, other in pairs if other and other.finish_reason == "length"
    )
    return sum(same) >= FEW


def _without_made_ends(
    source: Capture, target: Capture, scores: dict[ScoreKey, TopLogprobs]
) -> tuple[Capture, dict[ScoreKey, TopLogprobs]]:
    """The source, where that is text alone as well and calls every end "stop", and the scores: without the token that
    was put at the end of its ids for that, where the target ended by length, and with the reason of an equal text."""
    if not text_alone(source.header) or not _one_word_for_all(target, source):
        return source, scores
    ends, changed, made = terminators(source.header) | terminators(target.header), {}, dict(scores)
    for key, one in source.completions.items():
        twin = target.completions.get(key)
        if twin is None or twin.finish_reason != "length":
            continue
        why = "length" if _same(one.text or "", twin.text or "") else None
        changed[key] = replace(one, token_ids=_without_end(one.token_ids, ends), finish_reason=why)
        score_key = ScoreKey(source.header.arm, *key)
        if score_key in made:
            made[score_key] = made[score_key].part(stop=len(changed[key].token_ids))
    return source.but(changed), made


def _at_their_context(target: Capture, ends: Collection[int]) -> dict[Key, Completion]:
    """Completions that filled the context of an arm that calls every end "stop", without the token that was put at
    their end for that, and without the reason."""
    bare = [replace(one, token_ids=_without_end(one.token_ids, ends), finish_reason=None) for one in target]
    return {one.key: one for one in that_filled(target.but({one.key: one for one in bare}), bare)[0]}


def _end_token(source: Capture, target: Capture) -> int | None:
    """The one token that ends a completion, where the source keeps it."""
    ends = terminators(source.header) | terminators(target.header)
    if len(ends) != 1:
        return None
    end = next(iter(ends))
    return end if any(len(one.token_ids) and int(one.token_ids[-1]) == end for one in source) else None


def _ended(one: Completion, arm: Capture, end: int) -> Completion:
    """The completion with the token that ended it, which a text does not show, where nothing else can have."""
    if one.finish_reason != "stop" or one.stop_reason is not None or arm.sampling_of(one).get("stop"):
        return one
    if len(one.token_ids) and int(one.token_ids[-1]) == end:
        return one
    return replace(one, token_ids=np.append(one.token_ids, end))


def _without_end(token_ids: TokenIds, ends: Collection[int]) -> TokenIds:
    """The tokens but for a last one that may have ended them: no text shows it, and another one may go on there."""
    return token_ids[:-1] if len(token_ids) and int(token_ids[-1]) in ends else token_ids


def _supported_alone(arm: Capture, scores: Scores, but: Collection[Key], detokenize: Detokenize) -> Scores:
    """`supported` scores of an arm that gave text alone."""
    if not text_alone(arm.header):
        return {}
    return {
        score_key: supported(one.token_ids, one.text or "", top, detokenize)
        for key, one in arm.completions.items()
        if key not in but
        and (top := scores.get(score_key := ScoreKey(arm.header.arm, *key))) is not None
        and len(top) == len(one.token_ids)
    }


def _blanks(source: Capture, target: Capture) -> bool:
    """Does the target take blanks off the beginning of every text, and the source not?"""
    pairs = [
        (other.text, one.text)
        for key, one in target.completions.items()
        if one.text and (other := source.completions.get(key)) is not None and other.text
    ]
    led = [mine for theirs, mine in pairs if theirs[0].isspace()]
    return len(led) > 1 and not any(mine[0].isspace() for _, mine in pairs)


def _blank_first(source: Capture, target: Capture) -> int:
    """Characters that the target puts before every text, and the source does not: one blank, or none. The source's own
    may all begin with one, as words after most prompts do."""
    mine = [one.text for one in target if one.text]
    alone = not all(one.text.startswith(" ") for one in source if one.text)
    if len(mine) > 1 and alone and all(text.startswith(" ") for text in mine):
        return 1
    pairs = [
        (other.text, one.text)
        for key, one in target.completions.items()
        if one.text and (other := source.completions.get(key)) is not None and other.text
    ]
    more = sum(_blanks_before(mine) > _blanks_before(theirs) for theirs, mine in pairs)
    return int(more >= FEW and more >= LIKE_IT * len(pairs))


def _blanks_before(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _begins_alike(one: Completion, other: Completion) -> bool:
    """Is this the other's text without the blanks at its end, and with something before it that is off the ids: the
    prompt?"""
    core = (other.text or "").strip()
    return _is_beginning(one, other) and bool(core) and (one.text or "").strip().endswith(core)


def _is_beginning(one: Completion, other: Completion) -> bool:
    size = len(one.token_ids)
    return size < len(other.token_ids) and np.array_equal(one.token_ids, other.token_ids[:size])


def _before(one: Completion, text: str, detokenize: Detokenize) -> int:
    """Characters at the beginning of `text` that the ids of `one` do not spell: those of the other arm, or the end of a
    token that began in the prompt (said_again.py)."""
    spelled = detokenize(_Stream(one.token_ids, detokenize).readable)
    return len(text) - len(spelled if text.endswith(spelled) else one.text or "")


def _same(theirs: str, mine: str) -> bool:
    return same_text(theirs, mine) or same_text(theirs.strip(), mine.strip())


def _one(
    one: Completion, other: Completion, text: str, shift: int, score: TopLogprobs | None, detokenize: Detokenize
) -> tuple[Completion, TopLogprobs | None]:
    """`one` with the other's tokens as far as its `text` (`shift` characters of which are the other's) is the same."""
    theirs, mine = _Stream(other.token_ids, detokenize), _Stream(one.token_ids, detokenize, shift)
    common = first_difference(detokenize(theirs.readable), text)
    kept = theirs.whole(theirs.last_before(common))
    place = theirs.end(kept)
    at = mine.first_from(place)
    while kept and mine.end(at) != place:
        kept = theirs.whole(kept - 1)
        place = theirs.end(kept)
        at = mine.first_from(place)
    likely = _likeliest(other, kept, text[place:], detokenize)
    middle = np.array(likely.tokens, dtype=np.int64)
    rest = mine.first_from(place + likely.length) if likely.tokens else at
    tokens = np.concatenate([other.token_ids[:kept], middle, one.token_ids[rest:]])
    if score is not None and len(score) == len(one.token_ids):
        own = len(middle) - 1  # tokens of the other's inside the first one that differs
        lists = [_blank(kept, score), score.part(rest)]
        if len(middle):
            lists[1:1] = [_blank(own, score), score.part(at, at + 1)]
        score = TopLogprobs(
            np.concatenate([part.ids for part in lists]), np.concatenate([part.values for part in lists])
        )
        if kept and at and int(one.token_ids[at - 1]) != int(other.token_ids[kept - 1]):
            score = _on_top(score, tokens, kept + len(middle[1:]))
        score = supported(tokens, text, score, detokenize) if len(score) == len(tokens) else None
    return replace(one, token_ids=tokens, text=None, logprobs=None), score


class _Stream:
    """A token stream with the place in the text at which each token ends."""

    def __init__(self, tokens: TokenIds, detokenize: Detokenize, shift: int = 0) -> None:
        self.tokens, self._detokenize, self._shift = tokens, detokenize, shift
        self.readable = [int(token) for token in tokens if 0 <= token <= INT32_MAX]

    def end(self, count: int) -> int:
        """The characters of the first `count` tokens, bytes that make no character yet left out."""
        return (self._shift if count else 0) + len(self._detokenize(self.readable[:count]).rstrip("\ufffd"))

    def whole(self, count: int) -> int:
        """So many tokens without those at their end that have only begun a character, or make none: the other text may
        go on without them, and has them again where it does not."""
        while count and self._detokenize(self.readable[:count]).endswith(UNREADABLE):
            count -= 1
        return count

    def last_before(self, place: int) -> int:
        """The most tokens that end at `place` or before it."""
        low, high = 0, len(self.readable)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.end(middle) <= place else (low, middle - 1)
        return low

    def first_from(self, place: int) -> int:
        """The fewest tokens that end at `place` or after it."""
        low, high = 0, len(self.readable)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.end(middle) >= place else (middle + 1, high)
        return low


class _Likely(Struct, frozen=True):
    """Tokens that a text may go on with, the last of which the other arm has not said; how many characters they are,
    and how far below the best one that last one lies (nats)."""

    tokens: tuple[int, ...] = ()
    length: int = 0
    gap: float = math.inf


def _likeliest(other: Completion, kept: int, rest: str, detokenize: Detokenize) -> _Likely:
    """What the engine most likely said, by the other's lists, where the texts part in the middle of a token: another
    token at once, or some of the other's first."""
    best, length, at = _Likely(), 0, kept
    own: tuple[int, ...] = ()
    while other.logprobs is not None and at < min(len(other.logprobs), len(other.token_ids)):
        said = int(other.token_ids[at])
        found = _spelled(other.logprobs, at, rest[length:], said, detokenize)
        if found is not None and found.gap < best.gap:
            best = _Likely((*own, *found.tokens), length + found.length, found.gap)
        text = _spelling(said, detokenize)
        if not text or not rest.startswith(text, length):
            break
        own, length, at = (*own, said), length + len(text), at + 1
    return best


def _spelled(top: TopLogprobs, at: int, rest: str, but: int, detokenize: Detokenize) -> _Likely | None:
    """The likeliest token listed there that the text goes on with, besides one."""
    ids, values = top.ids[at], np.where(np.isfinite(top.values[at]), top.values[at], -np.inf)
    for column in np.argsort(-values).tolist():
        token = int(ids[column])
        text = "" if token == but or values[column] == -np.inf else _spelling(token, detokenize)
        if text and rest.startswith(text):
            return _Likely((token,), len(text), float(values.max() - values[column]))
    return None


def _spelling(token: int, detokenize: Detokenize) -> str:
    """The text of one token; empty where it makes no character of its own."""
    text = detokenize([token]) if 0 <= token <= INT32_MAX else ""
    return "" if "\ufffd" in text else text


def supported(tokens: TokenIds, text: str, score: TopLogprobs, detokenize: Detokenize) -> TopLogprobs:
    """The score with the tokens on top at whose place the reference's best one spells the same text: the engine may
    have said that one, and nobody knows how it went on inside it. The token after is scored after other tokens than the
    engine's then, and says nothing either: of "digits" and "es" cut from what was "dig", "it", "s" and "es", the last
    one lies 6.9 nats below the best."""
    values = score.values.copy()
    stream = _Stream(tokens, detokenize)
    covered = 0
    spellings: dict[int, str] = {}
    finite = np.where(np.isfinite(values), values, -np.inf)
    best = finite.argmax(axis=1) if values.shape[1] else np.zeros(len(values), dtype=np.int64)
    for position in np.flatnonzero(score.ids[np.arange(len(best)), best] != tokens[: len(best)]).tolist():
        place = stream.end(position)
        token = int(score.ids[position, best[position]])
        if token not in spellings:
            spellings[token] = detokenize([token]) if 0 <= token <= INT32_MAX else ""
        spelled = spellings[token]
        starts = bool(spelled) and "\ufffd" not in spelled and text.startswith(spelled, place)
        if starts or place < covered:
            if starts:
                covered = max(covered, place + len(spelled), stream.end(position + 1) + 1)
            values[position, score.ids[position] == tokens[position]] = finite[position, best[position]]
    return replace(score, values=values)


def _on_top(score: TopLogprobs, tokens: TokenIds, at: int) -> TopLogprobs:
    """With this token on top: it was scored after another cut of the text before it than the one that is kept."""
    if at >= min(len(score), len(tokens)) or not score.ids.shape[1]:
        return score
    ids, values = score.ids.copy(), score.values.copy()
    known = values[at][np.isfinite(values[at])]
    ids[at, 0], values[at, 0] = tokens[at], known.max() if len(known) else np.nan
    return replace(score, ids=ids, values=values)


def _blank(count: int, like: TopLogprobs) -> TopLogprobs:
    shape = (count, like.ids.shape[1])
    return TopLogprobs(np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan))
