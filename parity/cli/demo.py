"""`parity demo`: what a verdict looks like, from a recording, without an engine."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from parity.cli.output import say
from parity.cli.shared import database_option, json_option
from parity.messages import message

RECORDINGS = ("base", "mtp", "mtp-broken")
"""Captures in `parity/demo`; the first is the baseline."""

ABOUT = message(
    "demo.about",
    "a recording, no engine runs: vLLM 0.32.0 on a CPU, 32 prompts on the small checkpoint in this package, without "
    "speculation (base), with it (mtp), and with it and a fault planted in the engine (mtp-broken)",
)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Run directory. [default: runs/ID in the data directory]")
@database_option
@json_option
@click.pass_context
def demo(ctx: click.Context, out: Path | None, db: Path | None, as_json: bool) -> int:
    """Compare recorded runs that come with parity: no engine needed.

    One arm is clean, in the other a fault like vllm#45100 was planted. The run is stored like any other, so
    `parity tui` shows its findings. Exit code 1, as for any run that diverged.
    """
    from parity.cli.run import run

    directory = files("parity") / "demo"
    say(ABOUT)
    replays = tuple((name, str(directory / f"{name}.jsonl.gz")) for name in RECORDINGS)
    code = ctx.invoke(run, replays=replays, baseline=f"replay/{RECORDINGS[0]}", out=out, db=db, as_json=as_json)
    return int(code)
