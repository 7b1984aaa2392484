"""The whole command in a process of its own, with a backend that needs no engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[2] / "support"


@dataclass
class Parity:
    """Runs `parity` with its own home. `env` adds to the environment (FAKE=… makes the engine misbehave)."""

    home: Path
    site: Path
    starts_file: Path

    def environment(self, **env: str) -> dict[str, str]:
        return {
            **os.environ,
            "PARITY_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(self.site), str(SUPPORT)]),
            "FAKE_STARTS": str(self.starts_file),
            **env,
        }

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "parity", *args],
            env=self.environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, **env)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def json(self, *args: str, **env: str) -> Any:
        return json.loads(self(*args, "--json", **env).stdout)

    @property
    def run_directory(self) -> Path:
        (directory,) = (self.home / "runs").iterdir()
        return directory

    @property
    def starts(self) -> list[str]:
        """Arms whose engine was started, in order."""
        return self.starts_file.read_text().split() if self.starts_file.exists() else []
