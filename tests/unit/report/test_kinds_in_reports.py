"""What reports say of findings that are not about tokens is true of them: read as the one who gets the report."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lxml import html as lxml_html
from rich.console import Console
from support.captures import TEXT, capture, completion

from parity.comparator import compare
from parity.records import Completion, TopLogprobs
from parity.report.advice import next_steps
from parity.report.format import Wanted
from parity.report.formats import md
from parity.report.formats.html import html_report
from parity.report.terminal import print_summary
from parity.report.texts import Texts
from parity.view import RunView
from parity.view.captures import of_captures

ROUNDING = "tokens that rounding does not explain"


def seen(base: Iterable[Completion], candidate: Iterable[Completion], **sampling: object) -> RunView:
    left, right = capture("cpu/base", *base, **sampling), capture("cpu/mtp", *candidate, **sampling)
    return of_captures([left, right], {"cpu/mtp": compare(left, right)})


def reported(view: RunView) -> str:
    (report,) = md.bug_reports(view, Wanted(Texts(), target="vllm"))
    return report.markdown


def terminal(view: RunView) -> str:
    out = io.StringIO()
    print_summary(Console(file=out, width=100), view)
    return out.getvalue()


def page(view: RunView) -> Any:
    return lxml_html.document_fromstring(html_report(view))


def cards(view: RunView) -> list[str]:
    """What the page says of each finding."""
    return [one.text_content() for one in page(view).findall(".//article")]


def rows(count: int = 8, **changes: object) -> list[Completion]:
    return [completion(TEXT, f"p{at}", **changes) for at in range(count)]


def logprobs(first: float) -> TopLogprobs:
    return TopLogprobs.from_json([[[token, first if at == 4 else -0.2]] for at, token in enumerate(TEXT)])


def section(report: str, heading: str) -> str:
    return report.split(f"#### {heading}\n", 1)[1].split("\n#### ", 1)[0]


def test_completions_that_never_came() -> None:
    view = seen(rows(), rows()[3:])
    report, shown = reported(view), terminal(view)
    assert "3 of 8 completions did not come" in report
    assert ROUNDING not in report
    assert "did not return this completion" in section(report, "Actual")
    assert "did not return this completion" in cards(view)[0]
    assert "3 of 8 completions did not come" in page(view).text_content()
    assert "What the reference thinks" not in report
    arm = next(one for one in view.arms if one.name == "cpu/mtp")
    assert (arm.completions, arm.total, arm.faulty) == (5, 8, 3)
    assert arm.corrupt_interval is not None
    assert arm.corrupt_interval[0] > 0
    row = next(line for line in shown.splitlines() if line.startswith("cpu/mtp "))
    assert row.split()[1:5] == ["5", "5", "0", "3"]
    assert "could have been missed" not in shown


def test_arms_that_were_asked_different_things() -> None:
    other = [completion(TEXT, f"p{at}", prompt=(1, 7, 3, 4)) for at in range(2)]
    view = seen(rows(), [*other, *rows()[2:]])
    report, shown = reported(view), terminal(view)
    assert ROUNDING not in report
    assert "2 of 8 completions answer another question than the baseline's" in report
    assert ", asked the same, is the baseline" not in report
    assert "ran the same prompts" not in report
    assert "- Rate:" not in report
    assert "are affected" not in report
    asked = section(report, "What was asked")
    assert "asked with 3 prompt tokens" in asked
    assert "asked with 4 prompt tokens" in asked
    assert "1 2 3" in asked
    assert "1 7 3 4" in asked
    assert "#### Expected" not in report
    assert "#### Actual" not in report
    assert "no engine need run for that" in section(report, "Minimal reproduction")
    (document,) = md.FORMAT.write(view, Wanted(Texts(), target="vllm"))
    said = " ".join(map(str, document.advice))
    assert "nothing to file" in said
    assert "issues/new" not in said
    assert ">>[2]<<" in shown
    assert ">>[7]<<" in shown
    (card,) = cards(view)[:1]
    assert "another question than the baseline's" in page(view).text_content()
    assert "asked with 3 prompt tokens" in card
    assert "1 7 3 4" in card
    assert "Expected" not in card
    assert "-k 1" not in shown


def test_a_logprob_that_is_no_number() -> None:
    view = seen(rows(logprobs=logprobs(-0.2)), [*rows(1, logprobs=logprobs(float("nan"))), *rows()[1:]])
    report, shown = reported(view), terminal(view)
    assert ROUNDING not in report
    assert "1 of 8 completions came with logprobs that are wrong" in report
    assert "not a number" in cards(view)[0]
    table = section(report, "What shows it")
    assert "| `cpu/mtp` | not listed, or not a number |" in table
    assert "| expected |" not in table, "nobody scored it"
    assert "rests on the tokens alone" not in report
    assert "logprob of that token: not listed, or not a number" in shown


def test_a_text_that_is_not_that_of_its_tokens() -> None:
    said = "in the beginning was the word and it was good"
    view = seen(rows(text=said), [*rows(1, text=said.replace("word", "worm")), *rows(text=said)[1:]])
    report, shown = reported(view), terminal(view)
    assert ROUNDING not in report
    assert "1 of 8 completions came with another text than that of the tokens" in report
    assert "was the word" in section(report, "Expected")
    assert "was the worm" in section(report, "Actual")
    columns = page(view).findall(".//article")[0].findall(".//div[@class='sides']/section")
    assert ["was the word" in one.text_content() for one in columns] == [True, False]
    assert ["was the worm" in one.text_content() for one in columns] == [False, True]
    assert "was the word" in shown
    assert "was the worm" in shown


def test_a_sample_that_is_another_one_again() -> None:
    def drawn(seed: int, twice: bool) -> list[Completion]:
        chosen = np.random.default_rng(seed).integers(0, 900, (16, 60))
        return [
            completion(chosen[2 * at if twice else 2 * at + sample].tolist(), f"p{at}", sample=sample)
            for at in range(8)
            for sample in range(2)
        ]

    view = seen(drawn(1, False), drawn(2, True), temperature=1.0, n=2)
    report = reported(view)
    assert "8 of 16 completions are the same as another sample; the run as a whole is not" in report
    assert "nothing draws" not in report
    assert "#### Expected" not in report, "another draw is not what was expected"
    assert "sample 0" in section(report, "What shows it")


@pytest.mark.parametrize(("source", "offered"), [("run", True), ("compare", False)])
def test_a_smaller_plan_is_offered_only_where_there_is_a_plan(source: str, offered: bool) -> None:
    """`parity reduce --run` runs a plan again; captures from elsewhere have none."""
    view = seen(rows(logprobs=logprobs(-0.2)), [*rows(1, logprobs=logprobs(float("nan"))), *rows()[1:]])
    stored = replace(view, run=replace(view.run, id="run-1", source=source))
    assert any("parity reduce --run run-1" in str(one) for one in next_steps(stored)) == offered
