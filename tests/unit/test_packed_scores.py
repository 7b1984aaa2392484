"""The scores of a large file, kept as columns: the same scores, the same errors, and the same comparison."""

from __future__ import annotations

import errno
import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from parity import unnamed
from parity.capture import CaptureError, header_record, read, read_capture, read_scores
from parity.capture.rows import Packed
from parity.capture.score_columns import PackedScores
from parity.capture.write import score_record
from parity.comparator import CompareOptions, compare
from parity.errors import ParityError
from parity.records import Capture, Completion, Header, Key, ScoreKey, TopLogprobs
from parity.records.score_table import ArmScores
from tests.unit.test_capture_beside import plain, written
from tests.unit.test_packed_captures import packed

ARMS = ("a/base", "a/mtp")
COUNT, LENGTH = 40, 24


def made(rng: Random, *, logprobs: bool) -> tuple[list[Completion], list[Completion]]:
    """Two arms of which some pairs part, at near-ties and at faults."""
    arms: tuple[list[Completion], list[Completion]] = ([], [])
    for number in range(COUNT):
        key = Key(f"p{number // 2}", number % 2, 0)
        tokens = np.array([rng.randrange(5, 900) for _ in range(LENGTH)])
        other = tokens.copy()
        if rng.random() < 0.4:
            at = rng.randrange(LENGTH)
            other[at:] = [rng.randrange(5, 900) for _ in range(LENGTH - at)]
        likely, unlike = (np.array([-round(rng.expovariate(2), 6) for _ in range(LENGTH)]) for _ in range(2))
        for arm, stream in zip(arms, (tokens, other), strict=True):
            values = np.where((stream != tokens).cumsum() > 0, unlike, likely)
            own = TopLogprobs(stream[:, None].copy(), values[:, None]) if logprobs else None
            arm.append(Completion(key, np.array([1, 2, number]), stream, None, "length", None, own))
    return arms


def lists(rng: Random, one: Completion, width: int) -> TopLogprobs:
    """The chosen token first, or a little below the best, or far below it, or not there; of one in ten too few."""
    rows = []
    likely = one.logprobs.values[:, 0].tolist() if one.logprobs else [-0.3] * LENGTH
    for token, own in zip(one.token_ids.tolist(), likely, strict=True):
        ids = [token, *(rng.randrange(900, 999) for _ in range(width - 1))]
        values = [round(own + rng.gauss(0, 0.01), 6), *(round(own - 3.0 - rank * 0.7, 6) for rank in range(width - 1))]
        if width > 1 and rng.random() < 0.05:
            below = rng.choice([0.05, 0.4, 9.0])
            ids[:2], values[:2] = ids[1::-1], [values[0], round(values[0] - below, 6)]
        if rng.random() < 0.02:
            ids[0] = 3
        if rng.random() < 0.01:
            values = [float("nan")] * width
        if rng.random() < 0.01:
            values[0] = -1 / 3
        rows.append([[i, v] for i, v in zip(ids, values, strict=True)])
    return TopLogprobs.from_json(rows[: -2 if rng.random() < 0.1 else None])


def scores_of(rng: Random, arms: tuple[list[Completion], list[Completion]]) -> list[dict[str, Any]]:
    """In any order, some missing, and some of nobody."""
    width, both = rng.choice([1, 2, 5, 6]), rng.random() < 0.8
    found = []
    for name, arm in list(zip(ARMS, arms, strict=True))[0 if both else 1 :]:
        found += [score_record(ScoreKey(name, *one.key), lists(rng, one, width)) for one in arm if rng.random() < 0.9]
    found.append(score_record(ScoreKey("a/nobody", "p0", 0, 0), lists(rng, arms[0][0], width)))
    if rng.random() < 0.5:
        rng.shuffle(found)
    return found


def write(path: Path, records: list[dict[str, Any]], between: list[bytes] = [], at: int = 0) -> Path:  # noqa: B006
    lines = [json.dumps(one).encode() + b"\n" for one in records]
    footer = json.dumps({"record": "footer", "scores": len(records)}).encode() + b"\n"
    header = json.dumps(header_record(Header("a/base", "a", "base", "m"))).encode() + b"\n"
    path.write_bytes(b"".join([header, *lines[:at], *between, *lines[at:], footer]))
    return path


@pytest.mark.parametrize("seed", range(12))
def test_scores_as_columns_say_the_same(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    arms = made(rng, logprobs=seed % 3 > 0)
    paths = [written(tmp_path / f"{number}.jsonl", *one) for number, one in enumerate(zip(ARMS, arms, strict=True))]
    file = write(tmp_path / "scores.jsonl", scores_of(rng, arms))
    answers, kept = [], []
    for large in (nullcontext(), packed()):
        with large:
            baseline = read_capture(paths[0])
            candidate = read_capture(paths[1], beside=baseline)
            scores = read_scores(file)
        found = compare(baseline, candidate, scores, CompareOptions(tolerance="auto" if seed % 2 else 0.25))
        answers.append(json.dumps(found.to_json(), default=str))
        kept.append(
            [
                {key: (one.gap.tolist(), one.bounded.tolist(), one.best_id.tolist()) for key, one in gaps.items()}
                for gaps in (found.baseline_gaps, found.candidate_gaps)
            ]
        )
    assert isinstance(scores, PackedScores)
    assert answers[0] == answers[1]
    assert repr(kept[0]) == repr(kept[1])


@pytest.mark.parametrize("seed", range(12, 20))
def test_own_lists_as_columns_say_the_same(tmp_path: Path, seed: int) -> None:
    """Arms that list other tokens as well, with scores and without."""
    rng = Random(seed)
    arms = made(rng, logprobs=True)
    scores = write(tmp_path / "scores.jsonl", scores_of(rng, arms))
    width = rng.choice([2, 5])
    listed = [[replace(one, logprobs=lists(rng, one, width)) for one in arm] for arm in arms]
    paths = [written(tmp_path / f"{arm[2:]}.jsonl", arm, of) for arm, of in zip(ARMS, listed, strict=True)]
    answers = []
    for large in (nullcontext(), packed()):
        with large:
            baseline = read_capture(paths[0])
            candidate = read_capture(paths[1], beside=baseline)
            known = read_scores(scores) if seed % 2 else {}
        found = compare(baseline, candidate, known, CompareOptions())
        gaps = [
            {key: one.gap.tolist() for key, one in kept.items()} for kept in (found.baseline_gaps, found.candidate_gaps)
        ]
        answers.append((json.dumps(found.to_json(), default=str), repr(gaps)))
    assert isinstance(candidate.completions, Packed)
    assert answers[0] == answers[1]


def test_lists_are_columns_in_large_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(3)
    arm = [replace(one, logprobs=lists(rng, one, 3)) for one in made(rng, logprobs=True)[0]]
    path = written(tmp_path / "base.jsonl", "a/base", arm)
    monkeypatch.setattr(read, "PACKED_FROM", 1)
    assert not isinstance(read_capture(path).completions, Packed)
    monkeypatch.setattr(read, "LISTS_PACKED_FROM", path.stat().st_size)
    assert isinstance(read_capture(path).completions, Packed)


@pytest.mark.parametrize("seed", range(3))
def test_the_scores_are_the_same(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    file = write(tmp_path / "scores.jsonl", scores_of(rng, made(rng, logprobs=True)))
    few = read_scores(file)
    with packed():
        many = read_scores(file)
    assert isinstance(many, PackedScores)
    assert [(key, plain(top)) for key, top in many.items()] == [(key, plain(top)) for key, top in few.items()]
    assert [plain(top) for top in many.values()] == [plain(top) for top in few.values()]
    assert (list(many), len(many)) == (list(few), len(few))
    assert ScoreKey("a/base", "nobody", 0, 0) not in many
    assert all(key in many for key in few)
    for name, arm in many.by_arm().items():
        assert isinstance(arm, ArmScores)
        assert list(arm.lengths()) == [(Key(*key[1:]), len(top)) for key, top in few.items() if key.arm == name]


@pytest.mark.parametrize("wrong", [
    [b"no record\n"], [b"[1]\n"], [b'{"record":"score","arm":5}\n'], [b'{"record":"score","arm":"a/mtp"}\n'],
    [b'{"record":"footer"}\n'], [b'{"record":"comple'], ["twice"], ["twice", b"no record\n"],
    [b"no record\n", "twice"], ["twice", b'{"record":"footer","scores":3}\n'], [b"\n" * 1500],
])  # fmt: skip
@pytest.mark.parametrize("at", [0, 5])
def test_what_is_wrong_is_named_alike(tmp_path: Path, wrong: list[Any], at: int) -> None:
    rng = Random(1)
    records = scores_of(rng, made(rng, logprobs=False))[:9]
    twice = json.dumps(records[3]).encode() + b"\n"
    file = write(tmp_path / "scores.jsonl", records, [twice if one == "twice" else one for one in wrong], at)
    said = []
    for large in (nullcontext(), packed()):
        with large, pytest.raises(CaptureError) as error:
            read_scores(file)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_file_without_scores_is_named_alike(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text("")
    with packed(), pytest.raises(CaptureError, match="no score records"):
        read_scores(file)


def test_scores_of_a_capture_are_used_beside_those_of_a_file(tmp_path: Path) -> None:
    rng = Random(3)
    arms = made(rng, logprobs=False)
    records = scores_of(rng, arms)
    file = write(tmp_path / "scores.jsonl", records)
    header = Header("a/base", "a", "base", "m", sampling={"temperature": 0.0})
    more = {ScoreKey("a/base", *one.key): lists(rng, one, 2) for one in arms[0][:5]}
    baseline = Capture(header, {one.key: one for one in arms[0]}, more)
    candidate = read_capture(written(tmp_path / "1.jsonl", "a/mtp", arms[1]))
    few = compare(baseline, candidate, read_scores(file))
    with packed():
        many = compare(baseline, candidate, read_scores(file))
    assert json.dumps(few.to_json(), default=str) == json.dumps(many.to_json(), default=str)


def test_a_full_disk_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in the files without a name it is full: own logprobs, scores, gaps that are not held."""
    rng = Random(1)
    arms = made(rng, logprobs=True)
    base, other = (written(tmp_path / f"{arm[2:]}.jsonl", arm, of) for arm, of in zip(ARMS, arms, strict=True))
    scores = write(tmp_path / "scores.jsonl", scores_of(rng, arms))
    written_at: list[int] = []
    full_from: list[int] = []

    def pwrite(file: int, data: Any, at: int) -> int:
        written_at.append(at)
        if full_from and len(written_at) > full_from[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite_to_disk(file, data, at)

    def compared() -> None:
        with packed():
            first = read_capture(base)
            compare(first, read_capture(other, beside=first), read_scores(scores), CompareOptions())

    pwrite_to_disk = os.pwrite
    monkeypatch.setattr(unnamed, "AT_ONCE", 1 << 11)
    monkeypatch.setattr(unnamed.os, "pwrite", pwrite)
    compared()
    count = len(written_at)
    assert count > 10
    for begin in range(0, count, max(1, count // 12)):
        written_at.clear()
        full_from[:] = [begin]
        with pytest.raises(ParityError) as said:
            compared()
        assert "No space left on device" in str(said.value)
        assert "TMPDIR" in str(said.value.hint)
