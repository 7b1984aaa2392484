"""Plots: what is drawn is what was counted, and the axes hold it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from captures import capture, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from parity.comparator import compare
from parity.errors import ParityError
from parity.records import Capture, Key, ScoreKey, SpecTrace, TopLogprobs
from parity.report import svg
from parity.report.plots import GAP_EDGES, GAP_LABELS, edges, plots, write_plots
from parity.view import Evidence, of_captures
from parity.view.evidence import acceptance

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str, tag: str) -> list[etree._Element]:
    return etree.fromstring(text.encode()).findall(f".//{SVG}{tag}")


def titles(text: str) -> list[str]:
    return [element.text or "" for element in drawn(text, "title")]


SPEC = SpecTrace(np.array([2, 0, 1]), np.array([2, 2, 2]))


def streams(arm: str, rows: list[list[int]], *, counters: dict[str, object] | None = None) -> Capture:
    completions = (completion(tokens, f"p{number}", spec=SPEC) for number, tokens in enumerate(rows))
    return capture(arm, *completions, counters=counters or {})


def evidence_of(base: Capture, other: Capture, scores: dict[ScoreKey, TopLogprobs]) -> Evidence:
    return of_captures([base, other], {other.header.arm: compare(base, other, scores)}).evidence


def test_evidence_is_that_of_the_comparison() -> None:
    base, mtp = streams("cpu/base", [[5, 6, 7], [5, 6]]), streams("cpu/mtp", [[5, 9, 7], [5, 6, 7]])
    scores = {
        ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs(
            np.array([[5, 1], [6, 9], [7, 1]]), np.array([[-0.1, -2.0], [-0.5, -1.5], [-0.2, -3.0]])
        )
    }
    evidence = evidence_of(base, mtp, scores)
    assert evidence.divergences == {"cpu/mtp": [1, 2]}
    assert evidence.lengths == {"cpu/base": [3, 2], "cpu/mtp": [3, 3]}
    gaps = evidence.gap("cpu/mtp", Key("p0", 0, 0))
    assert gaps is not None
    assert gaps.gap.tolist() == pytest.approx([0, 1.0, 0])
    assert evidence.gap("cpu/mtp", Key("p1", 0, 0)) is None


def test_identical_completions_share_the_score_that_was_made_once() -> None:
    base, mtp = streams("cpu/base", [[5, 6]]), streams("cpu/mtp", [[5, 6]])
    top = TopLogprobs(np.array([[5, 1], [6, 9]]), np.array([[-0.1, -2.0], [-0.5, -1.5]]))
    evidence = evidence_of(base, mtp, {ScoreKey("cpu/base", "p0", 0, 0): top})
    assert set(evidence.gaps) == {"cpu/base", "cpu/mtp"}


def test_acceptance_by_position_from_counters_or_traces() -> None:
    assert acceptance(streams("cpu/mtp", [[1]], counters={"drafts": 4, "accepted_per_pos": [3, 1]})) == [0.75, 0.25]
    assert acceptance(streams("cpu/mtp", [[1]], counters={})) == pytest.approx([2 / 3, 1 / 3])


def test_a_plot_for_whatever_there_are_numbers_for() -> None:
    base, mtp = streams("cpu/base", [[5, 6, 7]]), streams("cpu/mtp", [[5, 9, 7]])
    found = plots(evidence_of(base, mtp, {}))
    assert sorted(found) == ["acceptance", "divergences", "lengths"]
    assert plots(Evidence()) == {}


@settings(deadline=None)
@given(st.lists(st.floats(0, 40) | st.just(math.nan), max_size=60))
def test_a_histogram_draws_every_number_once(values: list[float]) -> None:
    text = svg.histogram("t", "x", "y", {"arm": values}, GAP_EDGES, labels=GAP_LABELS, log=True)
    counted = sum(int(title.rpartition(": ")[2]) for title in titles(text))
    assert counted == sum(math.isfinite(value) for value in values)
    for bar in drawn(text, "rect"):
        if bar.get("class") is None:
            assert float(bar.get("height", "0")) <= svg.HEIGHT
            assert 0 <= float(bar.get("x", "0")) <= svg.WIDTH


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6) | st.just(math.nan), max_size=80), st.none() | st.floats(0, 5))
def test_a_gap_line_marks_what_lies_beyond_the_tolerance(gaps: list[float], tolerance: float | None) -> None:
    text = svg.gap_line("t", "x", "y", gaps, tolerance=tolerance, mark=0)
    stems = [line for line in drawn(text, "line") if line.get("stroke")]
    assert len(stems) == sum(math.isfinite(gap) and gap > 0 for gap in gaps)
    beyond = sum(line.get("stroke") == svg.COLOURS[5] for line in stems)
    assert beyond == (0 if tolerance is None else sum(math.isfinite(gap) and gap > tolerance for gap in gaps))
    assert len(drawn(text, "path")) == 1


@settings(deadline=None)
@given(st.floats(1e-6, 1e9))
def test_ticks_are_round_and_reach_far_enough(largest: float) -> None:
    ticks = svg.nice(largest)
    assert ticks[0] == 0
    assert ticks[-1] >= largest * (1 - 1e-6)
    assert 2 <= len(ticks) <= 6


def test_bins_hold_whole_tokens() -> None:
    assert edges([[0, 3]]) == [0, 1, 2, 3, 4]
    assert edges([[]]) == [0, 1]
    wide = edges([[1000]])
    assert len(wide) <= 25
    assert wide[-1] > 1000


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ParityError, match="cannot write"):
        write_plots({"a": "<svg/>"}, tmp_path / "file" / "below")


def test_lengths_below_nothing_are_one_bin() -> None:
    """Of a database that somebody else has written into."""
    assert edges([[-5], []]) == [0.0, 1.0]


def test_a_legend_of_many_arms_lies_below_the_title() -> None:
    names = ["cpu/base", "cpu/mtp", *(f"cpu/mtp-control-{one}" for one in ("chunk_twice", "row_leak", "loop"))]
    text = svg.histogram("Gaps of the tokens chosen", "x", "y", {name: [1.0, 2.0] for name in names}, [0.0, 1.0, 2.0])
    title, *others = drawn(text, "text")
    legend = [one for one in others if str(one.text).endswith(("base", "mtp", "twice", "leak", "loop"))]
    assert [str(one.text)[-4:] for one in legend] == [name[-4:] for name in reversed(names)]
    assert all(float(one.get("y", "0")) > float(title.get("y", "0")) for one in legend)
    assert min(float(one.get("x", "0")) for one in legend) >= svg.LEFT
    few = drawn(svg.histogram("Gaps", "x", "y", {"cpu/base": [1.0]}, [0.0, 1.0]), "text")
    assert {one.get("y") for one in few if one.text in ("Gaps", "cpu/base")} == {"18"}
