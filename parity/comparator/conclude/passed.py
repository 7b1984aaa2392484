"""What a PASS says: that nothing is corrupt, in one line; then what the run would have missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from parity.comparator.population import missed, mixtures
from parity.comparator.stats import Detectable, RowsSeen, Stats, WaySeen
from parity.messages import Message, message

NONE_CORRUPT: Final = "conclude.passed"
"""The id of the headline."""

_SHOWN: Final = (("temperature", 0.7), ("temperature", 1.3), ("penalties", 0.0))
"""What a PASS names besides the mildest of each way that would be seen."""


def said(stats: Stats) -> tuple[Message, ...]:
    """Why the verdict is PASS, in one line; then what it would have missed, each in a sentence of its own."""
    if stats.sampled and stats.sampling and stats.sampling.scored:
        noise = message(
            "conclude.drawn_alike",
            "drawn at temperature {temperature:g}, no test tells the arms apart",
            temperature=stats.sampling.temperature,
        )
    elif stats.near_tie:
        noise = message(
            "conclude.part_at_near_ties",
            "{count} parts at a near-tie",
            plural="{count} part at near-ties",
            count=stats.near_tie,
        )
    else:
        noise = message("conclude.none_differs", "none differs")
    headline = message(
        "conclude.passed",
        "{completions} completions, {noise}, none is corrupt",
        completions=stats.completions,
        noise=noise,
    )
    return (
        headline,
        *missed.said(stats.missed),
        *_skipped(stats),
        *_moved(stats),
        *_draws(stats),
        *_ways(stats),
        *_residuals(stats),
    )


def _skipped(stats: Stats) -> Iterator[Message]:
    """Tokens that nothing judged."""
    if stats.tokens_not_judged:
        yield message(
            "conclude.skipped",
            "{count} token after a near-tie was not judged: there are no scores",
            plural="{count} tokens after near-ties were not judged: there are no scores",
            count=stats.tokens_not_judged,
        )


def _moved(stats: Stats) -> Iterator[Message]:
    """How many greedy choices can be others than they should be, within the tolerance."""
    found = stats.moved or None
    if found is not None and found.at_most >= missed.NOTHING:
        yield message(
            "conclude.moved_few",
            "{turned} of {tokens} greedy choices are not the reference's: so few exclude nothing",
            turned=found.turned,
            tokens=found.tokens,
        )
    elif found is not None:
        yield message(
            "conclude.moved",
            "{turned} of {tokens} greedy choices are not the reference's: rounding and whatever else may be wrong turn "
            "fewer than {rate:.2f} in 1,000 (95 %)",
            turned=found.turned,
            tokens=found.tokens,
            rate=1000 * found.at_most,
        )


def _draws(stats: Stats) -> Iterator[Message]:
    """The smallest things wrong with all draws that the run would have seen."""
    found = stats.sampling.draws_seen if stats.sampling else None
    unchecked = stats.sampling.unchecked_drafts_seen if stats.sampling else None
    if found is None:
        if stats.sampling and stats.sampling.scored and stats.identical < stats.completions:
            yield message("conclude.draws_untested", "whether all draws together are as asked was not tested")
        return
    sizes = [
        *_known(
            found.temperature_times,
            lambda times: message("conclude.seen_temperature", "a temperature {times:.2f} times as high", times=times),
        ),
        *_known(
            found.best_taken,
            lambda share: message(
                "conclude.seen_best", "the best token taken at {share:.1%} of all places", share=share
            ),
        ),
        *_known(
            unchecked,
            lambda share: message(
                "conclude.seen_unchecked", "{share:.2g} of the rejected drafts accepted unchecked", share=share
            ),
        ),
    ]
    if sizes:
        yield message(
            "conclude.seen_draws",
            "draws that are wrong everywhere show from {sizes} on (95 %)",
            sizes=sizes,
        )
    else:
        yield message("conclude.no_draws_seen", "so few tokens do not show whether all of them are drawn as asked")


def _ways(stats: Stats) -> Iterator[Message]:
    """From which share of the completions on other ways to draw would have been seen, and which would not."""
    ways = stats.sampling.ways_seen if stats.sampling else ()
    if not ways:
        return
    seen = [one for one in ways if one.share is not None]
    shown = [one for one in seen if one is _mildest(seen, one) or (one.way, one.size) in _SHOWN]
    if shown:
        yield message(
            "conclude.seen_ways",
            "drawn otherwise, in so many of the completions, it would have been seen (95 %): {ways}",
            ways=[
                message(
                    "conclude.seen_way",
                    "{way} in {share:.0%}",
                    way=mixtures.in_words(one.way, one.size),
                    share=one.share,
                )
                for one in shown
            ],
        )
    if len(seen) < len(ways):
        yield message(
            "conclude.unseen_ways",
            "drawn otherwise by less it might not have been seen, even in all of them: {ways}",
            ways=[mixtures.in_words(one.way, one.size) for one in ways if one.share is None],
        )
    yield message(
        "conclude.untried_ways",
        "of other ways it is not known from which size on they would have been seen (a cut-off a little wider than "
        "asked, some tokens drawn oftener than others, allowed tokens left out, an end missed once, what follows a "
        "rejected draft, the same random numbers for all requests, tokens lost or said twice, the logits of another "
        "row, or more seldom of another step, "
        "completions of two requests exchanged)",
    )


def _mildest(seen: Sequence[WaySeen], like: WaySeen) -> WaySeen:
    """Of the same way, and of temperatures and penalties on one side of what was asked, the least."""
    of_factors = like.way in ("temperature", "penalties")
    same = [one for one in seen if one.way == like.way and (not of_factors or (one.size > 1) == (like.size > 1))]
    return min(same, key=lambda one: abs(one.size - 1) if of_factors else one.size)


def _residuals(stats: Stats) -> Iterator[Message]:
    """What the arms' own logprobs say of their numerics."""
    found = stats.numerics or None
    if found is None or found.candidate is None:
        return
    if found.baseline is None:
        yield message(
            "conclude.own_residuals",
            "over {tokens} tokens the arms' own logprobs differ by {sd:.4f} nats (sd), by {shift:+z.5f} on average",
            tokens=found.tokens,
            sd=found.candidate.sd,
            shift=found.mean_shift,
        )
        return
    yield message(
        "conclude.residuals",
        "over {tokens} tokens logprobs lie {sd:.4f} nats (sd) off the scores, the baseline's {own:.4f}; beyond 0.1 "
        "nats {wide:.1f} in 10,000, the baseline's {own_wide:.1f}; mean shift {shift:+z.5f}",
        tokens=found.tokens,
        sd=found.candidate.sd,
        own=found.baseline.sd,
        wide=found.candidate.beyond["0.1"] * 1e4,
        own_wide=found.baseline.beyond["0.1"] * 1e4,
        shift=found.mean_shift,
    )
    yield from _smallest(found.detectable)
    yield from _rows(found.rows_seen)


def _rows(found: Sequence[RowsSeen]) -> Iterator[Message]:
    """From how much noise on a few completions show."""
    if found:
        yield message(
            "conclude.seen_rows",
            "numerics that are wrong in some completions alone would have been seen in {completions}; in fewer they "
            "would not",
            completions=[
                message(
                    "conclude.seen_row",
                    "{count} or more with {times:.1f} times the usual noise",
                    count=one.completions,
                    times=math.ceil(10 * one.times) / 10,
                )
                for one in found
            ],
        )
    else:
        yield message("conclude.seen_no_rows", "numerics wrong in some completions alone do not show in so few")


def _smallest(found: Detectable | None) -> Iterator[Message]:
    """The smallest differences of numerics that the run would have seen."""
    if found is None:
        return
    sizes = [
        *_known(
            found.mean_shift,
            lambda nats: message("conclude.seen_shift", "a mean shift of {nats:.4f} nats", nats=nats),
        ),
        *_known(
            found.scale_factor,
            lambda factor: message("conclude.seen_scale", "{factor:.2f} times the noise of the logits", factor=factor),
        ),
        *_known(
            found.wide_per_10_000,
            lambda rate: message("conclude.seen_wide", "{rate:.0f} in 10,000 off by 0.1 nats", rate=rate),
        ),
    ]
    if sizes:
        yield message(
            "conclude.seen_numerics",
            "numerics wrong everywhere show from {sizes} on (95 %)",
            sizes=sizes,
        )
    else:
        yield message("conclude.seen_none", "so few tokens show no wrong numerics that stay within the tolerance")


def _known(size: float | None, say: Callable[[float], Message]) -> tuple[Message, ...]:
    """The size in words; nothing where the run would have seen no size of this."""
    return () if size is None else (say(size),)
