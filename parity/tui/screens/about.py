"""What a run is about: its arms as a table, notes, the settings and environments that differ, its command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.paths import elsewhere, named_in
from parity.records import Kind
from parity.records.emulated import proves
from parity.store import ArmRow, RunStatus
from parity.tui.format import fit, moment, plain, seconds
from parity.tui.names import FIELDS, status_name
from parity.tui.run_columns import called, kinds_said
from parity.view.lines import RunLine
from parity.view.settings import told_apart
from parity.view.two_runs import flat

NAME = 26


NONE = message("tui.no_findings", "no findings")
NOT_COMPARED = message("tui.not_compared", "nothing was compared")


def headline(line: RunLine, database: Path | None = None) -> Text:
    """Two lines: which run it is, and what was found in it. `database`: where it is stored, for commands."""
    run, text = line.run, Text(no_wrap=False)
    text.append(f"{plain(run.id)}", style="bold")
    about = message(
        "tui.run_about",
        "{status}, model {model}, {count} arm",
        plural="{status}, model {model}, {count} arms",
        status=status_name(line.status),
        model=plain(run.model),
        count=len(line.arms),
    )
    text.append(f"  {render(about)}  {called(line)}".rstrip() + "\n")
    text.append(kinds_said(line.counts) or render(NONE if line.compared else NOT_COMPARED))
    if line.others:
        said = message("tui.new_and_known", "{new:,} new, {known:,} known", new=line.new, known=line.known)
        text.append(f"  ({render(said)})")
    text.append("\n")
    if line.planted:
        planted = message(
            "tui.planted", "in positive controls, planted on purpose: {kinds}", kinds=kinds_said(line.planted)
        )
        text.append(render(planted) + "\n", style="dim")
    for arm in line.emulated:
        text.append(plain(render(proves(arm))) + "\n", style="dim")
    if line.status == RunStatus.INTERRUPTED:
        named = named_in(plain(run.id), plain("" if database is None else elsewhere(database)))
        finish = message("tui.finish", "finish it with: {command}", command=f"parity run --resume {named}")
        text.append(render(finish) + "\n")
    return text


def reasons(line: RunLine) -> Text:
    """Why the verdict is what it is, and the command."""
    run, text = line.run, Text()
    for reason in map(render, [*run.reasons, *([run.message] if run.message else [])][:2]):
        text.append(plain(reason) + "\n", style="dim")
    text.append(plain(run.command), style="dim")
    return text


def arms_table(line: RunLine) -> Text:
    """A line per arm: verdict, findings, acceptance, tokens per step and per second, the settings that differ."""
    differing = told_apart({arm.name: arm.engine for arm in line.arms})
    heads = (
        (message("runs.arms", "arms"), NAME, False),
        (FIELDS["verdict"], 12, False),
        (FIELDS["found"], 6, True),
        (message("terminal.column.acceptance", "acceptance"), 10, True),
        (message("tui.column.per_step", "tok/step"), 8, True),
        (message("terminal.column.speed", "tokens/s"), 9, True),
    )
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" ".join(fit(render(name), width, right=right) for name, width, right in heads) + "\n", "bold")
    for arm in line.arms:
        baseline = render(message("tui.baseline", "baseline")) if arm.is_baseline else ""
        found = sum(number for kind, number in arm.counts.items() if kind != Kind.NEAR_TIE)
        cells = (
            plain(arm.name),
            baseline or status_name(arm.verdict or arm.status),
            f"{found:,}" if arm.status == "compared" else "",
            "" if arm.acceptance_rate is None else f"{arm.acceptance_rate:.1%}",
            "" if arm.acceptance_length is None else f"{arm.acceptance_length:.2f}",
            "" if arm.tokens_per_second is None else f"{arm.tokens_per_second:,.0f}",
        )
        shown = zip(cells, heads, strict=True)
        row = " ".join(fit(cell, width, right=right, middle=not right) for cell, (_, width, right) in shown)
        text.append(row + f"  {plain(differing[arm.name])}\n")
    return text


def everything(line: RunLine, database: Path | None = None) -> Text:
    """All that is stored of a run and its arms, to read through."""
    run, text = line.run, headline(line, database)
    text.append(f"{moment(run.created)}  {seconds(run.duration)}\n\n")
    text.append_text(arms_table(line))
    for heading, lines in (
        (message("tui.about.reasons", "Reasons"), _reasons(line)),
        (message("tui.about.notes", "Notes"), _notes(line.arms)),
        (message("tui.about.differs", "What differs between the arms"), _differences(line.arms)),
        (message("tui.about.versions", "Versions"), (f"{name} {version}" for name, version in run.versions.items())),
        (message("tui.about.files", "Files"), filter(None, [run.directory])),
        (message("tui.about.command", "Command"), [run.command]),
    ):
        found = [plain(one) for one in lines]
        if found:
            text.append(f"\n{render(heading)}\n", "bold")
            text.append("".join(f"  {one}\n" for one in found))
    return text


def _reasons(line: RunLine) -> Iterator[str]:
    yield from map(render, line.run.reasons)
    if line.run.message is not None:
        yield render(line.run.message)
    for arm in line.arms:
        for said in [*arm.reasons, *([arm.message] if arm.message else [])]:
            yield f"{arm.name}: {render(said)}"


def _notes(arms: Sequence[ArmRow]) -> Iterator[str]:
    yield from dict.fromkeys(f"{arm.name}: {render(note)}" for arm in arms for note in arm.notes)


def _differences(arms: Sequence[ArmRow]) -> Iterator[str]:
    """Settings and environment of each arm that are not the baseline's: `name: baseline → arm`."""
    known = [(arm, flat("", arm.engine) | flat("environment", arm.environment)) for arm in arms]
    base = next((values for arm, values in known if arm.is_baseline), None)
    for arm, values in known:
        if base is None or arm.is_baseline:
            continue
        for name in dict.fromkeys([*base, *values]):
            if base.get(name) != values.get(name) and not name.startswith((" capture", " scores")):
                yield f"{arm.name}  {name.strip()}: {base.get(name)} → {values.get(name)}"
