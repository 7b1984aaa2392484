"""The example cases in reports/: complete, without private paths, and true when compared again."""

from __future__ import annotations

import ast
import gzip
import re
from pathlib import Path

import pytest
from lxml import html as lxml_html

import parity
from parity.capture import check_capture, read_capture, read_scores
from parity.capture.steps import read_steps
from parity.records import Kind
from parity.view.far_logprobs import far_logprobs
from parity.view.why import explained, explained_by_logprobs

REPORTS = Path(__file__).resolve().parents[3] / "reports"
CASES = {
    # folder: (candidate's capture, verdict, kinds that must be among the findings)
    "planted-chunk-twice": ("cpu-mtp-control-chunk_twice", "DIVERGED", {Kind.DUPLICATION}),
    "near-ties": ("cpu-mtp", "PASS", {Kind.NEAR_TIE}),
    "h200-near-ties": ("cuda-mtp", "PASS", {Kind.NEAR_TIE}),
    "h200-async-race": ("replay-h200", "DIVERGED", {Kind.VIOLATION, Kind.UNJUSTIFIED}),
    "h200-second-runner": ("cuda-v2", "DIVERGED", {Kind.NUMERICS, Kind.UNJUSTIFIED, Kind.VIOLATION}),
    "one-token-prompt": ("cpu-mtp", "DIVERGED", {Kind.VIOLATION}),
    "async-mla": ("cpu-v2-mtp", "DIVERGED", {Kind.VIOLATION}),
    "sampled-mtp-cpu": ("cpu-mtp", "DIVERGED", set()),
    "emulated-ngram-hybrid": ("ascend-emulated-ngram", "DIVERGED", {Kind.VIOLATION}),
    "emulated-prompt-pieces": ("ascend-emulated-mtp", "DIVERGED", {Kind.VIOLATION, Kind.UNJUSTIFIED}),
}
SCRIPTS = {"emulated-block-size", "emulated-top-p"}  # a script, and nothing captured
NO_SCRIPT = {"h200-async-race"}  # a race that comes once in a thousand completions
LONG = {"h200-second-runner"}  # a script too long for an issue
BY_HAND = {"sampled-mtp-cpu", "async-mla"}  # parity writes no script for random sampling, nor where no token differs


EMULATED = {name for name in CASES if name.startswith("emulated-")}
ENGINES = dict.fromkeys(EMULATED, "vllm-ascend 0.23.0") | dict.fromkeys(
    ("h200-near-ties", "h200-async-race", "h200-second-runner"), "vllm 0.23.0"
)
"""Where it is not vLLM 0.32.0."""


def compared(name: str, candidate: str) -> parity.Result:
    captures = REPORTS / name / "captures"
    (baseline,) = captures.glob("*-base.jsonl.gz")
    return parity.compare(baseline, captures / f"{candidate}.jsonl.gz", scores=captures / "scores.jsonl.gz")


def test_every_folder_is_a_case_and_is_listed() -> None:
    folders = {path.name for path in REPORTS.iterdir() if path.is_dir()}
    assert folders == set(CASES) | SCRIPTS
    listed = (REPORTS / "README.md").read_text(encoding="utf-8")
    regenerate = (REPORTS / "regenerate.sh").read_text(encoding="utf-8")
    for name in SCRIPTS:
        assert f"({name}/README.md)" in listed
        ast.parse((REPORTS / name / "repro.py").read_text(encoding="utf-8"))
    for name in CASES:
        assert f"({name}/README.md)" in listed
        assert f"{name})" in regenerate


@pytest.mark.parametrize("name", CASES)
def test_the_captures_give_the_verdict_again(name: str) -> None:
    candidate, verdict, kinds = CASES[name]
    result = compared(name, candidate)
    assert result.verdict == verdict
    assert kinds <= {finding.kind for finding in result.findings}
    for path in (REPORTS / name / "captures").glob("*-*.jsonl.gz"):
        assert check_capture(path) == []


def test_the_recorded_steps_name_the_condition_of_the_one_token_prompts() -> None:
    """Each of them is a new request with drafts that no drafter made."""
    folder = REPORTS / "one-token-prompt" / "captures"
    steps = read_steps(folder / "cpu-mtp.steps")
    capture = read_capture(folder / "cpu-mtp.jsonl.gz")
    found = explained("cpu/mtp", steps, {one.key: one.prompt_token_ids for one in capture}, {}).associated
    assert (found.faults, found.sure) == (6, True)
    assert "drafts padded" in {name for names in (found.ranked[0].names, *found.ranked[0].same) for name in names}
    assert found.ranked[0].with_fault == found.faults
    report = (folder.parent / "report.md").read_text(encoding="utf-8")
    assert "6 of 6: it has drafts that nothing proposed" in report


def test_the_recorded_steps_name_the_condition_of_lengths_that_are_too_long() -> None:
    """Each comes after a rejected draft."""
    folder = REPORTS / "async-mla" / "captures"
    steps = read_steps(folder / "cpu-v2-mtp.steps")
    capture = read_capture(folder / "cpu-v2-mtp.jsonl.gz")
    found = explained("cpu-v2/mtp", steps, {one.key: one.prompt_token_ids for one in capture}, {}).associated
    assert (found.faults, found.sure) == (9, True)
    assert found.ranked[0].with_fault == found.faults
    assert found.ranked[0].adjusted < 1e-10
    report = (folder.parent / "report.md").read_text(encoding="utf-8")
    assert "9 of 9: a draft of it was rejected in its last step" in report
    assert "left no trace in the tokens" in report


def test_the_recorded_steps_of_a_gpu_name_the_race_and_its_report() -> None:
    """Each of the four has the count of the request that had its row before: what vllm#45100 is about."""
    folder = REPORTS / "h200-async-race" / "captures"
    steps = read_steps(folder / "replay-h200.steps")
    found = explained("replay/h200", steps, {}, {}).associated
    assert (found.faults, found.ranked[0].with_fault) == (4, 4)
    named = {name for names in (found.ranked[0].names, *found.ranked[0].same) for name in names}
    assert {"first decode", "taken over"} <= named
    report = (folder.parent / "report.md").read_text(encoding="utf-8")
    assert "4 of 111471 row-steps broke" in report
    assert "[vllm#45100]" in report


def test_the_recorded_steps_of_a_gpu_name_the_condition_of_wrong_numbers() -> None:
    """They come where a short piece of a prompt is sorted before rows with drafts: what vllm#51812 mends."""
    folder = REPORTS / "h200-second-runner" / "captures"
    base, candidate = read_capture(folder / "cuda-base.jsonl.gz"), read_capture(folder / "cuda-v2.jsonl.gz")
    far = far_logprobs(candidate, base, read_scores(folder / "scores.jsonl.gz"))
    prompts = {one.key: one.prompt_token_ids for one in candidate}
    found = explained_by_logprobs("cuda/v2", read_steps(folder / "cuda-v2.steps"), prompts, far).associated
    assert (found.faults, found.ranked[0].with_fault) == (350, 306)
    assert "short piece beside" in found.ranked[0].names
    report = (folder.parent / "report.md").read_text(encoding="utf-8")
    # As its run wrote it, when only the step just before was left out.
    assert "402 of 502: it decodes while another row computes a prompt" in report
    assert "[vllm#51812]" in report


def test_the_recorded_steps_name_the_condition_of_n_gram_drafts_on_a_hybrid_model() -> None:
    """Each of the eight has a row that emitted more than one token in its last step and has no drafts now."""
    folder = REPORTS / "emulated-ngram-hybrid" / "captures"
    steps = read_steps(folder / "ascend-emulated-ngram.steps")
    capture = read_capture(folder / "ascend-emulated-ngram.jsonl.gz")
    found = explained("ascend-emulated/ngram", steps, {one.key: one.prompt_token_ids for one in capture}, {}).associated
    assert (found.faults, found.sure) == (8, True)
    assert found.ranked[0].with_fault == found.faults
    assert found.ranked[0].names == ("emitted more last",)
    assert found.ranked[0].adjusted < 1e-7


def test_the_recorded_steps_name_the_condition_of_prompts_in_pieces() -> None:
    """Three of the four have a second piece of k + 1 tokens, which is taken for accepted drafts."""
    folder = REPORTS / "emulated-prompt-pieces" / "captures"
    steps = read_steps(folder / "ascend-emulated-mtp.steps")
    capture = read_capture(folder / "ascend-emulated-mtp.jsonl.gz")
    found = explained("ascend-emulated/mtp", steps, {one.key: one.prompt_token_ids for one in capture}, {}).associated
    assert found.faults == 3
    assert found.ranked[0].with_fault == found.faults
    assert found.ranked[0].names == ("chunked",)


@pytest.mark.parametrize("name", CASES)
def test_the_report_says_what_the_captures_say(name: str) -> None:
    candidate, verdict, _ = CASES[name]
    result = compared(name, candidate)
    report = (REPORTS / name / "report.md").read_text(encoding="utf-8")
    page = lxml_html.parse(str(REPORTS / name / "report.html"))
    assert "### Your current environment" in report
    assert ENGINES.get(name, "vllm 0.32.0") in report
    assert ("emulated NPU" in report) is (name in EMULATED)
    assert page.findtext(".//h1/span") in ("PASS", "DIVERGED")
    assert f"of {len(result.classes)} completions" in report or f"| {len(result.classes)} |" in report
    if verdict == "DIVERGED":
        positions = {finding.position for finding in result.corrupt}
        if positions == {None}:  # about all samples of the run
            assert all(str(finding.evidence.why) in report for finding in result.corrupt)
            return
        shown = re.search(r"at output token (\d+)", report)
        assert shown is not None
        assert int(shown.group(1)) in positions


@pytest.mark.parametrize("name", CASES)
def test_the_reproduction_is_there_and_in_the_report_of_a_fault(name: str) -> None:
    if name in NO_SCRIPT:
        assert "There is no script for this finding" in (REPORTS / name / "report.md").read_text(encoding="utf-8")
        return
    script = (REPORTS / name / "repro.py").read_text(encoding="utf-8")
    ast.parse(script, feature_version=(3, 9))
    in_report = script in (REPORTS / name / "report.md").read_text(encoding="utf-8")
    assert in_report == (CASES[name][1] == "DIVERGED" and name not in BY_HAND | LONG)
    assert (name in BY_HAND) != ("# Written by parity " in script)


@pytest.mark.parametrize("name", CASES)
def test_nothing_private_is_published(name: str) -> None:
    for path in (REPORTS / name).rglob("*"):
        if path.is_dir():
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for found in re.findall(rb"(?<![\w.:/<\xa6])/(?:home|root|work|tmp|usr|opt|Users|mnt)/\S*", data):
            if found == b"/usr/bin/env":  # the first line of the script
                continue
            raise AssertionError(f"{path}: {found!r}")


@pytest.mark.parametrize("name", CASES)
def test_the_folder_says_how_it_is_made_again(name: str) -> None:
    text = (REPORTS / name / "README.md").read_text(encoding="utf-8")
    assert f"regenerate.sh {name}" in text
    assert (REPORTS / name / "prompts.jsonl").is_file()
    assert (REPORTS / name / "plots" / "gaps.svg").is_file()
