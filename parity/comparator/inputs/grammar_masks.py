"""Tokens that a request's grammar refuses, taken out of the scores: what the engine chose from, as far as it is known.

vLLM masks the logits by the grammar before it chooses, with drafts too (`apply_grammar_bitmask`,
`vllm/v1/worker/gpu_model_runner.py`, v0.32.0). The mask is recomputed from the text so far, for tokens that a score
calls better than the chosen one. Where engines read the grammar differently there, or where the list ends above the
chosen token, nothing is left of the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from parity.comparator.grammar import Fate, fate, fate_of_end, has_edges
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.questions import temperature_in
from parity.comparator.inputs.said import Writer
from parity.comparator.inputs.thinking import Grammatical, after_thinking
from parity.comparator.types import Tokenizer
from parity.records import DEFAULT_TOLERANCE, Completion, Key, Scores, TopLogprobs
from parity.records.sampling import ASK_GRAMMARS

MOST_READ = 20_000_000
"""Characters of a run that are read to ask grammars about tokens: the whole text before each. What more tokens would
take is left open."""


def without_refused(writers: tuple[Writer, Writer], scores: Scores) -> tuple[Scores, frozenset[str]]:
    """(scores without what grammars refused, the names of the parameters where that was done). `writers`: of both
    arms. Of completions that both arms have alike nothing is asked: where their lists hold a better token, that is
    left open."""
    arms = tuple(writer.requests.arm for writer in writers)
    is_asked = all(map(_can_tell, writers)) and any(map(_asks_for_grammars, writers))
    if not scores or not is_asked or arms[0].header.arm == arms[1].header.arm:
        return scores, frozenset()
    found, asked_names = dict(scores), set[str]()
    by_key = {(key.arm, Key(*key[1:])): key for key in scores}
    left = MOST_READ
    for writer, arm, other in zip(writers[::-1], arms[::-1], arms, strict=True):  # the candidate's decide most
        pieces = _Pieces(writer)
        for key, one in _under_grammar(writer):
            asked_names.update(ASK_GRAMMARS & {*arm.header.sampling, *one.sampling})
            name = by_key.get((arm.header.arm, key))
            if name is None:
                continue
            twin = other.completions.get(key)
            parts = twin is not None and not np.array_equal(twin.token_ids, one.token_ids)
            found[name], read = _masked(one, writer, found[name], pieces, left if parts else 0)
            left -= read
    return found, frozenset(asked_names)


def _can_tell(writer: Writer) -> bool:
    """Does a tokenizer say what the arm's tokens are, and its engine nothing that moves the edges of a grammar?"""
    engine = writer.requests.arm.header.engine
    has_text = isinstance(writer.render, Tokenizer) and writer.has_ids and not writer.is_server
    return has_text and not has_edges(engine)


def _asks_for_grammars(writer: Writer) -> bool:
    """Does any request of this arm?"""
    arm = writer.requests.arm
    own = (arm.completions[key].sampling for key in arm.own_sampling)
    return writer.requests.of_all.grammar is not None or not all(map(ASK_GRAMMARS.isdisjoint, own))


def _under_grammar(writer: Writer) -> Iterator[tuple[Key, Completion]]:
    """Greedy completions that were asked to follow one."""
    requests = writer.requests
    arm = requests.arm
    some: Iterable[Key] = arm.completions if requests.of_all.grammar is not None else arm.own_sampling
    for key in some:
        one = arm.completions[key]
        if requests.of(one).grammar is not None and not temperature_in(arm.sampling_of(one)):
            yield key, one


def _masked(one: Completion, writer: Writer, top: TopLogprobs, pieces: _Pieces, most: int) -> tuple[TopLogprobs, int]:
    """(its score without what its grammar refused, how many characters were read for that: about `most` at most)."""
    covered = min(len(top), len(one.token_ids))
    ids, values = top.ids[:covered], top.values[:covered]
    is_chosen = ids == one.token_ids[:covered, None]
    listed = np.where(np.isfinite(values), values, -np.inf)
    own = np.where(is_chosen, listed, -np.inf).max(axis=1, initial=-np.inf)
    better = ~is_chosen & (listed > own[:, None])
    # A token near the best of all is near the best that was left.
    is_near = np.where(better, listed, -np.inf).max(axis=1, initial=-np.inf) <= own + DEFAULT_TOLERANCE
    ends_above = ~(~is_chosen & (listed > -np.inf) & ~better).any(axis=1)
    barred, is_open, read = better.copy(), better.any(axis=1) & ~is_near, 0
    part = after_thinking(one, writer.requests.of(one), writer)
    if part is not None:
        barred[: part.begin] = is_open[: part.begin] = False
        mask = _Mask(part, writer, pieces)
        for place in (part.begin + np.flatnonzero(better[part.begin :].any(axis=1))).tolist():
            if read >= most:
                break
            columns = np.flatnonzero(better[place])
            order = columns[np.argsort(-values[place, columns], kind="stable")].tolist()
            tokens = ids[place, order].tolist()
            fates = mask.fates(place - part.begin, tokens, stop_at_open=not bool(is_near[place]))
            read += len(fates) * mask.size(place - part.begin)
            taken = fates[-1] is Fate.TAKEN
            barred[place, order[len(fates) - taken :]] = False
            is_open[place] &= Fate.OPEN in fates or (not taken and ends_above[place])
    barred |= is_open[:, None]
    if not barred.any():
        return top, read
    new_ids, new_values = top.ids.copy(), top.values.copy()
    new_ids[:covered][barred], new_values[:covered][barred] = -1, np.nan
    return replace(top, ids=new_ids, values=new_values), read


class _Mask:
    """What the grammar of one completion refuses."""

    def __init__(self, part: Grammatical, writer: Writer, pieces: _Pieces) -> None:
        self._asked = part.asked
        self._ways = [_Way(way, part.rest.token_ids.tolist(), pieces) for way in writer.ways(part.rest, _PLAIN)]

    def size(self, place: int) -> int:
        """Characters that are read to ask about a token at a position."""
        return sum(len(text) + 1 for text in {way.before(place) for way in self._ways})

    def fates(self, place: int, tokens: Sequence[int], *, stop_at_open: bool) -> list[Fate]:
        """Of these tokens at a position, up to the first that is taken."""
        found = list[Fate]()
        for token in tokens:
            found.append(self._fate(place, token))
            if found[-1] is Fate.TAKEN or (stop_at_open and found[-1] is Fate.OPEN):
                break
        return found

    def _fate(self, place: int, token: int) -> Fate:
        """Of one token, where all ways to write the text agree."""
        asked, spec = self._asked, self._asked.grammar
        assert spec is not None
        if token in asked.stop_ids or (token in asked.eos and (asked.ignores_eos or len(asked.eos) > 1)):
            return Fate.OPEN
        before = [way.before(place) for way in self._ways]
        if token in asked.eos:
            said = {fate_of_end(spec, text) for text in before}
        else:
            now = [way.after(place, token) for way in self._ways]
            said = {fate(spec, *texts) for texts in set(zip(before, now, strict=True))}
        return said.pop() if len(said) == 1 else Fate.OPEN


class _Pieces:
    """The text that a token adds to others, where it is the same after all of them."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._known = writer, dict[int, tuple[str, str]]()

    def of(self, token: int, *, begins: bool = False) -> str:
        """The first of a text may lose a blank."""
        if token not in self._known:
            once, twice = (self._writer.text([token] * count, _PLAIN) for count in (1, 2))
            self._known[token] = once, twice[len(once) :]
        return self._known[token][0 if begins else 1]


class _Way:
    """The text of a completion's beginnings, in one of the ways to write it."""

    def __init__(self, writer: Writer, tokens: list[int], pieces: _Pieces) -> None:
        self._writer, self._tokens, self._pieces = writer, tokens, pieces
        self._is_alone = not writer.before
        each = [pieces.of(tokens[0], begins=self._is_alone), *map(pieces.of, tokens[1:])] if tokens else []
        self._text, self._ends = "".join(each), [0, *accumulate(map(len, each))]
        self._is_of_pieces = self._text == writer.text(tokens, _PLAIN)

    def before(self, place: int) -> str:
        if not self._is_of_pieces:
            return self._writer.text(self._tokens[:place], _PLAIN)
        return self._text[: self._ends[place]]

    def after(self, place: int, token: int) -> str:
        """Of the tokens before a position, and another one there."""
        if self._is_of_pieces:
            return self.before(place) + self._pieces.of(token, begins=self._is_alone and not place)
        return self._writer.text([*self._tokens[:place], token], _PLAIN)


_PLAIN = Asked()
