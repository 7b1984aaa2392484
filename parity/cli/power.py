"""`parity power`: how many requests it takes to see a rare fault."""

from __future__ import annotations

from typing import Any

import click

from parity.cli.options import json_option
from parity.cli.output import console, emit_json, say
from parity.language import render
from parity.messages import message

RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)


@click.command()
@click.option("--rate", "rates", type=float, multiple=True, help="Share of completions that are hit. Repeatable.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Chance to see it at least once.")
@click.option("--requests", type=click.IntRange(min=1), help="Completions that a run has: what does it show?")
@click.option("--per-round", type=click.IntRange(min=1), default=64, show_default=True, help="Completions in a round.")
@click.option(
    "--overdispersion",
    type=float,
    default=1.0,
    show_default=True,
    help="How many completions count as one, where hits come together: 1 is none, a batch of 64 hit as one is 64.",
)
@json_option
def power(
    rates: tuple[float, ...],
    confidence: float,
    requests: int | None,
    per_round: int,
    overdispersion: float,
    as_json: bool,
) -> None:
    """Say how many requests show a fault of a given rate.

    With --requests also what so many show, and what they exclude where they are clean. Hits are taken as
    independent between completions (binomial); --overdispersion is for those that are not.
    """
    from parity.comparator.population.power import chance_to_see, rate_excluded, requests_needed

    rows: list[dict[str, Any]] = []
    for rate in rates or RATES:
        needed = requests_needed(rate, confidence, overdispersion)
        row: dict[str, Any] = {"rate": rate, "requests": needed, "rounds": -(-needed // per_round)}
        if requests is not None:
            row["chance_to_see"] = chance_to_see(rate, requests, overdispersion)
        rows.append(row)
    excluded = None if requests is None else rate_excluded(requests, confidence, overdispersion)
    if as_json:
        emit_json(
            {
                "schema": "parity.power/1",
                "confidence": confidence,
                "overdispersion": overdispersion,
                "per_round": per_round,
                "requests": requests,
                "rate_excluded": excluded,
                "rates": rows,
            }
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    titles = [
        message("power.rate", "rate"),
        message("power.one_in", "one in"),
        message("power.requests", "requests ({confidence:.4g})", confidence=confidence),
        message("power.rounds", "rounds of {completions}", completions=per_round),
    ]
    if requests is not None:
        titles.append(message("power.chance", "chance in {requests:,}", requests=requests))
    for title in titles:
        table.add_column(render(title), justify="right", no_wrap=True)
    for row in rows:
        cells = [f"{row['rate']:g}", f"{1 / row['rate']:,.0f}", f"{row['requests']:,}", f"{row['rounds']:,}"]
        if requests is not None:
            cells.append(f"{row['chance_to_see']:.1%}")
        table.add_row(*cells)
    console().print(table)
    if excluded is not None:
        say(
            message(
                "cli.clean_completions_exclude",
                "{requests:,} clean completions exclude any rate above {excluded:.3g} (1 in {excluded_2:,.0f})",
                requests=requests,
                excluded=excluded,
                excluded_2=1 / excluded,
            )
        )
    if overdispersion > 1:
        say(
            message(
                "cli.completions_count_one",
                "{overdispersion:g} completions count as one, because hits come together",
                overdispersion=overdispersion,
            )
        )
