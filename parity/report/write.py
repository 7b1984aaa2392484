"""One call for every format: `write_report(store, what, format, target)` gives the text of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parity.errors import ParityError
from parity.report.case import MOST_FINDINGS, Case, build_case
from parity.report.gate import judge_run
from parity.report.markdown import REPOSITORIES, BugReport, bug_report
from parity.report.policy import Judgement, Policy
from parity.report.texts import Texts
from parity.store import Store

FORMATS = ("md", "html", "json", "junit", "sarif", "github")
TARGETS = tuple(REPOSITORIES)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a person may choose. `see_also` maps a project to the address of the report filed there."""

    language: str = "en"
    searched: bool = False
    limit: int = MOST_FINDINGS
    see_also: Mapping[str, str] | None = None
    policy: Policy | None = None
    """For junit, sarif and github: what it allows is skipped, what it finds broken fails."""


def write_report(
    store: Store,
    finding_or_run: str | None,
    format: str = "md",
    target: str | None = None,
    options: ReportOptions | None = None,
) -> str:
    """The report on a finding or a run as text.

    `finding_or_run` is a finding's number or fingerprint, a run's id or its beginning, or None for the newest
    run. `format` is one of FORMATS. `target` is the project that the Markdown is for, one of TARGETS; without
    one it is for the first project concerned (`bug_reports` gives all of them). Raises ParityError for
    anything that does not exist.
    """
    options = options or ReportOptions()
    texts = Texts(options.language)
    if format not in FORMATS:
        raise ParityError(f"there is no report format {format!r}", hint=f"choose one of {', '.join(FORMATS)}")
    case = build_case(store, finding_or_run, limit=options.limit)
    if format == "md":
        return bug_reports(case, target, options, texts)[0].markdown
    judgement = None if options.policy is None else judge_run(store, case.run.id, options.policy)
    return _write(case, format, texts, judgement)


def bug_reports(
    case: Case, target: str | None, options: ReportOptions | None = None, texts: Texts | None = None
) -> list[BugReport]:
    """A report for `target`, or one for every project whose arms diverge; then each names the others."""
    from parity.report.repro import repro_of

    options = options or ReportOptions()
    texts = texts or Texts(options.language)
    if target is not None and target not in TARGETS:
        raise ParityError(f"there is no template for {target!r}", hint=f"choose one of {', '.join(TARGETS)}")
    concerned = case.projects
    wanted = [target] if target is not None else concerned
    filed = options.see_also or {}
    script, why_not = repro_of(case)
    return [
        bug_report(
            case,
            project,
            texts=texts,
            script=script,
            no_script=why_not,
            searched=options.searched,
            others={other: filed.get(other, "") for other in {*concerned, *filed} if other != project},
        )
        for project in wanted
    ]


def _write(case: Case, format: str, texts: Texts, judgement: Judgement | None) -> str:
    """The formats of machines and the page; each is imported when it is asked for."""
    from parity.report.github import step_summary
    from parity.report.html import html_report
    from parity.report.json_report import json_report
    from parity.report.junit import junit_xml
    from parity.report.sarif import sarif_log

    allowed = frozenset(judgement.allowed) if judgement is not None else frozenset()
    broken = (*judgement.expired, *judgement.broken) if judgement is not None else ()
    if format == "html":
        return html_report(case, texts)
    if format == "json":
        return json_report(case, texts)
    if format == "sarif":
        return sarif_log(case, texts, allowed=allowed)
    if format == "junit":
        return junit_xml(case, texts, allowed=allowed, broken=broken)
    return step_summary(case, texts, allowed=allowed, broken=broken)
