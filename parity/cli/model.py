"""`parity model`: checkpoints to try a host with."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, say
from parity.messages import message


@click.group()
def model() -> None:
    """Make small checkpoints, or find the one that comes with parity."""


@model.command(short_help="Print where the embedded checkpoint lies.")
def path() -> None:
    """Print the directory of the checkpoint that comes with parity.

    `parity run` takes it by default; a server that serves it, and --server, need its path.
    """
    from parity.kit.write import CHECKPOINT
    from parity.plan.checkpoint import shipped_checkpoint

    emit(str(shipped_checkpoint(CHECKPOINT)))


@model.command(short_help="Write a small random checkpoint.")
@click.option("--arch", required=True, metavar="FAMILY", help="qwen3_next, qwen3_5, mimo, deepseek_v3, glm4_moe, …")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="A new directory.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random weights.")
def tiny(arch: str, output: Path, seed: int) -> None:
    """Write a small random checkpoint with a prediction layer and a tokenizer. Prints its directory.

    For smoke tests of any host without a download: it fits any device, and drafts are mostly accepted.
    docs/versions.md says which families vLLM's CPU build runs.
    """
    from parity.tiny import write_checkpoint

    parameters = write_checkpoint(arch, output, seed=seed)
    say(message("cli.parameters", "{arch}: {parameters:,} parameters", arch=arch, parameters=parameters))
    emit(str(output))
