"""Drawn tokens that the request's top_k, top_p or min_p had cut off, by the reference.

One far beyond it, or a few a little beyond it that add up, in one completion or over the run: rounding moves a token
over the edge by hundredths of a nat.
Where the engine itself gave the token more than the reference does, its own number counts: of 38,000 drawn tokens of
vLLM 0.32 on CPU one lay 1.45 nats from its score, in both arms. Where the baseline's own completions show the same, its
engine cuts off by other rules, or the scores are off, and nobody is accused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np
from msgspec import Struct, field, structs

from parity.comparator.detect.cases import Doubted, InDoubt
from parity.comparator.detect.events import Event
from parity.comparator.detect.trials import TRIED, drawn_again
from parity.comparator.inputs.servers import served
from parity.comparator.reference.cutoff import beyond
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.isolated import MOST
from parity.comparator.reference.residuals import chosen_logprobs
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.surprisal import COLDEST
from parity.comparator.reference.tolerance import most_by_chance
from parity.comparator.statistics import FloatArray, binomial_tail, poisson_tail
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Kind, TopLogprobs
from parity.records.evidence import CutoffEvidence, EndEvidence, JudgedBy
from parity.records.next_steps import NextStep, Step

EDGE = 0.25
"""Nats: nearer to the edge, a token says nothing."""

FAR = 1.0
"""Nats beyond the edge, those of all tokens of a completion together, from which on it is at fault."""

HABIT = 0.02
"""Share of the baseline's own completions that may lie so far beyond, before its engine is taken to cut off by other
rules."""

USUAL = 0.5
"""The same share of the candidate's where nothing is known of the baseline's."""

FARTHER = 2.0
"""Times the baseline's farthest beyond, up to which the candidate's are like those."""

LIKE_CHANCE = 0.05
"""Chance from which on the candidate's are no more than the baseline's."""


LONE_RATE = 1e-4
"""Tokens of which nobody recorded the engine's own logprob that may lie far beyond by themselves, in so many: two in
18,000 drawn of clean arms of tests/worlds whose experts lie far apart, at near-ties of whose router logits move."""

LONE_CHANCE = 1e-3
"""Of a clean run to have more of them than are left open."""


TOGETHER = 1e-5
"""Chance of so many completions with a token more than EDGE beyond, below which they are a fault of the arm. Clean arms
of tests/worlds have hardly any, but where experts lie far apart."""


class Together(Struct, frozen=True):
    """Completions with a token more than EDGE beyond, none of which shows by itself."""

    completions: int
    of: int
    baseline: int
    of_baseline: int
    p_value: float
    asked: Mapping[str, float]
    """Of the first of them: what cuts off."""


class Cutoffs(Struct, frozen=True):
    """What was drawn beyond a cut-off."""

    found: Mapping[Key, Event]
    notes: tuple[Message, ...] = ()
    lone: Mapping[Key, InDoubt] = field(default_factory=dict)
    """Completions with one such token, which a router at a near-tie may have moved."""
    next_steps: tuple[NextStep, ...] = ()
    completions: int = 0
    """Those of which the requests cut something off."""
    together: Together | None = None
    would_be_seen: Callable[[], float] = lambda: 0.0
    """The share of these that would be found if each were drawn with nothing cut off."""


def cutoffs(
    baseline: Iterable[tuple[Completion, TopLogprobs]],
    candidate: Iterable[tuple[Completion, TopLogprobs, JudgedBy]],
    arms: tuple[Capture, Capture],
    reference: Reference,
    temperature_of: Callable[[Completion], float],
    vocab_size: int | None,
    *,
    same_precision: bool = True,
) -> Cutoffs:
    """Of all completions with lists whose requests cut the distribution off. same_precision: without, a router chooses
    other experts in the candidate, of which the baseline's own tokens show nothing: nothing adds up over the run."""
    theirs = [(one, top) for one, top in baseline if _is_cut(arms[0], one, reference)]
    mine = [(one, top, by) for one, top, by in candidate if _is_cut(arms[1], one, reference)]
    if not mine:
        return Cutoffs({})
    found = _found(theirs, mine, arms, temperature_of, vocab_size)
    if not same_precision:
        found = structs.replace(found, together=None)
    wanted = max(_lacking(Cut.of(arms[1].sampling_of(one)), top) for one, top, _ in mine)
    if not wanted:
        return found
    said = message(
        "beyond_cutoff.short_lists",
        "the scores list fewer tokens than top_k leaves ({wanted}): only longer lists (`--score-top {wanted}`) show "
        "whether any was drawn beyond that",
        wanted=wanted,
    )
    step = NextStep(Step.SCORE_TOP, said.id, number=wanted)
    return structs.replace(found, notes=(*found.notes, said), next_steps=(step,))


def _lacking(cut: Cut, top: TopLogprobs) -> int:
    """So many tokens must lists name for top_k to be checked; 0 where these do. A token beyond it is one more."""
    return cut.top_k if cut.top_k > int((top.ids >= 0).sum(axis=1).max(initial=0)) else 0


def _found(
    theirs: Sequence[tuple[Completion, TopLogprobs]],
    mine: Sequence[tuple[Completion, TopLogprobs, JudgedBy]],
    arms: tuple[Capture, Capture],
    temperature_of: Callable[[Completion], float],
    vocab_size: int | None,
) -> Cutoffs:
    """Of the completions whose requests cut something off."""

    def looked(
        arm: Capture, one: Completion, top: TopLogprobs, by: JudgedBy | None, order: _Order
    ) -> tuple[Event | None, bool]:
        """Where it is at fault by itself, and whether any of its tokens lies more than EDGE beyond."""
        tempered, cut = order(temperature_of(one)), Cut.of(arm.sampling_of(one))
        far = beyond(top, one.token_ids, tempered, cut, vocab_size, chosen_logprobs([one]))
        return _event(far, cut, by), bool((far >= EDGE).any())

    orders = _ORDERS if theirs and not any(served(arm.header) for arm in arms) else _ORDERS[-1:]
    usual = [[looked(arms[0], one, top, None, order) for one, top in theirs] for order in orders]
    odd = [[made for made, _ in those if made is not None] for those in usual]
    at = next((at for at, those in enumerate(odd) if len(those) <= HABIT * len(theirs)), None)
    if at is None:
        return Cutoffs({}, (_habit(arms[0], len(odd[-1]), len(theirs)),), completions=len(mine))
    order = orders[at]
    of_mine = [(one, *looked(arms[1], one, top, by, order)) for one, top, by in mine]
    found = {one.key: made for one, made, _ in of_mine if made is not None}
    if not theirs and len(found) > USUAL * len(mine):
        return Cutoffs({}, (_habit(arms[1], len(found), len(mine)),), completions=len(mine))

    def would_be_seen() -> float:
        return _seen(mine, lambda one, top: looked(arms[1], one, top, None, order)[0], temperature_of)

    if _explains(odd[at], list(found.values())):
        alike = (_usual(arms, len(found), len(odd[at])),)
        return Cutoffs({}, alike, completions=len(mine), would_be_seen=would_be_seen)
    lone = {one.key: doubt for one, _, _ in mine if (doubt := _lone(one, found.get(one.key))) is not None}
    tokens = sum(len(one.token_ids) for one, _, _ in mine)
    if len(lone) == len(found) and len(lone) <= max(1, most_by_chance(tokens * LONE_RATE, LONE_CHANCE, tokens)):
        found = {}
    else:
        lone = {}
    over = [Cut.of(arms[1].sampling_of(one)) for one, _, is_over in of_mine if is_over and one.key not in found]
    together = _together(over, len(mine), sum(is_over for _, is_over in usual[at]), len(theirs))
    if found:
        return Cutoffs(found, completions=len(mine), together=together)
    return Cutoffs({}, lone=lone, completions=len(mine), together=together, would_be_seen=would_be_seen)


def _together(over: Sequence[Cut], of: int, baseline: int, of_baseline: int) -> Together | None:
    """Whether so many of the candidate's completions are a fault of the arm. `over`: what each of them asked for.

    Each counts once: in a loop the same token comes again. The baseline's number may be one higher by chance, and the
    candidate's kernels may round FARTHER.
    """
    if not over or not of_baseline:
        return None
    expected = FARTHER * (baseline + 1) * of / of_baseline
    p_value = poisson_tail(len(over), expected)
    return Together(len(over), of, baseline, of_baseline, p_value, _asked(over[0])) if p_value < TOGETHER else None


def _seen(
    mine: Sequence[tuple[Completion, TopLogprobs, JudgedBy]],
    event: Callable[[Completion, TopLogprobs], Event | None],
    temperature_of: Callable[[Completion], float],
) -> float:
    """Of some of the completions the share that would be found with nothing cut off. One token alone of which the
    engine's own logprob would not be known is not found (`_lone`)."""
    rng = np.random.default_rng(0)
    tried = mine[:: max(1, len(mine) // TRIED)]
    found = 0
    for one, top, _ in tried:
        tokens, lists = drawn_again(top, max(temperature_of(one), COLDEST), rng)
        made = event(replace(one, token_ids=tokens, logprobs=None), lists)
        found += made is not None and (one.logprobs is not None or _lone(one, made) is None)
    return found / len(tried) if tried else 0.0


def _lone(one: Completion, event: Event | None) -> InDoubt | None:
    """Is it one token alone, no farther than a router moves logits, and its engine's own logprob is not recorded?"""
    if event is None or not isinstance(event.evidence, CutoffEvidence) or len(event.evidence.positions) != 1:
        return None
    known = one.logprobs is not None and bool(np.isfinite(chosen_logprobs([one])[event.position]))
    far = event.evidence.farthest
    return None if known or far > MOST else InDoubt(event.position, far, Doubted.CUT_OFF)


def _explains(usual: Sequence[Event], found: Sequence[Event]) -> bool:
    """Has the baseline so many of its own, as far beyond?"""
    if not usual or not found:
        return False
    theirs, mine = (max(_farthest(one) for one in events) for events in (usual, found))
    return mine <= FARTHER * theirs and binomial_tail(len(found), len(found) + len(usual)) >= LIKE_CHANCE


def _farthest(event: Event) -> float:
    return event.evidence.farthest if isinstance(event.evidence, CutoffEvidence) else 0.0


_Order = Callable[[float], frozenset[float]]

_ORDERS: tuple[_Order, ...] = (
    lambda temperature: frozenset({temperature}),
    lambda temperature: frozenset({1.0}),
    lambda temperature: frozenset({1.0, temperature}),
)
"""Where the temperature may come: before the cut-off, after it, or nobody knows. The first that the baseline keeps to
counts; that of a server nobody knows."""


def _habit(arm: Capture, odd: int, of: int) -> Message:
    return message(
        "beyond_cutoff.habit",
        "by its scores {odd} of {of} completions of {arm} are drawn beyond top_k, top_p or min_p (cut off by other "
        "rules?): no completion was judged by them",
        odd=odd,
        of=of,
        arm=arm.header.arm,
    )


def _usual(arms: tuple[Capture, Capture], odd: int, usual: int) -> Message:
    return message(
        "beyond_cutoff.usual",
        "by the scores {odd} of {arm}'s completions and {usual} of {other}'s own are drawn beyond top_k, top_p or "
        "min_p: no more than chance makes of arms that are alike, and no fault",
        odd=odd,
        arm=arms[1].header.arm,
        usual=usual,
        other=arms[0].header.arm,
    )


def _is_cut(arm: Capture, one: Completion, reference: Reference) -> bool:
    return reference.shaping(one).none and Cut.of(arm.sampling_of(one)) != Cut()


def _event(far: FloatArray, cut: Cut, judged_by: JudgedBy | None) -> Event | None:
    """Of the tokens of a completion, as `beyond` has them."""
    places = np.flatnonzero(far >= EDGE)
    if not len(places) or far[places].sum() < FAR:
        return None
    first, last = int(places[0]), int(places[-1])
    asked = _asked(cut)
    why = message(
        "beyond_cutoff.why",
        "{count} token lies beyond what {asked} leaves, by up to {nats} nats",
        plural="{count} tokens lie beyond what {asked} leaves, by up to {nats} nats",
        count=len(places),
        asked=", ".join(f"{name}={value:g}" for name, value in asked.items()),
        nats=f"{far[places].max():.2f}",
    )
    evidence = CutoffEvidence(
        why=why,
        asked=asked,
        positions=tuple(places[:32].tolist()),
        farthest=round(float(far[places].max()), 4),
        judged_by=judged_by,
    )
    return Event(Kind.BEYOND_CUTOFF, first, last - first + 1, evidence)


def as_end(found: Event, b: Completion, terminators: Set[int]) -> Event:
    """Where the one token that was cut off is that at which the completion stops: an end, as of one too unlikely."""
    last, evidence = len(b.token_ids) - 1, found.evidence
    if found.position != last or int(b.token_ids[last]) not in terminators:
        return found
    assert isinstance(evidence, CutoffEvidence)
    why = message(
        "early_stop.beyond_cutoff",
        "ends here, at a token that lies {nats} nats beyond what {asked} leaves",
        nats=f"{evidence.farthest:.2f}",
        asked=", ".join(f"{name}={value:g}" for name, value in evidence.asked.items()),
    )
    said = EndEvidence(why=why, terminator=int(b.token_ids[last]), judged_by=evidence.judged_by)
    return Event(Kind.EARLY_STOP, last, 1, said)


def _asked(cut: Cut) -> dict[str, float]:
    named = {"top_k": cut.top_k, "top_p": cut.top_p, "min_p": cut.min_p}
    return {name: value for name, value in named.items() if value != getattr(Cut(), name)}
