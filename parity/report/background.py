"""The folded part of a bug report: how it was judged, all arms, what was measured, inferred and not checked, and
known reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from parity.language import in_a_row
from parity.messages import Message
from parity.records.conditions import CONDITIONS, PER_REQUEST, conditions
from parity.records.evidence import ViolationEvidence
from parity.report import facts, table_text
from parity.report.escape import block, code, inline, table, without_paths
from parity.report.format import REPOSITORIES
from parity.report.known import Match, known_bugs, link, matches
from parity.report.prose import in_markdown
from parity.report.texts import Texts
from parity.view import ArmView, NextCommand, RunView, next_commands
from parity.view.experiments import proposed


def background(view: RunView, texts: Texts, others: Mapping[str, str]) -> Iterator[str]:
    """What a reader looks up once the first screen has made him curious."""
    yield f"{_verdict(view, texts)}\n\n{_lead(view, texts)}"
    yield from _inside(view, texts)
    if not of_what_is_open(view):
        yield from what_next(view, texts)
    arms = table_text.markdown(view, texts.language).rstrip()
    yield f"#### {texts('heading.measured_table')}\n\n{arms}"
    yield _listed(texts("heading.controls"), facts.controls(view), texts)
    yield f"#### {texts('heading.versions')}\n\n{_versions(view, texts)}"
    yield _listed(texts("heading.measured"), facts.measured(view), texts)
    yield _listed(texts("heading.inferred"), facts.inferred(view), texts)
    yield _listed(texts("heading.unchecked"), facts.unchecked(view), texts)
    yield f"#### {texts('heading.known')}\n\n{known(view, texts)}"
    for other, address in others.items():
        name = facts.title(view, texts)
        where = address or texts("both.link")
        text = texts("both.text", other=REPOSITORIES[other], title=code(f"[Bug]: {name}"), link=inline(where))
        yield f"#### {texts('heading.both')}\n\n{text}"


def of_what_is_open(view: RunView) -> bool:
    """Is what would decide it all that there is to say? Near-ties are no example of what is open."""
    return view.open_reason is not None and not view.asked_for_finding


def what_next(view: RunView, texts: Texts) -> Iterator[str]:
    """What would decide it, with its commands."""
    if following := next_commands(view):
        yield "\n\n".join([f"#### {texts('heading.next')}", *(_next(one, texts) for one in following)])


def _inside(view: RunView, texts: Texts) -> Iterator[str]:
    """What steps and sketches say, and the next experiment with its command; nothing where none were recorded."""
    if not view.why and not view.violations and not view.located:
        return
    yield _listed(texts("heading.inside"), facts.inside(view), texts)
    yield from (block(strip, "") for strip in facts.strips(view))
    for some in proposed(view, view.why):
        for each in some:
            what = in_markdown(each.what, texts.language)
            yield f"{what}\n\n{block(without_paths(each.shown), 'sh')}"


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


_LEADS: Final = {
    (True, True): "lead.sampled",
    (True, False): "lead.corrupt",
    (False, True): "lead.benign.drawn",
    (False, False): "lead.benign",
}
"""By whether anything is corrupt, and whether tokens were drawn at random."""


def _which_lead(view: RunView, arm: ArmView, *, drawn: bool) -> str:
    if facts.asked_otherwise(view):
        return "lead.asked"
    return "lead.failed" if facts.failed(view) is not None else _LEADS[bool(arm.corrupt), drawn]


def _lead(view: RunView, texts: Texts) -> str:
    arm = (view.against_baseline if view.baseline_is_at_fault else view.suspected or view.candidates or view.arms)[0]
    tolerance = "-" if view.tolerance is None else f"{view.tolerance:g}"
    drawn = not view.run.greedy
    parts = [
        texts(
            _which_lead(view, arm, drawn=drawn),
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
    return in_a_row(parts)


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


def known(view: RunView, texts: Texts) -> str:
    """Known reports of the same kind whose conditions this run does not contradict: first of the finding that is shown,
    then of what else the run found."""
    found: dict[str, Match] = {}
    for arm in view.suspected or view.candidates:
        chosen = view.chosen
        kinds = [chosen.kind] if chosen is not None and chosen.is_corrupt else list(arm.corrupt)
        if not kinds:
            kinds = ["near_tie"] if arm.count("near_tie") else []
        rules = chosen.evidence.broken if chosen is not None and isinstance(chosen.evidence, ViolationEvidence) else ()
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
        of_any = {name: None if name in PER_REQUEST else holds for name, holds in holding.items()}
        others = [] if view.asked_for_finding else list(arm.corrupt)
        for match in (*matches(kinds, holding, rules=rules), *matches(others, of_any)):
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
