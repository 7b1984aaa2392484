"""`parity power`: how many requests it takes to see a rare fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from parity.cli.output import console, emit_json, say
from parity.cli.shared import database_option, json_option
from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, message

if TYPE_CHECKING:
    from rich.table import Table

    from parity.comparator.population.detectable import Smallest
    from parity.store import Store

MOST = 0.5
"""Rates above this are not said as one in so many."""

TOKENS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)
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
@click.option("--run", "run_id", metavar="RUN", help="Also: what the numerics would show, with this run's noise.")
@database_option
@json_option
def power(
    rates: tuple[float, ...],
    confidence: float,
    requests: int | None,
    per_round: int,
    overdispersion: float,
    run_id: str | None,
    db: Path | None,
    as_json: bool,
) -> None:
    """Say how many requests show a fault of a given rate.

    With --requests also what so many show, and what they exclude where they are clean. Hits are taken as
    independent between completions (binomial); --overdispersion is for those that are not. With --run also the
    smallest effect on all tokens that a run of so many tokens sees with 95 % probability: a bias of logprobs, noise of
    logits as a multiple of the baseline's, and tokens in 10,000 whose logprob is off by more than 0.1 nats.
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
    effects = dict(_effects(run_id, db)) if run_id else {}
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
                "numerics": {arm: [asdict(one) for one in found] for arm, found in effects.items()},
            }
        )
        return
    titles = [
        message("power.rate", "rate"),
        message("power.one_in", "one in"),
        message("power.requests", "requests ({confidence:.4g})", confidence=confidence),
        message("power.rounds", "rounds of {completions}", completions=per_round),
    ]
    if requests is not None:
        titles.append(message("power.chance", "chance in {requests:,}", requests=requests))
    table = _table(titles)
    for row in rows:
        cells = [f"{row['rate']:g}", f"{1 / row['rate']:,.0f}", f"{row['requests']:,}", f"{row['rounds']:,}"]
        if requests is not None:
            cells.append(f"{row['chance_to_see']:.1%}")
        table.add_row(*cells)
    console().print(table)
    if excluded is not None:
        one_in: Message | str = ""
        if excluded <= MOST:
            one_in = message("cli.one_in", " (1 in {number:,.0f})", number=1 / excluded)
        say(
            message(
                "cli.clean_completions_exclude",
                "{requests:,} clean completions exclude any rate above {excluded:.3g}{one_in}",
                requests=requests,
                excluded=excluded,
                one_in=one_in,
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
    for arm, found in effects.items():
        say(message("power.numerics", "{arm}: the smallest effect on all tokens that is seen (95 %)", arm=arm))
        console().print(_effects_table(found))


def _table(titles: Sequence[Message]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(render(title), justify="right", no_wrap=True)
    return table


def _effects(run_id: str, db: Path | None) -> Iterator[tuple[str, list[Smallest]]]:
    """For each arm of a stored run that has residuals: what it showed, and what more tokens would."""
    from parity.store import Store
    from parity.view.missing import unfinished

    with Store.open(db, create=False) as store:
        run = store.run(run_id)
        measured = _measured(store, run.id)
        failed = None if measured else unfinished(store, run.id)
    if not measured:
        raise failed or ParityError(
            message(
                "power.no_residuals",
                "the run {run} measured no residuals: its arms have no logprobs of their own, or no scores",
                run=run.id,
            ),
            hint=message("power.name_another", "name a run that has both; `parity run` asks for them by itself"),
        )
    yield from measured.items()


def _measured(store: Store, run_id: str) -> Mapping[str, list[Smallest]]:
    from parity.comparator import DEFAULT_ALPHA
    from parity.comparator.population.detectable import smallest_effects
    from parity.comparator.stats import Numerics, Stats

    found: dict[str, list[Smallest]] = {}
    for arm in store.arms(run_id):
        numerics = Stats.from_json(arm.stats).numerics if arm.stats else None
        if isinstance(numerics, Numerics) and numerics.tokens:
            sizes = {numerics.tokens, *(size for size in TOKENS if size > numerics.tokens)}
            effects = [smallest_effects(numerics, tokens, DEFAULT_ALPHA) for tokens in sorted(sizes)]
            found[arm.name] = [one for one in effects if one is not None]
    return {arm: effects for arm, effects in found.items() if effects}


def _effects_table(found: Sequence[Smallest]) -> Table:
    table = _table(
        [
            message("power.tokens", "tokens"),
            message("power.shift", "bias (nats)"),
            message("power.noise", "noise of logits"),
            message("power.wide", "off by > 0.1 nats, in 10,000"),
        ]
    )
    for one in found:
        table.add_row(
            f"{one.tokens:,}",
            "-" if one.mean_shift is None else f"{one.mean_shift:.5f}",
            "-" if one.scale_factor is None else f"x {one.scale_factor:.2f}",
            "-" if one.wide_per_10_000 is None else f"{one.wide_per_10_000:.1f}",
        )
    return table
