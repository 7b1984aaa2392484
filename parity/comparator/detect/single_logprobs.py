"""Are the engine's own logprobs that are off no more, and no farther, than chance makes of an arm like the baseline?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import BY_THEMSELVES, Case, Detector, Doubted, InDoubt, Setup, replaced
from parity.comparator.detect.logprobs import BY_SCORES
from parity.comparator.detect.off_logprobs import are_off, of_chosen
from parity.comparator.reference.isolated import (
    ALIKE,
    BESIDE_NONE,
    FEW_UNSHOWN,
    MOST,
    NONE,
    Isolated,
    are_apart,
    explains,
)
from parity.comparator.streams.contexts import context_of
from parity.records import Kind
from parity.records.evidence import LogprobEvidence


def _look(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """The cases, those left open of which single logprobs alone are off: a router at a near-tie of its own moves what
    the engine holds of one token by as much as its experts differ, whichever arm comes to it. Nobody is accused of that
    where nothing else in the run is wrong, chance makes as many, and few of the baseline's tokens are scored. Else no
    tokens are left open ALONE either: beside another fault they are one as well."""
    found = {n: _in_doubt(case, setup) for n, case in enumerate(cases) if case.events}
    doubts = {n: found.get(n) or case.doubtful for n, case in enumerate(cases)}
    alone = {n: one for n, one in doubts.items() if one is not None and one.how in BY_THEMSELVES}
    if None not in found.values() and _are_few(cases, alone, setup.isolated or NONE):
        return replaced(cases, {n: replace(cases[n], events=(), doubtful=one) for n, one in found.items()})
    return replaced(cases, {n: _accused(cases[n], one) for n, one in alone.items() if one.was})


def _are_few(cases: Sequence[Case], alone: Mapping[int, InDoubt], isolated: Isolated) -> bool:
    """In no more completions, and no farther, than chance makes of an arm like the baseline?"""
    if all(one.how is Doubted.UNSAID for one in alone.values()):
        return True
    times: dict[object, float] = {}
    for n, one in alone.items():
        context = context_of(cases[n].b, one.position)
        times[context] = max(times.get(context, 0.0), one.gap / max(isolated.farthest, ALIKE))
    return (isolated.has_any or len(times) <= BESIDE_NONE) and explains(isolated, list(times.values()))


def _accused(case: Case, doubt: InDoubt) -> Case:
    """As it was before it was doubted."""
    benign = (one for one in case.benign if one.kind is not Kind.NEAR_TIE or one.position != doubt.position)
    return replace(case, events=doubt.was, benign=tuple(benign), doubtful=None)


def _in_doubt(case: Case, setup: Setup) -> InDoubt | None:
    """The farthest of its logprobs, where nothing but FEW_UNSHOWN of them is off at all, by no more than experts
    differ."""
    event, *others = case.events
    found = event.evidence
    if others or found.why.id != BY_SCORES or not isinstance(found, LogprobEvidence) or setup.doubt.is_none:
        return None
    if (setup.isolated or NONE).shows_enough:
        return None
    at = found.worst_position
    if at is None or found.logprob is None or found.score is None or not _are_single(case, setup):
        return None
    far = abs(found.logprob - found.score)
    if far > MOST:
        return None
    if case.doubtful is not None and case.doubtful.how in BY_THEMSELVES:
        return case.doubtful
    return InDoubt(at, far, Doubted.LOGPROBS_ALONE)


def _are_single(case: Case, setup: Setup) -> bool:
    gaps = setup.reference.gaps(setup.arms[1], case.b)
    if gaps is None and case.is_identical:
        gaps = setup.reference.gaps(setup.arms[0], case.a)
    if gaps is None:
        return False
    length = len(case.b.token_ids)
    off: list[int] = np.flatnonzero(are_off(of_chosen(case.b, length)[1], gaps.chosen)).tolist()
    return len(off) <= FEW_UNSHOWN and are_apart(off, length)


def _matters(case: Case, setup: Setup) -> bool:
    return bool(case.events) or (case.doubtful is not None and case.doubtful.how in BY_THEMSELVES)


DETECTOR = Detector(frozenset({Kind.LOGPROB_MISMATCH}), _look, together=_matters)
