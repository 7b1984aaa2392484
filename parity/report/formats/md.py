"""The bug report: Markdown that fills the issue template of vllm or vllm-ascend, field by field.

The fields are those of `.github/ISSUE_TEMPLATE/400-bug-report.yml` of each project: the environment, the
description and, for vllm, a box that only a person can tick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from msgspec import Struct

from parity._version import __version__
from parity.errors import ParityError
from parity.messages import Message, heard, joined, message, shortened
from parity.records import Json
from parity.records.objects import object_of
from parity.report import facts, first_screen
from parity.report.background import background, of_what_is_open, what_next
from parity.report.escape import block, code, inline, public, table, without_paths
from parity.report.examples import example
from parity.report.format import REPOSITORIES, Document, Format, Wanted
from parity.report.minimal import minimal_script, serve_line
from parity.report.prose import Code, in_markdown
from parity.report.repro import repro_of, unknown_settings
from parity.report.sections import sections_in_markdown
from parity.report.texts import Texts
from parity.report.texts import sentence as say
from parity.text import visible
from parity.view import ArmView, RunView
from parity.view.missing import ways_on

LONGEST_SCRIPT = 40_000
"""Characters of a script that goes into the report; GitHub takes issues of 65,536."""
LONGEST_ENVIRONMENT = 8_000
"""Characters of the environment of one arm."""

MARK = "[Bug]: "
"""With which the forms of vLLM and vllm-ascend begin a title; what reports no fault does without."""

_NOISE = frozenset({"VLLM_DIST_IDENT", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME", "PARITY_FAULT_BUNDLE"})
"""Variables that are random or long, and say nothing."""
_SECRET = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


class BugReport(Struct, frozen=True):
    """A report for one project. `fields` maps the labels of its template to Markdown."""

    project: str | None
    """None: nobody is known to whom it could go."""
    title: str
    fields: Mapping[str, str]

    @property
    def markdown(self) -> str:
        """As GitHub shows an issue made from the form: a heading for each field."""
        parts = [
            f"# {MARK if self.title.startswith(MARK) else ''}{inline(self.title.removeprefix(MARK))}",
            *(f"### {label}\n\n{text}" for label, text in self.fields.items()),
        ]
        return "\n\n".join(parts) + "\n"

    @property
    def address(self) -> str | None:
        """Where to file it; the form opens with the title filled in."""
        if self.project is None:
            return None
        base = f"https://github.com/{REPOSITORIES[self.project]}/issues/new"
        return f"{base}?template=400-bug-report.yml&title={quote(self.title)}"


def bug_reports(view: RunView, wanted: Wanted) -> list[BugReport]:
    """A report for the target, or one for every project whose arms diverge; then each names the others."""
    concerned: list[str | None] = list(view.projects) or [None]
    script, why_not = repro_of(view)
    return [
        bug_report(
            view,
            project,
            texts=wanted.texts,
            script=script,
            no_script=why_not,
            searched=wanted.searched,
            others={
                other: wanted.see_also.get(other, "")
                for other in {*concerned, *wanted.see_also}
                if other is not None and other != project
            },
        )
        for project in ([wanted.target] if wanted.target is not None else concerned)
    ]


def _documents(view: RunView, wanted: Wanted) -> list[Document]:
    """Raises ParityError for a run of which nothing was compared."""
    if view.run.verdict == "ERROR" and not any(arm.completions for arm in view.candidates):
        raise ParityError(
            message(
                "report.run_nothing_report",
                "run {run} has nothing to report: no completion of it was compared",
                run=view.run.id,
            ),
            hint=joined(ways_on(view), "; "),
        )
    return [Document(one.markdown, one.project, tuple(_advice(view, one, wanted))) for one in bug_reports(view, wanted)]


def _advice(view: RunView, report: BugReport, wanted: Wanted) -> Iterator[Message]:
    if next(facts.planted(view), None) is not None:
        yield message(
            "report.advice.planted", "a fault was planted in that engine on purpose: an example, not to be filed"
        )
        return
    if (lost := facts.failed(view)) is not None:
        yield message("report.advice.open", "nothing to file yet: {why}", why=lost[1])
        return
    if view.open_reason is not None:
        yield message("report.advice.open", "nothing to file yet: {why}", why=view.open_reason)
        return
    if view.chosen is None or not view.chosen.is_corrupt:
        yield message(
            "report.advice.nothing",
            "nothing corrupt was found, so there is nothing to file: differences at near-ties are rounding",
        )
        return
    if facts.asked_differently(view):
        yield message(
            "report.advice.input",
            "the arms were asked different things: that lies with who asked, so there is nothing to file; ask both "
            "the same and compare again",
        )
        return
    if report.project is None:
        yield message(
            "report.advice.nowhere",
            "nothing says that {arm} is vLLM: it goes to whoever makes that engine",
            arm=first_screen.accused(view).name,
        )
        return
    yield message(
        "report.advice.file", "for {project}: file it at {address}", project=report.project, address=report.address
    )
    if wanted.texts.language != "en":
        yield message("report.advice.english", "the projects read English: `--lang en` writes it so")
    if report.project == "vllm" and not wanted.searched:
        yield message(
            "report.advice.searched",
            "its form has a box that says you searched for known reports: yours to tick, or --searched",
        )


FORMAT = Format(_documents, for_readers=True, by_project=True)


def bug_report(
    view: RunView,
    project: str | None,
    *,
    texts: Texts | None = None,
    script: str | None = None,
    no_script: Message | None = None,
    searched: bool = False,
    others: Mapping[str, str] | None = None,
) -> BugReport:
    """The report for `project`. `script` is the reproduction, `no_script` says why there is none.

    `others` maps the other projects that get a report of the same fault to an address, or "" before it is
    filed. `searched` ticks the box that says that a person has searched the issues.
    """
    texts = texts or Texts()
    fields = {
        texts("heading.environment"): "\n\n".join(environment(arm, texts) for arm in view.arms),
        texts("heading.bug"): "\n\n".join(_description(view, texts, script, no_script, others or {})),
    }
    if project == "vllm":
        tick = "x" if searched else " "
        box = f"- [{tick}] {texts('before.ticked')}"
        fields[texts("heading.before")] = box if searched else f"{box}\n\n<!-- {texts('before.yours')} -->"
    faulty = view.chosen is not None and view.chosen.is_corrupt and not facts.asked_differently(view)
    mark = MARK if faulty else ""
    return BugReport(project, mark + facts.title(view, texts), fields)


def environment(arm: ArmView, texts: Texts) -> str:
    """A details block: versions, machine, variables and engine settings of one arm."""
    versions = facts.version_line(arm)
    summary = f"<code>{inline(arm.name)}</code>{': ' + inline(versions) if versions else ''}"
    text = "\n".join(environment_lines(arm))
    if len(text) > LONGEST_ENVIRONMENT:
        text = text[:LONGEST_ENVIRONMENT] + "\n…"
    return f"<details>\n<summary>{summary}</summary>\n\n{block(text)}\n\n</details>"


def environment_lines(arm: ArmView) -> list[str]:
    """The environment and the engine settings of an arm as text, one value a line, nothing private in it."""
    about = {key: value for key, value in arm.environment.items() if value not in (None, [], {}, "")}
    if variables := object_of(about.get("variables")):
        about["variables"] = {k: v for k, v in variables.items() if k not in _NOISE and not _SECRET.search(str(k))}
    return [f"arm: {visible(arm.name)}", *_flat(about), "engine:", *_flat(arm.settings, "  ")]


def _flat(values: Mapping[str, Json], indent: str = "") -> Iterator[str]:
    for key, value in values.items():
        said = heard(value, shortened)
        if said is not None:  # a worker's sentence
            yield f"{indent}{visible(str(key))}: {visible(str(public(str(said))))}"
        elif isinstance(value, Mapping) and value:
            yield f"{indent}{visible(str(key))}:"
            yield from _flat(value, indent + "  ")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield f"{indent}{visible(str(key))}[{number}]: {visible(str(public(item)))}"
        else:
            yield f"{indent}{visible(str(key))}: {visible(str(public(value)), keep=chr(10))}"


def _description(
    view: RunView, texts: Texts, script: str | None, no_script: Message | None, others: Mapping[str, str]
) -> Iterator[str]:
    for line in (*first_screen.notes(view), first_screen.what(view)):
        yield in_markdown(line, texts.language)
    points = [*first_screen.points(view), *_again(view, script)]
    if points:
        yield "\n".join(f"- {in_markdown(line, texts.language)}" for line in points)
    if of_what_is_open(view):
        yield from what_next(view, texts)
    elif view.chosen is not None:
        yield from _which(view, texts)
        yield from sections_in_markdown(example(view, view.chosen), view, texts)
    yield f"#### {texts('heading.repro')}"
    yield from _reproduction(view, texts, script, no_script)
    rest = "\n\n".join(background(view, texts, others))
    yield f"<details>\n<summary>{texts('fold.rest')}</summary>\n\n{rest}\n\n</details>"
    yield f"<sub>{texts('footer', version=__version__, run=code(view.run.id))}</sub>"


def _again(view: RunView, script: str | None) -> Iterator[Message]:
    if script is not None:
        name = "first.again.named" if len(script) > LONGEST_SCRIPT else "first.again"
        yield say(name, command=Code("python repro.py --model PATH_OR_NAME"))
    elif view.run.command:
        yield say("first.again.run", command=Code(without_paths(view.run.command)))


def _which(view: RunView, texts: Texts) -> Iterator[str]:
    """Which finding is shown."""
    row = view.chosen
    if row is not None and not row.of_run:
        more = texts("more_tokens", count=row.length - 1) if row.length and row.length > 1 else ""
        name = "lead.first.whole" if row.position is None else "lead.first"
        kind = inline(texts.kind(row.kind))
        yield texts(name, request=code(row.request), kind=kind, position=row.position, more=more)


def arms_table(view: RunView, texts: Texts) -> str:
    """One row per arm: what was asked, what came, how long, how fast."""
    names = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")
    rows = []
    for arm in view.arms:
        role = facts.role(arm, texts)
        rows.append([code(arm.name) + (f" ({role})" if role else ""), *facts.cells(arm)])
    return table([texts(f"column.{name}") for name in names], rows)


def _reproduction(view: RunView, texts: Texts, script: str | None, no_script: Message | None) -> Iterator[str]:
    """The short script to read, its server, and the careful script below."""
    chosen = view.chosen
    short = None if chosen is None or not chosen.is_corrupt else minimal_script(view, chosen)
    if short is not None:
        yield f"{texts('repro.short')}\n\n{block(short, 'python')}"
    arm = first_screen.accused(view)
    if (short is not None or script is not None) and (missing := unknown_settings(view, arm)):
        yield in_markdown(say("repro.unknown", arm=Code(arm.name), names=list(map(Code, missing))), texts.language)
    if short is not None and (serve := serve_line(view, arm)) is not None:
        yield f"{texts('repro.serve')}\n\n{block(serve, 'sh')}"
    yield from _careful(view, texts, script, no_script)
    if view.run.command:
        yield f"{texts('repro.command')}\n\n{block(without_paths(view.run.command), 'sh')}"


def _careful(view: RunView, texts: Texts, script: str | None, no_script: Message | None) -> Iterator[str]:
    if script is None:
        why = "" if no_script is None else inline(texts.said(no_script))
        yield texts("repro.none", why=why)
        return
    yield f"{texts('repro.run')}\n\n{block('python repro.py --model PATH_OR_NAME', 'sh')}"
    if len(script) > LONGEST_SCRIPT:
        what = f"finding:{view.chosen.id}" if view.chosen is not None else view.run.id
        yield texts("repro.long", characters=f"{len(script):,}", command=code(f"parity repro {what} -o repro.py"))
    else:
        yield f"<details>\n<summary><code>repro.py</code></summary>\n\n{block(script, 'python')}\n\n</details>"
