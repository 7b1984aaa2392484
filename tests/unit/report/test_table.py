"""The table of an experiment from stores and captures made by hand, with text from anywhere in it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from captures import capture, completion
from plans import rough_plan
from rich.console import Console

from parity.messages import verbatim
from parity.records import Capture, Evidence, Finding, Key, Kind, Severity
from parity.report.table_text import batch_words, markdown, print_table, to_json
from parity.store import ArmComparison, ArmResult, NewRun, Store
from parity.view import RunView, of_captures, of_store
from parity.view.settings import told_apart

HOSTILE = "\x1b[31mred\u202e | `code` <script>\n@someone"
LENGTHS = [5, 6, 31, 63, 100, 512, 512, 512]
REASONS = ["stop", "stop", "stop", "stop", "abort", "length", "length", "length"]


def long_capture(arm: str, **engine: Any) -> Capture:
    completions = [
        completion(range(length), f"p{index % 4}", round=index // 4, finish=reason, text=None if index else HOSTILE)
        for index, (length, reason) in enumerate(zip(LENGTHS, REASONS, strict=True))
    ]
    counters = {
        "generate_seconds": 10.0,
        "engine_start_seconds": 15.0,
        "drafts": 100,
        "draft_tokens": 300,
        "accepted_tokens": 150,
        "batch_sizes": {"1": 10, "64": 30},
        "rows_joined": 5,
        "rows_left": 6,
        "rows_moved": 7,
        "preemptions": 2,
        "aborted": 1,
    }
    return capture(arm, *completions, counters=counters, engine=engine, max_tokens=512)


def test_columns_are_those_of_the_report_on_45100() -> None:
    made = of_captures([long_capture("cuda/mtp", num_speculative_tokens=3)])
    (row,) = made.arms
    assert row.completions == 8
    assert row.shortest_ended == 5
    # The one that was aborted after 100 tokens is not short, nor are those that reached their limit.
    assert row.shorter_than == {32: 3, 64: 4, 128: 4, 256: 4}
    assert row.stops == {"abort": 1, "length": 3, "stop": 4}
    tokens = sum(LENGTHS)
    assert row.tokens == tokens
    assert row.tokens_per_second == tokens / 10
    assert row.tokens_per_second_with_start == tokens / 25
    assert row.acceptance_rate == 0.5
    assert row.acceptance_length == 2.5
    assert row.corrupt_interval is None
    assert "4 requests × 2 rounds = 8 completions" in str(made.question)


def stored(tmp_path: Path) -> RunView:
    with Store.open(tmp_path / "parity.db") as store:
        arms = [
            {"name": name, "backend": "cpu", "variant": name.split("/")[1], "engine": {}}
            for name in ("cpu/k=0", "cpu/k=3")
        ]
        plan = {
            "model": {"name": "tiny"},
            "rounds": 3,
            "sampling": {"n": 1, "max_tokens": 512},
            "requests": [{"id": f"p{i}", "prompt": "x", "prompt_token_ids": [1]} for i in range(4)],
            "arms": arms,
            "baseline": "cpu/k=0",
            "skipped": [{"arm": f"cpu/k={k}", "reason": "no | graphs"} for k in (4, 5)],
            "churn": {"shuffle": True, "seed": 3, "needle": "p1"},
        }
        store.create_run(NewRun("r1", rough_plan(plan), "parity run"))
        for arm in arms:
            made = long_capture(str(arm["name"]))
            store.save_arm("r1", str(arm["name"]), made, "x", ArmResult(dict(made.counters or {}), 100.0, 0.5, 2.5))
        bad = Key("p0", 0, 0)
        finding = Finding("cpu/k=3", "cpu/k=0", *bad, Kind.GARBLED, Severity.CORRUPT, 3, 2, Evidence(why=verbatim("x")))
        stats = {
            "completions": 8,
            "identical": 6,
            "near_tie": 1,
            "corrupt": 1,
            "rates": {"garbled": {"completions": 1, "rate": 0.125, "interval_95": [0.0, 0.5]}},
            "notes": ["a note with a | in it"],
        }
        classes: dict[Key, str] = dict.fromkeys(long_capture("a/b").completions, "identical") | {bad: "corrupt"}
        store.save_comparison(
            "r1", "cpu/k=3", ArmComparison("DIVERGED", ["r"], {"garbled": 1}, stats, classes, {}, [finding])
        )
        return of_store(store, "r1")


def test_a_stored_run(tmp_path: Path) -> None:
    made = stored(tmp_path)
    baseline, row = made.arms
    assert baseline.is_baseline
    assert not row.is_baseline
    assert (row.count("identical"), row.count("corrupt")) == (7, 1)
    assert row.expected == 12
    notes = [str(note) for note in row.remarks]
    assert any("4 of 12 completions are missing" in note for note in notes)
    # p1 has 6 tokens in round 0 and 512 in round 1.
    assert "needle p1: in 0 of 1 round of random batches as it is alone" in notes
    (kind,) = row.kinds
    assert kind.kind == "garbled"
    assert 0.005 < kind.low < 0.125 < kind.high < 0.55
    corrupt = [output for output in made.outputs if output.corrupt]
    assert [(output.arm, output.request, output.tokens) for output in corrupt] == [("cpu/k=3", "p0", 5)]
    assert json.loads(json.dumps(to_json(made)))["rows"][1]["corrupt"] == 1


def test_nothing_hostile_gets_through(tmp_path: Path) -> None:
    made = stored(tmp_path)
    text = markdown(made)
    assert "\x1b" not in text
    assert "\u202e" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    cells = {len(line.replace("\\|", "").split("|")) for line in rows}
    assert len(cells) == 1
    for width in (80, 160):
        out = io.StringIO()
        print_table(Console(file=out, width=width), made)
        shown = out.getvalue()
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert all(len(line) <= width for line in shown.splitlines())
        assert "garbled in 1" in shown
        assert "not run: cpu/k=4 and 1 more: no | graphs" in shown


def test_settings_that_tell_arms_apart() -> None:
    engines: dict[str, Any] = {
        "a": {"async_scheduling": False, "asked": {"async_scheduling": True, "max_num_seqs": 1}, "max_num_seqs": 1},
        "b": {
            "async_scheduling": True,
            "num_speculative_tokens": 3,
            "cudagraph_mode": "PIECEWISE",
            "max_num_seqs": 1,
            "asked": {"compilation_config": {"cudagraph_mode": "FULL"}},
        },
    }
    assert told_apart(engines) == {
        "a": "k=0, async=false, graph=None",
        "b": "k=3, async=true, graph=PIECEWISE",
    }


def test_what_the_batch_did_is_a_line() -> None:
    row = of_captures([long_capture("a/b")]).arms[0]
    assert batch_words(row) == (
        "40 steps of 1 to 64 rows (mean 48.2); rows: 5 joined, 6 left, 7 moved; 1 aborted; 2 preemptions"
    )


def test_an_engine_that_never_started_does_not_make_every_setting_a_difference() -> None:
    def resolved(rows: int) -> dict[str, Any]:
        return {"asked": {"max_num_seqs": rows}, "max_num_seqs": rows, "dtype": "torch.bfloat16", "block_size": 64}

    engines = {"a": resolved(64), "failed": {"max_num_seqs": 0, "dtype": "bfloat16"}, "b": resolved(4)}
    assert told_apart(engines) == {"a": "k=0, seqs=64", "failed": "k=0, seqs=0", "b": "k=0, seqs=4"}
    engines["b"].pop("block_size")
    assert told_apart(engines)["b"] == "k=0, block_size=None, seqs=4"
