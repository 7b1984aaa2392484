"""The table of an experiment for people: on a terminal, and as Markdown for an issue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from parity.language import t
from parity.records import Json
from parity.report.arm_lines import print_arms
from parity.report.escape import code, inline, without_paths
from parity.report.escape import table as markdown_table
from parity.text import clip, visible, wrap
from parity.view import SHORT, ArmView, Output, RunView


def print_table(console: Console, view: RunView) -> None:
    """The whole table; readable at 80 columns, in a pipe, and without colours."""
    _wrapped(console, view.question)
    names = ("count", "bad", "min", *(f"<{bound}" for bound in SHORT), "tok/s", "+start", "accept")
    print_arms(console, t("arm"), [t(name) for name in names], [(visible(row.name), _cells(row)) for row in view.arms])
    for row in view.arms:
        console.print(Text(visible(row.name), style="bold"), soft_wrap=True)
        for detail in details(row):
            _wrapped(console, visible(detail), indent="  ")
    for output in view.outputs:
        console.print(Text(clip(t(_output(output)), console.width - 1)), soft_wrap=True)
    for line in left_out(view):
        _wrapped(console, visible(line))


def _wrapped(console: Console, text: str, indent: str = "") -> None:
    for line in wrap(t(text), console.width - 1, first=indent, other=indent + "  "):
        console.print(Text(line), soft_wrap=True)


def _cells(row: ArmView) -> list[str]:
    return [
        f"{row.completions:,}",
        t("base") if row.is_baseline else _classed(row, "corrupt"),
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


def details(row: ArmView) -> Iterator[str]:
    """What has no column: settings, how completions ended, kinds with intervals, the batch, notes."""
    ended = ", ".join(f"{reason} {times:,}" for reason, times in row.stops.items())
    yield f"{row.config}; ended by {ended}" if ended else row.config
    if row.control:
        yield f"positive control: {row.control} planted"
    if row.count("corrupt") and row.corrupt_interval:
        low, high = row.corrupt_interval
        yield f"{row.count('corrupt'):,} corrupt, a rate of {low:.2%} to {high:.2%} (95 %)" + _together(row)
    for kind in row.kinds:
        yield f"{kind.kind} in {kind.completions:,} ({kind.low:.2%} to {kind.high:.2%})"
    if (missed := row.figures.not_excluded) and not row.is_baseline:
        rate = f"{missed:.2g} (1 in {1 / missed:,.0f})"
        yield f"none corrupt; a fault rarer than {rate} could be missed"
    if row.batch:
        yield "; ".join(t(part) for part in batch_words(row).split("; "))
    yield from (note.removeprefix(f"{row.name}: ") for note in row.remarks)


def _together(row: ArmView) -> str:
    if row.overdispersion <= 1.05:
        return ""
    return f"; they come together in rounds, {row.overdispersion:.1f} completions count as one"


def batch_words(row: ArmView) -> str:
    """What the batch did, in a line."""
    sizes = row.batch.get("batch_sizes")
    words = []
    if isinstance(sizes, dict) and sizes:
        steps = sum(sizes.values())
        mean = sum(int(size) * times for size, times in sizes.items()) / max(1, steps)
        words.append(f"{steps:,} steps of {min(map(int, sizes))} to {max(map(int, sizes))} rows (mean {mean:.1f})")
    if "rows_moved" in row.batch:
        words.append("rows: {rows_joined:,} joined, {rows_left:,} left, {rows_moved:,} moved".format(**row.batch))
    for name, word in (
        ("arrivals_while_decoding", "arrivals while others decode"),
        ("aborted", "taken back"),
        ("preemptions", "preemptions"),
        ("prefix_cache_hits", "prefix cache hits"),
    ):
        if row.batch.get(name):
            words.append(f"{row.batch[name]:,} {word}")
    return "; ".join(words)


def _output(output: Output) -> str:
    what = "corrupt" if output.corrupt else "shortest"
    where = f"{output.request} round {output.round}" + (f" sample {output.sample}" if output.sample else "")
    text = "(no text)" if output.text is None else visible(output.text)
    return f"{what}, {visible(output.arm)}, {visible(where)}, {output.tokens} tokens: {text}"


def left_out(view: RunView) -> Iterator[str]:
    """Combinations that could not run, by reason."""
    reasons: dict[str, list[str]] = {}
    for arm, reason in view.run.skipped:
        reasons.setdefault(reason, []).append(arm)
    for reason, arms in reasons.items():
        yield f"not run: {arms[0]}{f' and {len(arms) - 1} more' if len(arms) > 1 else ''}: {reason}"


def markdown(view: RunView) -> str:
    """For an issue or a pull request: the table, and the worst outputs below it."""
    header = ["arm", "config", "count", "min len", *(f"<{bound}" for bound in SHORT), "stop counts", "tok/s",
              "tok/s incl. start", "acceptance", "identical", "near-tie", "corrupt (95 %)", "notes"]  # fmt: skip
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
            "baseline" if row.is_baseline else _classed(row, "identical"),
            "" if row.is_baseline else _classed(row, "near_tie"),
            "" if row.is_baseline else _corrupt(row),
            inline("; ".join([*([f"planted: {row.control}"] if row.control else []), batch_words(row), *row.remarks])),
        ]
        for row in view.arms
    ]
    parts = [inline(f"{view.run.model}: {view.question}."), markdown_table(header, rows)]
    if view.outputs:
        parts.append("Outputs:")
        parts.append("\n".join(f"- {code(_output(output))}" for output in view.outputs))
    parts += [inline(line) for line in left_out(view)]
    return "\n\n".join(parts) + "\n"


def _corrupt(row: ArmView) -> str:
    corrupt, missed = row.count("corrupt"), row.figures.not_excluded
    if row.corrupt_interval is None:
        return "not compared"
    if not corrupt:
        return "0" if missed is None else f"0 (< {missed:.2g})"
    low, high = row.corrupt_interval
    kinds = "; ".join(f"{one.kind} {one.completions} ({one.low:.2%}–{one.high:.2%})" for one in row.kinds)
    return inline(f"{corrupt:,} ({low:.2%}–{high:.2%})" + (f": {kinds}" if kinds else ""))


def to_json(view: RunView) -> dict[str, Json]:
    """`parity.table/1`."""
    return {
        "schema": "parity.table/1",
        "run": view.run.id or None,
        "model": view.run.model,
        "question": view.question,
        "rows": [_row_json(arm) for arm in view.arms],
        "outputs": [asdict(output) for output in view.outputs],
        "skipped": [{"arm": arm, "reason": reason} for arm, reason in view.run.skipped],
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
        "notes": list(arm.remarks),
    }
