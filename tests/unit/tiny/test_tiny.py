"""Small checkpoints: their files, and that what they promise of drafts is so."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from parity_backends.vllm.doctor.probe import model_facts

from parity.errors import ParityError
from parity.plan.checkpoint import read_checkpoint
from parity.tiny import FAMILIES, write_checkpoint
from parity.tiny.safetensors import Tensor, to_bfloat16
from parity.tiny.write import FIRST_ORDINARY


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> Tensor:
    """Exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a file that holds float32 and bfloat16 only, as float32. Raises OSError, ValueError."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    found: dict[str, Tensor] = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        start, end = about["data_offsets"]
        raw = data[8 + size + start : 8 + size + end]
        if about["dtype"] not in {"F32", "BF16"}:
            raise ValueError(f"{path}: {name} is {about['dtype']}")
        values = np.frombuffer(raw, "<f4") if about["dtype"] == "F32" else from_bfloat16(np.frombuffer(raw, "<u2"))
        found[name] = values.astype(np.float32).reshape(about["shape"])
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_checkpoint_that_parity_reads(tmp_path: Path, name: str) -> None:
    parameters = write_checkpoint(name, tmp_path / name)
    assert parameters < 6_000_000
    checkpoint = read_checkpoint(tmp_path / name)
    assert checkpoint.model.vocab_size == 2048
    facts = model_facts(str(tmp_path / name))
    assert facts["mtp_layers"] == 1
    assert facts["mtp_tensors"] >= 9
    assert facts["architectures"] == FAMILIES[name].config["architectures"]
    tensors = read_safetensors(tmp_path / name / "model.safetensors")
    assert sum(value.size for value in tensors.values()) == parameters
    assert all(np.isfinite(value).all() for value in tensors.values())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    for directory, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_checkpoint(name, tmp_path / directory, seed=seed)
    first, again, other = ((tmp_path / each / "model.safetensors").read_bytes() for each in "abc")
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", FAMILIES)
def test_every_token_has_one_successor_and_the_walk_never_ends(tmp_path: Path, name: str) -> None:
    write_checkpoint(name, tmp_path / "m")
    tensors = read_safetensors(tmp_path / "m" / "model.safetensors")
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    follows = np.argmax(embedding @ head.T, axis=1)
    ordinary = follows[FIRST_ORDINARY:]
    assert sorted(ordinary) == list(range(FIRST_ORDINARY, 2048))
    token, seen = FIRST_ORDINARY, set()
    while token not in seen:
        seen.add(token)
        token = int(follows[token])
    assert len(seen) == 2048 - FIRST_ORDINARY


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, 3.0e38, 1e-40, 0.0], dtype=np.float32)
    back = from_bfloat16(to_bfloat16(values))
    assert back[:4].tolist() == [1.0, 1.0, 1.015625, -2.5]
    assert np.allclose(back, values, rtol=2**-8)


def test_the_file_is_what_the_format_says(tmp_path: Path) -> None:
    write_checkpoint("mimo", tmp_path / "m")
    data = (tmp_path / "m" / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    ends = sorted(entry["data_offsets"] for entry in header.values())
    assert ends[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ends))
    assert ends[-1][1] == len(data) - 8 - size


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match=r"unknown family 'gpt'") as caught:
        write_checkpoint("gpt", tmp_path / "m")
    assert "qwen3_next" in str(caught.value.hint)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "x").touch()
    with pytest.raises(ParityError, match="is there already"):
        write_checkpoint("mimo", tmp_path / "m")
    (tmp_path / "file").touch()
    with pytest.raises(ParityError, match="cannot write"):
        write_checkpoint("mimo", tmp_path / "file" / "m")
