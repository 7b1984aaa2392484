"""The detectors go through the cases of a run in parts, and say of each what they say of all at once."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from msgspec import structs

from parity.capture.keys import Keys
from parity.comparator import CompareOptions, compare
from parity.comparator.classes import Classes, along, by_row, counted, of_class, with_others
from parity.comparator.detect import pairs, registry, turns
from parity.comparator.detect.cases import Case, Detector
from parity.comparator.detect.events import Event
from parity.comparator.streams.pairing import pair_up
from parity.messages import message
from parity.records import Key, Kind
from parity.records.evidence import TokensEvidence
from parity.records.lazy import Flagged, Numbered

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planted_set


def asked(every: int, *, with_scores: bool = True) -> list[object]:
    found = []
    for case in [*planted_set.cases("A"), *planted_set.cases("B")][::every]:
        scores = case.scores if with_scores else {}
        found.append(compare(planted_set.clean(case.world)[0], case.candidate, scores, CompareOptions()).to_json())
    return found


@pytest.mark.parametrize("with_scores", [True, False])
def test_parts_say_what_the_whole_does(with_scores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(23, with_scores=with_scores)
    for module in (pairs, turns):
        monkeypatch.setattr(module, "AT_ONCE", 3)
    assert asked(23, with_scores=with_scores) == whole


@pytest.mark.parametrize("every", [pairs.AT_ONCE, 3])
def test_those_that_wait_without_their_gaps_have_them_again(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(23)
    scored, held = pairs.gaps_alone, list[bool]()
    append = turns._Waiting.append

    def appended(waiting: turns._Waiting, case: Case) -> None:
        append(waiting, case)
        held.extend(one.gaps is not None for one in waiting._held)

    monkeypatch.setattr(pairs, "gaps_alone", lambda found: MappingProxyType(scored(found)))
    monkeypatch.setattr(turns._Waiting, "append", appended)
    for module in (pairs, turns):
        monkeypatch.setattr(module, "AT_ONCE", every)
    assert asked(23) == whole
    assert held
    assert not any(held)


def at_once(detector: Detector) -> Detector:
    """One that is given all cases, as if it needed them."""
    return structs.replace(detector, look=lambda cases, setup: detector.look(cases, setup), together=lambda *_: True)


@pytest.mark.parametrize("with_scores", [True, False])
def test_a_detector_leaves_the_cases_that_it_need_not_see(with_scores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(31, with_scores=with_scores)
    every = list(map(at_once, registry.detectors()))
    monkeypatch.setattr(pairs, "detectors", lambda: every)
    assert asked(31, with_scores=with_scores) == whole


def test_those_that_wait_come_in_the_order_of_the_run() -> None:
    case = next(iter(planted_set.cases("A")))
    both = pair_up(planted_set.clean(case.world)[0], case.candidate)
    both = structs.replace(both, parts_at=np.arange(len(both.keys)) % 3, identical=np.arange(len(both.keys)) % 5 == 0)
    every = []
    for row, at in enumerate(both.parts_at.tolist()):
        if both.identical[row]:
            every.append(Case(both, row, -1))
        else:
            events = (Event(Kind.GARBLED, at, 1, TokensEvidence(why=message("test", "test"))),) if row % 4 == 0 else ()
            every.append(Case(both, row, at, flip=at, unjudged_from=at, events=events))
    every.sort(key=lambda one: (one.is_identical, one.row))
    mixed = random.Random(1).sample(every, len(every))
    waiting = turns._Waiting(both, {})
    for one in mixed:
        waiting.append(one)
    found = waiting.in_order()
    assert [(one.row, one.flip, one.events) for one in found] == [(one.row, one.flip, one.events) for one in every]
    assert [one.row for one in found[2:5]] == [one.row for one in every[2:5]]
    changed = found.but({1: every[0]})
    assert changed[1].row == every[0].row
    assert found[1].row == every[1].row


KEYS = [Key(f"p{n // 2}", n % 2, 0) for n in range(20)]


def in_columns(keys: list[Key]) -> Keys:
    found = Keys(held=True)
    for key in keys:
        found.append(key)
    return found


def test_columns_of_keys_are_sets_and_mappings_of_them() -> None:
    order, flags = in_columns(KEYS), np.arange(20) % 3 == 0
    some = Flagged(order, flags)
    assert set(some) == {key for key, flag in zip(KEYS, flags.tolist(), strict=True) if flag}
    assert (len(some), KEYS[0] in some, KEYS[1] in some, Key("other", 0, 0) in some) == (7, True, False, False)
    assert some & {KEYS[0], KEYS[1]} == {KEYS[0]}
    numbered = Numbered(order, np.array([2, 5]), np.array([7, 8]))
    assert dict(numbered) == dict(numbered.items()) == {KEYS[2]: 7, KEYS[5]: 8}
    assert list(numbered.values()) == [7, 8]


def test_classes_in_columns_are_those_of_a_mapping() -> None:
    numbers = np.array([(0, 0, 2, 1, 3)[n % 5] for n in range(20)], dtype=np.int8)
    extra = Key("more", 0, 0)
    plain, packed = by_row(KEYS, numbers), by_row(in_columns(KEYS), numbers)
    assert isinstance(packed, Classes)
    assert not isinstance(plain, Classes)
    changed = {KEYS[0]: "corrupt", extra: "missing"}
    for some, other in ((plain, packed), (with_others(plain, changed), with_others(packed, changed))):
        assert dict(other) == some
        assert len(other) == len(some)
        assert +counted(other) == +counted(some)
        assert list(along(KEYS, other)) == list(along(KEYS, some))
        for one in ("identical", "corrupt", "missing", "sampled"):
            assert set(of_class(other, one)) == set(of_class(some, one))
    assert dict(packed) == plain, "not changed"
