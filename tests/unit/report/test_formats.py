"""Every format against its schema, and hostile text in every place of every format."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from lxml import html as lxml_html
from markdown_it import MarkdownIt
from report_data import BASE, KEYS, MTP, arm_case, finding_case, make_case, run_of

from parity.errors import ExitCode
from parity.messages import verbatim
from parity.records import Verdict
from parity.report import escape
from parity.report.format import Wanted
from parity.report.formats.annotations import workflow_commands
from parity.report.formats.github import LARGEST, step_summary
from parity.report.formats.html import html_report
from parity.report.formats.json import json_report, schema
from parity.report.formats.junit import junit_xml
from parity.report.formats.md import bug_reports
from parity.report.formats.sarif import sarif_log
from parity.report.policy import Judgement
from parity.report.texts import Texts
from parity.store import TriageState
from parity.text import visible
from parity.view import RunView

UPSTREAM = Path(__file__).resolve().parents[2] / "data" / "upstream"
SARIF = jsonschema.Draft4Validator(json.loads((UPSTREAM / "sarif-2.1.0-rtm.5.json").read_text()))
JUNIT = etree.XMLSchema(etree.parse(str(UPSTREAM / "junit-10.xsd")))
REPORT = jsonschema.Draft202012Validator(schema())

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "]]><x/>",
    "```\n# broken out\n```",
    "````` ``````",
    "| a | b |",
    "[click](https://evil.example) ![x](https://evil.example/x.png)",
    "@torvalds #1 https://evil.example www.evil.example",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\u202egnp.exe\u2066",
    "\x00\x01\x7f\x9b",
    "\ud800 lone \udfff",
    "\ufffe\uffff",
    "-->",
    "&lt;b&gt; &amp; &#60;",
    "$x$ {0} {name} %s",
    "::error::workflow command",
    "\r\n\r\n# heading\n- list",
    "\\",
    "'''\"\"\"",
    "</details></summary>",
)
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=20), min_size=1, max_size=3).map(" ".join)


def check_markdown(text: str) -> None:
    """Rendered as a reader would: no HTML but our own, no link but to the threads and pages we name, no image."""
    own = ("<details>", "</details>", "<summary>", "</summary>", "<code>", "</code>", "<sub>", "</sub>", "<!--")
    allowed = ("https://github.com/", "https://docs.vllm.ai/", "https://pypi.org/")
    parser = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "linkify"])
    for token in parser.parse(text):
        if token.type == "html_block":
            for line in filter(None, (line.strip() for line in token.content.splitlines())):
                assert line.startswith(own), line
        for child in token.children or []:
            assert child.type != "image"
            if child.type == "html_inline":
                assert child.content.startswith(own), child.content
            if child.type == "link_open":
                assert str(child.attrs["href"]).startswith(allowed), child.attrs
    levels = [token.tag for token in parser.parse(text) if token.type == "heading_open"]
    assert levels.count("h1") + levels.count("h2") == 1
    assert visible(text, keep="\n\t") == text


def check_html(text: str) -> None:
    """As a browser reads it: our elements, our one script, no address outside, nothing invisible."""
    page = lxml_html.document_fromstring(text)
    tags = """html head meta link title style body main h1 h2 h3 h4 section figure figcaption button template p span
        div table thead tbody tr th td input label noscript article header i details summary pre ul li code script svg
        rect text line path strong em"""
    known = set(tags.split())
    assert {element.tag for element in page.iter() if isinstance(element.tag, str)} <= known
    scripts = page.findall(".//script")
    assert len(scripts) == 1
    assert scripts[0].text.startswith("(function")
    for element in page.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "action")
            assert name != "href" or value == "data:,"
    assert visible(text, keep="\n\t") == text


def check_xml(text: str) -> None:
    tree = etree.fromstring(text.encode("utf-8"))
    assert JUNIT.validate(tree), JUNIT.error_log


def check_json(text: str, validator: Any) -> Any:
    assert text.isascii()
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    value = orjson.loads(text)
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(value)]
    assert not errors
    return value


def check_all(case: RunView) -> None:
    for project in ("vllm", "vllm-ascend"):
        report = bug_reports(case, Wanted(Texts(), project))[0]
        assert "\n" not in report.title
        check_markdown(report.markdown)
    check_markdown(step_summary(case))
    check_html(html_report(case))
    check_xml(junit_xml(case))
    check_json(json_report(case), REPORT)
    check_json(sarif_log(case), SARIF)


def test_plain_text_keeps_to_every_schema() -> None:
    check_all(make_case())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_harmless_everywhere(text: str) -> None:
    check_all(make_case(text))


@settings(max_examples=40, deadline=None)
@given(texts)
def test_any_text_is_harmless_everywhere(text: str) -> None:
    check_all(make_case(text))


@settings(deadline=None)
@given(st.text())
def test_escaping_keeps_what_can_be_seen(text: str) -> None:
    """A browser and an XML reader give back the visible form of what went in."""
    shown = lxml_html.fragment_fromstring(f"<p>{escape.markup(text)}</p>").text or ""
    assert shown == visible(text)
    read = etree.fromstring(f"<p>{escape.xml(text)}</p>".encode()).text or ""
    assert read.replace("\\ufffe", "\ufffe").replace("\\uffff", "\uffff") == visible(text).replace(
        "\\ufffe", "\ufffe"
    ).replace("\\uffff", "\uffff")


@settings(deadline=None)
@given(st.text())
def test_code_spans_and_blocks_hold_their_text(text: str) -> None:
    parser = MarkdownIt("commonmark")
    block = parser.parse(escape.block(text))
    assert [token.type for token in block] == ["fence"]
    assert block[0].content.rstrip() == visible(text, keep="\n\t").rstrip()
    children = parser.parse(escape.code(text))[0:3][1].children or []
    assert [child.type for child in children] == ["code_inline"]
    assert children[0].content.strip() == visible(text).replace("|", "\\|").strip()


# --------------------------------------------------------------------------- what each format says


def test_json_says_what_the_run_says() -> None:
    value = check_json(json_report(make_case()), REPORT)
    assert value["run"]["verdict"] == "DIVERGED"
    finding = value["findings"][0]
    assert (finding["kind"], finding["position"], finding["gap"]) == ("garbled", 2, 7.5)
    assert finding["candidate"]["token_ids"] == [5, 6, 99, 98, 9, 10]
    assert value["arms"][1]["environment"]["variables"]["LD_PRELOAD"] == "…/libomp.so"


def test_the_schema_refuses_what_is_not_a_report() -> None:
    value = json.loads(json_report(make_case()))
    value["findings"][0]["severity"] = "terrible"
    del value["run"]["verdict"]
    assert len(list(REPORT.iter_errors(value))) == 2


def test_junit_has_a_case_for_each_completion_and_a_failure_for_the_corrupt_one() -> None:
    tree = etree.fromstring(junit_xml(make_case()).encode())
    suite = tree.find("testsuite")
    assert suite is not None
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (MTP, "2", "1")
    names = [case.get("name") for case in suite.findall("testcase")]
    assert names == ["p0 round 0 sample 0", "p1 round 0 sample 0"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "garbled"
    assert "5 6 99 98 9 10" in (failure.text or "")


def test_junit_skips_what_is_on_the_allowlist_and_fails_for_a_broken_policy() -> None:
    case = make_case()
    allowed = {str(case.findings[0].fingerprint): verbatim("vllm#45100")}
    rule = verbatim("garbled: 3, at most 2")
    judgement = Judgement(Verdict.DIVERGED, ExitCode.DIVERGED, (rule,), allowed, ())
    text = junit_xml(case, Wanted(Texts(), judgement=judgement))
    assert 'skipped message="vllm#45100"' in text
    check_xml(text)
    tree = etree.fromstring(text.encode())
    assert [suite.get("failures") for suite in tree] == ["0", "1"]
    assert [suite.get("skipped") for suite in tree] == ["1", "0"]


def test_what_a_passing_policy_has_room_for_fails_no_test_and_opens_no_alert() -> None:
    within = Wanted(Texts(), judgement=Judgement(Verdict.PASS, ExitCode.PASS, (), {}, ()))
    tree = etree.fromstring(junit_xml(make_case(), within).encode())
    assert [suite.get("failures") for suite in tree] == ["0"]
    assert tree.find(".//skipped").get("message") == "within the budgets of the policy"
    (result,) = check_json(sarif_log(make_case(), within), SARIF)["runs"][0]["results"]
    assert result["suppressions"][0]["justification"] == "within the budgets of the policy"


def test_a_corrupt_completion_beyond_the_limit_is_no_pass() -> None:
    text = junit_xml(make_case(classes=dict.fromkeys(KEYS, "corrupt")))
    check_xml(text)
    suite = etree.fromstring(text.encode())[0]
    assert suite.get("failures") == "2"
    assert "beyond the limit" in text


def test_sarif_results_carry_rule_place_and_fingerprint() -> None:
    value = check_json(sarif_log(make_case()), SARIF)
    run = value["runs"][0]
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "garbled"
    assert result["level"] == "error"
    assert result["partialFingerprints"] == {
        "primaryLocationLineHash": "0123456789abcdef0123:1",  # the one that GitHub matches alerts by
        "parity/v1": "0123456789abcdef0123",
    }
    assert all(rule["fullDescription"]["text"] and rule["help"]["markdown"] for rule in run["tool"]["driver"]["rules"])
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "cpu-mtp.jsonl"
    assert "suppressions" not in result


def test_sarif_suppresses_what_was_triaged_as_benign() -> None:
    finding = finding_case(state=str(TriageState.BENIGN))
    value = check_json(sarif_log(make_case(finding=finding)), SARIF)
    assert value["runs"][0]["results"][0]["suppressions"][0]["kind"] == "external"


def test_a_failure_names_its_arm_once_and_keeps_the_lines_of_a_log() -> None:
    why = verbatim("cpu/mtp: the worker ended\nthe end of the log:\n  [last] {words}")
    arms = [arm_case(BASE), arm_case(MTP, corrupt=False, verdict=None, status="failed", message=why, tally=())]
    case = make_case(arms=arms, finding=None, run=run_of(verdict="ERROR", reasons=(), message=why))
    run = check_json(sarif_log(case), SARIF)["runs"][0]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "cpu/mtp: the worker ended\nthe end of the log:\n  \\[last\\] {{words}}"
    assert workflow_commands(case, Wanted(Texts())).startswith("::error title=parity%3A ERROR::cpu/mtp: the worker")


def test_what_is_open_is_no_sarif_without_anything_wrong() -> None:
    """Code scanning reads a log without results as one in which all is well."""
    why = verbatim("26 completions differ and nothing says whether that is noise")
    case = make_case(finding=None, run=run_of(verdict="INCONCLUSIVE", reasons=(why,)))
    run = check_json(sarif_log(case), SARIF)["runs"][0]
    assert run["results"] == []
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["level"] == "warning"
    assert note["message"]["text"] == f"INCONCLUSIVE: {why}"


def test_near_ties_open_no_alerts() -> None:
    near = finding_case(kind="near_tie", severity="benign", gap=0.05, length=1)
    run = check_json(sarif_log(make_case(finding=near)), SARIF)["runs"][0]
    assert run["results"] == []
    assert run["properties"]["benign"] == 1


def test_a_run_that_failed_says_why_in_every_format() -> None:
    why = verbatim("the engine of cpu/mtp did not start: ModuleNotFoundError: No module named 'vllm'")
    arms = [arm_case(BASE), arm_case(MTP, corrupt=False, verdict=None, status="failed", message=why, tally=())]
    case = make_case(arms=arms, finding=None, run=run_of(verdict="ERROR", reasons=(), message=why))
    said = "No module named 'vllm'"
    sarif = check_json(sarif_log(case), SARIF)["runs"][0]["invocations"][0]
    assert not sarif["executionSuccessful"]
    assert said in sarif["toolExecutionNotifications"][0]["message"]["text"]
    assert said in step_summary(case)
    assert "| `cpu/mtp` | " in step_summary(case)
    assert "Nothing corrupt was found" not in html_report(case)
    assert "Nothing is known of" in html_report(case)
    assert said in lxml_html.document_fromstring(html_report(case)).text_content()
    assert said in check_json(json_report(case), REPORT)["run"]["message"]
    assert said in etree.fromstring(junit_xml(case).encode()).find(".//error").get("message")
    lines = workflow_commands(case, Wanted(Texts())).splitlines()
    assert lines[0].startswith("::error title=parity%3A ERROR::")
    assert any(said in line for line in lines)


def test_the_policys_verdict_is_the_headline() -> None:
    """What it allows is named with its reason, and is no error."""
    case = make_case()
    mark = str(case.findings[0].fingerprint)
    passed = Judgement(Verdict.PASS, ExitCode.PASS, (), {mark: verbatim("vllm#45100")}, ())
    summary = step_summary(case, Wanted(Texts(), judgement=passed))
    assert summary.startswith("## parity: ✅ PASS\n")
    assert "the comparison itself says DIVERGED" in summary
    assert f"- `{mark}`: vllm" in summary
    assert "### Findings" not in summary
    (line,) = workflow_commands(case, Wanted(Texts(), judgement=passed)).splitlines()
    assert line.startswith("::notice title=parity%3A PASS::")
    result = check_json(sarif_log(case, Wanted(Texts(), judgement=passed)), SARIF)["runs"][0]["results"][0]
    assert result["suppressions"][0]["justification"] == "vllm#45100"
    rule = verbatim("garbled: 1 in 2 completions, at most 0 allowed")
    broken = Wanted(Texts(), judgement=Judgement(Verdict.DIVERGED, ExitCode.DIVERGED, (rule,), {}, ()))
    first, finding = workflow_commands(case, broken).splitlines()
    assert first == "::error title=parity%3A DIVERGED::garbled: 1 in 2 completions, at most 0 allowed"
    assert mark in finding


def test_no_text_begins_a_workflow_command_or_ends_one() -> None:
    for line in workflow_commands(make_case("a\n::error::x\r\n%0A, y: z"), Wanted(Texts())).splitlines():
        assert line.startswith("::error title=")
        assert line.count("::error") == 1 or "%0A::error" in line or "\\n::error" in line


def test_a_step_summary_stays_below_what_github_takes() -> None:
    finding = finding_case("long " * 100_000)
    text = step_summary(make_case(finding=finding))
    assert len(text.encode()) <= LARGEST + 10
    assert text.startswith("## parity: ❌ DIVERGED")


def test_html_marks_the_divergent_token_on_both_sides() -> None:
    page = lxml_html.document_fromstring(html_report(make_case()))
    sides = page.findall(".//div[@class='sides']/section")
    marked = [
        [token.text for token in side.findall(".//i") if "x" in (token.get("class") or "").split()] for side in sides
    ]
    assert marked == [["[7]"], ["[99]"]]


def test_the_page_says_that_a_token_is_marked_and_names_each_number_for_a_phone() -> None:
    page = lxml_html.document_fromstring(html_report(make_case()))
    (article, *_) = page.iterfind(".//article")
    assert ">>" not in article.text_content()
    assert "is marked" in article.text_content()
    (table,) = [one for one in page.iterfind(".//table") if one.get("class") == "arms"]
    heads = [one.text for one in table.iterfind(".//th")]
    for row in table.iterfind("./tbody/tr"):
        assert [one.get("data-name") for one in row.iterfind("td")][1:] == heads[1:]


def many(count: int, text: str = "x") -> RunView:
    findings = [finding_case(text, request=f"request-{at}", position=at % 6, id=at) for at in range(count)]
    return make_case(findings=findings, total_findings=count, chosen=findings[0])


def packed(page: Any) -> list[tuple[str, int]]:
    """The cards that the page draws when somebody gets to them."""
    found: list[tuple[str, int]] = json.loads(gzip.decompress(base64.b64decode(page.find(".//template").text)))
    return found


def test_cards_after_the_first_are_packed_and_as_harmless_as_these() -> None:
    hostile = "</template><script>alert(1)</script><img src=x onerror=alert(1)>"
    text = html_report(many(60, hostile))
    check_html(text)
    page = lxml_html.document_fromstring(text)
    cards = packed(page)
    assert len(page.findall(".//article")) + len(cards) == 60
    assert all(corrupt for _, corrupt in cards)
    for at, (card, _) in enumerate(cards, len(page.findall(".//article"))):
        (article,) = lxml_html.fragments_fromstring(card.strip())
        assert f"request-{at} " in article.text_content()
        assert not article.findall(".//script")
        assert not article.findall(".//img")
        assert not any(name.startswith("on") for element in article.iter() for name in element.attrib)


def test_the_page_begins_with_where_the_findings_lie() -> None:
    page = lxml_html.document_fromstring(html_report(many(60)))
    cells = [one.text for one in page.findall(".//figure//rect/title")]
    assert len(cells) == 40, "the first forty requests"
    assert "request-3, token 3: 1" in cells
    assert page.find(".//main") is not None
    assert {one.text for one in page.find_class("legend")[0]} == {
        "the token in question", "the rest of the finding", "what comes after the first divergent token",
    }  # fmt: skip


# --------------------------------------------------------------------------- a real browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def opened(command: list[str], address: str) -> Any:
    """The page as the browser has it after its script ran. The browser had nothing to complain about."""
    done = subprocess.run([*command, "--dump-dom", address], capture_output=True, timeout=120, check=True)
    talk = done.stderr.decode(errors="replace")
    assert "CONSOLE" not in talk, talk
    return lxml_html.document_fromstring(done.stdout.decode())


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("text", ["x", "</script><img src=x onerror=alert(1)> \u202e\ud800\x1b[31m"])
def test_a_browser_opens_the_page_without_a_complaint(text: str, tmp_path: Path) -> None:
    """No console message, the token is there, the script ran, and nothing was asked of the network."""
    assert CHROMIUM is not None
    page = tmp_path / "report.html"
    page.write_text(html_report(make_case(text)), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--disable-dev-shm-usage", "--enable-logging=stderr", f"--log-net-log={tmp_path / 'net.json'}"]
    dom = opened(command, page.as_uri())
    tokens = [token.text for token in dom.findall(".//article//i") if "x" in (token.get("class") or "").split()]
    assert tokens == ["[7]", "[99]"]
    assert dom.get_element_by_id("count").text == "1 / 1"  # the script ran: it counts the cards shown
    for words, shown in (
        ("garbled", "1 / 1"),
        ("garbled%20cpu/mtp", "1 / 1"),
        ("omission", "0 / 1"),
        ("%E0%A4%A", "1 / 1"),
    ):
        filtered = opened(command, f"{page.as_uri()}#q={words}")
        assert filtered.get_element_by_id("count").text == shown
        assert len(filtered.findall(".//article")) == int(shown[0])
    page.write_text(html_report(many(60, text)), encoding="utf-8")
    filtered = opened([*command, "--virtual-time-budget=5000"], f"{page.as_uri()}#q=request-59")
    assert filtered.get_element_by_id("count").text == "1 / 60", "unpacked, and found there"
    assert "request-59" in filtered.findall(".//article")[0].text_content()
    asked = json.loads((tmp_path / "net.json").read_text())
    hosts = {
        event["params"]["url"]
        for event in asked["events"]
        if str(event.get("params", {}).get("url", "")).startswith(("http:", "https:"))
    }
    assert not {host for host in hosts if "evil" in host or "report" in host}
