"""What the recorder saw, in the comparison: a violation is enough without scores, a PASS says how rare one could be."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import TEXT, completion, score, scores
from captures import capture as text_capture
from click.testing import CliRunner
from step_world import World, changed, steps_lines

from parity.capture import write_capture
from parity.capture.steps import RowSteps, StepsStopped, steps_path
from parity.cli.main import cli
from parity.comparator import compare
from parity.errors import ParityError
from parity.pipeline.added import with_findings
from parity.pipeline.inside import bring_steps, look_inside, with_steps
from parity.records import Capture, Kind, Severity, Verdict
from parity.records.evidence import ViolationEvidence

WORLD = World(5)


def capture(arm: str, steps: RowSteps) -> Capture:
    return WORLD.capture(arm, steps)


def planted(steps: RowSteps) -> tuple[RowSteps, int]:
    """An accepted count that is not what was emitted, at one row-step."""
    index = int(np.flatnonzero(steps.numbers("path/1") == 0)[3])
    return changed(steps, "accepted/1", index, int(steps.numbers("accepted/1")[index]) % 3 + 1), index


def test_a_violation_is_enough_where_tokens_are_equal() -> None:
    steps = WORLD.recorded()
    wrong, index = planted(steps)
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    alone = compare(base, mtp)
    assert (alone.verdict, alone.reasons[0].id) == (Verdict.PASS, "conclude.passed")
    found = with_steps(alone, look_inside(base, ()), look_inside(mtp, (wrong,)))
    assert found.verdict is Verdict.DIVERGED
    assert "conclude.passed" not in {one.id for one in found.reasons}  # it says that none is corrupt
    (finding,) = [one for one in found.findings if one.kind is Kind.VIOLATION]
    evidence = finding.evidence
    assert isinstance(evidence, ViolationEvidence)
    assert (evidence.step, evidence.row) == (steps.step[index], steps.row[index])
    assert (evidence.invariant, evidence.row_steps) == ("accepted", 1)
    assert evidence.found == wrong.numbers("accepted/1")[index] != evidence.expected
    assert finding.key == steps.requests[int(steps.numbers("request")[index])].key
    assert found.classes[finding.key] == "corrupt"
    assert (found.stats.corrupt, found.stats.first_faults) == (1, {"violation": 1})
    assert found.stats.rates["violation"].completions == 1
    assert (alone.stats.corrupt, found.stats.missed, found.stats.fault_rate_not_excluded) == (0, (), None)
    assert ViolationEvidence.from_json(evidence.to_json()).to_json() == evidence.to_json()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("proposed",), "rules that could not be asked of the engine's steps: drafts scheduled are those proposed"),
        (("sampled", "handed"), "rules that could not be asked of the engine's steps ("),  # asynchronous scheduling
    ],
)
def test_many_rules_that_could_not_be_asked_are_named_and_not_spelled_out(missing: tuple[str, ...], said: str) -> None:
    steps = WORLD.recorded()
    without = replace(steps, columns={name: values for name, values in steps.columns.items() if name not in missing})
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    found = with_steps(compare(base, mtp), look_inside(base, (steps,)), look_inside(mtp, (without,)))
    (note,) = [str(one) for one in found.notes if "could not be asked" in str(one)]
    assert said in note
    assert len(note) < 300


def test_the_reason_counts_completions_that_broke_in_steps_alone_too() -> None:
    """Verdict and table say one number."""
    tokens = [*TEXT[:10], 901, *TEXT[11:], 0]
    alone = compare(
        text_capture("cpu/base", completion(TEXT), completion(TEXT, request="p1")),
        text_capture("cpu/mtp", completion(tokens), completion(TEXT, request="p1")),
        scores("cpu/mtp", p0=score(tokens, {10: 9.0}, TEXT), p1=score(TEXT)),
    )
    (said,) = [one for one in alone.reasons if one.id == "conclude.corrupt"]
    assert said.parameters["corrupt"] == 1
    (first,) = [one for one in alone.findings if one.severity is Severity.CORRUPT]
    broken = replace(first, request="p1", kind=Kind.VIOLATION)
    found = with_findings(alone, [broken], alone.verdict, alone.reasons, ())
    (said,) = [one for one in found.reasons if one.id == "conclude.corrupt"]
    assert said.parameters["corrupt"] == found.stats.corrupt == 2
    assert sorted(said.parameters["kinds"]) == sorted(found.stats.first_faults) == ["unjustified", "violation"]


def test_what_broke_in_a_request_that_the_capture_lacks_is_no_completion_of_it() -> None:
    """Part of a capture beside the steps of all of it: the verdict counts row-steps, the table completions."""
    steps = WORLD.recorded()
    wrong, index = planted(steps)
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    key = steps.requests[int(steps.numbers("request")[index])].key
    base, mtp = (
        replace(one, completions={name: said for name, said in one.completions.items() if name != key})
        for one in (base, mtp)
    )
    found = with_steps(compare(base, mtp), look_inside(base, ()), look_inside(mtp, (wrong,)))
    assert found.verdict is Verdict.DIVERGED
    assert found.reasons[0].id == "inside.broken"
    assert found.stats.corrupt == 0
    assert not [one for one in found.findings if one.kind is Kind.VIOLATION]


def test_a_recording_that_is_replayed_brings_its_steps(tmp_path: Path) -> None:
    captures = Path(__file__).parents[3] / "reports" / "one-token-prompt" / "captures"
    replayed = [f"--replay={name}={captures}/cpu-{name}.jsonl.gz" for name in ("base", "mtp")]
    said = ["run", *replayed, "--out", str(tmp_path / "run"), "--db", str(tmp_path / "db"), "--json"]
    result = CliRunner().invoke(cli, said)
    assert result.exit_code == 1, result.output
    assert "6 of 135 row-steps broke the engine's own bookkeeping" in result.output
    assert (tmp_path / "run" / "replay-mtp.steps").read_bytes() == (captures / "cpu-mtp.steps").read_bytes()


def test_steps_that_cannot_be_brought_are_no_crash_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle: what was there stays, and the file is named."""
    (tmp_path / "of.steps").write_bytes(b"new" * (1 << 20))
    (tmp_path / "to.steps").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ParityError, match=r"cannot write .*to\.steps: No space left"):
        bring_steps(tmp_path / "of.jsonl", tmp_path / "to.jsonl")
    assert (tmp_path / "to.steps").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of.steps", "to.steps"]


def test_a_broken_baseline_leaves_nothing_to_conclude() -> None:
    steps = WORLD.recorded()
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    found = with_steps(compare(base, mtp), look_inside(base, (planted(steps)[0],)), look_inside(mtp, (steps,)))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "cpu/base" in str(found.reasons[0])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_clean_recording_says_its_bound_whatever_the_verdict(verdict: Verdict) -> None:
    steps = WORLD.recorded()
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    alone = replace(compare(base, mtp), verdict=verdict)
    found = with_steps(alone, look_inside(base, ()), look_inside(mtp, (steps, steps)))
    assert found.verdict is verdict
    assert not [one for one in found.findings if one.kind is Kind.VIOLATION]
    (said,) = [one for one in (*found.reasons, *found.notes) if one.id == "inside.clean"]
    assert f"{3 / (2 * len(steps)):.2g}" in str(said)
    assert (said in found.reasons) == (verdict is Verdict.PASS)


def test_a_recorder_that_gave_up_is_no_silence() -> None:
    steps = WORLD.recorded()
    base, mtp = capture("cpu/base", steps), capture("cpu/mtp", steps)
    gave_up = replace(steps, stopped=StepsStopped(step=7, why="ValueError: shapes (3,) (4,)"))
    found = with_steps(compare(base, mtp), look_inside(base, (steps,)), look_inside(mtp, (gave_up,)))
    (said,) = [one for one in found.notes if one.id == "inside.stopped"]
    assert said.parameters["arm"] == "cpu/mtp"
    assert f"step 7 (ValueError: shapes (3,) (4,)); {len(steps)} row-steps" in str(said)


@pytest.mark.parametrize("beside", [True, False])
def test_compare_finds_the_steps(tmp_path: Path, beside: bool) -> None:
    steps = WORLD.recorded()
    for name in ("base", "mtp"):
        write_capture(tmp_path / f"{name}.jsonl", capture(f"cpu/{name}", steps))
    file = steps_path(tmp_path / "mtp.jsonl") if beside else tmp_path / "elsewhere.steps"
    file.write_bytes(b"".join(steps_lines(planted(steps)[0])))
    arguments = ["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "mtp.jsonl")]
    result = CliRunner().invoke(cli, arguments if beside else [*arguments, "--steps", str(file)])
    assert result.exit_code == 1, result.output
    assert "bookkeeping" in result.output


def test_without_steps_no_completion_is_looked_at() -> None:
    """A million of them lie in a file."""

    class NotRead(dict[Any, Any]):
        def __iter__(self) -> Any:
            raise AssertionError("read")

    base = text_capture("cpu/base", completion(TEXT))
    assert not look_inside(replace(base, completions=NotRead(base.completions)), ()).violations
