"""llguidance, where it is installed: how far a text goes along a grammar."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

Json = Any


class Walk(NamedTuple):
    at: int | None
    """The first character that no text of this grammar has there; None: the text begins one."""
    is_whole: bool
    """It may end there."""
    is_over: bool = False
    """It must: nothing can follow."""
    is_forced: bool = False
    """One character alone can follow."""
    is_ascii: bool = False
    """No character can follow that is not of ASCII."""


def is_here() -> bool:
    """Is the package llguidance installed?"""
    return _library() is not None


def walk(kind: str, given: str, text: str) -> Walk | None:
    """Along a grammar ("json", "regex", "grammar"), byte by byte. None without the package, and for a grammar that it
    does not take."""
    begun = None if _library() is None else _begun(kind, given)
    if begun is None:
        return None
    matcher = begun.deep_copy()
    said = text.encode("utf-8", "replace")
    taken = matcher.validate_tokens(list(said))
    if matcher.is_error():
        return None
    if taken < len(said):
        return Walk(len(said[:taken].decode("utf-8", "ignore")), False)
    if not matcher.consume_tokens(list(said)):
        return None
    whole = bool(matcher.is_accepting())
    is_over = whole and matcher.stop_reason() == "NoExtension"
    return Walk(None, whole, is_over, bool(matcher.compute_ff_bytes()), not any(matcher.compute_bitmask()[16:32]))


@lru_cache(maxsize=64)
def _begun(kind: str, given: str) -> Any:
    """A matcher at the beginning of a grammar, to be copied: reading the grammar again takes longer. None where there
    is none."""
    grammar = _compiled(kind, given)
    return None if grammar is None else _library().LLMatcher(_bytes(), grammar, log_level=0)


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
