"""The launcher's side of the fault lab: no engine anywhere."""

from __future__ import annotations

import configparser
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import parity_faults
import pytest
from parity_faults import arithmetic, bookkeeping, catalogue, delta_net, hooks, launch, planting, plants
from parity_faults.hooks import State

from parity.records.kinds import kinds


def test_every_fault_is_described_and_its_expected_kinds_exist() -> None:
    described = parity_faults.describe()
    assert {"accepted_counts", "unstable_order", "unverified_drafts", "row_swap", "state_not_reset"} <= {
        item["name"] for item in described
    }
    known = set(map(str, kinds()))
    for item in described:
        assert item["summary"]
        assert not item["emulates"] or "#" in item["emulates"]
        assert set(item["expected"]) <= known
    assert json.loads(json.dumps(described)) == described


def test_every_fault_is_planted_somewhere_and_nothing_else_is() -> None:
    places = (plants.SAMPLED, plants.LOGITS, plants.METADATA, plants.OUTPUT)
    places += (plants.MODEL, plants.ATTENTION, plants.LINEAR, plants.REQUEST, bookkeeping.ALL, arithmetic.PLACES)
    planted = [name for place in places for name in place]
    assert sorted(planted) == sorted(catalogue.FAULTS)
    for layer, place in (("output", plants.OUTPUT), ("request", plants.REQUEST)):
        assert {name for name, fault in catalogue.FAULTS.items() if fault.layer == layer} == set(place)


def test_environment_round_trips_through_the_text_that_the_engine_reads() -> None:
    variables = parity_faults.environment("row_leak", rate=0.1, seed=7, log="planted.jsonl", from_step=3, span=9)
    assert planting.parse(variables["PARITY_FAULT"]) == planting.Planting("row_leak", 0.1, 7, from_step=3, span=9)
    more = planting.Planting("row_swap", 0.01, independent=1, from_version="0.31.0")
    assert planting.parse(more.to_text()) == more
    some = planting.Planting("row_swap", when="moved+mixed", block=8)
    assert planting.parse(some.to_text()) == some
    assert planting.parse(parity_faults.environment("loop", when="mixed")["PARITY_FAULT"]).conditions == ("mixed",)
    assert planting.parse("loop:noise=5").noise == 5
    assert planting.parse(planting.Planting("loop", noise=5, span=16).to_text()).noise == 5
    assert parity_faults.environment("chunk_twice", noise=5)["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert variables["PARITY_FAULT_LOG"] == "planted.jsonl"
    assert "VLLM_USE_V2_MODEL_RUNNER" not in parity_faults.environment("chunk_twice")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("row_swop", "row_swop"),
        ("row_swap:often=1", "often=1"),
        ("row_swap:span=3", "span=3"),
        ("row_swap:rate=0", "rate"),
        ("row_swap:rate=1.5", "rate"),
        ("row_swap:seed=x", "seed=x"),
        ("row_swap:noise=x", "noise=x"),
        ("row_swap:independent=2", "independent"),
        ("row_swap:from_version=new", "from_version=new"),
        ("row_swap:when=moved+sunday", "sunday"),
        ("row_swap:when=boundary:block=0", "block"),
        *(
            (f"{name}:when=moved", f"no meaning with {name}")
            for name in ("chunk_twice", "none", "unstable_order", "kv_fp8", "rope_off", "drafter_off", *bookkeeping.ALL)
        ),
    ],
)
def test_a_wrong_text_is_refused_and_named(text: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        planting.parse(text)


ENTRY_POINT = """
import sys
from importlib.metadata import entry_points
found = entry_points()
found = found.select(group='vllm.general_plugins') if hasattr(found, 'select') else found['vllm.general_plugins']
[entry] = [e for e in found if e.name == 'parity_faults']
entry.load()()
import parity_faults.hooks, parity_faults.lab, parity_faults.launch, parity_faults.plants
assert len(parity_faults.bundle()) > 5000
assert not {'parity', 'parity_backends', 'vllm', 'numpy'} & set(sys.modules), sorted(sys.modules)
"""
"""As vLLM does it: importlib.metadata over sys.path, then the function that the entry point names."""


def _finds_the_entry_point(place: str, folder: Path) -> None:
    environment = {"PYTHONPATH": place, "PATH": os.environ["PATH"]}
    # -S: no site-packages, so nothing of parity can be there.
    subprocess.run([sys.executable, "-S", "-c", ENTRY_POINT], env=environment, check=True, cwd=folder)


def test_an_interpreter_without_parity_finds_the_entry_point_of_the_zip_file(tmp_path: Path) -> None:
    _finds_the_entry_point(parity_faults.unpacked(tmp_path)["PYTHONPATH"], tmp_path)


def test_it_installs_alone_into_an_engine_without_parity(tmp_path: Path) -> None:
    source, target = Path(parity_faults.__file__).parent, tmp_path / "site"
    build = tmp_path / "parity_faults"
    shutil.copytree(source, build, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(build)], check=True, timeout=120)
    assert (target / "parity_faults" / "py.typed").exists()
    assert not (target / "parity").exists()
    _finds_the_entry_point(str(target), tmp_path)
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    written = configparser.ConfigParser()
    written.read_string(launch.ENTRY_POINTS)
    assert {group: dict(written[group]) for group in written.sections()} == project["entry-points"]
    assert f"Name: {project['name']}\nVersion: {project['version']}\n" in launch.METADATA


def test_the_bundle_is_small_and_the_same_each_time() -> None:
    first = parity_faults.bundle()
    assert first == parity_faults.bundle()
    assert len(first) < 60_000  # with base64 it must fit into one environment variable (128 KiB on Linux)
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert "parity_faults/__init__.py" in names
    assert any(name.endswith("entry_points.txt") for name in names)


def _steps(rate: float, seed: int, steps: int) -> list[int]:
    state = State()
    state.configure(planting.Planting("row_swap", rate=rate, seed=seed), os.devnull)
    hit = []
    for _ in range(steps):
        state.step += 1
        if state.due() is not None:
            assert state.due() is not None  # asked again in the same step: the same answer
            hit.append(state.step)
    return hit


def test_the_rate_is_exact_and_the_same_for_the_same_seed() -> None:
    assert _steps(1.0, 0, 5) == [0, 1, 2, 3, 4]
    for seed in range(20):
        hit = _steps(0.01, seed, 1000)
        assert len(hit) == 10
        assert {b - a for a, b in itertools.pairwise(hit)} <= {99, 100, 101}
        assert hit == _steps(0.01, seed, 1000)
    assert len({tuple(_steps(0.1, seed, 100)) for seed in range(20)}) > 3


def test_independent_steps_come_in_bunches_and_gaps_at_the_rate() -> None:
    state = State()
    state.configure(planting.parse("row_swap:rate=0.1:independent=1:seed=4"), os.devnull)
    hit = []
    for _ in range(20_000):
        state.step += 1
        if state.due() is not None:
            hit.append(state.step)
    assert 1870 < len(hit) < 2130  # three standard deviations of 20,000 draws at 0.1
    gaps = [b - a for a, b in itertools.pairwise(hit)]
    # Geometric: a gap of 1 with chance 0.1, of more than 20 with 0.9^20.
    assert 0.07 < gaps.count(1) / len(gaps) < 0.13
    assert 0.09 < sum(gap > 20 for gap in gaps) / len(gaps) < 0.16


@pytest.mark.parametrize(
    ("engine", "begins", "planted"),
    [
        ("0.32.0", "0.31.0", True),
        ("0.31.0", "0.31.0", True),
        ("0.31.0+cpu", "0.31", True),
        ("0.30.9", "0.31.0", False),
        ("0.9.2", "0.31.0", False),
        ("0.100.0", "0.31.0", True),
    ],
)
def test_a_fault_begins_with_a_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, begins: str, planted: bool
) -> None:
    monkeypatch.setattr(hooks, "engine_version", lambda: engine)
    log = tmp_path / "planted.jsonl"
    state = State()
    state.configure(planting.parse(f"row_swap:from_version={begins}"), str(log))
    state.step += 1
    assert (state.planting.fault == "row_swap") is planted
    records = [json.loads(line)["record"] for line in log.read_text().splitlines()]
    assert records == (["installed"] if planted else ["installed", "dormant"])


def test_maximum_and_from_step() -> None:
    state = State()
    state.configure(planting.parse("row_swap:from_step=3:max=2"), os.devnull)
    hit = []
    for _ in range(10):
        state.step += 1
        if state.due() is not None:
            hit.append(state.step)
    assert hit == [3, 4]


def test_the_unstable_partition_is_a_partition_that_loses_the_order() -> None:
    mask = [True, True, True, False, False]
    index = delta_net.unstable_partition(mask)
    assert sorted(index) == [0, 1, 2, 3, 4]
    assert [mask[place] for place in index] == sorted(mask)
    assert index != sorted(range(5), key=lambda place: mask[place])
