"""The first screen of a bug report, as a maintainer reads it: what, how often, what switches it off, how to see it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of
from support.captures import TEXT, capture, completion

from parity.comparator import compare
from parity.messages import Message
from parity.records.control import DRAFTER_WRONG
from parity.report.facts import controls
from parity.report.finding_lines import finding_lines
from parity.report.first_screen import points
from parity.report.format import Wanted
from parity.report.formats.md import FORMAT, bug_reports
from parity.report.minimal import LINES, minimal_script, serve_line
from parity.report.repro import repro_of, repro_script
from parity.report.texts import Texts
from parity.store import RequestRow
from parity.view import RunView
from parity.view.captures import of_captures

MODEL = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def described(view: RunView, target: str | None = "vllm") -> str:
    return bug_reports(view, Wanted(Texts(), target))[0].fields["🐛 Describe the bug"]


def lengths(*of: int) -> list[RequestRow]:
    return [RequestRow(at, f"p{at}", None, np.arange(1, length + 1)) for at, length in enumerate(of)]


def test_what_is_wrong_how_often_and_what_switches_it_off_stand_before_the_example() -> None:
    findings = [finding_case(request="p0"), finding_case(request="p2")]
    arms = [
        arm_case(BASE, config="k=0"),
        arm_case(MTP, config="k=2, async=true"),
        arm_case("cpu/sync", corrupt=False, config="k=2, async=false"),
        arm_case("cpu/k1", corrupt=False, config="k=1, async=false"),
    ]
    view = make_case(arms=arms, findings=findings, requests=lengths(1, 4, 1, 7))
    text = described(view)
    first = text[: text.index("Prompt:")]
    lines = [line for line in first.splitlines() if line]
    assert "1 of 2 completions holds tokens that rounding does not explain" in lines[0]
    points = [line for line in lines if line.startswith("- ")]
    assert "every corrupt request has a prompt of 1 tokens" in points[0].replace("1 token:", "1 tokens:")
    assert "2 of the 2 requests" in points[0]
    assert points[1].startswith("- Rate: 50.0%, 1 of 2 completions (95 %: ")
    assert points[2].startswith("- Not with `async=false`: `cpu/sync`"), "fewest settings first"
    assert points[3].startswith("- Not with `k=1`, `async=false`: `cpu/k1`")
    assert "python repro.py" in points[4]
    assert "#### Not checked" not in text.split("<summary>How it was judged")[0]
    assert "#### Known reports" not in text.split("<summary>How it was judged")[0]


def test_a_drafter_that_is_wrong_is_said_and_of_a_control_that_it_was_found() -> None:
    note = Message(DRAFTER_WRONG, "in 3 of 9 completions the drafter went wrong")
    planted = arm_case("cpu/mtp-control-drafter_off", corrupt=False, control="drafter_off", notes=(note,))
    missed = arm_case("cpu/mtp-control-loop", corrupt=False, control="loop")
    arms = [arm_case(BASE), arm_case(MTP, notes=(note,)), planted, missed]
    view = make_case(arms=arms, findings=[finding_case()])
    assert list(points(view))[-1] == note
    assert note not in list(points(make_case(arms=[arm_case(BASE), arm_case(MTP), planted], findings=[finding_case()])))
    said = [str(one) for one in controls(view)]
    assert [one for one in said if "drafter_off" in one and "found: in 3 of 9 completions" in one]
    assert [one for one in said if "mtp-control-loop" in one and "*not* found" in one]
    assert not [one for one in said if "drafter_off" in one and "*not* found" in one]


def test_the_title_names_the_one_kind_that_matters() -> None:
    """The heaviest finding's, not the three most frequent."""
    arm = replace(arm_case(MTP), corrupt={"repetition": 9, "garbled": 1, "unjustified": 3})
    title = bug_reports(make_case(arms=[arm_case(BASE), arm]), Wanted(Texts(), "vllm"))[0].title
    assert title.startswith("[Bug]: garbled text, among 1 corrupt of 2 completions with cpu/mtp (")


def test_the_first_step_that_broke_is_the_earliest_not_the_worst() -> None:
    def broken(step: int) -> dict[str, Any]:
        return {"invariant": "advance", "step": step, "row": 1, "expected": 2, "found": 3}

    steps = (14, 2, 7)
    findings = [
        finding_case(request=f"p{step}", kind="violation", id=step, fingerprint=f"{step:020}", evidence=broken(step))
        for step in steps
    ]
    arm = replace(arm_case(MTP), corrupt={"violation": len(steps)})
    text = described(make_case(arms=[arm_case(BASE), arm], findings=findings))
    (line,) = (line for line in text.splitlines() if "The first step that broke" in line)
    assert "`p2 round 0 sample 0`" in line


# ------------------------------------------------------------------ the short script

ENGINE = """
import sys, types
ANSWERS = {answers}
class Params:
    def __init__(self, **given): assert given["temperature"] == 0.0, given
class One:
    def __init__(self, ids): self.token_ids, self.text = ids, str(ids)
class Out:
    def __init__(self, answers): self.outputs = [One(ids) for ids in answers]
class LLM:
    def __init__(self, model, **settings):
        assert settings["speculative_config"]["num_speculative_tokens"] == 2, settings
    def generate(self, prompts, params):
        assert len(prompts) == len(ANSWERS)
        return [Out(answers) for answers in ANSWERS]
    def get_tokenizer(self): return types.SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
sys.modules["vllm"] = types.SimpleNamespace(LLM=LLM, SamplingParams=Params)
"""


def run_script(script: str, *answers: list[list[int]]) -> tuple[int, str]:
    """With an engine that gives these completions of each prompt."""
    source = ENGINE.replace("{answers}", json.dumps(answers)) + script
    done = subprocess.run([sys.executable, "-"], input=source, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.fixture
def view() -> RunView:
    return make_case(run=run_of(model=MODEL))


def test_the_short_script_shows_both_texts_and_fails_where_the_fault_is(view: RunView) -> None:
    script = minimal_script(view, view.findings[0])
    assert script is not None
    assert script.count("\n") <= LINES == 30
    assert "from vllm import LLM, SamplingParams" in script
    assert "PARITY" not in script
    assert f"'{MODEL}'" in script
    code, said = run_script(script, [[5, 6, 99, 98, 9, 10]], [[1]])
    assert (code, said) == (1, "expected: '5 6 7 8 9 10'\nactual:   '5 6 99 98 9 10'\n")
    assert run_script(script, [[5, 6, 7, 8, 9, 10]], [[1]])[0] == 0
    assert run_script(script, [[5, 6]], [[1]])[0] == 1, "it ended there"
    assert run_script(script, [[5, 4, 99, 8, 9, 10]], [[1]])[0] == 0, "another difference is another question"
    text = described(view)
    assert text.index("LLM(") < text.index("<code>repro.py</code>")
    assert "vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct" in text


def test_a_token_that_the_reference_supports_is_no_fault(view: RunView) -> None:
    """8 is 0.1 nats below the best one."""
    evidence = {"why": "x", "gap": 7.5, "tolerance": 0.25, "logprobs": {"reference": [[7, -0.1], [8, -0.2]]}}
    finding = finding_case(evidence=evidence)
    script = minimal_script(replace(view, findings=(finding,), chosen=finding), finding)
    assert script is not None
    assert run_script(script, [[5, 6, 8, 8, 9, 10]], [[1]])[0] == 0


def test_a_completion_that_does_not_come(view: RunView) -> None:
    finding = finding_case(kind="missing_completion", position=None, candidate=None, evidence={"why": "x"})
    view = replace(view, run=replace(view.run, samples=2))
    script = minimal_script(view, finding)
    assert script is not None
    assert run_script(script, [[1]], [[1]]) == (1, "asked for 2 completions of this prompt, got 1\n['[1]']\n")
    assert run_script(script, [[1], [2]], [[1]])[0] == 0


def test_what_thirty_lines_cannot_show_has_no_short_script(view: RunView) -> None:
    finding = view.findings[0]
    large = tuple(RequestRow(at, f"p{at}", None, np.arange(1, 400)) for at in range(20))
    assert minimal_script(replace(view, requests=large), finding) is None
    assert minimal_script(replace(view, run=run_of(sampling={"temperature": 1.0})), finding) is None
    early = replace(finding, candidate=structs.replace(finding.candidate, first_divergence=1))
    assert minimal_script(view, early) is None
    nobody = finding.key._replace(request="of nobody")  # as a database of others may say
    assert minimal_script(view, replace(finding, key=nobody)) is None


def test_the_server_is_the_same_engine(view: RunView) -> None:
    line = serve_line(view, view.arms[1])
    assert line is not None
    assert "--max-num-seqs 4" in line
    assert """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'""" in line


# ------------------------------------------------------------------ captures that parity did not make


def own(versions: dict[str, str] | None = None, **engine: Any) -> RunView:
    """Two captures of somebody's own program, with a finding."""

    def made(arm: str, *requests: str) -> Any:
        one = capture(arm, *(completion(TEXT, name) for name in requests))
        about = {"versions": versions or {}}
        return replace(one, header=replace(one.header, environment=about, engine=engine))

    base, other = made("mine/base", "p0", "p1"), made("mine/broken", "p0")
    return of_captures([base, other], {"mine/broken": compare(base, other)})


def test_no_vllm_is_named_where_there_is_none() -> None:
    view = own({"transformers": "5.1.0"})
    assert view.projects == []
    (report,) = bug_reports(view, Wanted(Texts()))
    assert report.title.endswith("transformers 5.1.0)")
    assert "vllm" not in report.markdown.split("<details>\n<summary>How it was judged")[0].lower().replace(
        "nothing says that mine/broken is vllm", ""
    )
    (document,) = FORMAT.write(view, Wanted(Texts()))
    said = " ".join(map(str, document.advice))
    assert "issues/new" not in said
    assert "whoever makes that engine" in said
    script, why = repro_of(view)
    assert script is None
    assert isinstance(why, Message)
    assert "nothing says that mine/broken is vLLM" in str(why)


def test_settings_that_nobody_wrote_down_are_said_to_be_unknown(tmp_path: Path) -> None:
    view = own({"vllm": "0.32.0"}, max_num_seqs=8)
    assert view.projects == ["vllm"]
    finding = view.chosen
    assert finding is not None
    script = repro_script(view, finding)
    ast.parse(script)
    assert "Not known from the capture, so vLLM's defaults run: " in script
    assert "does not name these settings, so vLLM's defaults run" in described(view)
    assert "`max_num_seqs`" not in described(view).split("vLLM's defaults run:")[1].split("\n")[0]
    assert "`max_num_batched_tokens`" in described(view).split("vLLM's defaults run:")[1].split("\n")[0]


def conditions(view: RunView) -> list[str]:
    lines = described(view).split("Prompt:")[0].splitlines()
    return [line.removeprefix("- Common condition: ") for line in lines if "Common condition" in line]


def test_what_corrupt_requests_have_in_common_is_named_where_it_is_no_chance() -> None:
    """Long prompts, short ones, one output token, the start of a block; nothing where it may well be chance."""
    of = [3] * 12 + [40, 44, 48, 53, 60, 71]
    arms = [arm_case(BASE), arm_case(MTP)]

    def named(corrupt: dict[int, int], requests: list[int]) -> list[str]:
        findings = [finding_case(request=f"p{at}", position=place) for at, place in corrupt.items()]
        return conditions(make_case(arms=arms, findings=findings, requests=lengths(*requests), classes={}))

    long = named({12: 4, 13: 5, 14: 1, 15: 2, 16: 2, 17: 9}, of)
    assert ["a prompt of 40 tokens or more: 6 of the 6" in line for line in long] == [True]
    short = named(dict(enumerate((4, 5, 1, 2, 2, 9))), [3, 4, 5, 6, 7, 8] + [30] * 12)
    assert ["a prompt of at most 8 tokens: 6 of the 6" in line for line in short] == [True]
    assert named({12: 4, 13: 5}, of) == [], "two of six: chance"
    mixed = {0: 3, 5: 3, 13: 3}
    assert ["all 3 corrupt completions first go wrong at output token 3" in line for line in named(mixed, of)] == [True]
    blocks = {0: 13, 1: 29, 12: 8, 14: 16}
    assert ["the start of a block of 16 tokens" in line for line in named(blocks, of)] == [True]
    assert named({0: 13, 1: 29, 12: 8, 14: 17}, of) == []


def test_what_the_tokens_leave_open_is_said_wherever_a_finding_is() -> None:
    left_open = "the text of p9 explains them as well"
    leak = {
        "donor_request": "p5", "donor_part": "prompt", "donor_start": 0, "donor_end": 16, "expected_by_chance": 1e-9,
        "requests_with_this_span": 2, "gap": 7.5,
    }  # fmt: skip
    evidence = {**leak, "why": "16 tokens are those of p5", "ambiguous": left_open}
    found = finding_case(kind="row_leak", evidence=evidence)
    view = make_case(findings=[found], chosen=found)
    assert str(found.why) == f"16 tokens are those of p5; {left_open}"
    surfaces = ("annotations", "github", "html", "junit", "md", "sarif")
    for name in surfaces:
        module = import_module(f"parity.report.formats.{name}")
        (document, *_) = module.FORMAT.write(view, Wanted(Texts()))
        assert left_open in document.text, name
    assert left_open in "\n".join(finding_lines(1, found, BASE, view.text, 100))
