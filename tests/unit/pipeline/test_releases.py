"""What the release on a host cannot run is left out before an engine starts there."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plans import fake_plan

from parity.errors import ParityError
from parity.pipeline.releases import for_releases
from parity.plan import Arm, Plan
from parity.plan.hosts import Host
from parity.run import load_backend

MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
HYBRID = {"model_type": "qwen3_5", "layer_types": ["linear_attention", "full_attention"]}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(HYBRID))
    arms = (Arm("npu/base", "ascend", "base"), Arm("npu/mtp", "ascend", "mtp", MTP), Arm("npu/seqs", "ascend", "seqs"))
    return replace(fake_plan(), arms=arms, baseline="npu/base").with_model_path(tmp_path / "model")


def left(plan: Plan, tmp_path: Path, **versions: str) -> Plan:
    """What is left of the plan on a host whose Python has these distributions."""
    for name, version in versions.items():
        metadata = tmp_path / "site" / f"{name}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
    host = Host("npu", "ascend", command=("env", f"PYTHONPATH={tmp_path / 'site'}"), python=sys.executable)
    return for_releases(plan, {"npu": host}, {"npu": load_backend("ascend")})


def test_an_arm_that_the_release_cannot_run_is_skipped_with_the_reason(plan: Plan, tmp_path: Path) -> None:
    found = left(plan, tmp_path, vllm="0.13.0", vllm_ascend="0.13.0")
    assert [arm.name for arm in found.arms] == ["npu/base", "npu/seqs"]
    (skipped,) = found.skipped
    assert skipped.arm == "npu/mtp"
    assert "vllm-ascend 0.13.0 cannot run this: of hybrid models it has MTP for Qwen3-Next alone" in str(skipped.reason)


def test_a_candidate_of_a_release_counts_as_that_release(plan: Plan, tmp_path: Path) -> None:
    found = left(plan, tmp_path, vllm="0.12.0", vllm_ascend="0.12.0rc1")
    assert [one.arm for one in found.skipped] == ["npu/mtp"]


@pytest.mark.parametrize("versions", [{"vllm": "0.23.0", "vllm_ascend": "0.23.0"}, {"vllm": "0.13.0"}, {}])
def test_what_it_can_run_and_what_is_not_known_stays(plan: Plan, tmp_path: Path, versions: dict[str, str]) -> None:
    assert left(plan, tmp_path, **versions) == plan


def test_a_baseline_that_it_cannot_run_ends_it_before_anything_starts(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match=r"the baseline npu/mtp cannot run: vllm-ascend 0\.13\.0"):
        left(replace(plan, baseline="npu/mtp"), tmp_path, vllm="0.13.0", vllm_ascend="0.13.0")


def test_nothing_is_left_to_compare(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="only npu/base can run"):
        left(replace(plan, arms=plan.arms[:2]), tmp_path, vllm="0.13.0", vllm_ascend="0.13.0")
