"""Weights of a small language model, from a seed.

A token's embedding goes into a recurrent state and, rotated by its position, into an attention window; both pass a
gated layer and one of a few experts: where two experts are a near-tie, rounding picks one, and residuals have rare
values of ten standard deviations, as real ones do. Beside that, a table of hashed pairs of tokens says what usually
comes next and how sure that is, which gives greedy text the mixture of certain and open places that real text has (a
random network alone is flat everywhere).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from worlds.rounding import Floats, bf16

EOS = 0
EXPERTS = 8
HEAD = 16
"""Dimensions of a key and of a value."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size and temper of a model.

    sure: share of contexts whose next token is nearly certain; strength: their logit, from and to; open_strength: that
    of the others. ends: share of contexts in which the text ends. context: logits that state and attention move, sd;
    expert: the same for an expert, times eight. lasting: share of what an expert adds that goes into the state as well.
    """

    vocabulary: int = 512
    hidden: int = 64
    window: int = 32
    contexts: int = 8192
    sure: float = 0.7
    strength: tuple[float, float] = (16.0, 26.0)
    open_strength: tuple[float, float] = (4.0, 16.0)
    ends: float = 1 / 400
    context: float = 2.6
    expert: float = 0.9
    lasting: float = 0.0


PEAKED = Shape()
"""As models of ordinary size are: about one greedy choice in five hundred hangs on rounding."""

SURE = Shape(sure=0.88, open_strength=(5.0, 18.0), context=2.4)
"""As large models are: one in two thousand."""

FLAT = Shape(sure=0.25, strength=(12.0, 18.0), open_strength=(3.5, 12.5), context=2.3)
"""As small checkpoints are: one in two hundred."""


ROUGH = Shape(sure=0.25, strength=(12.0, 18.0), open_strength=(3.5, 12.5), context=2.3, expert=4.0)
"""As random weights are: experts so far apart that a near-tie of the router moves logits by nats."""


LASTING = replace(ROUGH, lasting=0.1)
"""The same where the logits of the tokens after it move as well, as in models of several layers. Of base and mtp of
`parity model tiny --arch qwen3_next` (vLLM 0.32 on CPU) logits move by more than 0.75 nats at 6 to 15 tokens in 1,000,
two thirds of it beside others that do; here at 2 to 6."""


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, rounded to bf16; tables are what a token's embedding is turned into, one row each."""

    shape: Shape
    seed: int
    embedded: Floats
    into_state: Floats
    keys: Floats
    values: Floats
    decay: Floats
    query: Floats
    attended: Floats
    up: Floats
    down: Floats
    router: Floats
    experts: Floats
    pairs: Floats
    usual: np.typing.NDArray[np.int64]
    output: Floats
    rotation: np.typing.NDArray[np.complex64]

    def context(
        self, last: np.typing.NDArray[np.int64], before: np.typing.NDArray[np.int64]
    ) -> np.typing.NDArray[np.int64]:
        """Row of `pairs` for the last two tokens."""
        return (last * 1_000_003 + before * 7_919 + 12_289) % 2_147_483_647 % self.shape.contexts


@lru_cache(maxsize=8)
def model(seed: int, shape: Shape = PEAKED) -> Model:
    rng = np.random.default_rng([seed, 1])
    size, hidden = shape.vocabulary, shape.hidden

    def normal(*dims: int, scale: float) -> Floats:
        return bf16((rng.standard_normal(dims) * scale).astype(np.float32))

    embedded = normal(size, hidden, scale=1.0)
    output = rng.standard_normal((hidden, size))
    output = bf16((output / np.linalg.norm(output, axis=0)).astype(np.float32))
    rank = np.arange(1, size)
    usual = rng.choice(rank, shape.contexts, p=(1 / (rank + 20)) / (1 / (rank + 20)).sum())
    usual[rng.random(shape.contexts) < shape.ends] = EOS
    low, high = shape.open_strength
    strength = rng.uniform(low, high, shape.contexts)
    sure = rng.random(shape.contexts) < shape.sure
    strength[sure] = rng.uniform(*shape.strength, int(sure.sum()))
    strength[usual == EOS] = shape.strength[1]
    pairs = bf16((output[:, usual].T * strength[:, None]).astype(np.float32))
    return Model(
        shape=shape,
        seed=seed,
        embedded=embedded,
        into_state=bf16(embedded @ normal(hidden, hidden, scale=hidden**-0.5)),
        keys=bf16(embedded @ normal(hidden, HEAD, scale=hidden**-0.5)),
        values=bf16(embedded @ normal(hidden, HEAD, scale=hidden**-0.5)),
        decay=rng.uniform(0.5, 0.9, hidden).astype(np.float32),
        query=normal(hidden, HEAD, scale=1.5 * hidden**-0.5),
        attended=normal(HEAD, hidden, scale=1.2 * HEAD**-0.5),
        up=normal(hidden, 2 * hidden, scale=1.5 * hidden**-0.5),
        down=normal(2 * hidden, hidden, scale=1.0 * hidden**-0.5),
        router=normal(hidden, EXPERTS, scale=hidden**-0.5),
        experts=normal(EXPERTS, hidden, scale=shape.expert * hidden**-0.5),
        pairs=pairs,
        usual=usual,
        output=output,
        rotation=np.exp(1j * np.outer(np.arange(4096), 0.2 / 50 ** (np.arange(HEAD // 2) / (HEAD // 2)))).astype(
            np.complex64
        ),
    )
