"""The table of an experiment for people: on a terminal, and as Markdown for an issue."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from parity.language import t
from parity.report.arm_lines import print_arms
from parity.report.escape import code, inline, without_paths
from parity.report.escape import table as markdown_table
from parity.report.table import SHORT, ExperimentTable, Output, Row
from parity.text import clip, visible, wrap


def print_table(console: Console, made: ExperimentTable) -> None:
    """The whole table; readable at 80 columns, in a pipe, and without colours."""
    _wrapped(console, made.question)
    names = ("count", "bad", "min", *(f"<{bound}" for bound in SHORT), "tok/s", "+start", "accept")
    print_arms(console, t("arm"), [t(name) for name in names], [(visible(row.arm), _cells(row)) for row in made.rows])
    for row in made.rows:
        console.print(Text(visible(row.arm), style="bold"), soft_wrap=True)
        for detail in details(row):
            _wrapped(console, visible(detail), indent="  ")
    for output in made.outputs:
        console.print(Text(clip(t(_output(output)), console.width - 1)), soft_wrap=True)
    for line in left_out(made):
        _wrapped(console, visible(line))


def _wrapped(console: Console, text: str, indent: str = "") -> None:
    for line in wrap(t(text), console.width - 1, first=indent, other=indent + "  "):
        console.print(Text(line), soft_wrap=True)


def _cells(row: Row) -> list[str]:
    return [
        f"{row.completions:,}",
        t("base") if row.baseline else _plain(row.corrupt),
        _plain(row.shortest),
        *(f"{row.shorter_than[str(bound)]:,}" for bound in SHORT),
        _speed(row.tokens_per_second),
        _speed(row.tokens_per_second_with_start),
        "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}",
    ]


def _plain(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _speed(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def details(row: Row) -> Iterator[str]:
    """What has no column: settings, how completions ended, kinds with intervals, the batch, notes."""
    ended = ", ".join(f"{reason} {times:,}" for reason, times in row.stops.items())
    yield f"{row.config}; ended by {ended}" if ended else row.config
    if row.control:
        yield f"positive control: {row.control} planted"
    if row.corrupt and row.corrupt_interval:
        low, high = row.corrupt_interval
        yield f"{row.corrupt:,} corrupt, a rate of {low:.2%} to {high:.2%} (95 %)" + _together(row)
    for kind in row.kinds:
        yield f"{kind.kind} in {kind.completions:,} ({kind.low:.2%} to {kind.high:.2%})"
    if row.not_excluded and not row.baseline:
        rate = f"{row.not_excluded:.2g} (1 in {1 / row.not_excluded:,.0f})"
        yield f"none corrupt; a fault rarer than {rate} could be missed"
    if row.batch:
        yield "; ".join(t(part) for part in batch_words(row).split("; "))
    yield from (note.removeprefix(f"{row.arm}: ") for note in row.notes)


def _together(row: Row) -> str:
    if row.overdispersion <= 1.05:
        return ""
    return f"; they come together in rounds, {row.overdispersion:.1f} completions count as one"


def batch_words(row: Row) -> str:
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


def left_out(made: ExperimentTable) -> Iterator[str]:
    """Combinations that could not run, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in made.skipped:
        reasons.setdefault(str(one.get("reason")), []).append(str(one.get("arm")))
    for reason, arms in reasons.items():
        yield f"not run: {arms[0]}{f' and {len(arms) - 1} more' if len(arms) > 1 else ''}: {reason}"


def markdown(made: ExperimentTable) -> str:
    """For an issue or a pull request: the table, and the worst outputs below it."""
    header = ["arm", "config", "count", "min len", *(f"<{bound}" for bound in SHORT), "stop counts", "tok/s",
              "tok/s incl. start", "acceptance", "identical", "near-tie", "corrupt (95 %)", "notes"]  # fmt: skip
    rows = [
        [
            code(row.arm),
            inline(without_paths(row.config)),
            f"{row.completions:,}",
            _plain(row.shortest),
            *(f"{row.shorter_than[str(bound)]:,}" for bound in SHORT),
            inline(", ".join(f"{reason}: {times:,}" for reason, times in row.stops.items())),
            _speed(row.tokens_per_second),
            _speed(row.tokens_per_second_with_start),
            "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.1%}",
            "baseline" if row.baseline else _plain(row.identical),
            "" if row.baseline else _plain(row.near_tie),
            "" if row.baseline else _corrupt(row),
            inline("; ".join([*([f"planted: {row.control}"] if row.control else []), batch_words(row), *row.notes])),
        ]
        for row in made.rows
    ]
    parts = [inline(f"{made.model}: {made.question}."), markdown_table(header, rows)]
    if made.outputs:
        parts.append("Outputs:")
        parts.append("\n".join(f"- {code(_output(output))}" for output in made.outputs))
    parts += [inline(line) for line in left_out(made)]
    return "\n\n".join(parts) + "\n"


def _corrupt(row: Row) -> str:
    if row.corrupt is None:
        return "not compared"
    if not row.corrupt:
        return "0" if row.not_excluded is None else f"0 (< {row.not_excluded:.2g})"
    low, high = row.corrupt_interval or (0.0, 1.0)
    kinds = "; ".join(f"{one.kind} {one.completions} ({one.low:.2%}–{one.high:.2%})" for one in row.kinds)
    return inline(f"{row.corrupt:,} ({low:.2%}–{high:.2%})" + (f": {kinds}" if kinds else ""))
