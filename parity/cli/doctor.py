"""`parity doctor`: what this machine and the configured hosts can run, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from parity._version import __version__
from parity.cli.config import HostOptions, chosen_hosts, configuration, host_options
from parity.cli.output import emit, emit_json, say
from parity.cli.shared import json_option
from parity.errors import ExitCode
from parity.language import render
from parity.messages import Message, message

ROOM_FOR_ENGINE = 3 * 1024**3
"""Bytes: an engine environment takes about 2 GB, and pip needs room to unpack."""


_STATES = {
    "ok": message("doctor.ok", "ok"),
    "note": message("doctor.note", "note"),
    "problem": message("doctor.is_problem", "problem"),
}


@click.command()
@click.argument("backends", nargs=-1)
@click.option("--model", help="Checkpoint directory to look at on each host. [default: the backend's]")
@host_options
@json_option
def doctor(backends: tuple[str, ...], model: str | None, as_json: bool, where: HostOptions) -> int:
    """Say what this machine and the configured hosts can run, and what is missing.

    Looks at the installed backends and at those in parity.toml, or at BACKENDS only: hardware, driver, CANN,
    Python, torch, vLLM, vllm-ascend and whether they belong together, determinism variables, memory, the
    checkpoint and its prediction layers. No engine is started.
    """
    from parity.text import visible

    report = examine(backends, model, where)
    if as_json:
        emit_json(_plain(report))
        return _code(backends, report)
    emit(
        render(
            message(
                "cli.parity_python",
                "parity {parity}, Python {python}, {platform}",
                parity=report["parity"],
                python=report["python"],
                platform=report["platform"],
            )
        )
    )
    data = report["data"]
    if data["free_bytes"] is None:
        room = message("doctor.no_disk", "no such disk")
    else:
        room = message("doctor.free", "{free:.1f} GB free", free=data["free_bytes"] / 1024**3)
    emit(
        render(
            message(
                "cli.data_directory",
                "data directory {path}: {data}, {room}",
                path=data["path"],
                data=message("doctor.writable", "writable")
                if data["writable"]
                else message("doctor.not_writable", "NOT WRITABLE"),
                room=room,
            )
        )
    )
    for name, backend in report["backends"].items():
        emit(
            "\n"
            + render(
                message(
                    "cli.backend",
                    "backend {name}: {backend}",
                    name=name,
                    backend=message("doctor.can_run", "can run")
                    if backend["available"]
                    else message("doctor.cannot_run", "cannot run yet"),
                )
            )
        )
        for line in backend["looked_for"]:
            emit(f"  {render(line)}")
        for check in backend["checks"]:
            emit(visible(f"  {_state(check.state)} {render(check.name)}: {render(check.found)}"))
            if check.remedy:
                emit(visible(f"           → {render(check.remedy)}"))
        if backend["hint"]:
            emit("  " + render(message("cli.hint", "hint: {what}", what=backend["hint"])))
    for problem in report["problems"]:
        emit("\n" + render(message("cli.problem", "problem: {problem}", problem=problem)))
    return _code(backends, report)


def _code(named: tuple[str, ...], report: Mapping[str, Any]) -> int:
    """A machine that lacks something is no failure; a backend that there is none of is a mistake in the usage."""
    return ExitCode.PASS if all(name in report["backends"] for name in named) else ExitCode.USAGE


def _state(state: str) -> str:
    """In eight columns."""
    from parity.text import cell_width

    shown = render(_STATES[state])
    return shown + " " * max(0, 8 - cell_width(shown))


def examine(names: tuple[str, ...], model: str | None, where: HostOptions) -> dict[str, Any]:
    """Everything that `parity doctor` says."""
    from parity.errors import ParityError
    from parity.paths import data_dir, default_database
    from parity.run import backend_names

    path = data_dir()
    there = _nearest_existing(path)
    writable = os.access(there, os.W_OK | os.X_OK)
    free = shutil.disk_usage(there).free if there.exists() else None
    problems: list[Message] = []
    if not writable:
        problems.append(
            message(
                "doctor.not_writable_path", "{path} cannot be written: set PARITY_HOME to another place", path=str(path)
            )
        )
    if free is not None and free < ROOM_FOR_ENGINE:
        problems.append(
            message(
                "doctor.little_room",
                "only {free:.1f} GB free at {there}: an engine environment needs 3",
                free=free / 1024**3,
                there=str(there),
            )
        )
    if not names:
        names = tuple(dict.fromkeys([*backend_names(), *configuration().hosts]))
    backends: dict[str, Any] = {}
    for name in names:
        try:
            backends[name] = _backend(name, model, where)
        except ParityError as error:
            problems.append(
                message("doctor.problem", "{what} ({hint})", what=error.message, hint=error.hint)
                if error.hint
                else error.message
            )
    return {
        "parity": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "data": {"path": str(path), "database": str(default_database()), "writable": writable, "free_bytes": free},
        "backends": backends,
        "problems": problems,
    }


def _backend(name: str, model: str | None, where: HostOptions) -> dict[str, Any]:
    """What is found for one backend, on the host that it is configured for."""
    from parity.run import load_backend
    from parity.run.backend import Examinable
    from parity.run.checks import State
    from parity.run.examine import examine
    from parity.run.launch import place_in_words

    host = chosen_hosts([name], where)[name]
    backend = load_backend(host.adapter)
    default = backend.default_model()
    checkpoint = host.model or model or (str(default) if default is not None and not host.far else "")
    checks = []
    if isinstance(backend, Examinable):
        say(message("cli.looking", "looking at {name} …", name=name))
        checks = examine(backend, host, checkpoint)
    bad = any(check.state == State.PROBLEM for check in checks)
    if host.far:
        return {
            "host": str(place_in_words(host)),
            "available": not bad,
            "looked_for": [place_in_words(host)],
            "details": {},
            "hint": None,
            "checks": checks,
        }
    found = backend.detect()
    return {
        "host": str(place_in_words(host)),
        "available": found.available and not bad,
        "looked_for": list(found.looked_for),
        "details": dict(found.details),
        "hint": found.hint,
        "checks": checks,
    }


def _plain(value: Any) -> Any:
    """Messages in English, and what another host said without what could drive a terminal."""
    from parity.run.checks import Check
    from parity.text import visible

    if isinstance(value, Check):
        return {name: visible(said) if isinstance(said, str) else said for name, said in value.to_json().items()}
    if isinstance(value, Message):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
