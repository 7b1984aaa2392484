"""What the terminal shows: at 80 columns, in a pipe, with text from anywhere."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of
from rich.console import Console

import parity
from parity.messages import verbatim
from parity.records import Key
from parity.report.advice import next_steps
from parity.report.terminal import print_summary
from parity.store import CompletionRow, RequestRow
from parity.store.endings import Tally
from parity.text import cell_width, clip, visible
from parity.view import ArmView, Figures, FindingView, RunView
from parity.view.tokens import TokenText

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
TOKENS = TokenText(MODEL)


def ids(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    from parity.plan.tokenise import load_tokenizer

    return np.array(load_tokenizer(MODEL).encode(text).ids)


def tally(**classes: int) -> tuple[Tally, ...]:
    return tuple(Tally(0, 32, "length", "" if cls == "none" else cls, count) for cls, count in classes.items())


def stream(arm: str, tokens: np.ndarray[Any, np.dtype[np.int64]], parted: int) -> CompletionRow:
    return CompletionRow(arm, "kings", 0, 0, len(tokens), "length", None, "corrupt", parted, None, tokens)


def example(**changes: Any) -> FindingView:
    ours, theirs = ids("And the king said unto the woman"), ids("And the king said unto the people")
    at = int(np.flatnonzero(ours[: len(theirs)] != theirs[: len(ours)])[0])
    evidence = {
        "why": "the reference does not support this token",
        "gap": 9.3,
        "tolerance": 0.25,
        "logprobs": {
            "reference": [[int(theirs[at]), -0.2], [5, -1.0], [6, -2.0], [int(ours[at]), -9.5]],
            "candidate": [[int(ours[at]), -0.4]],
            "baseline": None,
        },
    }
    values: dict[str, Any] = {
        "id": None,
        "key": Key("kings", 0, 0),
        "kind": "unjustified",
        "position": at,
        "length": 1,
        "gap": 9.3,
        "evidence": evidence,
        "asked": RequestRow(0, "kings", "Tell me about the king\nand the woman.", np.array([1])),
        "baseline": stream("cpu/base", theirs, at),
        "candidate": stream("cpu/mtp", ours, at),
        **changes,
    }
    return finding_case(**values)


def summary(
    *,
    arms: list[ArmView] | None = None,
    examples: list[FindingView] | None = None,
    notes: tuple[str, ...] = (),
    **run: Any,
) -> RunView:
    found = [example()] if examples is None else examples
    mtp = tally(identical=40, near_tie=23, corrupt=1)
    about: dict[str, Any] = {
        "id": "20260101-000000-abcd",
        "reasons": (verbatim("1 of 64 completions is corrupt"),),
        "model": "tiny",
        "model_path": MODEL,
        "directory": "/home/user/.local/share/parity/runs/20260101-000000-abcd",
        "duration": 93.2,
        **run,
    }
    return make_case(
        run=run_of(**about),
        arms=arms
        or [
            arm_case(BASE, tally=tally(none=64), tokens_per_second=1834.2),
            replace(
                arm_case(MTP, tally=mtp, acceptance_rate=0.87, acceptance_length=2.74, tokens_per_second=1240.0),
                corrupt={"unjustified": 1},
                figures=Figures(not_excluded=0.047),
                notes=notes,
            ),
        ],
        findings=found,
        chosen=found[0] if found else None,
        total_findings=24,
    )


def show(one: RunView, width: int = 80, *, brief: bool = False) -> str:
    out = io.StringIO()
    screen = Console(file=out, width=width, no_color=True, force_terminal=False, highlight=False)
    print_summary(screen, one, brief=brief)
    return out.getvalue()


def test_everything_a_person_needs_is_there() -> None:
    text = show(summary())
    first = text.splitlines()[0]
    assert first == "DIVERGED  1 of 64 completions is corrupt"
    for expected in ("completions", "identical", "near-tie", "87% (2.74)", "1,834", "corrupt: 1 unjustified"):
        assert expected in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("   ") and line.split()}
    assert r"Tell me about the king\nand the woman." in lines["prompt"]
    assert ">> people<<" in text
    assert ">> woman<<" in text or ">> wom<<an" in text
    assert '" people" -0.20' in lines["reference"]
    assert "-9.50 (chosen)" in lines["reference"]
    assert "1 in 21" in text
    assert "What to do next:" in text
    assert "20260101-000000-abcd" in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = "x" * 300
    for one in (
        summary(),
        summary(reasons=(verbatim("word " * 60), verbatim(long[:70])), notes=(verbatim("note " * 50),)),
    ):
        for line in show(one, width).splitlines():
            assert cell_width(line) <= width or "/" in line, line


def test_wide_characters_stay_within_80_columns() -> None:
    chinese = ids("道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。故常无，欲以观其妙；常有，欲以观其徼。")
    one = example(
        kind="garbled",
        position=60,
        length=9,
        asked=RequestRow(0, "kings", "道可道" * 40, np.array([1])),
        baseline=stream("cpu/base", chinese, 60),
        candidate=stream("cpu/mtp", chinese[:60], 60),
    )
    text = show(summary(examples=[one]))
    assert ">>(end)<<" in text
    assert all(cell_width(line) <= 80 or "/" in line for line in text.splitlines())


def test_a_stored_finding_has_the_number_that_other_commands_take() -> None:
    stored = replace(example(), id=42)
    assert "\nfinding 42: unjustified in cpu/mtp" in show(summary(examples=[stored]))
    assert "\n1. unjustified in cpu/mtp" in show(summary())


def test_it_says_why_this_is_no_rounding() -> None:
    lines = [line.strip() for line in show(summary()).splitlines()]
    assert "9.30 nats below the best; up to 0.25 passes as rounding" in lines


@pytest.mark.parametrize("width", [40, 60, 72, 80, 120])
def test_an_arm_keeps_its_name_at_every_width(width: int) -> None:
    text = show(summary(), width)
    table = text[text.index("completions") : text.index("The worst")]
    assert "cpu/base" in table
    assert "cpu/mtp" in table
    assert "87% (2.74)" in table


def test_a_failure_is_said_once_and_its_log_line_by_line() -> None:
    message = verbatim("cpu/mtp: the engine failed\nthe end of the log:\n  Traceback\n  ValueError: \x1b[2J")
    arms = [arm_case(BASE, tally=()), arm_case(MTP, corrupt=False, tally=(), verdict=None, message=message)]
    text = show(summary(verdict="ERROR", status="failed", reasons=(), arms=arms, examples=[], message=message))
    assert text.count("the engine failed") == 1
    assert "\n    Traceback\n" in text
    assert "\x1b" not in text


def test_without_a_tokenizer_the_ids_are_shown() -> None:
    text = show(summary(model_path=None))
    assert ">>[" in text
    assert "logprobs: [" in text


def test_a_run_without_a_verdict_says_how_to_finish_it() -> None:
    text = show(summary(verdict=None, status="interrupted", reasons=(), examples=[], message=verbatim("interrupted")))
    assert text.startswith("INTERRUPTED  no verdict yet")
    assert "parity run --resume 20260101-000000-abcd" in text


@pytest.mark.parametrize("verdict", ["PASS", "DIVERGED", "INCONCLUSIVE"])
def test_next_steps_name_only_commands_that_exist(verdict: str) -> None:
    import re

    from click.testing import CliRunner

    from parity.cli.main import cli

    steps = [str(step) for step in next_steps(summary(verdict=verdict))]
    assert steps
    commands = [c for step in steps for c in re.findall(r"`parity ([^`]*)`", step)]
    assert commands or verdict == "INCONCLUSIVE"
    for command in commands:
        words = command.split()
        path = [word for word in words if re.fullmatch("[a-z]+", word)]
        text = CliRunner().invoke(cli, [*path, "--help"])
        assert text.exit_code == 0, command
        for option in (word for word in words if word.startswith("-")):
            assert option in text.stdout, command


@pytest.mark.parametrize("verdict", ["PASS", "DIVERGED"])
def test_a_recording_is_asked_for_no_more_than_it_has(verdict: str) -> None:
    """It has its rounds and answers nothing new: more rounds, or a smaller plan, are no next step."""
    view = summary(verdict=verdict)
    recorded = replace(view, arms=(replace(view.arms[0], backend="replay"), *view.arms[1:]))
    steps = " ".join(str(step) for step in next_steps(recorded))
    assert "parity run …" in " ".join(str(step) for step in next_steps(view))
    assert "parity run …" not in steps
    assert "parity reduce" not in steps
    assert ("made with `--rounds" if verdict == "PASS" else "the same command again") in steps


NEAR_TIES = Path(__file__).resolve().parents[3] / "reports" / "near-ties" / "captures"


def test_a_pass_of_a_real_engine_fits_one_screen() -> None:
    """25 lines of 80 columns: the verdict, what it means, what was compared, what to do next."""
    arms = [parity.read_capture(NEAR_TIES / f"cpu-{name}.jsonl.gz") for name in ("base", "mtp")]
    view = parity.compare(*arms, scores=NEAR_TIES / "scores.jsonl.gz", model=MODEL).view
    text = show(view, brief=True)
    lines = text.splitlines()
    assert len(lines) <= 25
    assert max(map(cell_width, lines)) <= 80
    assert lines[0] == "PASS  16 completions, 4 part at near-ties, none is corrupt"
    for wanted in ("no fault", "could have been missed", "cpu/mtp", ">>per<<", "What to do next:", "`--details`"):
        assert wanted in text
    assert "numerics wrong everywhere show from" in text
    whole = show(view)
    for figure in ("greedy choices", "mean shift", "logprobs:"):
        assert figure in whole
        assert figure not in text


@pytest.mark.parametrize("verdict", ["DIVERGED", "INCONCLUSIVE", "ERROR"])
def test_only_a_pass_is_brief(verdict: str) -> None:
    assert show(summary(verdict=verdict), brief=True) == show(summary(verdict=verdict))


# --------------------------------------------------------------------------- text


@settings(deadline=None)
@given(st.text())
def test_visible_text_has_nothing_that_acts(text: str) -> None:
    import unicodedata

    shown = visible(text)
    bad = [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Co", "Zl", "Zp")]
    assert not bad
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\ufeff\u061c")


def test_visible_keeps_ordinary_text() -> None:
    for text in ("plain", "你好，世界", "naïve café", "emoji 🙂", "a\u0301", "עברית", "العربية"):
        assert visible(text) == text
    assert visible("a\tb\nc\x1b[31m") == r"a\tb\nc\x1b[31m"
    assert visible("a\nb\x07", keep="\n") == "a\nb\\x07"


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Mn", "Me"]), max_size=60), st.integers(2, 30), st.booleans()
)
def test_clipping_fits(text: str, columns: int, from_end: bool) -> None:
    cut = clip(text, columns, from_end=from_end)
    assert cell_width(cut) <= columns
    assert cut == text or "…" in cut


@settings(deadline=None)
@given(st.lists(st.integers(-5, 2100), max_size=40), st.integers(0, 45), st.integers(20, 120))
def test_any_token_can_be_marked(tokens: list[int], position: int, columns: int) -> None:
    marked = TOKENS.marked(np.array(tokens, dtype=np.int64), position, columns)
    assert cell_width(marked) <= columns
    assert marked.count(">>") >= 1
    assert visible(marked) == marked


def test_commands_name_a_database_that_is_not_the_usual_one() -> None:
    usual, other = summary(verdict="DIVERGED"), summary(verdict="DIVERGED", database="/data/my runs.db")
    assert "--db" not in " ".join(map(str, next_steps(usual)))
    steps = " ".join(map(str, next_steps(other)))
    for command in ("tui", "runs show", "reduce --run", "report"):
        assert f"`parity {command} 20260101-000000-abcd --db '/data/my runs.db'" in steps
