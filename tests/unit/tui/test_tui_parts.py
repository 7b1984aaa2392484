"""The parts of the interface that are plain functions: alignment, lines, strips, traces, progress, keys."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from parity.errors import ParityError
from parity.messages import verbatim
from parity.records.steps import steps_of
from parity.tui.bindings import APP, GROUPS, MOVE
from parity.tui.drawing import trace_marks
from parity.tui.format import bar, error_text, fit, moment, nats, seconds, short_path, sparkline
from parity.tui.progress import drawn
from parity.tui.tokens import Piece
from parity.tui.widgets.sides import Content, flow
from parity.view.alignment import DELETED, EQUAL, INSERTED, SUBSTITUTED, align
from parity.view.progress import ArmProgress, Progress, _Counted, seconds_left

STREAM = st.lists(st.integers(0, 6), max_size=60)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(STREAM, STREAM)
def test_an_alignment_has_every_token_once_and_in_order(a: list[int], b: list[int]) -> None:
    found = align(array(a), array(b))
    assert found.left[found.left >= 0].tolist() == list(range(len(a)))
    assert found.right[found.right >= 0].tolist() == list(range(len(b)))
    for left, right, op in zip(found.left.tolist(), found.right.tolist(), found.op.tolist(), strict=True):
        expected = SUBSTITUTED if left >= 0 and right >= 0 else DELETED if left >= 0 else INSERTED
        assert op in ({EQUAL, SUBSTITUTED} if expected == SUBSTITUTED else {expected})
        if op == EQUAL:
            assert a[left] == b[right]


def test_a_chunk_that_comes_twice_is_an_insertion() -> None:
    text = list(range(100, 160))
    found = align(array(text), array([*text[:20], *text[15:20], *text[20:]]))
    assert Counter(found.op.tolist()) == {EQUAL: 60, INSERTED: 5}
    assert found.starts().tolist() == [20]
    assert found.row_of(24) == 24
    assert found.row_of(10_000) == len(found) - 1


@given(STREAM, STREAM, st.integers(6, 30))
def test_flowing_text_has_every_row_once_and_fits(a: list[int], b: list[int], width: int) -> None:
    pieces = [Piece("x" * (1 + n % 3), breaks=n == 5) for n in range(7)]
    content = Content(align(array(a), array(b)), [pieces[n] for n in a], [pieces[n] for n in b])
    lines = flow(content, width)
    rows = [row for line in lines for row in range(line.first, line.last)]
    assert rows == list(range(len(content.alignment)))
    for line in lines:
        for side, indices in ((content.left, content.alignment.left), (content.right, content.alignment.right)):
            texts = [side[i].text for i in indices[line.first : line.last].tolist() if i >= 0]
            assert line.last - line.first == 1 or cell_len("".join(texts)) <= width


def test_a_trace_as_marks() -> None:
    steps = steps_of((2, 0, 1))  # tokens 1 2 3, 4, 5 6
    assert trace_marks(steps) == "·12··1·"
    assert trace_marks(steps_of((2, 0, 1), 3)) == "·12"
    assert trace_marks(None) == ""


def test_copies_of_a_pattern_are_counted() -> None:
    content = Content(align(array([]), array([])), (), (), copies=(4, 7, 10, 12))
    assert [content.copy_number(position) for position in (3, 4, 6, 7, 11, 12)] == [None, 0, 0, 1, 2, None]


@pytest.mark.parametrize("columns", range(12))
def test_text_is_cut_to_columns(columns: int) -> None:
    for text in ("", "abc", "cpu/mtp-control-chunk_twice", "请用请用请用请用", "a请b用c请d用"):
        for options in ({}, {"right": True}, {"middle": True}):
            assert cell_len(fit(text, columns, **options)) == columns
    assert fit("cpu/mtp-control-chunk_twice", 15, middle=True) == "cpu/m…unk_twice"


def test_figures() -> None:
    assert [seconds(value) for value in (None, 0.4, 59, 60, 3599, 3600, 90000)] == [
        "-", "0 s", "59 s", "1m00", "59m59", "1h00", "25h00",
    ]  # fmt: skip
    assert (nats(None), nats(float("nan")), nats(1.005)) == ("", "", "1.00")
    assert moment(None) == "-"
    assert moment("\x1b[2J") == "\\x1b[2J"
    assert sparkline([0, 1, 8]) == " ▁█"
    assert sparkline([0, 0]) == "  "
    assert cell_len(bar(1.0, 6)) == 6
    assert bar(0.0, 6) == ""
    assert bar(0.001, 6) == "▏", "what is there is seen"
    assert "remedy" in error_text(ParityError("what", hint="remedy")).plain


def test_the_home_directory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert short_path("/home/user/x/parity.db") == "~/x/parity.db"
    assert short_path("/home/user-b/parity.db") == "/home/user-b/parity.db"


def test_progress_counts_what_was_written_since(tmp_path: Path) -> None:
    progress, path = Progress(), tmp_path / "capture.jsonl"
    one = '{"record":"completion","token_ids":[1,2,3],"spec":{"accepted":[1,2],"drafted":[2,2]}}\n'

    def counted() -> tuple[int, int, int, int]:
        found = progress._read(path)
        return found.records, found.tokens, found.accepted, found.drafted

    assert counted() == (0, 0, 0, 0)
    path.write_text('{"record":"header"}\n' + one + one[:20], encoding="utf-8")
    assert counted() == (2, 3, 3, 4)
    with path.open("a", encoding="utf-8") as file:
        file.write(one[20:] + "what is no JSON\n")
    assert counted() == (4, 6, 6, 8)
    path.write_text('{"record":"header"}\n', encoding="utf-8")
    assert counted() == (1, 0, 0, 0), "started anew"


def test_speed_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    counted, line = _Counted(), b'{"record":"completion","token_ids":[1,2,3]}\n'
    assert counted.sampled() == (None, None)
    for now in (10.0, 20.0):
        clock = now
        counted.add(line * 5)
        assert counted.sampled() == (0.5, 1.5)
    for now in (70.0, 80.0, 90.0, 100.0):
        clock = now
        counted.sampled()
    assert counted.sampled() == (None, None), "nothing came since"


def test_what_is_left_is_known_once_something_came() -> None:
    half = ArmProgress("a", 2, 4, tokens_per_second=8.0, completions_per_second=0.5)
    assert seconds_left([ArmProgress("base", 4, 4, "captured"), half, ArmProgress("b", 0, 4)]) == 12.0
    assert seconds_left([ArmProgress("a", 0, 4)]) is None


def test_how_far_arms_are_is_drawn() -> None:
    shown = drawn([ArmProgress("cpu/mtp", 3, 6), ArmProgress("scores", 0, 0, words=verbatim("12 so far"))]).plain
    assert "██████ " in shown
    assert "3 of 6" in shown
    assert "12 so far" in shown


def test_no_two_commands_of_a_screen_have_one_key() -> None:
    for name, (_, commands) in GROUPS.items():
        used = Counter(key for command in commands for key in command.keys.split(","))
        assert not [key for key, times in used.items() if times > 1], name
        everywhere = {key for command in APP for key in command.keys.split(",")}
        assert not everywhere & set(used), name


def test_every_command_has_an_action() -> None:
    """The registry is where keys, help, palette and the line at the bottom come from: none of it may be empty words."""
    from parity.tui.app import ParityApp
    from parity.tui.screens.comparing import ComparingScreen
    from parity.tui.screens.completions import CompletionsScreen
    from parity.tui.screens.finding import FindingScreen
    from parity.tui.screens.findings import FindingsScreen
    from parity.tui.screens.groups import GroupsScreen
    from parity.tui.screens.known_bugs import KnownBugsScreen
    from parity.tui.screens.live import LiveScreen
    from parity.tui.screens.runs import RunsScreen

    screens = {
        "runs": RunsScreen,
        "comparing": ComparingScreen,
        "completions": CompletionsScreen,
        "findings": FindingsScreen,
        "groups": GroupsScreen,
        "known_bugs": KnownBugsScreen,
        "live": LiveScreen,
        "finding": FindingScreen,
    }
    assert set(screens) == set(GROUPS)
    for name, (_, commands) in GROUPS.items():
        for command in (*commands, *(MOVE if name != "finding" else MOVE[2:])):
            method = f"action_{command.action.split('(')[0]}"
            assert hasattr(screens[name], method), f"{name}: {method}"
    for command in APP:
        assert hasattr(ParityApp, f"action_{command.action}")


def test_the_list_of_runs_does_not_wait_for_the_comparison() -> None:
    """First paint within a second: what only a finding needs is imported later."""
    code = "import sys, parity.tui.app; print(*sorted({n.split('.')[0] for n in sys.modules} | set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "textual" in loaded
    assert not loaded & {"parity.comparator", "parity.pipeline", "rapidfuzz", "tokenizers", "jinja2"}
