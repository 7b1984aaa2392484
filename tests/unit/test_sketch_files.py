"""The sketches file: what is written is what is read, and what is no sketch is refused."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_backends.worker.sketch_blocks import SketchStep, packed_sketches
from sketch_world import World, write_sketches

from parity.capture.problems import CaptureError
from parity.capture.sketch_table import PROJECTIONS, pack_sketches, signs, unpack_sketches
from parity.capture.sketches import SketchesBlock, read_sketches, sketches_path


def test_read_is_what_was_written(tmp_path: Path) -> None:
    made = World(completions=3).candidate()
    (read,) = read_sketches(write_sketches(tmp_path / "a.sketches", made))
    assert read.header == made.header
    assert read.requests == made.requests
    assert all(np.array_equal(read.columns[name], made.columns[name]) for name in made.columns)
    assert np.array_equal(read.norms, made.norms)
    assert np.array_equal(read.values, made.values)
    assert read.gaps.keys() == made.gaps.keys()
    assert all(np.array_equal(read.experts[gate], made.experts[gate]) for gate in made.experts)


def test_a_token_and_module_takes_at_most_64_bytes(tmp_path: Path) -> None:
    made = World(completions=8).candidate()
    path = write_sketches(tmp_path / "a.sketches", made)
    assert path.stat().st_size <= 64 * len(made) * len(made.modules)


def test_signs_are_the_same_everywhere_and_keep_lengths() -> None:
    matrix = signs(4096)
    assert set(np.unique(matrix)) == {-1.0, 1.0}
    assert all(matrix[row, column] == plainly(row, column) for row in (0, 1, 77, 4095) for column in range(16))
    together = matrix.T @ matrix / len(matrix) - np.eye(PROJECTIONS)
    assert np.abs(together).max() < 5 / np.sqrt(len(matrix))  # columns are as if drawn at random
    vectors = np.random.default_rng(1).standard_normal((200, 4096))
    estimated = np.sqrt(((vectors @ matrix) ** 2).mean(axis=1)) / np.linalg.norm(vectors, axis=1)
    assert np.std(estimated) == pytest.approx(1 / np.sqrt(2 * PROJECTIONS), rel=0.2)


def plainly(row: int, column: int) -> int:
    """The sign of one place, with Python's own integers, as docs/sketches.md has it."""
    value = (row * 0x9E3779B1 + column * 0x85EBCA77 + 0xC2B2AE3D) % 2**32
    value = (value ^ value >> 16) * 0x85EBCA6B % 2**32
    value = (value ^ value >> 13) * 0xC2B2AE35 % 2**32
    return 1 if (value ^ value >> 16) & 1 else -1


def cut(path: Path, to: int) -> None:
    path.write_bytes(path.read_bytes()[:to])


def test_what_an_interrupted_run_left_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_sketches(tmp_path / "a.sketches", World(completions=1).candidate())
    cut(path, path.stat().st_size - 100)
    (read,) = read_sketches(path)
    assert len(read) == 0
    assert sketches_path(Path("x/cpu-mtp.jsonl.gz")) == Path("x/cpu-mtp.sketches")


def damaged(path: Path, **changes: Any) -> None:
    header, block = (json.loads(line) for line in path.read_text().splitlines())
    target = header if set(changes) <= set(header) else block
    target.update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, block)))


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "parity.sketches/3"},
        {"modules": []},
        {"modules": [{"name": "a"}, {"name": "a"}]},
        {"modules": [{"name": "a"}]},  # columns of modules that there are none of
        {"tokens": -1},
        {"tokens": 1 << 40},
        {"tokens": 3},
        {"tokens": "many"},
        {"data": "AAAA"},
        {"data": base64.b64encode(zlib.compress(bytes(1 << 24))).decode()},
        {"columns": [["token", 1 << 30]]},
        {"columns": [["sketch/0", 3]]},
        {"columns": [["norm", 1]]},
        {"columns": [["norm/x", 1]]},
        {"columns": [["norm/99999", 1]]},
        {"columns": [["evil", 1]]},
        {"columns": []},
        {"requests": [{"number": "x"}]},
    ],
)
def test_what_is_no_sketch_is_refused_with_its_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write_sketches(tmp_path / "a.sketches", World(completions=1).candidate())
    damaged(path, **changes)
    with pytest.raises(CaptureError) as error:
        read_sketches(path)
    assert error.value.line in (1, 2)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 3000))
def test_bytes_from_elsewhere_end_in_an_error_that_says_so(noise: bytes, at: int) -> None:
    columns = {"token": np.arange(50), "norm/0": np.ones(50), "sketch/0": np.ones((50, PROJECTIONS))}
    packed = pack_sketches(columns)
    line = bytearray(msgspec.json.encode(SketchesBlock(tokens=50, **packed)))
    line[at % len(line) : at % len(line) + len(noise)] = noise
    try:
        block = msgspec.json.decode(bytes(line), type=SketchesBlock)
        unpack_sketches(block.tokens, block.columns, block.data)
    except (ValueError, KeyError):
        pass  # msgspec's own error is a ValueError


def step(tokens: int, seen: list[int], logits: list[int] = []) -> SketchStep:  # noqa: B006
    """`logits`: the rows that have some."""
    numbers = {name: np.arange(tokens) for name in ("step", "row", "request", "position", "token")}
    made = SketchStep(numbers, seen)
    made.sums = np.ones((len(seen), tokens, PROJECTIONS), dtype=np.float32) * 4
    made.norms = np.full((len(seen), tokens), 2, dtype=np.float32)
    made.entry, made.last = np.arange(tokens) + (1 << 33), np.arange(tokens) + 1000
    if logits:
        rows = np.array(logits)
        ones = np.ones((len(rows), PROJECTIONS), dtype=np.float32)
        made.logits = [(rows + 1000, ones * rows[:, None], np.ones(len(rows)), rows * 10, np.ones(len(rows)))]
    return made


def columns_of(block: dict[str, Any]) -> dict[str, Any]:
    return unpack_sketches(block["tokens"], block["columns"], block["data"])


def test_logits_go_to_the_token_whose_hidden_states_they_are_of() -> None:
    (block,) = packed_sketches([step(6, [0, 1], logits=[4, 2])], logits=2)
    found = columns_of(block)
    assert found["best"].tolist() == [-1, -1, 20, -1, 40, -1]
    assert found["norm/2"].tolist() == [-1, -1, 1, -1, 1, -1]
    assert found["sketch/2"][4].tolist() == [4] * PROJECTIONS
    assert (found["sketch/0"] == 2).all()  # in units of the norm
    assert found["entry"].tolist() == list(range(6))  # 32 bits of it


def test_steps_in_which_other_modules_ran_are_blocks_of_their_own() -> None:
    blocks = packed_sketches([step(2, [0, 1]), step(3, [0, 1]), step(4, [0])], logits=2)
    assert [block["tokens"] for block in blocks] == [5, 4]
    assert "norm/1" not in columns_of(blocks[1])


def test_modules_are_chosen_by_their_place_in_the_model() -> None:
    from parity_backends.worker.sketch_modules import sketched_modules

    class Module:
        def __init__(self, **children: Any) -> None:
            self.children = children
            self.__dict__.update(children)

        def named_children(self) -> Any:
            return self.children.items()

        def named_modules(self, prefix: str = "") -> Any:
            yield prefix, self
            for name, child in self.children.items():
                yield from child.named_modules(prefix + "." * bool(prefix) + name)

        def register_forward_hook(self) -> None:
            pass

    moe = Module(gate=Module(), experts=Module(), shared_expert=Module())
    moe.experts.top_k = 2
    layer = Module(input_layernorm=Module(), self_attn=Module(qkv_proj=Module()), mlp=moe)
    inner = Module(embed_tokens=Module(), layers=Module(**{"0": layer}), norm=Module())
    model = Module(model=inner, lm_head=Module())
    found = [(one.name, one.role, one.experts) for one in sketched_modules(model, "parts")]
    assert found == [
        ("model.layers.0.input_layernorm", "norm", 0),
        ("model.layers.0.self_attn", "part", 0),
        ("model.layers.0.mlp.gate", "router", 2),
        ("model.layers.0.mlp", "part", 0),
        ("model.layers.0", "layer", 0),
        ("output", "output", 0),
    ]
    # What a router chose otherwise is no fault, also where its layer alone is seen.
    layers = [one.name for one in sketched_modules(model, "layers")]
    assert layers == ["model.layers.0.mlp.gate", "model.layers.0", "output"]
    moe.experts.router = SimpleNamespace(e_score_correction_bias=object())
    assert [one.experts for one in sketched_modules(model, "parts") if one.role == "router"] == [0]


def test_sums_lengths_and_ties_on_the_host() -> None:
    from parity_backends.worker.sketch_sums import OnHost

    rows = np.random.default_rng(3).standard_normal((5, 40)).astype(np.float32)
    rows[1, [3, 7]], rows[2, 9] = 50, 60
    given = SimpleNamespace(numpy=lambda: rows)
    sums, norms = OnHost().sketch(given, signs(40))
    assert norms == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-5)
    assert sums[4, 2] == pytest.approx(sum(rows[4, at] * plainly(at, 2) for at in range(40)), rel=1e-3)
    best, ties = OnHost().largest(given)
    assert (best[1], ties[1], best[2], ties[2]) == (3, 2, 9, 1)


def test_a_file_of_the_schema_before_is_read_as_one_without_a_drafter(tmp_path: Path) -> None:
    path = write_sketches(tmp_path / "a.sketches", World(completions=1).candidate())
    damaged(path, schema="parity.sketches/1")
    (found,) = read_sketches(path)
    assert len(found)
    assert (found.columns["drafted"] == -1).all()
