"""JUnit XML: one test suite per arm, one test case per completion, so that a CI system shows what failed.

Written as text and not with a library: what is needed is seven elements, and the characters that XML
cannot hold have to be dealt with by us anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from parity.language import render
from parity.records import Key, Verdict
from parity.records.emulated import proves
from parity.report.escape import attribute, xml
from parity.report.format import Document, Format, Wanted
from parity.report.sections import shown_around
from parity.report.texts import Texts
from parity.view import ArmView, FindingView, RunView


def junit_xml(view: RunView, wanted: Wanted | None = None) -> str:
    """The run as JUnit XML. A corrupt finding is a failure; one that a policy allows, or passes with, is skipped, and
    so is an arm of which nothing was concluded.

    Each rule of a policy that the run broke fails a test case of its own.
    """
    wanted = wanted or Wanted(Texts())
    broken = wanted.broken
    suites = [
        _suite(number, arm, view, wanted)
        for number, arm in enumerate([*view.candidates, *([] if view.candidates else view.controls)])
    ]
    if broken:
        cases = [_policy_case(number, line) for number, line in enumerate(broken, 1)]
        suites.append(_wrap(len(suites), "policy", view.run.created, len(broken), len(broken), 0, 0, {}, cases))
    body = "\n".join(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="parity">\n{body}\n</testsuites>\n'


def _suite(number: int, arm: ArmView, view: RunView, wanted: Wanted) -> str:
    texts = wanted.texts
    by_key: dict[Key, list[FindingView]] = {}
    for finding in view.findings:
        if finding.arm == arm.name and finding.is_corrupt:
            by_key.setdefault(finding.key, []).append(finding)
    classes = view.classes_of(arm.name)
    keys = dict.fromkeys([*classes, *by_key])
    failures = skipped = 0
    cases = []
    for key in keys:
        found = by_key.get(key, [])
        failing = [finding for finding in found if wanted.passed_over(finding) is None]
        if not found and classes.get(key) == "corrupt" and wanted.verdict != "PASS":
            failures += 1
            cases.append(_unlisted(arm.name, key, texts))
            continue
        failures += bool(failing)
        skipped += bool(found) and not failing
        cases.append(_case(arm.name, key, failing or found, bool(failing), view, wanted))
    errors = int(arm.verdict in (None, "ERROR"))
    if errors:
        message = arm.message or "not compared"
        inside = f"<error type={attribute(arm.status)} message={attribute(message)}/>"
        cases.append(
            f'<testcase classname={attribute(arm.name)} name="the arm as a whole" time="0">{inside}</testcase>'
        )
    whole = 0
    if not failures and not errors and arm.verdict == Verdict.DIVERGED and wanted.verdict != "PASS" and not skipped:
        whole = 1  # no completion of it is at fault, the baseline's are
        cases.append(_whole(arm, texts, "failure"))
    undecided = int(arm.verdict == Verdict.INCONCLUSIVE and wanted.verdict != "PASS")
    if undecided:
        cases.append(_whole(arm, texts, "skipped"))
    properties = {
        "run": view.run.id,
        "verdict": arm.verdict or "",
        **{f"reason.{at}": render(reason, texts.language) for at, reason in enumerate(arm.reasons, 1)},
        "baseline": view.run.baseline,
        "model": view.run.model,
        **({"emulated": str(proves(arm.name))} if arm.emulated else {}),
        **{f"version.{name}": version for name, version in sorted(arm.versions.items())},
    }
    tests = len(keys) + errors + whole + undecided
    return _wrap(
        number, arm.name, view.run.created, tests, failures + whole, errors, skipped + undecided, properties, cases
    )


def _wrap(
    number: int,
    name: str,
    created: str,
    tests: int,
    failures: int,
    errors: int,
    skipped: int,
    properties: Mapping[str, str],
    cases: Sequence[str],
) -> str:
    head = (
        f'<testsuite id="{number}" name={attribute(name)} package="parity" hostname="localhost" '
        f'timestamp={attribute(created[:19])} tests="{tests}" failures="{failures}" errors="{errors}" '
        f'skipped="{skipped}" time="0">'
    )
    about = "".join(f"<property name={attribute(k)} value={attribute(v)}/>" for k, v in properties.items())
    return "\n".join([head, f"<properties>{about}</properties>", *cases, "</testsuite>"])


def _case(arm: str, key: Key, found: Sequence[FindingView], failing: bool, view: RunView, wanted: Wanted) -> str:
    texts = wanted.texts
    opening = f'<testcase classname={attribute(arm)} name={attribute(key)} time="0"'
    if not found:
        return f"{opening}/>"
    first = found[0]
    if not failing:
        why = wanted.passed_over(first) or first.note or str(first.state)
        return f"{opening}><skipped message={attribute(why)}/></testcase>"
    message = f"{texts.kind(first.kind)}: {texts.said(first.why)}"
    body = "\n".join(_lines(found, view, texts))
    return (
        f"{opening}><failure type={attribute(first.kind)} message={attribute(message)}>"
        f"{xml(body, keep=chr(10))}</failure></testcase>"
    )


def _unlisted(arm: str, key: Key, texts: Texts) -> str:
    """A corrupt completion whose findings are beyond the report's limit: it must not look like a pass."""
    message = attribute(texts("junit.unlisted"))
    head = f'<testcase classname={attribute(arm)} name={attribute(key)} time="0">'
    return f'{head}<failure type="corrupt" message={message}/></testcase>'


def _whole(arm: ArmView, texts: Texts, outcome: Literal["failure", "skipped"]) -> str:
    """An arm that diverged without a corrupt completion, or that nothing was concluded of: it must not look like a
    pass."""
    why = attribute("; ".join(render(reason, texts.language) for reason in arm.reasons[:1]))
    head = f'<testcase classname={attribute(arm.name)} name="the arm as a whole" time="0">'
    kind = ' type="baseline"' if outcome == "failure" else ""
    return f"{head}<{outcome}{kind} message={why}/></testcase>"


def _lines(found: Sequence[FindingView], view: RunView, texts: Texts) -> Iterator[str]:
    for finding in found:
        where = "" if finding.position is None else f" at token {finding.position}"
        yield f"{finding.kind}{where}: {texts.said(finding.why)} (fingerprint {finding.fingerprint})"
        for name, stream in (("baseline", finding.baseline), ("candidate", finding.candidate)):
            if stream is not None:
                if stream.text is not None or view.text.knows:
                    yield f"  {name}: {shown_around(view, stream, finding)}"
                yield f"  {name} ids: {' '.join(map(str, stream.token_ids[:64].tolist()))}"


def _policy_case(number: int, line: str) -> str:
    return (
        f'<testcase classname="policy" name="rule {number}" time="0">'
        f'<failure type="policy" message={attribute(line)}/></testcase>'
    )


FORMAT = Format(lambda view, wanted: [Document(junit_xml(view, wanted))])
