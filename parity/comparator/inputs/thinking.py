"""Where a completion's grammar begins: after its reasoning, where the engine lets a model think first.

vLLM's reasoning parsers leave tokens free up to the one that ends the reasoning (`StructuredOutputManager`,
`vllm/v1/structured_output/__init__.py`, v0.32.0). With drafts this has gone wrong at the border, in either way
(vllm#36138, vllm#44297, vllm#44993).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from parity.comparator.grammar import in_reasoning, reasoning_parser
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.said import Writer
from parity.comparator.types import Tokenizer
from parity.records import Completion

_THINK: Final = ("<think>", "</think>")
_MARKERS: Final[Mapping[str, tuple[str, str]]] = {
    "deepseek_r1": _THINK, "ernie45": _THINK, "glm45": _THINK, "glm47": _THINK, "mimo": _THINK, "qwen3": _THINK,
    "seed_oss": ("<seed:think>", "</seed:think>"),
}  # fmt: skip
"""Of reasoning parsers: the tokens that begin and end the reasoning."""

_CALLS: Final = ("<tool_call>", "<|tool_call")
"""What some parsers take for the end of the reasoning as well."""

_SHOWN: Final = Asked(skips_special=False)

_CLOSED: Final = 4
"""Last tokens of a prompt, among which the end of a reasoning says that there is to be none."""


class Grammatical(NamedTuple):
    """The part of a completion that a grammar is asked about."""

    begin: int
    """Its first token."""
    rest: Completion
    """From there on; what came before belongs to its prompt."""
    asked: Asked
    """Of the rest."""


def after_thinking(one: Completion, asked: Asked, writer: Writer) -> Grammatical | None:
    """None where nothing says where the grammar begins."""
    begin = _begin(one, writer)
    if begin is None:
        return None
    if not begin:
        return Grammatical(0, one, asked)
    tokens, prompt = one.token_ids[begin:], np.concatenate([one.prompt_token_ids, one.token_ids[:begin]])
    rest = replace(one, token_ids=tokens, prompt_token_ids=prompt, text=None, logprobs=None, spec=None)
    return Grammatical(begin, rest, structs.replace(asked, min_tokens=max(0, asked.min_tokens - begin)))


def _begin(one: Completion, writer: Writer) -> int | None:
    engine = writer.requests.arm.header.engine
    name = reasoning_parser(engine)
    if name is None or in_reasoning(engine):
        return 0
    render = writer.render
    if name not in _MARKERS or not isinstance(render, Tokenizer) or writer.is_server or not writer.has_ids:
        return None
    start, end = (_id_of(marker, render) for marker in _MARKERS[name])
    if start is None or end is None:
        return None
    prompt, tokens = one.prompt_token_ids.tolist(), one.token_ids.tolist()
    marked = [token for token in prompt if token in (start, end)]
    if marked and marked[-1] == end:
        return 0 if end in prompt[-_CLOSED:] else None  # of an earlier turn: releases of vLLM differ
    begin = tokens.index(end) + 1 if end in tokens else len(tokens)
    thought = writer.text(tokens[:begin], _SHOWN)
    return None if any(call in thought for call in _CALLS) else begin


def _id_of(marker: str, render: Tokenizer) -> int | None:
    """The one token that it is."""
    ids: Sequence[int] = render.encode(marker)
    return int(ids[0]) if len(ids) == 1 else None
