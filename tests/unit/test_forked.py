"""Parts of a run looked at by copies of this process: what is said is what one process says, whatever happens."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import pytest

from parity import forked
from parity.capture import read_capture, read_scores
from parity.cli import compare as command
from parity.comparator import CompareOptions, Comparison, compare, shared_out
from parity.comparator.detect import pairs, turns
from parity.comparator.population import rates
from parity.comparator.reference import drawn_lists, residuals, scores, stored
from parity.comparator.types import Spread, alone
from parity.forked import CAN_FORK, Forked
from parity.messages import Message
from parity.records import Capture, Scores, Verdict
from parity.unnamed import Unnamed
from tests.unit.comparator.test_sampled import Model
from tests.unit.test_capture_beside import written
from tests.unit.test_packed_captures import packed
from tests.unit.test_packed_scores import ARMS, made, scores_of, write

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="processes are copied on Linux alone")

SELF = os.getpid()
P = TypeVar("P")
R = TypeVar("R")


def who(part: int) -> tuple[int, bool]:
    return part * part, os.getpid() == SELF


def test_the_answers_come_in_order_and_from_others() -> None:
    assert list(Forked(3)(range(11), who)) == [(one * one, False) for one in range(11)]


@pytest.mark.parametrize(("jobs", "parts"), [(1, 5), (4, 1), (4, 0)])
def test_one_process_or_one_part_is_looked_at_here(jobs: int, parts: int) -> None:
    assert list(Forked(jobs)(range(parts), who)) == [(one * one, True) for one in range(parts)]


def test_what_is_lost_is_looked_at_here() -> None:
    def work(part: int) -> bool:
        if part == 4 and os.getpid() != SELF:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid() == SELF

    assert list(Forked(2)(range(8), work)) == [False, False, False, False, True, False, True, False]


def test_what_goes_wrong_goes_wrong_here() -> None:
    def work(part: int) -> int:
        if part == 3:
            raise ValueError(f"no {part} in {os.getpid() == SELF}")
        return part

    found: list[int] = []
    with pytest.raises(ValueError, match="no 3 in True"):
        found.extend(iter(Forked(2)(range(8), work)))


def test_an_answer_that_cannot_be_sent_is_found_here() -> None:
    def work(part: int) -> Callable[[], int]:
        return lambda: part

    assert [one() for one in Forked(2)(range(4), work)] == [0, 1, 2, 3]


def test_none_is_started_where_the_system_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no room")

    monkeypatch.setattr(os, "fork", fork)
    assert list(Forked(2)(range(4), who)) == [(one * one, True) for one in range(4)]


def test_who_stops_asking_ends_them() -> None:
    pids = Forked(2)(range(40), lambda part: os.getpid())
    seen = {next(pids), next(pids)}
    pids.close()  # type: ignore[attr-defined]
    assert len(seen) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen)


PARENT = """
import os, sys
from parity.forked import Forked
answers = Forked(2)(range(40), lambda part: (os.getpid(), bytes(1 << 20)))
print(next(answers)[0], next(answers)[0], flush=True)
sys.stdin.read()
"""
"""Its children wait to be asked for more: no pipe holds so much."""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing waits for a process that is not its own here")
@pytest.mark.parametrize("sign", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_none_outlives_its_parent(sign: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    children = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.send_signal(getattr(signal, sign))
    parent.wait(60)
    for child in children:
        assert select.select([child], [], [], 60)[0], "it still runs"
        os.close(child)


def test_nothing_is_written_over_in_a_copy() -> None:
    store = Unnamed()
    store.append(b"before")

    def work(part: int) -> bytes:
        with pytest.raises(RuntimeError, match=str(SELF)):
            store.append(b"in a copy")
        return store.read(0, 20)

    answers = Forked(2)(range(2), work) if os.getpid() == SELF else iter(())
    assert list(answers) == [b"before", b"before"]
    store.append(b" and after")
    assert store.read(0, 20) == b"before and after"


@contextmanager
def small_parts() -> Iterator[None]:
    """So small that a few completions are many parts, of which none is held."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pairs, turns, stored):
            patch.setattr(module, "AT_ONCE", 3)
        patch.setattr(scores, "_AT_ONCE", 3)
        patch.setattr(rates, "DRIFT_AT_ONCE", 3)
        for name, size in (("BATCH", 64), ("STRETCH", 128), ("HELD", 0)):
            patch.setattr(residuals, name, size)
        yield


class Counting:
    """`Forked`, and how often it had something to share."""

    def __init__(self) -> None:
        self.shared = 0
        self._forked = Forked(2)

    def __call__(self, parts: Sequence[P], work: Callable[[P], R], about: Message, /) -> Iterator[R]:
        self.shared += len(parts) > 1
        return self._forked(parts, work)


@pytest.mark.parametrize("large", [False, True], ids=["objects", "columns"])
@pytest.mark.parametrize("seed", [0, 1, 2, 9, 19, 23, 31])
def test_a_comparison_says_the_same(tmp_path: Path, seed: int, large: bool) -> None:
    rng = Random(seed)
    arms = made(rng, logprobs=seed % 3 > 0)
    paths = [written(tmp_path / f"{number}.jsonl", *one) for number, one in enumerate(zip(ARMS, arms, strict=True))]
    file = write(tmp_path / "scores.jsonl", scores_of(rng, arms)) if seed % 2 else None

    def compared(spread: Spread) -> Comparison:
        baseline = read_capture(paths[0])
        candidate = read_capture(paths[1], beside=baseline)
        known = read_scores(file) if file else {}
        return compare(baseline, candidate, known, CompareOptions("auto" if seed % 2 else 0.25, spread=spread))

    def said(of: Comparison) -> tuple[str, str]:
        kept = [{key: gaps.gap.tolist() for key, gaps in one.items()} for one in (of.baseline_gaps, of.candidate_gaps)]
        return json.dumps(of.to_json(), default=str), repr(kept)

    counting = Counting()
    with small_parts():
        if large:
            with packed():
                one, other = compared(alone), compared(counting)
                answers = said(one), said(other)
        else:
            answers = said(compared(alone)), said(compared(counting))
    assert answers[0] == answers[1]
    assert counting.shared >= (10 if large and seed == 23 else 1)


def test_how_many_where_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "usable_cores", lambda: 64)
    assert Forked()._jobs == forked.MOST
    assert Forked(12)._jobs == 12


def drawn(temperature: float) -> tuple[Capture, Capture, Scores]:
    """Both arms, all completions scored; the candidate's drawn at another temperature, or as asked."""
    rng = np.random.default_rng(3)
    model = Model(rng)
    base, known = model.arm("cpu/base", model.ranks(rng, 0.8))
    other, more = model.arm("cpu/mtp", model.ranks(rng, temperature))
    return base, other, known | more


@contextmanager
def few_draws() -> Iterator[None]:
    """Parts of a completion or two, all of which are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_out, "FEWEST", 2)
        patch.setattr(shared_out, "AT_ONCE", 2)
        patch.setattr(drawn_lists, "IN_CACHE", 1024)
        yield


@pytest.mark.parametrize(("temperature", "verdict"), [(0.8, Verdict.PASS), (1.3, Verdict.DIVERGED)])
def test_a_comparison_of_drawn_completions_says_the_same(temperature: float, verdict: Verdict) -> None:
    arms, counting = drawn(temperature), Counting()
    with few_draws():
        one, other = (compare(*arms, CompareOptions(spread=spread)) for spread in (alone, counting))
    assert one.verdict is verdict
    assert json.dumps(one.to_json(), default=str) == json.dumps(other.to_json(), default=str)
    assert counting.shared >= 12


@pytest.mark.parametrize(("temperature", "tokens", "shared"), [(0.8, 3840, True), (0.8, 3841, False), (0.0, 1, False)])
def test_the_command_shares_many_drawn_tokens(
    monkeypatch: pytest.MonkeyPatch, temperature: float, tokens: int, shared: bool
) -> None:
    *arms, known = drawn(0.8)
    arms = [replace(arm, header=replace(arm.header, sampling={"temperature": temperature})) for arm in arms]
    monkeypatch.setattr(command, "MANY_DRAWN", tokens)
    sides = command._Sides(arms[0], arms[1], (Path("a"), Path("b")), known, [])
    assert isinstance(command._comparers(sides, 2), Forked) is shared


def test_drawn_completions_of_a_lost_process_are_looked_at_here() -> None:
    arms = drawn(0.8)
    lost = []

    def losing(parts: Sequence[P], work: Callable[[P], R], about: Message, /) -> Iterator[R]:
        def until_killed(number: int) -> R:
            if number == 3 and os.getpid() != SELF:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(parts[number])

        lost.append(len(parts) > 3)
        return Forked(2)(range(len(parts)), until_killed)

    with few_draws():
        one, other = (compare(*arms, CompareOptions(spread=spread)) for spread in (alone, losing))
    assert json.dumps(one.to_json(), default=str) == json.dumps(other.to_json(), default=str)
    assert sum(lost) >= 10
