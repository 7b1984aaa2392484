"""The environment record: what a host's files and tools say, and nothing that is not there."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from parity_backends.vllm.worker import environment as record


def test_cann_is_found_where_its_variable_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setattr(record, "ASCEND_HOMES", ())
    assert record.cann_version() is None
    (tmp_path / "version.cfg").write_text("# version\nruntime_running_version=[7.6:8.3.RC2]\nversion=[7.6:8.3.RC2]\n")
    assert record.cann_version() == "8.3.RC2"
    info = tmp_path / f"{record.platform.machine()}-linux"
    info.mkdir()
    (info / "ascend_toolkit_install.info").write_text("package_name=Ascend-cann-toolkit\nversion=8.5.0\n")
    assert record.cann_version() == "8.5.0"


def test_tools_that_fail_hang_or_flood_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("npu-smi", "seq 100000"), ("nvidia-smi", "exit 9")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755 | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = record.drivers()
    assert "nvidia" not in found
    assert sum(len(line) + 1 for line in found["ascend"]) <= 4001
    assert record.said_by("no-such-tool") is None


def test_topology_is_the_matrix_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an H200's driver 580 prints it: underlined, and with a legend."""
    printed = "\\t\\033[4mGPU0\\tCPU Affinity\\033[0m\\nGPU0\\t X \\t0-15\\n\\nLegend:\\n\\n  X    = Self\\n"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    tool.chmod(0o755 | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert record.drivers()["nvidia_topology"] == ["GPU0\tCPU Affinity", "GPU0\t X \t0-15"]


def test_the_drivers_that_an_image_accepts_are_not_recorded() -> None:
    found = record.recorded_variables({"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=…", "NVIDIA_VISIBLE_DEVICES": "0"})
    assert found == {"NVIDIA_VISIBLE_DEVICES": "0"}


def test_devices_are_named_by_whichever_torch_has_them() -> None:
    none = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    assert record.device_names(none) == []
    npu = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda i: f"Ascend910_{i}")
    assert record.device_names(SimpleNamespace(**vars(none), npu=npu)) == ["Ascend910_0", "Ascend910_1"]


def test_libraries_are_those_that_matter() -> None:
    found = record.libraries()
    assert "numpy" in found
    assert "pytest" not in found
    assert list(found) == sorted(found)
