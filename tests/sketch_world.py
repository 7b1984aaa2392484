"""Made-up sketches: a model of a few modules whose vectors are noise around a fixed one of each token and context."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from captures import capture, completion

from parity.capture.sketch_table import PROJECTIONS, SKETCHES_SCHEMA, pack_sketches, signs
from parity.capture.sketches import SketchedModule, Sketches, SketchesBlock, SketchesHeader
from parity.capture.steps import StepRequest
from parity.records import Capture

WIDTH = 64
NAMES = ("norm", "attn", "gate", "mlp", "layer")
MODULES = tuple(
    SketchedModule(
        f"model.layers.{layer}.{name}", "router" if name == "gate" else "part", name.title(), 5 * layer + place
    )
    for layer in range(3)
    for place, name in enumerate(NAMES)
)
LOGITS = SketchedModule("logits", "logits", "", 99)
SIGNS = signs(WIDTH)
Change = Callable[[str, int, int, np.ndarray], np.ndarray]
"""(request, position, module, vector) to what the candidate's module gave."""


@cache
def true_vectors(tokens: tuple[int, ...]) -> np.ndarray:
    """What each module gives after these tokens, shape (modules, WIDTH)."""
    return np.random.default_rng(zlib.crc32(repr(tokens).encode())).standard_normal((len(MODULES) + 1, WIDTH))


@dataclass
class World:
    """Completions, and sketches of two engines that computed them: one in decode steps, one in a prefill."""

    completions: int = 24
    length: int = 40
    noise: float = 0.005
    seed: int = 1
    change: Change | None = None
    flips: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    """(request, position, module) of routers that chose other experts in the candidate."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.tokens = {
            f"p{number}": tuple(int(one) for one in rng.integers(1, 1000, self.length))
            for number in range(self.completions)
        }

    def capture(self, arm: str = "cpu/mtp") -> Capture:
        made = [completion(list(one[10:]), name, prompt=list(one[:10])) for name, one in self.tokens.items()]
        return capture(arm, *made)

    def reference(self) -> Sketches:
        rows = [(name, place, position) for place, name in enumerate(self.tokens) for position in range(self.length)]
        return self._sketches("cpu/base", rows, named=False, change=None)

    def candidate(self) -> Sketches:
        """Decode steps of three: a token, a draft that holds, and one that is rejected and computed again."""
        rows: list[tuple[str, int, int]] = []
        for place, name in enumerate(self.tokens):
            rows += [(name, place, position) for position in range(10)]
            for begin in range(10, self.length - 1, 2):
                rows += [(name, place, position) for position in (begin, begin + 1) if position < self.length - 1]
                rows.append((name, place, -(begin + 2)))
        return self._sketches("cpu/mtp", rows, named=True, change=self.change)

    def _sketches(self, arm: str, rows: list[tuple[str, int, int]], *, named: bool, change: Change | None) -> Sketches:
        rng = np.random.default_rng(self.seed + named)
        modules = (*MODULES, LOGITS)
        total, wide = len(rows), len(modules)
        norms = np.zeros((total, wide), dtype=np.float32)
        values = np.zeros((total, wide, PROJECTIONS), dtype=np.float16)
        names = ("step", "row", "request", "position", "token", "entry", "best", "ties")
        columns = {name: np.zeros(total, dtype=np.int64) for name in names}
        gates = [number for number, one in enumerate(modules) if one.role == "router"]
        experts = {gate: np.tile(np.array([0, 1], dtype=np.int16), (total, 1)) for gate in gates}
        for at, (name, place, signed) in enumerate(rows):
            position, rejected = abs(signed), signed < 0
            tokens = self.tokens[name][: position + 1]
            token = 1001 if rejected else tokens[-1]
            follows = self.tokens[name][position + 1] if position + 1 < self.length else 0
            step = position - 2 * rejected if position >= 10 else 0
            entry = zlib.crc32(repr(token).encode())
            given = (place * 1000 + (step - step % 2), place % 4, place, position, token, entry, follows, 1)
            for column, value in zip(names, given, strict=True):
                columns[column][at] = value
            spread = self.noise * np.exp(0.3 * rng.standard_normal((wide, 1)))
            vectors = true_vectors(tokens) * (3.0 if rejected else 1.0) + spread * rng.standard_normal((wide, WIDTH))
            if change is not None and not rejected:
                vectors = np.array([change(name, position, module, one) for module, one in enumerate(vectors)])
            norms[at] = np.linalg.norm(vectors, axis=1)
            values[at] = vectors @ SIGNS / norms[at][:, None]
            for gate in gates:
                if named and self.flips.get((name, position, gate)):
                    experts[gate][at] = (0, 2)
        requests = {
            place: StepRequest(number=place, request=name if named else None, prompt_tokens=10, plain=True)
            for place, name in enumerate(self.tokens)
        }
        gaps = {gate: np.full(total, 0.01, dtype=np.float32) for gate in gates}
        header = SketchesHeader(schema=SKETCHES_SCHEMA, arm=arm, modules=modules, level="parts")
        return Sketches(header, requests, columns, True, norms, values, gaps, experts)


def write_sketches(path: Path, sketches: Sketches) -> Path:
    """A file with these sketches in one block."""
    packed = dict(sketches.columns)
    for module in range(len(sketches.modules)):
        packed[f"norm/{module}"] = sketches.norms[:, module]
        packed[f"sketch/{module}"] = sketches.values[:, module]
        if module in sketches.experts:
            packed[f"experts/{module}"], packed[f"gap/{module}"] = sketches.experts[module], sketches.gaps[module]
    block = SketchesBlock(tokens=len(sketches), requests=list(sketches.requests.values()), **pack_sketches(packed))
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (sketches.header, block)))
    return path


DRAFTER = tuple(
    SketchedModule(f"drafter.{name}", role, "", 100 + place, True)
    for place, (name, role) in enumerate(
        (("hidden_states", "part"), ("model.fc", "part"), ("model.layers.0.self_attn", "part"), ("output", "output"))
    )
)


def with_drafter(world: World, sketches: Sketches, *, change: Change | None = None, prefill: bool = False) -> Sketches:
    """The same steps, with a drafter's first pass over their tokens. `change` is given its modules' numbers."""
    rng = np.random.default_rng(world.seed + 10 + prefill)
    columns, names = sketches.columns, list(world.tokens)
    total, wide = len(sketches), len(DRAFTER)
    norms, values = np.zeros((total, wide)), np.zeros((total, wide, PROJECTIONS))
    drafted, entry = np.full(total, 1002), np.zeros(total, dtype=np.int64)
    for at in range(total):
        name, position = names[columns["request"][at]], int(columns["position"][at])
        rejected = columns["token"][at] == 1001
        follows = world.tokens[name][position + 1 : position + 2]
        if follows and not rejected:
            drafted[at] = follows[0]
        entry[at] = zlib.crc32(repr(int(drafted[at])).encode())
        vectors = true_vectors((*world.tokens[name][: position + 2], -1))[:wide]
        spread = world.noise * np.exp(0.3 * rng.standard_normal((wide, 1)))
        vectors = vectors * (3.0 if rejected else 1.0) + spread * rng.standard_normal((wide, WIDTH))
        if change is not None and not rejected:
            vectors = np.array([change(name, position, module, one) for module, one in enumerate(vectors)])
        norms[at] = np.linalg.norm(vectors, axis=1)
        values[at] = vectors @ SIGNS / norms[at][:, None]
    more = {"drafted": drafted, "drafted_at": columns["position"], "drafter_entry": entry}
    header = msgspec.structs.replace(sketches.header, modules=(*sketches.modules, *DRAFTER), prefill=prefill)
    return replace(
        sketches,
        header=header,
        columns={**columns, **more},
        norms=np.concatenate([sketches.norms, norms.astype(np.float32)], axis=1),
        values=np.concatenate([sketches.values, values.astype(np.float16)], axis=1),
    )
