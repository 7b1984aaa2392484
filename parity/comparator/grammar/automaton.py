"""llguidance, where it is installed: how far a text goes along a grammar."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Literal, NamedTuple

Json = Any


class Walk(NamedTuple):
    at: int | None
    """The first character that no text of this grammar has there; None: the text begins one."""
    is_whole: bool
    """It may end there."""
    is_over: bool = False
    """It must: nothing can follow."""


def is_here() -> bool:
    """Is the package llguidance installed?"""
    return _library() is not None


def walk(kind: Literal["json", "regex", "grammar"], given: str, text: str) -> Walk | None:
    """Along the grammar, byte by byte. None without the package, and for a grammar that it does not take."""
    library = _library()
    grammar = _compiled(kind, given)
    if library is None or grammar is None:
        return None
    matcher = library.LLMatcher(_bytes(), grammar, log_level=0)
    said = text.encode("utf-8", "replace")
    taken = matcher.validate_tokens(list(said))
    if matcher.is_error():
        return None
    if taken < len(said):
        return Walk(len(said[:taken].decode("utf-8", "ignore")), False)
    if not matcher.consume_tokens(list(said)):
        return None
    whole = bool(matcher.is_accepting())
    return Walk(None, whole, whole and matcher.stop_reason() == "NoExtension")


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        return None
    return llguidance


@lru_cache(maxsize=1)
def _bytes() -> Any:
    """A tokenizer with a token for each byte: what a text may be does not depend on how it is cut into tokens."""
    return _library().LLTokenizer("byte")


@lru_cache(maxsize=512)
def _compiled(kind: str, given: str) -> str | None:
    library = _library()
    if library is None:
        return None
    try:
        if kind == "json":
            grammar = library.LLMatcher.grammar_from_json_schema(json.dumps(json.loads(given)))
        elif kind == "regex":
            grammar = library.LLMatcher.grammar_from_regex(given)
        else:
            grammar = library.LLMatcher.grammar_from_lark(given)
        refused = library.LLMatcher.validate_grammar(grammar, _bytes())
    except ValueError:
        return None
    return None if refused else str(grammar)
