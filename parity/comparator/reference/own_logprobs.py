"""The engine's own logprobs of its tokens: as gaps, and how far they lie from scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.reference.gaps import FloatArray, TokenGaps, no_gaps, token_gaps
from parity.comparator.reference.penalties import Penalised
from parity.comparator.reference.shaping import Shaping
from parity.comparator.sums import most_together
from parity.records import Completion

LIKELY = -5.0
"""Nats. Below this logprob two kernels disagree by more than the tolerance without a fault."""

NEAR = 0.1
"""Nats, up to which the distance of an own logprob from its score is of no matter: of millions of tokens the others
alone are held."""


class OwnNoise(Struct, frozen=True):
    """`distances` in nats, an array a completion, as `own_distance` gives them: those beyond NEAR, at `places`."""

    distances: tuple[FloatArray, ...]
    places: tuple[npt.NDArray[np.int64], ...]

    @staticmethod
    def of(distances: Iterable[FloatArray]) -> OwnNoise:
        """distances: of every token of a completion, each."""
        wide = ((far[beyond], beyond) for far in distances if len(beyond := np.flatnonzero(far > NEAR)))
        found = list(wide)
        return OwnNoise(tuple(far for far, _ in found), tuple(places for _, places in found))

    @property
    def farthest(self) -> float:
        return max((float(each.max()) for each in self.distances), default=0.0)

    def most_beyond(self, nats: float) -> int:
        """Positions farther than that in the completion that has the most of them."""
        return max((int((each > nats).sum()) for each in self.distances), default=0)

    def most_together(self, within: int) -> float:
        """The largest sum over `within` tokens in a row, nats."""
        both = zip(self.places, self.distances, strict=True)
        return max((most_together(places, distances, within) for places, distances in both), default=0.0)

    def with_as_many(self, count: int, nats: float, within: int) -> int:
        """Completions in which so many positions of `within` in a row, two or more, lie as far off."""
        far = (places[distances >= nats] for places, distances in zip(self.places, self.distances, strict=True))
        return sum(bool((one[count - 1 :] - one[: 1 - count] < within).any()) for one in far)


def has_own(completion: Completion) -> bool:
    """Has it one for each of its tokens?"""
    return completion.logprobs is not None and len(completion.logprobs) == len(completion.token_ids)


def noise_of(sides: Iterable[tuple[Completion, TokenGaps]]) -> OwnNoise | None:
    """How far own logprobs of likely tokens lie from the scores of these completions; None where none has both."""
    any_known = False

    def distances() -> Iterator[FloatArray]:
        nonlocal any_known
        for one, gaps in sides:
            if has_own(one):
                any_known = True
                yield own_distance(one, gaps)

    found = OwnNoise.of(distances())
    return found if any_known else None


def own_distance(completion: Completion, reference: TokenGaps) -> FloatArray:
    """Nats between the engine's own logprob of each token and the reference's, shape (T,); 0 where a token is unlikely
    to both or one of them says nothing."""
    own = own_gaps(completion)
    if own is None:
        return np.zeros(len(completion.token_ids))
    with np.errstate(invalid="ignore"):
        far = np.abs(own.chosen - reference.chosen)
        far = np.where(np.maximum(own.chosen, reference.chosen) > LIKELY, far, 0.0)
    return np.where(np.isfinite(far), far, 0.0)


def own_gaps(completion: Completion, penalised: Penalised | None = None) -> TokenGaps | None:
    """The completion's own decode-time logprobs as gaps, where there is one per token."""
    if completion.logprobs is None or not has_own(completion):
        return None
    return token_gaps(completion.logprobs, completion.token_ids, penalised)


def own_rejections(
    completion: Completion,
    view: TokenGaps | None,
    start: int,
    tolerance: float,
    shaping: Shaping,
) -> TokenGaps | None:
    """`view` with the tokens from `start` on added that lie below the best token of the engine's own list.

    Greedy decoding takes the best token, so a token further down than the tolerance was not chosen by the engine
    that made the list. A list that has its token on top proves nothing: a corrupt state makes corrupt lists.
    """
    if completion.lists is None or not has_own(completion):
        return view
    own = token_gaps(completion.lists, completion.token_ids, shaping.penalised(completion))
    rejected = own.unsupported(tolerance) & ~own.bounded
    rejected[:start] = False
    if not rejected.any():
        return view
    if view is None:
        view = no_gaps(len(completion.token_ids))
    rejected &= np.isnan(view.gap)
    return replace(
        view,
        gap=np.where(rejected, own.gap, view.gap),
        most=np.where(rejected, own.most, view.most),
        best_id=np.where(rejected, own.best_id, view.best_id),
        best=np.where(rejected, own.best, view.best),
        chosen=np.where(rejected, own.chosen, view.chosen),
    )
