"""`parity tui --web`: what textual-serve does with the interface, without a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from parity.cli.main import cli
from parity.cli.tui import tui

PATIENCE = 60.0


def test_the_interface_speaks_to_textual_serve(database: Path) -> None:
    """As textual-serve starts it: through pipes, with its driver in the environment."""
    environment = {
        **os.environ,
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "COLUMNS": "80",
        "ROWS": "24",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "parity", "tui", "--db", str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    seen = b""
    try:
        while b"DIVERGED" not in seen and (more := os.read(process.stdout.fileno(), 65536)):
            seen += more
    finally:
        watchdog.cancel()
        process.kill()
        _, errors = process.communicate(timeout=PATIENCE)
    assert seen.startswith(b"__GANGLION__\n"), errors.decode()
    assert b"DIVERGED" in seen, errors.decode()


def test_without_textual_serve_the_remedy_is_a_whole_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    done = CliRunner().invoke(cli, ["tui", "--web"])
    assert done.exit_code == 2
    assert f"{sys.executable} -m pip install textual-serve" in done.stderr.replace("\n", " ")


def test_each_visitor_gets_the_same_database_and_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[tuple[str, int]] = []

    class Server:
        def __init__(self, command: str, *, host: str, port: int, title: str) -> None:
            assert host == "localhost", "not to the whole network"
            started.append((command, port))

        def serve(self) -> None:
            started.append(("served", 0))

    class Module:
        pass

    module = Module()
    module.Server = Server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textual_serve", Module())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "textual_serve.server", module)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    assert tui.callback is not None
    tui.callback(run="2026", db=Path("some place.db"), web=True, port=8123)
    (command, port), served = started
    assert command == f"{sys.executable} -m parity tui 2026 --db '{tmp_path}/some place.db'"
    assert port == 8123
    assert served == ("served", 0)


def test_without_a_terminal_it_says_what_to_do_instead() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parity", "tui"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        env={name: value for name, value in os.environ.items() if name != "TEXTUAL_DRIVER"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "parity runs show" in done.stderr
    assert "Traceback" not in done.stderr
