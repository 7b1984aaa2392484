"""`parity worker`: one arm of a plan that was carried here, its capture to be carried back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.config import HostOptions, chosen_hosts, host_options
from parity.cli.output import say, taken
from parity.cli.speaking import Misused
from parity.messages import message

if TYPE_CHECKING:
    from parity.run import ArmEvent, ArmSession, ScoreItem


@click.command()
@click.argument("plan_file", metavar="[PLAN]", required=False, type=click.Path(path_type=Path))
@click.option("--arm", help="The arm to run, such as cuda/base.")
@click.option(
    "--score",
    "captures",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="CAPTURE",
    help="Score the completions of this capture on the arm instead of generating. Repeatable.",
)
@click.option("--top", type=click.IntRange(1, 20), help="Top logprobs per scored token. [default: the plan's]")
@click.option("--model", type=click.Path(path_type=Path), help="Checkpoint directory on this machine.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Capture file to write; an unfinished one is continued. [default: stdout]",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the worker as one file instead, for a host without parity: python FILE PLAN --arm NAME.",
)
@click.option(
    "--write-recorder",
    type=click.Path(path_type=Path),
    metavar="FILE.zip",
    help="Write the flight recorder as a plugin for a server that parity does not start: "
    "PYTHONPATH=FILE.zip PARITY_RECORD=DIRECTORY vllm serve …",
)
@click.option("--backend", default="cpu", show_default=True, help="Whose worker or recorder is written.")
@host_options
def worker(
    plan_file: Path | None,
    arm: str | None,
    captures: tuple[Path, ...],
    top: int | None,
    model: Path | None,
    output: Path | None,
    write: Path | None,
    write_recorder: Path | None,
    backend: str,
    where: HostOptions,
) -> None:
    """Run one arm of a plan and write its capture.

    For hosts that cannot reach each other: `parity plan` on one, this on each, `parity compare` anywhere.
    The capture goes to stdout as it grows, or into a file that can be continued.
    """
    if write is not None:
        _write(write, backend)
        return
    if write_recorder is not None:
        _write_recorder(write_recorder, backend)
        return
    if plan_file is None or arm is None:
        raise Misused(message("cli.plan_arm_needed", "PLAN and --arm are needed, or --write FILE"))
    from tempfile import TemporaryDirectory

    from msgspec import structs

    from parity.errors import ParityError
    from parity.pipeline.checkpoints import locate_model
    from parity.pipeline.placing import load_adapters
    from parity.plan.trusting import plan_to_run
    from parity.run import progress, run_arm

    plan = plan_to_run(plan_file, say)
    wanted = next((each for each in plan.arms if each.name == arm), None)
    if wanted is None:
        raise ParityError(
            message("cli.plan_no_arm", "the plan has no arm {arm!r}", arm=arm),
            hint=message("cli.it_has", "it has {arms}", arms=[each.name for each in plan.arms]),
        )
    name = arm.partition("/")[0]
    hosts = {name: structs.replace(chosen_hosts([name], where)[name], adapter=wanted.backend)}
    adapters = load_adapters(hosts)
    if not hosts[name].far:
        plan = locate_model(plan, model or _path(hosts[name].model), adapters)
        hosts[name] = structs.replace(hosts[name], model=None)
    items = _items(captures)
    with TemporaryDirectory(prefix="parity-worker-") as scratch:
        path = output or Path(scratch) / "capture.jsonl"
        log = Path(scratch) / "engine.log" if output is None else output.with_name(output.name + ".log")
        copier = None if output is not None else Copier(path)
        with progress([arm], sys.stderr) as show:

            def on_event(event: ArmEvent) -> None:
                show(event)
                if copier is not None:
                    copier.copy()

            with run_arm(
                plan, arm, path, log, on_event=on_event, say=say, resume=True, backend=adapters[name],
                host=hosts[name],
            ) as session:  # fmt: skip
                _work(session, items, path, top or plan.score.top)
        if copier is not None:
            copier.copy()


def _work(session: ArmSession, items: list[ScoreItem], path: Path, top: int) -> None:
    if items:
        session.score(items, path, top=top)
    else:
        session.generate()


class Copier:
    """Copies what a growing capture has to stdout, whole lines as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def copy(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if whole:
            with taken():
                sys.stdout.buffer.write(whole)
                sys.stdout.buffer.flush()
            self._at += len(whole)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _items(captures: tuple[Path, ...]) -> list[ScoreItem]:
    """The completions of captures, to be scored. Raises ParityError for a capture that is none."""
    from parity.capture import read_capture
    from parity.run import ScoreItem

    found = []
    for path in captures:
        capture = read_capture(path, partial=True)
        found += [
            ScoreItem(capture.header.arm, *one.key, one.prompt_token_ids.tolist(), one.token_ids.tolist())
            for one in capture
            if len(one.token_ids)
        ]
    return found


def _write(path: Path, backend: str) -> None:
    from parity.errors import writing
    from parity.run import load_backend

    source = load_backend(backend).worker_source()
    with writing(path, message("cli.name_another_file_2", "name another file")):
        if str(path) == "-":
            sys.stdout.buffer.write(source)
            sys.stdout.buffer.flush()
            return
        path.write_bytes(source)
        os.chmod(path, 0o755)
    say(
        message(
            "cli.carry_plan_then",
            "{path}: carry it with the plan, then: python {path_2} PLAN --arm NAME > capture.jsonl",
            path=str(path),
            path_2=path.name,
        )
    )


def _write_recorder(path: Path, backend: str) -> None:
    from parity.errors import ParityError, writing
    from parity.run import load_backend
    from parity.run.backend import Recording

    engine = load_backend(backend)
    if not isinstance(engine, Recording):
        raise ParityError(
            message("cli.no_recorder", "backend {backend!r} has no flight recorder", backend=backend),
            hint=message("cli.recorder_of_vllm", "vLLM's has one: --backend cpu, cuda or ascend"),
        )
    with writing(path, message("cli.name_another_file_2", "name another file")):
        path.write_bytes(engine.recorder_plugin())
    say(
        message(
            "cli.carry_recorder",
            "{path}: carry it to the server's machine, then: PYTHONPATH={name} PARITY_RECORD=steps vllm serve …; "
            "`parity compare --steps FILE` reads what it writes there",
            path=str(path),
            name=path.name,
        )
    )
