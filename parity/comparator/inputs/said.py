"""The text that a completion must have: what its tokens say, up to the stop string that ends it.

vLLM detokenises as tokens come and looks for stop strings after each step (`vllm/v1/engine/detokenizer.py`): the one
that is complete first ends the completion, not before `min_tokens` tokens. A step with speculation makes several
tokens: up to v0.31 those after the stop string stay in `token_ids`, and of several stop strings in one step the first
of the list is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.inputs import servers
from parity.comparator.inputs.asked import Asked, Requests, requests_of
from parity.comparator.inputs.exercised import speculates
from parity.comparator.inputs.pieces import UNREADABLE, in_pieces
from parity.comparator.inputs.text import INT32_MAX, same_text
from parity.comparator.types import Tokenizer
from parity.records import Capture, Completion
from parity.records.engine_settings import draft_tokens

UNKNOWN_STEP = 16
"""Tokens past the first one of a step, of an engine that speculates and does not say how far."""

SERVED_STEP = 32
"""The same of a server, which may work in steps of its own."""

CONTEXT = 64
"""Tokens at a prompt's end that show how an output goes on: more than the bytes of any character."""


class Match(Struct, frozen=True):
    """A stop string in a text: characters [start, end)."""

    stop: str
    start: int
    end: int


class Writer(Struct, frozen=True):
    """How one arm makes text of tokens."""

    requests: Requests
    render: Callable[[Sequence[int]], str] | None
    """None: no tokenizer is known to be the arm's own."""
    step: int
    """Tokens that may come after the one that ends a completion, in the same step."""
    is_server: bool
    has_ids: bool
    """The token ids are the engine's own."""

    goes_on: bool | None = None
    """Its texts are written as what goes on after their prompts, where that is not as if they stood alone: tokenizers
    of SentencePiece's kind take a blank off the beginning of a text. None: not known."""
    before: tuple[int, ...] = ()
    """Tokens before the output's, whose text is said with it, but for the first `left_out` characters."""
    left_out: int = 0
    is_in_pieces: bool = False
    """Token by token (pieces.py)."""

    def text(self, tokens: Sequence[int], asked: Asked) -> str:
        """The text of tokens, special ones as the request wanted."""
        if self.is_in_pieces:
            ids = [int(token) for token in tokens if 0 <= token <= INT32_MAX]
            return in_pieces(partial(self._decoded, asked=asked), self.before, ids)
        return self._decoded((*self.before, *tokens), asked)[self.left_out :]

    def _decoded(self, tokens: Sequence[int], asked: Asked) -> str:
        assert self.render is not None
        ids = [int(token) for token in tokens if 0 <= token <= INT32_MAX]
        if not asked.skips_special and isinstance(self.render, Tokenizer):
            return self.render.with_special(ids)
        return self.render(ids)

    def ways(self, completion: Completion, asked: Asked) -> Iterator[Writer]:
        """In which ways its text may be written, the most usual first: alone, or as what goes on after the prompt.
        Where the prompt ends inside a character, vLLM says what it holds back of the prompt with the first tokens:
        that character, or (0.23 to 0.32) the whole prompt."""
        if self.goes_on is not True:
            yield self
        prompt = completion.prompt_token_ids.tolist()
        near = prompt[-CONTEXT:]
        text = self._decoded(near, asked)
        near, text = (near, text) if text else (prompt, self._decoded(prompt, asked))
        after = replace(self, before=tuple(near), left_out=len(text.rstrip(UNREADABLE)))
        is_half = text.endswith(UNREADABLE)
        if is_half and self.goes_on is True:
            yield self
        if is_half or self.goes_on is not False:
            yield after
        if is_half:
            yield replace(self, before=tuple(prompt))
        if UNREADABLE in after.text(completion.token_ids.tolist(), asked):
            yield replace(after, left_out=0, is_in_pieces=True)

    def tokens_for(self, characters: int, tokens: Sequence[int], asked: Asked) -> int:
        """Leading tokens that the first `characters` characters need: by bisection, since texts of prefixes grow."""
        low, high = 0, len(tokens)
        while low < high:
            middle = (low + high) // 2
            if len(self.text(tokens[:middle], asked).rstrip(UNREADABLE)) >= characters:
                high = middle
            else:
                low = middle + 1
        return low


def writer_of(
    arm: Capture, other: Capture, render: Callable[[Sequence[int]], str] | None, *, goes_on: bool | None = None
) -> Writer:
    """`other`: the arm that it is compared with. `goes_on`: as `Writer` has it."""
    is_server = servers.served(arm.header)
    step = draft_tokens(arm.header.engine) or (UNKNOWN_STEP if speculates(arm) else 0)
    requests = requests_of(arm, other.header)
    own_ids = not servers.text_alone(arm.header)
    return Writer(requests, render, SERVED_STEP if is_server else step, is_server, own_ids, goes_on)


def first_match(text: str, stops: Sequence[str], after: int = 0) -> Match | None:
    """The stop string that is complete first, and not within the first `after` characters; of several the first of
    the list."""
    found: Match | None = None
    for stop in stops:
        at = text.find(stop, max(0, after - len(stop) + 1))
        if at >= 0 and (found is None or at + len(stop) < found.end):
            found = Match(stop, at, at + len(stop))
    return found


class Said(Struct, frozen=True):
    """What the tokens of a completion say."""

    text: str
    """All of it."""
    match: Match | None
    """The stop string that should have ended it."""
    tokens: int
    """Leading tokens up to the one that completes the stop string; all of them without one."""
    right: tuple[str, ...]
    """Texts that are right, the most usual first."""


def said(completion: Completion, asked: Asked, writer: Writer) -> Said:
    """Raises AssertionError without a tokenizer."""
    tokens = completion.token_ids.tolist()
    whole = writer.text(tokens, asked)
    match = None
    if asked.stops:
        free = len(writer.text(tokens[: asked.min_tokens], asked).rstrip(UNREADABLE)) if asked.min_tokens else 0
        # A token that ends the completion is no text, and says no stop string.
        unsaid = asked.ends_with(completion) is not None and not asked.includes_stop
        match = first_match(writer.text(tokens[:-1], asked) if unsaid else whole, asked.stops, free)
    if match is None:
        return Said(whole, None, len(tokens), _uncut(completion, asked, writer, whole))
    needed = writer.tokens_for(match.end, tokens, asked)
    right = [_cut(whole, match, asked)]
    if len(asked.stops) > 1:  # found in one step, or in one token, another of the list may have been taken
        leading = tokens[: max(0, len(tokens) - 1 - writer.step)]
        begun = len(writer.text(leading, asked).rstrip(UNREADABLE)) if leading else 0
        others = (first_match(whole, [stop], max(begun, match.start)) for stop in asked.stops)
        right += [_cut(whole, one, asked) for one in others if one is not None and match.end > begun]
    return Said(whole, match, needed, tuple(dict.fromkeys(right)))


def is_written(completion: Completion, asked: Asked, writer: Writer) -> bool:
    """Is its text, which it has, what its tokens say in one of the ways to write it?"""
    text = completion.text or ""
    return any(
        _is_of_tokens(text, completion, asked, said(completion, asked, way)) for way in writer.ways(completion, asked)
    )


def _is_of_tokens(text: str, completion: Completion, asked: Asked, found: Said) -> bool:
    """Is this text of the completion what its tokens say, a stop string that was cut off allowed for?"""
    if any(same_text(text, right) for right in found.right):
        return True
    may_be_cut = isinstance(completion.stop_reason, str) or (
        bool(asked.stops)
        and completion.finish_reason == "stop"
        and completion.stop_reason is None
        and asked.ends_with(completion) is None
    )
    # The tokens of the stop string are not in the stream.
    return found.match is None and may_be_cut and found.text.startswith(text)


def _cut(text: str, match: Match, asked: Asked) -> str:
    return text[: match.end if asked.includes_stop else match.start]


def _uncut(completion: Completion, asked: Asked, writer: Writer, whole: str) -> tuple[str, ...]:
    """Texts of a completion that no stop string ended: with the token that ended it and without."""
    last = asked.ends_with(completion)
    if last is None:
        return (whole,)
    without = writer.text(completion.token_ids.tolist()[:-1], asked)
    if last in asked.eos or writer.is_server:
        return (without, whole)
    return (whole,) if asked.includes_stop else (without,)
