"""Sketches of what a model of transformers gives for whole sequences, under the names that an engine's modules have."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from parity.capture.sketch_table import SKETCHES_SCHEMA
from parity_backends.worker.asked import Record
from parity_backends.worker.sketch_blocks import SketchBlocks, SketchStep
from parity_backends.worker.sketch_modules import LOGITS, OUTPUT, Sketched, sketched_modules
from parity_backends.worker.sketch_sums import SketchSums

RENAMED = (("model.language_model.", "language_model.model."),)
"""Beginnings of paths in transformers, and in vLLM. Else the two agree in decoder layers and their parts, for families
that parity makes and transformers knows (5.19; vLLM 0.32.0): `layers.N` with `self_attn` or `linear_attn`, `mlp`,
`mlp.gate` and the two norms."""

NARROW = ("bfloat16", "float16")
"""Precisions of engines. What goes into the first layer is a row of the embedding: in float32 the same numbers, other
bits."""


class ReferenceSketches:
    """Hooks on a model in this process, and the sketches file that they make, a step for each batch."""

    def __init__(self, model: Any, write: Callable[[Record], None], arm: str, level: str, dtype: str) -> None:
        """`dtype`: what the engine computes in whose tokens these are, "auto" for the checkpoint's."""
        self.model, self.write, self.arm, self.level, self.dtype = model, write, arm, level, dtype
        found = [one for one in sketched_modules(model, level) if one.role != OUTPUT]
        self.modules = [*found, Sketched(OUTPUT, OUTPUT, base_of(model)), Sketched(LOGITS, LOGITS)]
        self.device = next(model.parameters()).device
        self.sums = SketchSums(self.device)
        self.live: Optional[SketchStep] = None
        self.kept: Any = None
        """Places of the batch that are tokens and no padding."""
        self.places = 0
        self.fired: dict[int, int] = {}
        self.fresh: list[Record] = []
        self.step = self.total = -1
        self.header_sent = False
        self.blocks = SketchBlocks(self._write, len(self.modules) - 1, lambda: None)
        for number, one in enumerate(self.modules[:-1]):
            one.module.register_forward_hook(self._after(number, one))
        first = next(one.module for one in self.modules if one.role == "layer")
        first.register_forward_pre_hook(self._entry, with_kwargs=True)

    def begin(self, rows: list[list[int]], prompts: list[int]) -> None:
        """The next call of the model is of these token ids, padded on the right."""
        width = max(len(row) for row in rows)
        self.step += 1
        numbers = range(self.total + 1, self.total + 1 + len(rows))
        self.total += len(rows)
        self.fresh += [
            {"number": number, "engine_id": str(number), "prompt_tokens": prompt, "plain": True}
            for number, prompt in zip(numbers, prompts)  # noqa: B905 - strict is Python 3.10
        ]
        lengths = np.array([len(row) for row in rows])
        row = np.repeat(np.arange(len(rows)), lengths)
        position = np.concatenate([np.arange(length) for length in lengths])
        self.places, self.kept = width * len(rows), row * width + position
        self.live = SketchStep(
            {
                "step": np.full(len(row), self.step),
                "row": row,
                "request": row + numbers[0],
                "position": position,
                "token": np.concatenate([np.asarray(one, dtype=np.int64) for one in rows]),
            },
            [],
        )
        self.found: list[tuple[Any, Any]] = []

    def end(self, logits: Any) -> None:
        """The model has run."""
        live, self.live = self.live, None
        assert live is not None
        if not self.found:
            return
        arithmetic = self.sums.arithmetic
        live.sums = np.stack([arithmetic.copy(sums) for sums, _ in self.found])
        live.norms = np.stack([arithmetic.copy(norms) for _, norms in self.found])
        if live.last is not None:
            values = self._tokens(logits).float()
            made = [*arithmetic.sketch(values, self.sums.signs(values.shape[1])), *arithmetic.largest(values)]
            live.logits.append((live.last, *(arithmetic.copy(one) for one in made)))
            self.fired.setdefault(len(self.modules) - 1, len(self.modules))
        if self.blocks.add(live):
            self.blocks.close(wait=False)

    def close(self) -> None:
        """Write what is held."""
        self.blocks.close(wait=True)

    def _tokens(self, vectors: Any) -> Any:
        """The vectors of tokens, of all places of a batch."""
        return vectors.detach().reshape(self.places, -1)[self.kept]

    def _after(self, number: int, one: Sketched) -> Any:
        def after(module: Any, args: Any, given: Any) -> None:
            live, vectors = self.live, _first(given)
            if live is None or vectors is None or number in live.seen or vectors.numel() % self.places:
                return
            vectors = self._tokens(vectors)
            if one.role == OUTPUT:
                live.last = self.sums.digests(vectors)
            vectors = vectors.float()
            self.fired.setdefault(number, len(live.seen))
            live.seen.append(number)
            self.found.append(self.sums.arithmetic.sketch(vectors, self.sums.signs(vectors.shape[1])))
            if one.experts and one.experts < vectors.shape[1]:
                best = vectors.topk(one.experts + 1, dim=1)
                chosen = best.indices[:, :-1].sort(dim=1).values
                live.routed[number] = (chosen.cpu().numpy(), (best.values[:, -2] - best.values[:, -1]).cpu().numpy())

        return after

    def _entry(self, module: Any, args: Any, kwargs: Any) -> None:
        vectors = kwargs.get("hidden_states", args[0] if args else None)
        if self.live is not None and vectors is not None:
            self.live.entry = self.sums.digests(self._narrowed(self._tokens(vectors)))

    def _narrowed(self, vectors: Any) -> Any:
        """The same numbers in the engine's precision, where it has them."""
        import torch

        for name in NARROW if self.dtype == "auto" else [self.dtype]:
            narrow = vectors.to(getattr(torch, name, vectors.dtype))
            if bool((narrow.to(vectors.dtype) == vectors).all()):
                return narrow
        return vectors

    def _write(self, block: Record) -> None:
        if not self.header_sent:
            self.header_sent = True
            self.write(self._header())
        fresh, self.fresh = self.fresh, []
        self.write({**block, "requests": fresh})

    def _header(self) -> Record:
        return {
            "record": "sketches_header",
            "schema": SKETCHES_SCHEMA,
            "arm": self.arm,
            "device": str(self.device),
            "dtype": str(next(self.model.parameters()).dtype),
            "level": self.level,
            "modules": [
                {
                    "name": engine_name(one.name),
                    "role": one.role,
                    "type": "" if one.module is None else type(one.module).__name__,
                    "order": self.fired.get(number, -1),
                }
                for number, one in enumerate(self.modules)
            ],
        }


def base_of(model: Any) -> Any:
    """The model without its head: what it gives are the last hidden states, after the last norm."""
    return getattr(model, getattr(model, "base_model_prefix", "") or "model", model)


def engine_name(path: str) -> str:
    """The path of a module in vLLM, of its path in transformers."""
    for theirs, ours in RENAMED:
        if path.startswith(theirs):
            return ours + path[len(theirs) :]
    return path


def _first(given: Any) -> Optional[Any]:
    """The first tensor of numbers that a module gave."""
    import torch

    last = getattr(given, "last_hidden_state", None)
    several = given if isinstance(given, (tuple, list)) else (given if last is None else last,)
    return next((one for one in several if isinstance(one, torch.Tensor) and one.is_floating_point()), None)
