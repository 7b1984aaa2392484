"""A result in a notebook: short, shown, stored, reported; captures of what an engine returned there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lxml import html as lxml_html
from support.captures import TEXT, capture, completion, written

import parity
from parity.errors import ParityError
from parity.store import Store


@pytest.fixture
def result(tmp_path: Path) -> parity.Result:
    rows = [completion(TEXT, f"p{at}", text=f"<b>said {at}</b>") for at in range(64)]
    base, other = capture("cpu/base", *rows), capture("cpu/mtp", *rows[1:])
    return parity.compare(written(tmp_path / "a.jsonl", base), written(tmp_path / "b.jsonl", other))


def test_a_cell_shows_a_line_and_no_megabytes(result: parity.Result) -> None:
    assert repr(result).startswith("<parity.Result DIVERGED: cpu/mtp compared with cpu/base, 64 completions, missing")
    assert len(repr(result)) < 200
    assert len(repr(result.baseline)) < 100


def test_a_result_is_neither_true_nor_false(result: parity.Result) -> None:
    with pytest.raises(TypeError, match=r"result\.verdict"):
        bool(result)


def test_it_shows_itself(result: parity.Result) -> None:
    page = lxml_html.fragment_fromstring(result._repr_html_())
    text = page.text_content()
    assert "DIVERGED" in text
    assert [row[0].text for row in page.findall(".//tbody/tr")] == ["cpu/base", "cpu/mtp"]
    assert "<b>said 0</b>" in text, "escaped, not markup"
    assert not page.findall(".//script")


def test_nothing_of_a_capture_moves_the_cursor(tmp_path: Path) -> None:
    moves = "\x1b[2J\u202e"
    rows = [completion(TEXT, f"p{at}") for at in range(64)]
    base, other = capture("cpu/base", *rows), capture(f"cpu/{moves}", *rows[1:])
    found = parity.compare(written(tmp_path / "a.jsonl", base), written(tmp_path / "b.jsonl", other))
    shown = (repr(found), repr(found.candidate), str(found._repr_html_()))
    assert not any(sign in one for one in shown for sign in moves if sign in "\x1b\u202e")
    assert "\\x1b" in repr(found)


def test_rows_have_the_text(result: parity.Result) -> None:
    (row,) = result.to_rows()
    assert (row["baseline_text"], row["candidate_text"]) == ("<b>said 0</b>", None)
    assert result.completion_rows()[0]["text"] == "<b>said 1</b>"


def test_it_becomes_a_report_and_a_run(result: parity.Result, tmp_path: Path) -> None:
    assert result.report().startswith("# [Bug]: ")
    assert result.report("github").startswith("## parity: ❌ DIVERGED")
    with pytest.raises(ParityError, match="no report format 'docx'"):
        result.report("docx")
    run = result.save(tmp_path / "mine.db")
    with Store.open(tmp_path / "mine.db", create=False) as store:
        assert store.run(run).verdict == "DIVERGED"
        assert "did not come" in parity.write_report(store, run)


# ------------------------------------------------------------------ outputs of an engine, as vLLM's classes are


@dataclass
class Logprob:
    logprob: float


@dataclass
class CompletionOutput:
    index: int
    token_ids: tuple[int, ...]
    text: str = "x"
    logprobs: Any = None
    finish_reason: str = "length"
    stop_reason: Any = None


@dataclass
class RequestOutput:
    outputs: list[CompletionOutput]
    request_id: str = "17"
    prompt_token_ids: list[int] = field(default_factory=lambda: [1, 2])


@dataclass
class SamplingParams:
    temperature: float = 0.0
    max_tokens: int = 2
    n: int = 1
    stop: list[str] = field(default_factory=list)


def test_what_an_engine_returned_is_a_capture() -> None:
    def outputs(*tokens: int) -> list[RequestOutput]:
        best = [token if token != 9 else 6 for token in tokens]  # 9 is nowhere the best
        listed = [{one: Logprob(-0.1), 9: Logprob(-3.0)} for one in best]
        return [RequestOutput([CompletionOutput(0, tokens, logprobs=listed)]) for _ in range(2)]

    def made(arm: str, *tokens: int) -> Any:
        return parity.capture_from_outputs(
            outputs(*tokens), arm, sampling=SamplingParams(), versions={"vllm": "0.32.0"}
        )

    base = made("cuda/base", 5, 6)
    assert [one.key for one in base] == [parity.Key("p0", 0, 0), parity.Key("p1", 0, 0)]
    assert (base.header.backend, base.header.sampling["max_tokens"]) == ("cuda", 2)
    assert "stop" not in base.header.sampling
    assert parity.compare(base, made("cuda/mtp", 5, 6)).verdict == "PASS"
    found = parity.compare(base, made("cuda/mtp", 5, 9))
    assert found.verdict == "DIVERGED", found.reasons
    found = parity.compare(base, made("cuda/mtp", 5, 7))  # each list holds its own token for the best
    assert found.verdict == "INCONCLUSIVE", found.reasons


def test_what_is_no_output_is_named() -> None:
    with pytest.raises(ParityError, match=r"output p0 is not one of `LLM\.generate`"):
        parity.capture_from_outputs(["text"], "cuda/base", sampling={})
