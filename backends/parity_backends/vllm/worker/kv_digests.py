"""Digests of keys and values: what a request's tokens have in the cache when a step ends, and when the next one ends.

An entry is written in the step that computes its token, and by nothing after that: what a token's place holds is the
same until the request leaves. Blocks that prefix caching shares are read alone. A digest is of the entries of a request
in all attention layers of a cache group. Where in a block they lie is the backend's own (a CPU packs keys for its
matrix units), so it is asked: a block of scratch memory is filled by the backend's own method with the number of each
token.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Optional

import numpy as np

from parity.capture.step_table import NOTHING, spans

NUMBERS_AT_ONCE = 1 << 15
"""Numbers that are read at once: of all entries all, as long as these suffice; then fewer of each, in turn."""

LEAST_NUMBERS = 16
"""Of an entry in one layer; where these are too many, a part of each request's tokens is read, in turn."""

TOKEN_DIGIT = 128
"""Numbers up to it are exact in every precision of a cache that is read."""


class KeptPart(NamedTuple):
    """Tokens of a request that are looked at from the end of one of its steps to the end of its next."""

    begin: int
    tokens: int


def kept_part(step: int, tokens: int, most: int) -> KeptPart:
    """`most` of the tokens, others at each step."""
    count = min(tokens, most)
    return KeptPart(0 if count == tokens else min(step * count % tokens, tokens - count), count)


class KeyValueDigests:
    """Of the attention layers of one cache group, whose caches are on the host."""

    def __init__(self, layers: list[tuple[Any, Any]], size: int, kernel_size: int) -> None:
        """`layers`: of each its cache as integers of 16 bits, shape (blocks, numbers), and where in a block those of
        each token lie, shape (kernel_size, numbers). `size`: tokens in a block of the scheduler's, `kernel_size` in
        one of the cache's."""
        self.layers, self.size, self.kernel_size = layers, size, kernel_size
        self.numbers = max(where.shape[1] for _, where in layers)
        # Of 16 bits, as what is read: sums of products are exact as float64, which has fast products.
        self.weights = ((np.arange(self.numbers) * 0x9E37 % (1 << 16)) | 1).astype(np.float64)
        self.first, self.apart = 0, 1
        """Which numbers of an entry are read, from the end of one step to the end of the next."""

    def turn(self, step: int, tokens: list[int]) -> list[KeptPart]:
        """Choose what is read until the next step ends, of requests with so many tokens that nothing will write
        again."""
        least = max(1, self.numbers // LEAST_NUMBERS)
        wanted = max(1, sum(tokens)) * len(self.layers) * self.numbers
        self.apart = min(least, -(-wanted // NUMBERS_AT_ONCE))
        self.first = step % self.apart
        most = max(1, NUMBERS_AT_ONCE * self.apart // (max(1, len(tokens)) * len(self.layers) * self.numbers))
        return [kept_part(step, count, most if wanted // self.apart > NUMBERS_AT_ONCE else count) for count in tokens]

    def of(self, parts: list[Optional[KeptPart]], blocks: list[Any]) -> Any:
        """A digest of each part, from 0 to 2^31, NOTHING where there is none. `blocks`: those of each request."""
        found = np.full(len(parts), NOTHING, dtype=np.int64)
        asked = [
            (row, part)
            for row, part in enumerate(parts)
            if part is not None and part.tokens and (part.begin + part.tokens - 1) // self.size < len(blocks[row])
        ]
        if not asked:
            return found
        counts = np.array([part.tokens for _, part in asked])
        position = spans(np.array([part.begin for _, part in asked]), counts)
        slots = self._slots(asked, blocks, position, counts)
        place, offset = slots // self.kernel_size, slots % self.kernel_size
        values = np.zeros(len(position), dtype=np.int64)
        for number, (cache, where) in enumerate(self.layers):
            read = cache[place[:, None], where[offset, self.first :: self.apart]]
            values += (2 * number + 1) * (read @ self.weights[: read.shape[1]]).astype(np.int64)
        values *= (2 * position + 1) * 0x85EBCA77 % (1 << 31) | 1
        sums = np.add.reduceat(values, np.cumsum(counts) - counts)
        found[[row for row, _ in asked]] = (sums ^ (sums >> 31)) & 0x7FFFFFFF
        return found

    def _slots(self, asked: list[tuple[int, KeptPart]], blocks: list[Any], position: Any, counts: Any) -> Any:
        first = [part.begin // self.size for _, part in asked]
        own = [
            blocks[row][begin : (part.begin + part.tokens - 1) // self.size + 1]
            for begin, (row, part) in zip(first, asked)  # noqa: B905 - Python 3.9
        ]
        lengths = np.array([len(one) for one in own])
        starts = np.cumsum(lengths) - lengths - np.array(first)
        ids = np.concatenate([np.asarray(one, dtype=np.int64) for one in own])
        return ids[np.repeat(starts, counts) + position // self.size] * self.size + position % self.size


def key_values_of(runner: Any, group: Any, size: int, kernel_size: int) -> Optional[KeyValueDigests]:
    """The digests of a cache group; None where its caches are not on the host, or do not say where entries lie."""
    context = getattr(getattr(runner, "compilation_config", None), "static_forward_context", None) or {}
    layers = []
    for builder in group:
        for name in builder.layer_names:
            layer = context.get(name)
            cache = getattr(layer, "kv_cache", None)
            if isinstance(cache, list) and len(cache) == 1:  # one for each virtual engine, before 0.20
                cache = cache[0]
            where = entry_places(layer, cache, kernel_size)
            if where is None:
                return None
            layers.append((cache_integers(cache), where))
    return KeyValueDigests(layers, size, kernel_size) if layers and size and size % kernel_size == 0 else None


def cache_integers(cache: Any) -> Any:
    import torch

    return cache.detach().view(cache.shape[0], -1).view(torch.int16).numpy()


def entry_places(layer: Any, cache: Any, kernel_size: int) -> Optional[Any]:
    """Where in a block the numbers of each token lie, shape (kernel_size, numbers)."""
    import torch

    write = getattr(getattr(layer, "impl", None), "do_kv_cache_update", None)
    heads, width = getattr(layer, "num_kv_heads", None), getattr(layer, "head_size", None)
    if write is None or not isinstance(heads, int) or not isinstance(width, int):
        return None
    if len(inspect.signature(write).parameters) != len(("layer", "key", "value", "kv_cache", "slot_mapping")):
        return None  # of latent vectors: MLA's method has the scales of the cache too (0.32.0, mla_attention.py)
    if not isinstance(cache, torch.Tensor) or cache.device.type != "cpu":
        return None
    if cache.dtype not in (torch.bfloat16, torch.float16, torch.float32) or not cache[0].is_contiguous():
        return None
    token = np.zeros(cache[0].numel(), dtype=np.int64)
    tokens = torch.arange(kernel_size)
    for digit, factor in ((tokens % TOKEN_DIGIT, 1), (tokens // TOKEN_DIGIT, TOKEN_DIGIT)):
        block = torch.zeros_like(cache[:1])
        entries = (digit + 1).to(cache.dtype)[:, None, None].expand(kernel_size, heads, width).contiguous()
        write(layer, entries, entries.clone(), block, tokens)
        token += factor * (block.reshape(-1).float().numpy().astype(np.int64) - 1)
    order = np.argsort(token, kind="stable")
    numbers = len(order) // kernel_size
    if not numbers or not np.array_equal(token[order], np.repeat(np.arange(kernel_size), numbers)):
        return None  # not every number of a block belongs to one token
    where = order.reshape(kernel_size, numbers)
    return where if cache.element_size() == 2 else np.concatenate([2 * where, 2 * where + 1], axis=1)
