"""What the backends on this machine share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from parity_backends.vllm import local


def test_an_environment_of_paritys_own_compiles_its_modules_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where PYTHONDONTWRITEBYTECODE is set, each engine start would compile all of vLLM and torch again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    python = tmp_path / "bin" / "python"
    assert local.own_cache(python) == {}  # somebody else's: his variables count
    (tmp_path / local.MARKER).write_text("")
    (tmp_path / "engine_like.py").write_text("")
    command = [sys.executable, "-c", "import engine_like"]
    for more, compiled in (({}, 0), (local.own_cache(python), 1)):
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **more}, check=True)
        assert len(list(tmp_path.glob("__pycache__/engine_like*.pyc"))) == compiled
