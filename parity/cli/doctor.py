"""`parity doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import click

from parity.cli.options import json_option
from parity.cli.output import emit, emit_json
from parity.records import Json

ROOM_FOR_ENGINE = 3 * 1024**3
"""Bytes: an engine environment takes about 2 GB, and pip needs room to unpack."""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can run, and what is missing."""
    report = examine()
    if as_json:
        emit_json(report)
        return
    emit(f"parity {report['parity']}, Python {report['python']}, {report['platform']}")
    data = report["data"]
    room = f"{data['free_bytes'] / 1024**3:.1f} GB free" if data["free_bytes"] is not None else "no such disk"
    emit(f"data directory {data['path']}: {'writable' if data['writable'] else 'NOT WRITABLE'}, {room}")
    for name, backend in report["backends"].items():
        emit(f"\nbackend {name}: {'can run' if backend['available'] else 'cannot run yet'}")
        for line in backend["looked_for"]:
            emit(f"  {line}")
        if backend["hint"]:
            emit(f"  hint: {backend['hint']}")
    for problem in report["problems"]:
        emit(f"\nproblem: {problem}")


def examine() -> dict[str, Json]:
    """Everything that `parity doctor` says, as JSON."""
    import parity
    from parity.errors import ParityError
    from parity.paths import data_dir, default_database
    from parity.run import backend_names, load_backend

    path = data_dir()
    there = _nearest_existing(path)
    writable = os.access(there, os.W_OK | os.X_OK)
    free = shutil.disk_usage(there).free if there.exists() else None
    problems: list[str] = []
    if not writable:
        problems.append(f"{path} cannot be written: set PARITY_HOME to another place")
    if free is not None and free < ROOM_FOR_ENGINE:
        problems.append(f"only {free / 1024**3:.1f} GB free at {there}: an engine environment needs 3")
    backends: dict[str, Json] = {}
    for name in backend_names():
        try:
            found = load_backend(name).detect()
        except ParityError as error:
            problems.append(error.message)
            continue
        backends[name] = {
            "available": found.available,
            "looked_for": list(found.looked_for),
            "details": dict(found.details),
            "hint": found.hint,
        }
    return {
        "parity": parity.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "data": {"path": str(path), "database": str(default_database()), "writable": writable, "free_bytes": free},
        "backends": backends,
        "problems": problems,
    }


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
