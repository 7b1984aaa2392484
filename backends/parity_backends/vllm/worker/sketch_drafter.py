"""Sketches of a drafter that is a model: its first pass in a step, over the tokens that the target has just computed.

A drafter of vLLM (of the second runner: a speculator) is called past its hooks, and a compiled one past `forward` too,
which hides it: its parts are hooked, and `forward` is wrapped. At each position it is given the token that comes next,
and the target's hidden states of this one. Later passes feed on drafts and are not looked at.
"""

from __future__ import annotations

from typing import Any, Optional

from parity_backends.worker.copies import host_copy
from parity_backends.worker.sketch_blocks import SketchStep
from parity_backends.worker.sketch_modules import drafter_modules

EMBEDDING = "VocabParallelEmbedding"


class DrafterSketcher:
    """Sketches the drafter of a model runner; `sketcher` is that of the runner."""

    def __init__(self, sketcher: Any, drafter: Any) -> None:
        self.sketcher, self.drafter, self.model = sketcher, drafter, drafter.model
        self.modules = drafter_modules(self.model, sketcher.level)
        self.first = len(sketcher.modules)
        """The number of its first module among all."""
        self.live: Optional[SketchStep] = None
        self.met: Optional[SketchStep] = None
        """The step whose first pass has been met."""

    @classmethod
    def of(cls, sketcher: Any) -> Optional[DrafterSketcher]:
        """None where there is none that is a model."""
        drafter = getattr(sketcher.runner, "speculator" if sketcher.second else "drafter", None)
        model = getattr(drafter, "model", None)
        return cls(sketcher, drafter) if hasattr(model, "named_modules") and hasattr(model, "forward") else None

    def hook(self) -> None:
        self.model.forward = self._around_forward(self.model.forward)
        for number, one in enumerate(self.modules, self.first):
            if one.module is not None and one.role != "output":
                one.module.register_forward_hook(self._after(number), with_kwargs=True)
        for module in self.model.modules():
            if type(module).__name__.endswith(EMBEDDING):
                module.register_forward_hook(self._embedded)

    def _around_forward(self, inner: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            step = self.sketcher.done
            if step is None or step is self.met:
                return inner(*args, **kwargs)
            self.met = step
            self.sketcher.look(self._start, step, kwargs)
            try:
                given = inner(*args, **kwargs)
                if self.live is not None:
                    self.sketcher.look(self._finish, step, given)
            finally:
                self.live = None
            return given

        return forward

    def _after(self, number: int) -> Any:
        def after(module: Any, args: Any, kwargs: Any, given: Any) -> None:
            if self.live is not None:
                self.sketcher.look(self.sketcher.see, self.live, number, given, args, kwargs)

        return after

    def _embedded(self, module: Any, args: Any, given: Any) -> None:
        if self.live is not None and self.live.entry is None:
            self.sketcher.look(self._digest, self.live, given)

    def _digest(self, live: SketchStep, given: Any) -> None:
        if given.shape[0] >= live.tokens:
            live.entry = self.sketcher.held.digests(given[: live.tokens])

    def _start(self, step: SketchStep, kwargs: Any) -> None:
        """A pass that is not over the step's own tokens is none of ours: the positions are written down as proof."""
        ids, positions, handed = (kwargs.get(name) for name in ("input_ids", "positions", "hidden_states"))
        if ids is None:
            ids = getattr(self.drafter, "input_ids", None)
        if ids is None or positions is None or handed is None:
            return
        if positions.dim() > 1:
            positions = positions[0]
        if min(len(ids), len(positions), len(handed)) < step.tokens:
            return
        numbers = {"drafted": host_copy(ids, step.tokens), "drafted_at": host_copy(positions, step.tokens)}
        self.live = SketchStep(numbers, [])
        embedded = kwargs.get("inputs_embeds")
        if embedded is not None:
            self._digest(self.live, embedded)
        self.sketcher.see(self.live, self.first, handed, (), {})

    def _finish(self, step: SketchStep, given: Any) -> None:
        live, last = self.live, self.first + len(self.modules) - 1
        assert live is not None
        self.sketcher.see(live, last, given, (), {})
        self.sketcher.take(live, self.first)
        step.drafted = live
