"""Steps of the model for many rows at once, decoding and teacher-forced, with hooks for what can be wrong in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from worlds.model import HEAD, Model
from worlds.rounding import Floats, Orders, bf16, fp8, int8, product

Ints = npt.NDArray[np.int64]

FUSED = 256
"""Rows computed at once: their logits stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with the numerics of a whole arm.

    bias: nats added to the logits of the ids below `biased`. scale: output weights times 1 + this. weights: "int8" or
    "fp8", how all weights are kept. cache: "fp8", how keys and values are. position_every: at one step in so many the
    position is off by one. noise: bf16 units by which every logit moves at most. stale: chance that a step leaves the
    recurrent state as it was. lift: nats added to the engine's own logprobs of the tokens that it chose. first: the
    lowest id that a bias is on; start: the step from which on all of this holds. lost: the step at which the recurrent
    state begins anew, as where a prefill's second chunk does not take over the first one's. rank: what a matrix of rank
    one, added to each weight, has of its size, as where an adapter is left in. expert: one expert's weights times 1 +
    this.
    """

    bias: float = 0.0
    biased: int = 32
    scale: float = 0.0
    weights: str = ""
    cache: str = ""
    position_every: int = 0
    noise: float = 0.0
    stale: float = 0.0
    lift: float = 0.0
    first: int = 1
    start: int = 0
    lost: int = 0
    rank: float = 0.0
    expert: float = 0.0


SOUND = Broken()
PLAIN = Orders()


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: what it is called, how it adds up, how many rows it takes at a time, how many tokens it drafts."""

    name: str
    orders: Orders = PLAIN
    rows: int = 64
    draft: int = 0
    broken: Broken = SOUND
    draws: int = 0
    """Stream of random draws: arms of one stream draw the same."""


class Batch:
    """The states of rows that are computed together. All are as far as each other."""

    def __init__(self, model: Model, arm: Arm, rows: int, noise: Sequence[int]) -> None:
        shape = model.shape
        self.model, self.arm = model, arm
        self.weights = _weights(model, arm.broken)
        self.at = 0
        self.last = np.zeros(rows, dtype=np.int64)
        self.state = np.zeros((rows, shape.hidden), dtype=np.float32)
        self.keys = np.zeros((rows, shape.window, HEAD), dtype=np.float32)
        self.values = np.zeros((rows, shape.window, HEAD), dtype=np.float32)
        self.rng = np.random.default_rng(noise)

    def keep(self, rows: Ints) -> None:
        """Goes on with these rows alone."""
        self.last, self.state = self.last[rows], self.state[rows]
        self.keys, self.values = self.keys[rows], self.values[rows]

    def leak(self, row: int, donor: int) -> None:
        """The row goes on from another one's state and cache."""
        self.state[row], self.keys[row], self.values[row] = self.state[donor], self.keys[donor], self.values[donor]
        self.last[row] = self.last[donor]

    def step(self, tokens: Ints, live: int, *, wanted: bool = True) -> Floats:
        """Logits after these tokens, shape (rows, vocabulary); `live`: rows of the engine's batch."""
        model, arm, weights = self.model, self.arm, self.weights
        broken = arm.broken if self.at >= arm.broken.start else SOUND
        at, window, parts = self.at, model.shape.window, arm.orders.split(live)
        if broken.lost and at == broken.lost:
            self.state = np.zeros_like(self.state)
        state = model.decay * self.state + (1 - model.decay) * weights.into_state[tokens]
        if (at + 1) % arm.orders.state_every == 0:
            state = bf16(state)
        if broken.stale:
            missed = self.rng.random(len(tokens)) < broken.stale
            state[missed] = self.state[missed]
        self.state = state
        turned = at + 1 if broken.position_every and (at + 1) % broken.position_every == 0 else at
        slot = at % window
        key = _turned(weights.keys[tokens], model.rotation[turned])
        value = weights.values[tokens]
        if broken.cache == "fp8":
            key, value = _cache_fp8(key), _cache_fp8(value)
        self.keys[:, slot], self.values[:, slot] = key, value
        context = model.context(tokens, self.last)
        self.last = tokens
        self.at += 1
        if not wanted and not model.shape.lasting:
            return np.empty((0, 0), dtype=np.float32)
        normed = bf16(state * (1.7 / np.sqrt((state * state).mean(axis=1, keepdims=True) + 1e-3)))
        query = _turned(product(normed, weights.query, parts), model.rotation[turned])
        seen = min(at + 1, window)
        found = _attend(query, self.keys[:, :seen], self.values[:, :seen], arm.orders.window)
        mixed = bf16(normed + product(found, weights.attended, 1))
        inner = product(mixed, weights.up, parts)
        inner = bf16(inner / (1 + np.exp(-inner)))
        moved = product(inner, weights.down, parts)
        moved *= np.float32(model.shape.context * 8.0) / np.sqrt((moved * moved).sum(axis=1, keepdims=True) + 1e-3)
        expert = product(mixed, weights.router, parts).argmax(axis=1)
        if model.shape.lasting:
            self.state = self.state + np.float32(model.shape.lasting) * weights.experts[expert]
        hidden = bf16(bf16(moved) + weights.experts[expert] + weights.pairs[context])
        logits = hidden @ weights.output
        if broken.bias:
            logits[:, broken.first : broken.first + broken.biased] += np.float32(broken.bias)
        bf16(logits)
        if broken.noise:
            unit = np.exp2(np.floor(np.log2(np.abs(logits) + 1e-6)) - 7)
            logits += unit * np.round(self.rng.uniform(-broken.noise, broken.noise, logits.shape)).astype(np.float32)
        return logits


@dataclass(frozen=True, slots=True)
class _Weights:
    into_state: Floats
    keys: Floats
    values: Floats
    query: Floats
    attended: Floats
    up: Floats
    down: Floats
    router: Floats
    experts: Floats
    pairs: Floats
    output: Floats


def _weights(model: Model, broken: Broken) -> _Weights:
    names = _Weights.__slots__
    found: dict[str, Floats] = {name: getattr(model, name) for name in names}
    if broken.weights:
        kept = {"fp8": fp8, "int8": int8}[broken.weights]
        found |= {name: kept(found[name]) for name in ("query", "attended", "up", "down", "output")}
    if broken.scale:
        found["output"] = found["output"] * np.float32(1 + broken.scale)
    if broken.rank:
        found |= {name: _with_rank_one(found[name], broken.rank) for name in ("query", "attended", "up", "down")}
    if broken.expert:
        found["experts"] = found["experts"].copy()
        found["experts"][0] *= np.float32(1 + broken.expert)
    return _Weights(**found)


def _with_rank_one(weights: Floats, share: float) -> Floats:
    rng = np.random.default_rng(weights.shape)
    added = np.outer(*(rng.standard_normal(size) for size in weights.shape))
    added *= share * np.linalg.norm(weights) / np.linalg.norm(added)
    return bf16(np.ascontiguousarray(weights + added, dtype=np.float32))


def _turned(vectors: Floats, angle: npt.NDArray[np.complex64]) -> Floats:
    """Keys or queries rotated by their position, rounded to bf16."""
    pairs = np.ascontiguousarray(vectors).view(np.complex64)
    return bf16((pairs * angle).view(np.float32))


def _cache_fp8(values: Floats) -> Floats:
    """As a cache keeps them: float8 e4m3 without a scale."""
    kept = np.ascontiguousarray(values).copy()
    bits = kept.view(np.uint32)
    bits += np.uint32(0x80000)
    bits &= np.uint32(0xFFF00000)
    return kept


def _attend(query: Floats, keys: Floats, values: Floats, parts: int) -> Floats:
    raw = np.matmul(keys, query[:, :, None])[:, :, 0] * np.float32(HEAD**-0.5)
    weight = np.exp(raw - raw.max(axis=1, keepdims=True))
    total = weight.sum(axis=1, keepdims=True)
    size = keys.shape[1]
    if parts == 1 or size < 2 * parts:
        return bf16(np.matmul(bf16(weight / total)[:, None, :], values)[:, 0])
    width = -(-size // parts)
    found = np.zeros((len(query), HEAD), dtype=np.float32)
    for start in range(0, size, width):
        piece = slice(start, start + width)
        found = bf16(found + bf16(np.matmul(np.ascontiguousarray(weight[:, None, piece]), values[:, piece])[:, 0]))
    return bf16(found / total)


def log_normaliser(logits: Floats) -> Floats:
    """Shape (rows,): what to take off a logit to get its logprob."""
    top = logits.max(axis=1, keepdims=True)
    return top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))


def best(logits: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` best ids and their logits, best first, shape (rows, count)."""
    left = logits.copy()
    rows = np.arange(len(left))
    ids = np.empty((len(left), count), dtype=np.int64)
    values = np.empty((len(left), count), dtype=np.float32)
    for column in range(count):
        ids[:, column] = left.argmax(axis=1)
        values[:, column] = left[rows, ids[:, column]]
        left[rows, ids[:, column]] = -np.inf
    return ids, values
