"""How many own logprobs of a completion are off in any run of this model, and after which tokens."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence, Set
from functools import cache
from typing import NamedTuple

import numpy as np

from parity.comparator.detect.cases import Habit
from parity.comparator.detect.off_logprobs import LOGPROB_TOLERANCE, apart, are_likely, are_off, of_chosen
from parity.comparator.reference.gaps import BoolArray, FloatArray, TokenGaps
from parity.comparator.reference.isolated import IN_FEWEST
from parity.comparator.reference.own_logprobs import OwnNoise, has_own, own_gaps
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.contexts import context_of
from parity.comparator.streams.pairing import Pairs, at_rows
from parity.comparator.streams.sides import Ints
from parity.records import Completion

LONG_LOOP = 8
"""Tokens of a loop, at least, of which each one counts once for all times that it comes round."""

LEAST_OTHERS = 256
"""Scored tokens of other completions, from which on they say what is usual."""


def choices_of(completion: Completion, off: BoolArray, by: FloatArray, common: Set[Hashable]) -> int:
    """Positions that are off, but for those that are `common`. Those to which a loop comes again count once: an engine
    that comes to the same tokens again makes the same choice. In a short loop each counts."""
    last: dict[Hashable, int] = {}
    count = 0
    for at in np.flatnonzero(off).tolist():
        if _choice(completion, at, by) in common:
            continue
        context = context_of(completion, at)
        count += context not in last or at - last[context] < LONG_LOOP
        last[context] = at
    return count


def _choice(completion: Completion, at: int, by: FloatArray) -> Hashable:
    """The tokens after which a logprob is off, and by how much in units of LOGPROB_TOLERANCE."""
    return context_of(completion, at), float(np.rint(by[at] / LOGPROB_TOLERANCE))  # may be infinite


class _Shared:
    """What `_choice` says of the logprobs that are off, and the prompts of which it says it."""

    def __init__(self) -> None:
        self._prompts: defaultdict[Hashable, set[int]] = defaultdict(set)

    def add(self, completion: Completion, off: BoolArray, by: FloatArray) -> None:
        for at in np.flatnonzero(off).tolist():
            self._prompts[_choice(completion, at, by)].add(hash(completion.prompt_token_ids.tobytes()))

    def common(self) -> Set[Hashable]:
        return {choice for choice, prompts in self._prompts.items() if len(prompts) >= IN_FEWEST}


def usual_between(pairs: Pairs) -> Callable[[], Habit]:
    """How many logprobs of the chosen tokens are off between the arms in a completion, up to where they part, as
    `most_have` says, and after which tokens. Looked up where something is off."""

    @cache
    def found() -> Habit:
        counts, shared = list[_Count](), _Shared()
        for a, b, parts_at in zip(pairs.baseline, pairs.candidate, pairs.parts_at.tolist(), strict=True):
            theirs, until = own_gaps(a), len(b.token_ids) if parts_at < 0 else parts_at
            if theirs is not None and has_own(b):
                mine, expected = of_chosen(b, until)[1], theirs.chosen[:until]
                off = are_off(mine, expected)
                counts += [count] if (count := _counted(b, mine, expected, off)).likely else []
                shared.add(b, off, apart(mine, expected))
        return Habit(most_have(_habitual(np.array(counts).reshape(-1, 5))[:, 0]), shared.common())

    return found


class _Count(NamedTuple):
    """Positions of a completion: those that are off, those that can be, those that would show another kind of numbers,
    and all; `is_whole`: it is off as a whole."""

    off: int
    likely: int
    telling: int
    tokens: int
    is_whole: bool


WHOLLY, FEWEST = 0.5, 6
"""Share of the likely tokens, and number of contexts, from which on a completion is off as a whole, which no model does
now and then: of 11,552 clean completions of tests/worlds with experts far apart none has more than 11 in 100 off."""

TELLING, FEW_TELLING = -1.0, 4
"""Nats, below which a logprob would be off if it were of another kind (half of it, say), and how many a completion must
have to say something of that."""

AGREE, OF_ALL = 0.1, 0.25
"""Share of the likely tokens, up to which completions agree, and the share of completions that must, or else the arms
write other numbers throughout."""


def _counted(completion: Completion, mine: FloatArray, expected: FloatArray, off: BoolArray) -> _Count:
    likely = are_likely(mine, expected)
    with np.errstate(invalid="ignore"):
        telling = likely & (np.minimum(mine, expected) < TELLING)
    count, of = int(off.sum()), int(likely.sum())
    is_whole = count >= FEWEST and count >= WHOLLY * of
    if is_whole:  # a short loop is one choice, again and again
        is_whole = len({context_of(completion, at) for at in np.flatnonzero(off).tolist()}) >= FEWEST
    return _Count(count, of, int(telling.sum()), len(off), is_whole)


def _habitual(counts: Ints) -> Ints:
    """Of `_Count`s, shape (N, 5), those that show what the model does now and then."""
    off, likely, telling, _, is_whole = counts.T
    tells = telling >= FEW_TELLING
    agree = int((tells & (off <= AGREE * likely)).sum())
    return counts if agree < max(2, OF_ALL * tells.sum()) else np.asarray(counts[is_whole == 0])


FEW_HAVE, MOST_HAVE = 0.65, 0.95
"""Shares of the completions: the first without any, nothing is usual; else what the second have at most is. Of
three clean arms of `parity model tiny --arch deepseek_v3` (vLLM 0.32 on CPU) 28 to 46 of 64 completions have some."""


def most_have(counts: Sequence[int] | Ints) -> float:
    """How many are usual, where completions have so many positions that are off.

    None where no more than one completion in three has some. Where more have, the model moves its logits now and then,
    as routers of random weights do: as many as 19 in 20 completions have at most.
    """
    some, most = np.quantile(counts, (FEW_HAVE, MOST_HAVE), method="lower").tolist() if len(counts) else (0.0, 0.0)
    return float(most) if some else 0.0


def usual_by_scores(
    pairs: Pairs, reference: Reference, arm: str, own_noise: Callable[[], OwnNoise | None]
) -> Callable[[Completion], Habit]:
    """How many logprobs of the chosen tokens lie off their scores in a completion as long as this one: by the share in
    the candidate's other scored completions that part from the baseline's, and at least as many as `most_have` says of
    these, and as in any of those of the baseline that are scored; infinite where the others have fewer than
    LEAST_OTHERS tokens. Needed where not all of the baseline is scored, which would say it better. `arm`: the
    candidate's name; `own_noise`: of the few of the baseline's tokens that are scored.
    """

    def counted(completion: Completion, gaps: TokenGaps, shared: _Shared | None = None) -> _Count | None:
        if not has_own(completion):
            return None
        mine = of_chosen(completion, len(completion.token_ids))[1]
        off = are_off(mine, gaps.chosen)
        if shared is not None:
            shared.add(completion, off, apart(mine, gaps.chosen))
        return _counted(completion, mine, gaps.chosen, off)

    @cache
    def whole() -> tuple[Ints, Set[Hashable]]:
        rows, found = np.flatnonzero(~pairs.identical & pairs.same_prompt), array("q")
        shared = _Shared()
        for begin in range(0, len(rows), _AT_ONCE):
            some = at_rows(pairs.candidate, rows[begin : begin + _AT_ONCE])
            scored = reference.all_gaps(arm, some)
            for one in some:
                count = counted(one, scored[one.key][0], shared) if one.key in scored else None
                found.extend(count if count is not None and count.likely else ())
        return np.array(found, dtype=np.int64).reshape(-1, 5), shared.common()

    def usual(completion: Completion) -> Habit:
        gaps = reference.gaps(arm, completion)
        own = None if gaps is None else counted(completion, gaps)
        every, common = whole()
        itself = np.flatnonzero((every == (own or -1)).all(axis=1))[:1]
        others = np.delete(every, itself, axis=0)
        others = _habitual(others)
        if others[:, 3].sum() < LEAST_OTHERS:
            return Habit(float("inf"))
        off, _, _, tokens, _ = others.sum(axis=0).tolist()
        noise = own_noise()
        least = 0 if noise is None else noise.most_beyond(LOGPROB_TOLERANCE)
        share = off * len(completion.token_ids) / max(tokens, 1)
        return Habit(max(least, most_have(others[:, 0]), share), common)

    return usual


_AT_ONCE = 256
"""Completions whose gaps are held together."""
