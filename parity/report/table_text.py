"""The table of an experiment for people: on a terminal, and as Markdown for an issue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.records import Json
from parity.records.objects import object_of
from parity.report.arm_lines import print_arms
from parity.report.escape import code, inline, without_paths
from parity.report.escape import table as markdown_table
from parity.report.terminal import follow_ups, of_run
from parity.text import clip, visible, wrap
from parity.view import SHORT, ArmView, Output, RunView

COLUMNS: Final[tuple[Message | str, ...]] = (
    message("table.count", "count"),
    message("table.bad", "bad"),
    message("table.min", "min"),
    *(f"<{bound}" for bound in SHORT),
    message("table.speed", "tok/s"),
    message("table.with_start", "+start"),
    message("table.accept", "accept"),
)
ARM: Final = message("table.arm", "arm")
BASE: Final = message("table.base", "base")


def print_table(console: Console, view: RunView, *, notes: bool = True) -> None:
    """The whole table; readable at 80 columns, in a pipe, and without colours. `notes`: those of the comparison too."""
    _wrapped(console, view.question)
    rows = [(visible(row.name), _cells(row)) for row in view.arms]
    print_arms(console, render(ARM), [render(name) for name in COLUMNS], rows)
    for row in view.arms:
        console.print(Text(visible(row.name), style="bold"), soft_wrap=True)
        for detail in details(row, notes=notes):
            _wrapped(console, detail, indent="  ")
    for output in view.outputs:
        console.print(Text(clip(visible(render(_output(output))), console.width - 1)), soft_wrap=True)
    for line in left_out(view):
        _wrapped(console, line)


def _wrapped(console: Console, said: Message | str, indent: str = "") -> None:
    for line in wrap(visible(render(said)), console.width - 1, first=indent, other=indent + "  "):
        console.print(Text(line), soft_wrap=True)


def _cells(row: ArmView) -> list[str]:
    return [
        f"{row.completions:,}",
        render(BASE) if row.is_baseline else f"{row.faulty:,}" if row.compared else "-",
        _whole(row.shortest_ended),
        *(f"{row.shorter_than[bound]:,}" for bound in SHORT),
        _speed(row.tokens_per_second),
        _speed(row.tokens_per_second_with_start),
        "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}",
    ]


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _classed(row: ArmView, cls: str) -> str:
    return f"{row.count(cls):,}" if row.compared else "-"


def _speed(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def details(row: ArmView, *, notes: bool = True) -> Iterator[Message | str]:
    """What has no column: settings, how completions ended, kinds with intervals, the batch, notes."""
    ended = [f"{reason} {times:,}" for reason, times in row.stops.items()]
    if ended:
        yield message("table.ended", "{config}; ended by {ended}", config=row.config, ended=ended)
    else:
        yield row.config
    if row.control:
        yield message("table.control", "positive control: {fault} planted", fault=row.control)
    if row.faulty and row.corrupt_interval:
        yield _corrupt_rate(row, *row.corrupt_interval)
    if row.follow_ups:
        first = [f"{kind} {count:,}" for kind, count in row.first_faults.items()]
        yield message("table.first_faults", "first faults: {kinds}", kinds=first)
        yield follow_ups(row)
    for kind in row.kinds:
        yield message(
            "table.kind",
            "{kind} in {completions} ({low} to {high})",
            kind=kind.kind,
            completions=f"{kind.completions:,}",
            low=f"{kind.low:.2%}",
            high=f"{kind.high:.2%}",
        )
    if row.of_run:
        yield of_run(row)
    if (missed := row.figures.not_excluded) and not row.is_baseline:
        yield message(
            "table.missed",
            "none corrupt; a fault rarer than {rate} (1 in {one}) could be missed",
            rate=f"{missed:.2g}",
            one=f"{1 / missed:,.0f}",
        )
    if row.batch:
        yield batch_words(row)
    remarks = row.remarks if notes else row.own_remarks
    yield from (note.removeprefix(f"{row.name}: ") if isinstance(note, str) else note for note in remarks)


def _corrupt_rate(row: ArmView, low: float, high: float) -> Message:
    rate = message(
        "table.corrupt",
        "{corrupt} corrupt, a rate of {low} to {high} (95 %)",
        corrupt=f"{row.faulty:,}",
        low=f"{low:.2%}",
        high=f"{high:.2%}",
    )
    if row.overdispersion <= 1.05:
        return rate
    return message(
        "table.together",
        "{rate}; they come together in rounds, {worth} completions count as one",
        rate=rate,
        worth=f"{row.overdispersion:.1f}",
    )


def batch_words(row: ArmView, language: str | None = None) -> str:
    """What the batch did, in a line; in the language in use where none is named."""
    sizes, batch = object_of(row.batch.get("batch_sizes")), row.batch
    words: list[Message] = []
    if sizes:
        steps = sum(sizes.values())
        mean = sum(int(size) * times for size, times in sizes.items()) / max(1, steps)
        words.append(
            message(
                "table.batch.steps",
                "{steps} steps of {least} to {most} rows (mean {mean})",
                steps=f"{steps:,}",
                least=min(map(int, sizes)),
                most=max(map(int, sizes)),
                mean=f"{mean:.1f}",
            )
        )
    if all(name in batch for name in ("rows_joined", "rows_left", "rows_moved")):
        words.append(
            message(
                "table.batch.rows",
                "rows: {joined} joined, {left} left, {moved} moved",
                joined=f"{batch['rows_joined']:,}",
                left=f"{batch['rows_left']:,}",
                moved=f"{batch['rows_moved']:,}",
            )
        )

    def times(name: str) -> str:
        return f"{batch[name]:,}" if batch.get(name) else ""

    if arrivals := times("arrivals_while_decoding"):
        words.append(message("table.batch.arrivals", "{arrivals} arrivals while others decode", arrivals=arrivals))
    if aborted := times("aborted"):
        words.append(message("table.batch.aborted", "{aborted} aborted", aborted=aborted))
    if preemptions := times("preemptions"):
        words.append(message("table.batch.preemptions", "{preemptions} preemptions", preemptions=preemptions))
    if hits := times("prefix_cache_hits"):
        words.append(message("table.batch.hits", "{hits} prefix cache hits", hits=hits))
    return "; ".join(render(word, language) for word in words)


def _output(output: Output) -> Message:
    where = f"{output.request} round {output.round}" + (f" sample {output.sample}" if output.sample else "")
    text = message("table.no_text", "(no text)") if output.text is None else output.text
    if output.corrupt:
        return message(
            "table.output.corrupt",
            "corrupt, {arm}, {where}, {tokens} tokens: {text}",
            arm=output.arm,
            where=where,
            tokens=output.tokens,
            text=text,
        )
    return message(
        "table.output.shortest",
        "shortest, {arm}, {where}, {tokens} tokens: {text}",
        arm=output.arm,
        where=where,
        tokens=output.tokens,
        text=text,
    )


def left_out(view: RunView) -> Iterator[Message]:
    """Combinations that could not run, by reason."""
    reasons: dict[str, tuple[Message, list[str]]] = {}
    for arm, why in view.run.skipped:
        reasons.setdefault(str(why), (why, []))[1].append(arm)
    for reason, arms in reasons.values():
        if len(arms) > 1:
            yield message(
                "table.not_run.more",
                "not run: {arm} and {more} more: {reason}",
                arm=arms[0],
                more=len(arms) - 1,
                reason=reason,
            )
        else:
            yield message("table.not_run", "not run: {arm}: {reason}", arm=arms[0], reason=reason)


_MARKDOWN = (
    (
        message("table.md.arm", "arm"),
        message("table.md.config", "config"),
        message("table.md.count", "count"),
        message("table.md.min", "min len"),
    ),
    (
        message("table.md.stops", "stop counts"),
        message("table.md.speed", "tok/s"),
        message("table.md.speed_start", "tok/s incl. start"),
        message("table.md.acceptance", "acceptance"),
        message("table.md.identical", "identical"),
        message("table.md.near_tie", "near-tie"),
        message("table.md.corrupt", "corrupt (95 %)"),
        message("table.md.notes", "notes"),
    ),
)
"""Columns before and after those of short completions."""


def markdown(view: RunView, language: str = "en") -> str:
    """For an issue or a pull request: the table, and the worst outputs below it."""
    first, then = ([render(one, language) for one in part] for part in _MARKDOWN)
    header = [*first, *(f"<{bound}" for bound in SHORT), *then]
    rows = [
        [
            code(row.name),
            inline(without_paths(row.config)),
            f"{row.completions:,}",
            _whole(row.shortest_ended),
            *(f"{row.shorter_than[bound]:,}" for bound in SHORT),
            inline(", ".join(f"{reason}: {times:,}" for reason, times in row.stops.items())),
            _speed(row.tokens_per_second),
            _speed(row.tokens_per_second_with_start),
            "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.1%}",
            render(message("table.baseline", "baseline"), language) if row.is_baseline else _classed(row, "identical"),
            "" if row.is_baseline else _classed(row, "near_tie"),
            "" if row.is_baseline else _corrupt(row, language),
            inline(_notes(row, language)),
        ]
        for row in view.arms
    ]
    short = message(
        "table.short",
        "Below a bound those are counted that ended by themselves, not by the limit of tokens.",
    )
    question = inline(f"{view.run.model}: {render(view.question, language)}.")
    parts = [question, markdown_table(header, rows), render(short, language)]
    if view.outputs:
        parts.append(render(message("table.outputs", "Outputs:"), language))
        parts.append("\n".join(f"- {code(render(_output(output), language))}" for output in view.outputs))
    parts += [inline(render(line, language)) for line in left_out(view)]
    return "\n\n".join(parts) + "\n"


def _notes(row: ArmView, language: str) -> str:
    planted = [render(message("table.planted", "planted: {fault}", fault=row.control), language)] if row.control else []
    remarks = [render(remark, language) for remark in row.remarks]
    return "; ".join(filter(None, [*planted, batch_words(row, language), *remarks]))


def _corrupt(row: ArmView, language: str) -> str:
    corrupt, missed = row.faulty, row.figures.not_excluded
    if row.corrupt_interval is None:
        return render(message("table.not_compared", "not compared"), language)
    if not corrupt:
        none = "0" if missed is None else f"0 (< {missed:.2g})"
        return inline(f"{none}; {render(of_run(row), language)}") if row.of_run else none
    low, high = row.corrupt_interval
    kinds = [f"{one.kind} {one.completions} ({one.low:.2%}–{one.high:.2%})" for one in row.kinds]
    kinds += [render(of_run(row), language)] if row.of_run else []
    return inline(f"{corrupt:,} ({low:.2%}–{high:.2%})" + (f": {'; '.join(kinds)}" if kinds else ""))


def to_json(view: RunView) -> dict[str, Json]:
    """`parity.table/1`."""
    return {
        "schema": "parity.table/1",
        "run": view.run.id or None,
        "model": view.run.model,
        "question": str(view.question),
        "rows": [_row_json(arm) for arm in view.arms],
        "outputs": [asdict(output) for output in view.outputs],
        "skipped": [{"arm": arm, "reason": str(reason)} for arm, reason in view.run.skipped],
    }


def _row_json(arm: ArmView) -> dict[str, Json]:
    def classed(cls: str) -> int | None:
        return arm.count(cls) if arm.compared else None

    return {
        "arm": arm.name,
        "config": arm.config,
        "baseline": arm.is_baseline,
        "control": arm.control,
        "verdict": arm.verdict,
        "completions": arm.completions,
        "expected": arm.expected,
        "tokens": arm.tokens,
        "shortest": arm.shortest_ended,
        "shorter_than": {str(bound): count for bound, count in arm.shorter_than.items()},
        "stops": dict(arm.stops),
        "tokens_per_second": arm.tokens_per_second,
        "tokens_per_second_with_start": arm.tokens_per_second_with_start,
        "acceptance_rate": arm.acceptance_rate,
        "acceptance_length": arm.acceptance_length,
        "identical": classed("identical"),
        "near_tie": classed("near_tie"),
        "corrupt": classed("corrupt"),
        "corrupt_interval": arm.corrupt_interval,
        "overdispersion": arm.overdispersion,
        "kinds": [asdict(kind) for kind in arm.kinds],
        "not_excluded": arm.figures.not_excluded,
        "batch": dict(arm.batch),
        "notes": [str(note) for note in arm.remarks],
    }
