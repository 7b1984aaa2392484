"""The configuration file; docs/hosts.md shows what is read here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from parity_backends.vllm.ascend import AscendBackend
from parity_backends.vllm.doctor.hardware import HARDWARE, SOURCES

from parity.errors import ParityError
from parity.plan.config import Config, find_config, read_config
from parity.plan.hosts import Host

REPEATABLE = HARDWARE["ascend"].determinism
DOCS = Path(__file__).parents[3] / "docs" / "hosts.md"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "parity.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_examples_of_the_documentation_are_read(tmp_path: Path) -> None:
    example, *others = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for other in others:
        assert read_config(write(tmp_path, other)).hosts
    config = read_config(write(tmp_path, example))
    cuda, npu = config.hosts["cuda"], config.hosts["npu-b"]
    assert (cuda.command, cuda.devices, cuda.workers) == (("ssh", "gpu1"), ("0,1,2,3", "4,5,6,7"), 2)
    assert (npu.adapter, npu.turn, npu.quoting) == ("ascend", "npu1", 1)
    # vllm-ascend's image sources both; ATB's script exports two of the variables the other way, and `env` wins.
    assert re.findall(r"source (\S+)", npu.setup or "") == re.findall(r"source (\S+?)`", SOURCES)
    assert npu.env == {"HCCL_BUFFSIZE": "1024", **{name: first for name, (first, *_) in REPEATABLE.items()}}
    assert config.plan["max-tokens"] == 256


def test_every_setting_is_documented() -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    assert described == set(Host.__struct_fields__) - {"name"}


def test_the_bounds_of_the_documentation_are_the_code_s() -> None:
    from parity.run import Timeouts
    from parity.run.process import MAX_LINE_BYTES, MAX_LOG_BYTES

    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    patience = Timeouts()
    assert f"{MAX_LINE_BYTES >> 20} MiB a record" in text
    assert f"stops growing at {MAX_LOG_BYTES >> 20} MiB" in text
    assert f"gives up after {patience.start / 60:.0f} minutes while starting" in text
    assert f", {patience.stall / 60:.0f} without a word" in text
    assert f"{patience.start:.0f} unless said otherwise" in text
    assert f"{patience.stall:.0f} unless said otherwise, {AscendBackend.stall_seconds:.0f} on `ascend`" in text
    assert patience.heartbeat * 4 == 60
    assert "after a minute without a sign of life" in text


def test_nothing_is_an_empty_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config() == Config()
    write(tmp_path, "[plan]\nsuite = 'smoke'\n")
    assert find_config().plan == {"suite": "smoke"}


def test_other_sections_are_kept_for_those_who_read_them(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, "[policy]\nx = 1\n[variants.a]\nasync_scheduling = true\n"))
    assert config.policy == {"x": 1}
    assert config.variants["a"].engine == {"async_scheduling": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "no setting 'x'"),
        ("[backends]\ncuda = 3\n", "[backends.cuda] must be a table"),
        ("[backends.cuda]\ncmd = 'a'\n", "no setting 'cmd'"),
        ("plan = 1\n", "plan must be a table"),
        ("[plan\n", "is not TOML"),
    ],
)
def test_mistakes_name_file_and_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ParityError) as caught:
        read_config(write(tmp_path, text))
    assert "parity.toml" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.hint


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "parity.toml"
    path.write_bytes(b"[plan]\nsuite = '\xff'\n")
    with pytest.raises(ParityError, match="is not TOML"):
        read_config(path)
    with pytest.raises(ParityError, match="cannot read"):
        read_config(tmp_path / "none.toml")
