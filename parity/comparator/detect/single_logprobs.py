"""Are the engine's own logprobs that are off no more, and no farther, than chance makes of an arm like the baseline?"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from parity.comparator.detect.cases import BY_THEMSELVES, Case, Detector, Doubted, InDoubt, Setup, replaced
from parity.comparator.reference.isolated import BESIDE_NONE, MOST, NONE, are_apart
from parity.comparator.streams.contexts import context_of
from parity.records import Kind
from parity.records.evidence import LogprobEvidence


def _look(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """The cases, those left open of which single logprobs alone are off: a router at a near-tie of its own moves what
    the engine holds of one token by as much as its experts differ, whichever arm comes to it. Nobody is accused of that
    in BESIDE_NONE completions, where nothing else in the run is wrong and few of the baseline's tokens are scored."""
    if (setup.isolated or NONE).shows_enough:
        return cases
    found = {n: _in_doubt(case) for n, case in enumerate(cases) if case.events}
    doubts = {n: found.get(n) or case.doubtful for n, case in enumerate(cases)}
    alone = {n: one for n, one in doubts.items() if one is not None and one.how in BY_THEMSELVES}
    contexts = {context_of(cases[n].b, one.position) for n, one in alone.items()}
    if None in found.values() or len(contexts) > BESIDE_NONE:
        return cases
    return replaced(cases, {n: replace(cases[n], events=(), doubtful=one) for n, one in found.items()})


def _in_doubt(case: Case) -> InDoubt | None:
    """The farthest of its logprobs, where nothing but single ones is wrong, and none by more than experts differ."""
    event, *others = case.events
    found = event.evidence
    if others or event.kind is not Kind.LOGPROB_MISMATCH or not isinstance(found, LogprobEvidence):
        return None
    places, at = found.positions or (), found.worst_position
    if at is None or found.logprob is None or found.score is None or found.count != len(places):
        return None
    far = abs(found.logprob - found.score)
    if far > MOST or not are_apart(places, len(case.b.token_ids)):
        return None
    if case.doubtful is not None and case.doubtful.how in BY_THEMSELVES:
        return case.doubtful
    return InDoubt(at, far, Doubted.LOGPROBS_ALONE)


def _matters(case: Case, setup: Setup) -> bool:
    return bool(case.events) or (case.doubtful is not None and case.doubtful.how in BY_THEMSELVES)


DETECTOR = Detector(frozenset({Kind.LOGPROB_MISMATCH}), _look, together=_matters)
