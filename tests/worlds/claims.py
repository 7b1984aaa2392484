"""What a PASS says that it would have seen, beside what was planted.

A PASS of a fault is right where one of its sentences says that so much of it may have been missed (`ADMITTED`), false
where one says that it would have been seen (`EXCLUDED`), and silent where none speaks of it (`UNSPOKEN`). Sizes are
read from the numbers of the comparison, what was not tested at all from its messages, by id. What was planted is taken
from the fault and from what it did to the engine's choices, never from the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.comparator.population.first_contexts import CONTEXT
from parity.comparator.population.numerics import UNIT
from parity.comparator.population.residual_tests import Arm as Residual
from parity.comparator.statistics import FloatArray
from parity.comparator.stats import Detectable, Missed, RowsSeen, Stats, WaySeen
from parity.messages import Message
from parity.records import Capture, Key, TokenIds, TopLogprobs
from worlds.engine import SOUND, Arm
from worlds.faults import Fault
from worlds.trials import Faulty, Trial
from worlds.world import BASE, PREFILL, speculating

ADMITTED, EXCLUDED, UNSPOKEN = "admitted", "EXCLUDED", "unspoken"

WIDE = 0.1
"""Nats, beyond which a residual is wide."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What wrong numerics do to the logprobs of the baseline's tokens: mean shift in nats, how many times the sound
    noise of their logits, residuals beyond WIDE in 10,000 more than the sound ones."""

    shift: float
    factor: float
    wide: float


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault in the terms of a verdict.

    share: of the completions it is in; moved: of all tokens, so many are others; rounding: so many are others than the
    scorer's best by rounding alone. below: nats by which the worst choice
    of each completion that it changed lies below the best one. way, size: how it draws, as the ways of the test
    `mixture` are called, and `places`: the share of the places of these completions at which it does. unchecked: of
    the rejected drafts, that are accepted; wrong_numbers: its numerics are wrong, somewhere; numbers: what that does,
    where it is so in all completions; of_rows: how many times the sound noise each has, where it is so in some alone.
    """

    share: float
    moved: float
    completions: int
    drawn: bool
    below: tuple[float, ...] = ()
    way: str = ""
    size: float = 0.0
    places: float = 1.0
    first: bool = False
    unchecked: float = 0.0
    ends: str = ""
    wrong_numbers: bool = False
    numbers: Numbers | None = None
    of_rows: tuple[float, ...] = ()
    rounding: float = 0.0


def planted(fault: Fault, faulty: Faulty, trial: Trial, moved: float) -> Planted:
    """moved: share of the tokens."""
    asked, lapse = trial.baseline.header.sampling, fault.lapse
    in_it = [key for key, one in trial.candidate.completions.items()
             if not fault.where or fault.where.holds(key, len(one.prompt_token_ids), fault.rounds)]  # fmt: skip
    total = max(1, len(trial.candidate.completions))
    drawn = float(asked.get("temperature") or 0.0) > 0
    hit = len(trial.truth.lapsed or trial.truth.rows) if fault.hits_rows else len(in_it)
    made: dict[str, Any] = {"share": hit / total, "moved": moved, "completions": total, "drawn": drawn}
    if lapse is not None:
        made |= {"below": tuple(trial.truth.lapsed.values()), "unchecked": lapse.rate * (lapse.draft == "accepted")}
        if drawn and not lapse.late and not lapse.draft:
            made |= _drawing(fault, asked)
            made["places"] = lapse.rate * _window(trial.candidate, lapse.start, lapse.stop)
            made["first"] = (lapse.start, lapse.stop, lapse.rate) == (0, 1, 1.0)
            if made["places"] == 1.0 and lapse.values.get("min_tokens", 0) > max(map(len, _tokens(trial.candidate))):
                made["ends"] = "no_end"
    elif drawn and fault.damage and fault.kinds == ("early_stop",):
        made["ends"] = "early_end"
    elif fault.hits_rows and not drawn and not fault.rules:
        made["below"] = tuple(_worst(trial, key) for key in trial.truth.rows)
    made["wrong_numbers"] = fault.broken is not SOUND
    if fault.broken is not SOUND and not drawn:
        made["rounding"] = turned_by_rounding(faulty, trial.candidate)
    if fault.broken is not SOUND and not fault.broken.start:
        if fault.where is None:
            made["numbers"] = _numbers(fault, faulty, trial.baseline)
        else:
            made["of_rows"] = _of_each(fault, faulty, trial.baseline, in_it)
    return Planted(**made)


def _drawing(fault: Fault, asked: Any) -> dict[str, Any]:
    """The way in which it draws, and by how much; none where no way of the test is like it."""
    assert fault.lapse is not None
    values = fault.lapse.values
    if fault.lapse.second:
        return {"way": "second"}
    if values.keys() == {"temperature"}:
        wanted, made = float(asked["temperature"]), float(values["temperature"])
        return {"way": "temperature", "size": made / wanted} if made else {"way": "best"}
    shaping = {name for name in values if name.endswith("_penalty")} | ({"logit_bias"} & values.keys())
    if shaping and shaping == values.keys() and not any(_does(name, values[name]) for name in shaping):
        return {"way": "penalties", "size": 0.0}
    return {}


def _does(name: str, value: Any) -> bool:
    return bool(value) and not (name == "repetition_penalty" and value == 1.0)


def _tokens(arm: Capture) -> list[TokenIds]:
    return [one.token_ids for one in arm]


def _window(arm: Capture, start: int, stop: int) -> float:
    lengths = list(map(len, _tokens(arm)))
    return sum(max(0, min(stop, long) - start) for long in lengths) / max(1, sum(lengths))


def _worst(trial: Trial, key: Any) -> float:
    """Nats by which the worst token of a damaged row lies below the best; 0 where the row was not scored."""
    found = [top for one, top in trial.scores.items() if one.arm == trial.candidate.header.arm and one[1:] == key]
    made = trial.candidate.completions.get(key)
    if not found or made is None:
        return 0.0
    top, rows = found[0], np.arange(len(made.token_ids))
    spot = (top.ids == made.token_ids[:, None]).argmax(axis=1)
    return float(np.nanmax(np.nanmax(top.values, axis=1) - top.values[rows, spot], initial=0.0))


def turned_by_rounding(faulty: Faulty, text: Capture) -> float:
    """Share of the greedy choices in a text that the candidate's sound kernels make otherwise than the scorer."""
    arms = Arm("cuda/score", PREFILL), replace(speculating(2), name="cuda/sound")
    scorer, sound = (
        np.concatenate([top.ids[:, 0] for top in faulty.world.score(text, top=1, arm=arm).values()]) for arm in arms
    )
    return float((scorer != sound).mean())


def _numbers(fault: Fault, faulty: Faulty, baseline: Capture) -> Numbers:
    """The baseline's tokens forced through the arms' own kernels, sound and with the fault, beside their scores: an
    effect added to the sound noise would count the rounding of the logits twice. Noise as the test measures it."""
    score, sound, broken = (np.concatenate(list(one.values())) for one in _forced(fault, faulty, baseline))
    noise, wrong = sound - score, broken - score + fault.broken.lift
    size, other = (_noise(one, score) for one in (noise, wrong))
    return Numbers(
        float(wrong.mean() - noise.mean()),
        other / size if size else 1.0,
        1e4 * float((np.abs(wrong) > WIDE).mean() - (np.abs(noise) > WIDE).mean()),
    )


def _of_each(fault: Fault, faulty: Faulty, baseline: Capture, keys: Sequence[Key]) -> tuple[float, ...]:
    """How many times the sound noise of all completions each of these has. Of a context that comes again, in a loop or
    in another round, one token counts: a hundred copies of one rounding are no noise."""
    scores, sounds, wrongs = (_once(one, baseline) for one in _forced(fault, faulty, baseline))
    score, sound = (np.concatenate(list(one.values())) for one in (scores, sounds))
    usual = _noise(sound - score, score)
    known = [key for key in keys if key in scores and len(scores[key])]
    each = [_noise(wrongs[key] - scores[key] + fault.broken.lift, scores[key]) for key in known]
    return tuple(one / usual if usual else 1.0 for one in each)


def _once(values: Mapping[Key, FloatArray], arm: Capture) -> dict[Key, FloatArray]:
    """Those of tokens after contexts that no earlier token of their round stands after."""
    found = {}
    seen: set[tuple[int, bytes]] = set()
    for key, some in values.items():
        whole = arm.completions[key].token_ids
        names = [(key.round, whole[max(0, at - CONTEXT + 1) : at + 1].tobytes()) for at in range(len(whole))]
        new = []
        for at, name in enumerate(names):
            new.append(at < CONTEXT - 1 or name not in seen)
            seen.add(name)
        found[key] = some[np.array(new, dtype=np.bool_)]
    return found


def _noise(residuals: FloatArray, score: FloatArray) -> float:
    return float(Residual.of(residuals, score, UNIT).noise.mean())


def _forced(fault: Fault, faulty: Faulty, baseline: Capture) -> list[dict[Key, FloatArray]]:
    """Logprobs of the baseline's tokens by scorer, sound and broken arm, by completion."""
    arms = (
        Arm("cuda/score", PREFILL),
        replace(BASE, name="cuda/sound"),
        replace(speculating(2), name="cuda/broken", broken=fault.broken),
    )
    made = [{name[1:]: top for name, top in faulty.world.score(baseline, arm=arm).items()} for arm in arms]
    return [{one.key: _of_chosen(tops[one.key], one.token_ids) for one in baseline} for tops in made]


def _of_chosen(top: TopLogprobs, tokens: TokenIds) -> FloatArray:
    return top.values[np.arange(len(tokens)), (top.ids == tokens[:, None]).argmax(axis=1)]


# ------------------------------------------------------------------ what is said of it


def spoken(stats: Stats, fault: Planted, messages: Iterable[Message] = ()) -> tuple[str, str]:
    """(ADMITTED, EXCLUDED or UNSPOKEN, by which number or message)."""
    said = [*_said(stats, fault), *((False, one.id) for one in _every(messages) if _speaks_of(one, fault))]
    against = [why for excluded, why in said if excluded]
    if against:
        return EXCLUDED, "; ".join(against)
    return (ADMITTED, "; ".join(why for _, why in said)) if said else (UNSPOKEN, "")


def _every(said: Iterable[Any]) -> Iterator[Message]:
    """Messages, and those in their parameters."""
    for one in said:
        if isinstance(one, Message):
            yield one
            yield from _every(one.parameters.values())
        elif isinstance(one, (list, tuple)):
            yield from _every(one)


def _speaks_of(one: Message, fault: Planted) -> bool:
    return one.id in NOT_TESTED and NOT_TESTED[one.id](fault)


NOT_TESTED: Mapping[str, Callable[[Planted], bool]] = {
    "conclude.numerics_untested": lambda fault: fault.wrong_numbers,
    "conclude.seen_none": lambda fault: fault.wrong_numbers,
    "conclude.seen_no_rows": lambda fault: bool(fault.of_rows),
    "conclude.skipped": lambda fault: not fault.drawn,
    "conclude.draws_untested": lambda fault: fault.drawn,
    "conclude.no_draws_seen": lambda fault: fault.drawn,
    "conclude.untried_ways": lambda fault: (
        fault.drawn and not (fault.way or fault.unchecked or fault.ends or fault.wrong_numbers)
    ),
}
"""Messages that say of a kind of fault that it was not looked for, or that no size of it would have been seen: by id,
of which faults."""


def _said(stats: Stats, fault: Planted) -> Iterator[tuple[bool, str]]:
    """What each number that speaks of such a fault says: is it excluded?"""
    for one in stats.missed:
        hit = _hit(one, fault)
        if hit is not None:
            bound = "no share" if one.rate is None else f"{one.rate:.2%}"
            yield one.rate is not None and hit > one.rate, f"{one.fault}: {hit:.2%} hit, excluded from {bound}"
    if stats.moved and not fault.drawn:
        # Of choices other than the reference's: what the fault alone moves may bring some back that rounding turned.
        most = stats.moved.at_most + fault.rounding
        yield fault.moved > most, f"moved: {1000 * fault.moved:.2f} in 1,000, excluded from {1000 * most:.2f}"
    if stats.sampling:
        yield from _of_draws(stats, fault)
    numerics = stats.numerics or None
    if fault.numbers is not None and numerics is not None:
        yield from _of_numbers(numerics.detectable, fault.numbers)
    if fault.of_rows and numerics is not None:
        yield from _of_rows(numerics.rows_seen, fault)


def _hit(one: Missed, fault: Planted) -> float | None:
    """The share of completions that have this; None where the fault is another thing."""
    if one.fault in ("wrong_token", "other_token") and not fault.drawn and fault.below:
        least = one.size if one.fault == "wrong_token" else 0.0
        return sum(below > least for below in fault.below) / fault.completions
    if fault.ends:
        return fault.share if one.fault == fault.ends else None
    if one.fault == "greedy" and fault.way == "best" and fault.places == 1.0:
        return fault.share
    return fault.share if one.fault == "first_greedy" and fault.way == "best" and fault.first else None


def _of_draws(stats: Stats, fault: Planted) -> Iterator[tuple[bool, str]]:
    sampling = stats.sampling
    assert sampling
    found = sampling.draws_seen
    if found is not None and fault.way == "temperature" and fault.share == fault.places == 1.0:
        times = max(fault.size, 1.0 / fault.size)
        seen = found.temperature_times
        yield seen is not None and times >= seen, f"draws: {times:.2f} times the temperature, seen from {seen}"
    if found is not None and fault.way == "best":
        taken, seen = fault.share * fault.places, found.best_taken
        yield seen is not None and taken >= seen, f"draws: best token at {taken:.1%} of places, seen from {seen}"
    if fault.unchecked:
        seen = sampling.unchecked_drafts_seen
        accepted = fault.unchecked * fault.share
        yield seen is not None and accepted >= seen, f"unchecked: {accepted:.3g}, seen from {seen}"
    for one in sampling.ways_seen:
        if one.way == fault.way:
            yield (
                _milder(one, fault) and one.share is not None and fault.share >= one.share,
                (
                    f"mixture: {fault.way} {fault.size:.2f} in {fault.share:.0%} of completions at {fault.places:.0%} "
                    f"of places, {one.size:g} seen from {one.share}"
                ),
            )


def _milder(one: WaySeen, fault: Planted) -> bool:
    """What would have been seen is no more than what was planted."""
    if one.way == "temperature":
        return (one.size > 1) == (fault.size > 1) and abs(np.log(one.size)) <= abs(np.log(fault.size)) and (
            fault.places == 1.0
        )  # fmt: skip
    if one.way == "penalties":
        return one.size == fault.size and fault.places == 1.0
    return one.size <= fault.places


def _of_rows(seen: Sequence[RowsSeen], fault: Planted) -> Iterator[tuple[bool, str]]:
    for one in seen:
        rows = sum(factor >= one.times for factor in fault.of_rows)
        yield rows >= one.completions, f"rows: {rows} of {one.times:.2f} times the noise, seen from {one.completions}"


def _of_numbers(seen: Detectable | None, fault: Numbers) -> Iterator[tuple[bool, str]]:
    if seen is None:
        return
    for name, least, size in (
        ("mean shift", seen.mean_shift, abs(fault.shift)),
        ("times the noise", seen.scale_factor, fault.factor),
        ("wide in 10,000", seen.wide_per_10_000, fault.wide),
    ):
        yield least is not None and size >= least, f"{name}: {size:.4g}, seen from {least}"
