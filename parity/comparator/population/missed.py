"""What a clean run could have missed: for each way to be wrong, the rate of completions that it excludes.

N clean completions exclude a fault that hits each of them by itself at a rate above about 3 / N, if every hit is seen.
Where only a share of hits is seen, N completions tell as much as that share of them. The share is measured on the run
itself: with its own scores, tolerance and error rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from parity.comparator.detect.drawn_places import Tested
from parity.comparator.detect.step_before import EVERY
from parity.comparator.detect.trials import STRETCH
from parity.comparator.population.drawn_ends import FAULTS as ENDS
from parity.comparator.population.drawn_ends import EndsSeen
from parity.comparator.statistics import missed_rate_bound
from parity.comparator.stats import Missed
from parity.messages import Message, message

SIZES: Final[Mapping[str, float]] = MappingProxyType({"random_tokens": float(STRETCH)})

OF_ITS_OWN: Final = ("first_greedy", "step_before", "other_penalties", "no_cutoff", *ENDS)
"""Those that say little of other faults: of single tokens, of requests that ask for several penalties or a cut-off, and
of ends."""

OF_GREEDY: Final = ("wrong_token", "other_token")
"""Those of `in_greedy`."""

NOTHING: Final = 0.9
"""A rate of completions, from which on a bound excludes nothing worth a word."""

USEFUL: Final = 0.1
"""The rate to be excluded, for which a PASS says how many completions it takes."""

WORDS: Final[Mapping[str, Callable[[float], Message]]] = MappingProxyType(
    {
        "wrong_token": lambda size: message(
            "missed.wrong_token", "a token more than {tolerance:.3g} nats below the best", tolerance=size
        ),
        "other_token": lambda _: message("missed.other_token", "a token other than the baseline's"),
        "random_tokens": lambda size: message(
            "missed.random_tokens", "{count} random tokens in a row", count=int(size)
        ),
        "greedy": lambda _: message("missed.greedy", "greedy decoding"),
        "step_before": lambda _: message(
            "missed.step_before", "the logits of the step before taken at one step in {every}", every=EVERY
        ),
        "no_cutoff": lambda _: message("missed.no_cutoff", "top_k, top_p or min_p left out"),
        "other_penalties": lambda _: message("missed.other_penalties", "the penalties of another request"),
        "first_greedy": lambda _: message("missed.first_greedy", "greedy decoding of the first token alone"),
        "early_end": lambda _: message("missed.early_end", "an end token put at a random place"),
        "no_end": lambda _: message("missed.no_end", "ends kept away up to the limit"),
    }
)
"""Each fault in words, by its name and size."""


def in_words(one: Missed) -> Message:
    """The fault, for a sentence."""
    return WORDS[one.fault](one.size)


def in_greedy(identical: int, near_ties: int, chance: float | None, tolerance: float, cut_short: int = 0) -> Missed:
    """identical: completions equal to the baseline's; near_ties: those that part and were judged to their end, after
    which a wrong token passes with this chance; cut_short: those that part, and that nothing judged from there on."""
    seen = identical + near_ties * (1 - (chance or 0.0))
    fault = "wrong_token" if near_ties or cut_short else "other_token"
    total = identical + near_ties
    return _of(fault, tolerance, seen / total if total else 0.0, total)


def of_penalties(completions: int, seen: float | None) -> tuple[Missed, ...]:
    """seen: the share of completions that would be found with the penalties of another request; None: nobody asks for
    others."""
    if seen is None:
        return ()
    return (_of("other_penalties", 0.0, seen, completions),)


def in_sampled(
    completions: int, seen: Mapping[str, float], places: Tested | None = None, ends: Sequence[EndsSeen] = ()
) -> tuple[Missed, ...]:
    """completions: how many were drawn at random; seen: share of hits that are found, by fault; places: the test of
    what no completion shows by itself; ends: the tests of how they end."""
    if not seen:
        return ()
    one_by_one = {name: share for name, share in seen.items() if name not in ENDS}
    found = [_of(name, SIZES.get(name, 0.0), share, completions) for name, share in one_by_one.items()]
    if places is not None:
        rate = places.first_greedy
        first = Missed(fault="first_greedy", size=1.0, seen=float(rate is not None), rate=rate)
        if rate is not None and rate >= NOTHING:  # as many hits would show among more completions
            first = msgspec.structs.replace(first, rate=None, needed=math.ceil(completions * rate / USEFUL))
        found.append(first)
    return (*found, *(_of_ends(one, seen.get(one.fault, 0.0), completions) for one in ends))


def _of_ends(ends: EndsSeen, seen: float, completions: int) -> Missed:
    """What shows such ends from fewer completions on: each by itself, or all together."""
    alone = _of(ends.fault, 0.0, seen, completions)
    rates = [one for one in (alone.rate, ends.share) if one is not None and one < NOTHING]
    if rates:
        return msgspec.structs.replace(alone, rate=min(rates), needed=None)
    needed = [one for one in (alone.needed, ends.needed) if one is not None]
    return msgspec.structs.replace(alone, rate=None, needed=min(needed, default=None))


def said(found: Sequence[Missed]) -> Iterator[Message]:
    """What could have been wrong without being seen."""
    parts = [_part(one) for one in found]
    if parts:
        yield message(
            "conclude.could_have_missed",
            "{faults} could have been missed (95 %)",
            plural="{faults}, each by itself, could have been missed (95 %)",
            count=len(parts),
            faults=parts,
        )


def _part(one: Missed) -> Message:
    fault = in_words(one)
    if one.rate is not None:
        return message(
            "conclude.fewer_than", "{fault} in fewer than {rate:.2%} of completions", fault=fault, rate=one.rate
        )
    if one.needed is None:
        return message("conclude.however_many", "{fault} in however many completions", fault=fault)
    return message(
        "conclude.not_bounded",
        "{fault} in any share of so few completions (about {completions} would exclude {rate:.0%})",
        fault=fault,
        completions=one.needed,
        rate=USEFUL,
    )


def not_excluded(found: Sequence[Missed]) -> float | None:
    """The largest rate that is not excluded; None where of some fault none is. OF_ITS_OWN apart."""
    own = [one.rate for one in found if one.fault not in OF_ITS_OWN]
    rates = [rate for rate in own if rate is not None]
    return max(rates) if rates and len(rates) == len(own) else None


def _of(fault: str, size: float, seen: float, completions: int) -> Missed:
    """seen: the share of hits that would be found; completions: so many that are clean."""
    bound = missed_rate_bound(seen * completions)
    if bound is not None and bound < NOTHING:
        return Missed(fault=fault, size=size, seen=seen, rate=bound)
    needed = math.ceil(math.log(0.05) / math.log(1 - USEFUL) / seen) if seen else None
    return Missed(fault=fault, size=size, seen=seen, rate=None, needed=needed)
