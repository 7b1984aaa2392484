"""A checkout of vllm-ascend in the place of the release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.cli.run import new_directory
from parity.errors import ParityError
from parity.plan import Arm, Model, Plan, Sampling
from parity.run.checkout import check_used, take_checkout

BACKENDS = Path(__file__).parents[3] / "backends"

LOOK = """
import parity_emulated_npu.start, vllm_ascend, vllm_ascend._build_info as built
from parity_emulated_npu.checkout import described
print(vllm_ascend.WHOSE, built.__device_type__, described(), sep="|")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "checkout" / "vllm_ascend"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("WHOSE = 'mine'\n")
    return package.parent


def look(checkout: Path) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(BACKENDS), "PARITY_VLLM_ASCEND": str(checkout)}
    env.pop("PARITY_EMULATED_NPU", None)
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("|")


def test_its_code_is_found_first_and_what_a_build_writes_is_made_up(checkout: Path) -> None:
    whose, built, described = look(checkout)
    assert (whose, built) == ("mine", "A2")
    assert "emulated" in described
    assert "checkout (not under git)" in described
    (checkout / "vllm_ascend" / "_build_info.py").write_text("__device_type__ = 'A3'\n")
    assert look(checkout)[1] == "A3"


def test_a_repository_around_it_does_not_lend_it_its_commit(checkout: Path) -> None:
    git = ["git", "-C", str(checkout.parent), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"], ["tag", "of-another"]):
        subprocess.run([*git, *arguments], check=True)
    assert "checkout (not under git)" in look(checkout)[2]


def test_the_capture_says_whose_commit_it_is(checkout: Path) -> None:
    git = ["git", "-C", str(checkout), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"], ["tag", "v9"]):
        subprocess.run([*git, *arguments], check=True)
    assert "checkout (v9)" in look(checkout)[2]
    (checkout / "vllm_ascend" / "__init__.py").write_text("WHOSE = 'changed'\n")
    assert look(checkout)[::2][0] == "changed"
    assert "checkout (v9-dirty)" in look(checkout)[2]


def test_a_folder_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="is no checkout of vllm-ascend") as caught:
        take_checkout(tmp_path)
    assert "git clone" in str(caught.value.hint)


def test_the_worker_inherits_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_VLLM_ASCEND", "")
    take_checkout(checkout)
    assert os.environ["PARITY_VLLM_ASCEND"] == str(checkout)


def test_a_run_keeps_whose_code_it_was(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_VLLM_ASCEND", str(checkout))
    for backend, kept in (("ascend-emulated@0.18.0", str(checkout)), ("cpu", None)):
        arms = tuple(Arm(f"{backend}/{variant}", backend, variant) for variant in ("base", "mtp"))
        plan = Plan(Model("tiny", "/nowhere", {}, 64, (0,)), (), arms, f"{backend}/base", Sampling())
        directory = new_directory(plan, {}, tmp_path / backend, None)
        assert directory.describe().checkout == kept


def test_one_of_the_arms_must_run_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_VLLM_ASCEND", str(checkout))
    check_used(["cpu", "ascend-emulated@0.18.0"])
    with pytest.raises(ParityError, match="no arm would run"):
        check_used(["cpu", "ascend"])
