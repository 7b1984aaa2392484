"""The bug report: Markdown that fills the issue template of vllm or vllm-ascend, field by field.

The fields are those of `.github/ISSUE_TEMPLATE/400-bug-report.yml` of each project: the environment, the
description and, for vllm, a box that only a person can tick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from parity._version import __version__
from parity.errors import ParityError
from parity.messages import Message, heard, message, shortened
from parity.records import Json
from parity.records.emulated import proves
from parity.report import facts, table_text
from parity.report.escape import block, code, inline, public, table, without_paths
from parity.report.examples import example
from parity.report.format import REPOSITORIES, Document, Format, Wanted
from parity.report.known import CONDITIONS, Match, conditions, known_bugs, link, matches
from parity.report.prose import in_markdown
from parity.report.texts import Texts
from parity.text import visible
from parity.view import ArmView, NextCommand, RunView, next_commands
from parity.view.experiments import proposed

LONGEST_SCRIPT = 40_000
"""Characters of a script that goes into the report; GitHub takes issues of 65,536."""
LONGEST_ENVIRONMENT = 8_000
"""Characters of the environment of one arm."""

_NOISE = frozenset({"VLLM_DIST_IDENT", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME", "PARITY_FAULT_BUNDLE"})
"""Variables that are random or long, and say nothing."""
_SECRET = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BugReport:
    """A report for one project. `fields` maps the labels of its template to Markdown."""

    project: str
    title: str
    fields: Mapping[str, str]

    @property
    def markdown(self) -> str:
        """As GitHub shows an issue made from the form: a heading for each field."""
        parts = [
            f"# [Bug]: {inline(self.title.removeprefix('[Bug]: '))}",
            *(f"### {label}\n\n{text}" for label, text in self.fields.items()),
        ]
        return "\n\n".join(parts) + "\n"

    @property
    def address(self) -> str:
        """Where to file it; the form opens with the title filled in."""
        base = f"https://github.com/{REPOSITORIES[self.project]}/issues/new"
        return f"{base}?template=400-bug-report.yml&title={quote(self.title)}"


def bug_reports(view: RunView, wanted: Wanted) -> list[BugReport]:
    """A report for the target, or one for every project whose arms diverge; then each names the others."""
    from parity.report.repro import repro_of

    concerned = view.projects
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
                other: wanted.see_also.get(other, "") for other in {*concerned, *wanted.see_also} if other != project
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
            hint=message("report.finish", "finish it: `parity run --resume {run}`", run=view.run.id),
        )
    return [Document(one.markdown, one.project, tuple(_advice(view, one, wanted))) for one in bug_reports(view, wanted)]


def _advice(view: RunView, report: BugReport, wanted: Wanted) -> Iterator[Message]:
    if any(arm.planted for arm in view.suspected):
        yield message(
            "report.advice.planted", "a fault was planted in that engine on purpose: an example, not to be filed"
        )
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
    project: str,
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
    return BugReport(project, "[Bug]: " + facts.title(view, texts), fields)


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
    variables = about.get("variables")
    if isinstance(variables, Mapping):
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
    yield _verdict(view, texts)
    yield _lead(view, texts)
    yield from _inside(view, texts)
    if following := next_commands(view):
        yield "\n\n".join([f"#### {texts('heading.next')}", *(_next(one, texts) for one in following)])
    if view.chosen is not None:
        yield from example(view, view.chosen, texts)
    arms = table_text.markdown(view, texts.language).rstrip()
    yield f"#### {texts('heading.measured_table')}\n\n{arms}"
    yield _listed(texts("heading.controls"), facts.controls(view), texts)
    yield f"#### {texts('heading.versions')}\n\n{_versions(view, texts)}"
    yield f"#### {texts('heading.repro')}\n\n{_reproduction(view, texts, script, no_script)}"
    yield _listed(texts("heading.measured"), facts.measured(view), texts)
    yield _listed(texts("heading.inferred"), facts.inferred(view), texts)
    yield _listed(texts("heading.unchecked"), facts.unchecked(view), texts)
    yield f"#### {texts('heading.known')}\n\n{known(view, texts)}"
    for other, address in others.items():
        name = facts.title(view, texts)
        where = address or texts("both.link")
        text = texts("both.text", other=REPOSITORIES[other], title=code(f"[Bug]: {name}"), link=inline(where))
        yield f"#### {texts('heading.both')}\n\n{text}"
    yield f"<sub>{texts('footer', version=__version__, run=code(view.run.id))}</sub>"


def _inside(view: RunView, texts: Texts) -> Iterator[str]:
    """What the recorded steps say, and the next experiment with its command; nothing where none were recorded."""
    if not view.why and not view.violations:
        return
    yield _listed(texts("heading.inside"), facts.inside(view), texts)
    for one in view.why:
        for each in proposed(view, one):
            what = in_markdown(each.what, texts.language)
            yield f"{what}\n\n{block(without_paths(each.text or ' '.join(each.options)), 'sh')}"


def _next(command: NextCommand, texts: Texts) -> str:
    parts = [in_markdown(command.what, texts.language)]
    parts += [block(without_paths(command.text), "sh")] if command.text else []
    parts += [in_markdown(command.remark, texts.language)] if command.remark is not None else []
    return "\n\n".join(parts)


def _listed(heading: str, lines: Iterator[Message], texts: Texts) -> str:
    return f"#### {heading}\n\n" + "\n".join(f"- {in_markdown(line, texts.language)}" for line in lines)


def _verdict(view: RunView, texts: Texts) -> str:
    if view.run.verdict is None:
        return texts("lead.unfinished", status=inline(view.run.status))
    reasons = "; ".join(in_markdown(reason, texts.language) for reason in view.run.reasons)
    reasons = reasons or in_markdown(view.run.message or "-", texts.language)
    return texts("lead.verdict", verdict=inline(view.run.verdict), reasons=reasons)


def _lead(view: RunView, texts: Texts) -> str:
    arm = (view.suspected or view.candidates or list(view.arms))[0]
    tolerance = "-" if view.tolerance is None else f"{view.tolerance:g}"
    planted = [in_markdown(facts.planted(one.planted), texts.language) for one in view.suspected if one.planted]
    emulated = [in_markdown(proves(one.name), texts.language) for one in view.arms if one.emulated]
    drawn = not view.run.greedy
    parts = [
        *planted,
        *emulated,
        texts(
            "lead.sampled" if drawn and arm.corrupt else "lead.corrupt" if arm.corrupt else "lead.benign",
            requests=len(view.requests),
            sampling=inline(facts.sampling_in_words(view)),
            baseline=code(view.run.baseline),
            arm=code(arm.name),
            claims="; ".join(in_markdown(one, texts.language) for one in facts.claims(view, arm, drawn=drawn)),
            near=arm.count("near_tie"),
            completions=arm.completions,
            kinds=", ".join(in_markdown(one, texts.language) for one in facts.kinds_of(arm)),
            tolerance=tolerance,
        ),
    ]
    if facts.rests_on_gaps(arm):
        parts.append(texts("lead.rule.sampled") if drawn else texts("lead.rule", tolerance=tolerance))
    if view.chosen is not None and not view.chosen.of_run:
        row = view.chosen
        more = texts("more_tokens", count=row.length - 1) if row.length and row.length > 1 else ""
        name = "lead.first.whole" if row.position is None else "lead.first"
        kind = inline(texts.kind(row.kind))
        parts.append(texts(name, request=code(row.request), kind=kind, position=row.position, more=more))
    return " ".join(parts)


def arms_table(view: RunView, texts: Texts) -> str:
    """One row per arm: what was asked, what came, how long, how fast."""
    names = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")
    rows = []
    for arm in view.arms:
        role = facts.role(arm, texts)
        rows.append([code(arm.name) + (f" ({role})" if role else ""), *facts.cells(arm)])
    return table([texts(f"column.{name}") for name in names], rows)


def _versions(view: RunView, texts: Texts) -> str:
    if len(view.siblings) > 1:
        head = [texts(f"column.{name}") for name in ("run", "verdict", "versions")]
        rows = [
            [code(one.id), inline(one.verdict), inline("; ".join(f"{a}: {v}" for a, v in one.versions.items()))]
            for one in view.siblings
        ]
        return table(head, rows)
    lines = [
        texts("version.row", arm=code(arm.name), versions=inline(facts.version_line(arm) or "-")) for arm in view.arms
    ]
    return "\n".join(f"- {line}" for line in [*lines, texts("version.one")])


def _reproduction(view: RunView, texts: Texts, script: str | None, no_script: Message | None) -> str:
    command = f"{texts('repro.command')}\n\n{block(without_paths(view.run.command), 'sh')}"
    if script is None:
        why = "" if no_script is None else inline(texts.said(no_script))
        return f"{texts('repro.none', why=why)}\n\n{command}"
    how = block("python repro.py --model PATH_OR_NAME", "sh")
    if len(script) > LONGEST_SCRIPT:
        what = f"finding:{view.chosen.id}" if view.chosen is not None else view.run.id
        long = texts("repro.long", characters=f"{len(script):,}", command=code(f"parity repro {what} -o repro.py"))
        return f"{texts('repro.run')}\n\n{how}\n\n{long}\n\n{command}"
    body = f"<details>\n<summary><code>repro.py</code></summary>\n\n{block(script, 'python')}\n\n</details>"
    return f"{texts('repro.run')}\n\n{how}\n\n{body}\n\n{command}"


def known(view: RunView, texts: Texts) -> str:
    """Known reports of the same kind whose conditions this run does not contradict."""
    found: dict[str, Match] = {}
    for arm in view.suspected or view.candidates:
        kinds = [view.chosen.kind] if view.asked_for_finding and view.chosen else list(arm.corrupt)
        if not kinds:
            kinds = ["near_tie"] if arm.count("near_tie") else []
        prompt = None
        if view.chosen is not None and view.chosen.asked is not None:
            prompt = len(view.chosen.asked.prompt_token_ids)
        holding = conditions(
            arm.settings,
            view.run.sampling,
            model=view.run.model,
            prompt_tokens=prompt,
            requests=len(view.requests),
            versions=arm.versions,
        )
        for match in matches(kinds, holding):
            found.setdefault(match.bug.name, match)
    if not found:
        return texts("known.none", count=len(known_bugs()))
    lines = [texts("known.lead"), ""]
    for match in found.values():
        unknown = texts("known.unknown", unknown=_conditions(match.unknown, texts)) if match.unknown else ""
        threads = ", ".join(f"[{thread}]({link(thread)})" for thread in match.bug.threads)
        text = texts(
            "known.row",
            threads=threads,
            symptom=match.bug.symptom,
            trigger=match.bug.trigger,
            state=f" ({match.bug.state})" if match.bug.state else "",
            holds=_conditions(match.holds, texts) or "-",
            unknown=unknown,
        )
        lines.append(f"- {text}")
    return "\n".join(lines)


def _conditions(names: Sequence[str], texts: Texts) -> str:
    return ", ".join(texts.said(CONDITIONS[name]) for name in names)
