"""`parity kit`: for somebody who has the hardware, and no parity; and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.output import command_said, say, versions_here
from parity.cli.sampling import Real
from parity.cli.speaking import OneOf
from parity.errors import ExitCode
from parity.messages import message
from parity.plan.types import SKETCHED

if TYPE_CHECKING:
    from parity.kit.read import About

NONE = "none"

STOPPED = {
    "steps_stopped": message("cli.kit_steps", "the recording of steps"),
    "sketches_stopped": message("cli.kit_sketches", "the sketching of activations"),
}


@click.command()
@click.option(
    "--backend", default="cuda", show_default=True, metavar="NAME", help="What it is for: cuda, ascend, or cpu."
)
@click.option("--minutes", type=Real(min=1), default=15.0, show_default=True, help="Time that it may take.")
@click.option("--rounds", type=click.IntRange(min=1), default=4, show_default=True, help="Repeat the batch.")
@click.option("--samples", type=click.IntRange(min=1), default=8, show_default=True, help="Copies of each prompt.")
@click.option(
    "--temperature",
    type=Real(min=0),
    default=0.0,
    show_default=True,
    help="Above 0 --samples is the n of each request.",
)
@click.option(
    "--top-p",
    type=Real(min=0, max=1, min_open=True),
    default=1.0,
    show_default=True,
    help="Draw from the most likely tokens that hold this much probability.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), default=64, show_default=True, help="Longest output.")
@click.option("--suite", default="mixed", show_default=True, help="Built-in prompts: smoke or mixed.")
@click.option(
    "--sketch",
    default=SKETCHED[0],
    show_default=True,
    type=OneOf((*SKETCHED, NONE)),
    help="Sketch the activations of decoder layers, of their parts too (parts), or of nothing (none).",
)
@click.option(
    "--sketch-tokens",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Of each arm that is sketched, its first tokens: 39 bytes for each of them and module.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Archive. [default: parity-kit-NAME.pyz]")
def kit(
    backend: str,
    minutes: float,
    rounds: int,
    samples: int,
    temperature: float,
    top_p: float,
    max_tokens: int,
    suite: str,
    sketch: str,
    sketch_tokens: int,
    output: Path | None,
) -> int:
    """Write one file that runs on a machine with vLLM and without parity.

    There: `python parity-kit-cuda.pyz` runs the arms of vllm#45100, and production's, on a small checkpoint that is
    in it, and writes one file. Here: `parity compare parity-kit-result.tar.gz` reads that file as a run of its own.
    docs/kit.md says what is in it.
    """
    from parity.kit.write import KitRequest, write_kit
    from parity.run import load_backend

    path = output or Path(f"parity-kit-{backend}.pyz")
    level = "" if sketch == NONE else sketch
    request = KitRequest(backend, minutes, rounds, samples, max_tokens, suite, temperature, top_p, level, sketch_tokens)
    plan = write_kit(request, load_backend(backend), path)
    say(
        message(
            "cli.kit_written",
            "{path}: {arms}; there: python {name}, and here: parity compare parity-kit-result.tar.gz",
            path=str(path),
            arms=[arm.name for arm in plan.arms],
            name=path.name,
        )
    )
    return ExitCode.PASS


def compare_result(path: Path, model: Path | None, policy_file: Path | None, db: Path | None, *, as_json: bool) -> int:
    """Compare and store what a kit sent back: a run whose engines ran elsewhere."""
    from parity.cli import gate
    from parity.cli.hunting import say_skipped
    from parity.cli.outcome import show_outcome
    from parity.kit.read import Nothing, close_result, read_result
    from parity.pipeline.checkpoints import locate_model
    from parity.pipeline.directory import new_run_id
    from parity.pipeline.execute import execute
    from parity.pipeline.planning import load_backends
    from parity.store import Store

    policy = gate.load(policy_file)
    command = command_said()
    with Store.open(db) as store:
        about = {"command": command, "db": str(db.absolute()) if db else None}
        result = read_result(path, None, new_run_id(), about)
        _say_about(result.about)
        say_skipped(result.plan)
        plan = locate_model(result.plan, model, load_backends(["cpu"]))
        outcome = execute(
            plan,
            result.directory,
            store,
            Nothing(result.failed),
            command=command,
            versions=versions_here(),
            say=say,
        )
        close_result(result, outcome)
        return show_outcome(outcome, store, policy, as_json=as_json, several=True)


def _say_about(about: About) -> None:
    versions = [f"{name} {version}" for name, version in about.versions.items()]
    say(message("cli.kit_ran", "it ran there: {versions}, {platform}", versions=versions, platform=about.platform))
    for what, why in about.stopped.items():
        say(message("cli.kit_stopped", "its rehearsal ended {what}: {why}", what=STOPPED.get(what, what), why=why))
    if about.scoring_failed is not None:
        say(message("cli.kit_scoring_failed", "scoring failed there: {said}", said=about.scoring_failed))
