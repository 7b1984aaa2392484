"""`parity` in a process of its own with the toy engine."""

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
class Toy:
    """Runs `parity` in a process of its own with the toy engine. `toy` is what the engine is told (toy_engine.py)."""

    root: Path

    def start(self, *args: str, toy: dict[str, Any], **env: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PARITY_HOME": str(self.root / "home"),
            "PYTHONPATH": os.pathsep.join([str(self.root / "site"), str(SUPPORT)]),
            "TOY": json.dumps(toy),
            "TOY_STARTS": str(self.root / "starts.txt"),
            **env,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "parity", *args],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, toy: dict[str, Any], **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, toy=toy, **env)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    @property
    def starts(self) -> list[str]:
        """Arms whose engine was started, in order."""
        file = self.root / "starts.txt"
        return file.read_text().split() if file.exists() else []
