"""Sketches of activations: what each module of the model gave for each token, as a few signed sums.

Hooks on the modules of the model that the engine runs. They look only while that model runs in a step that the
scheduler asked for: profiling and warm-up pass by, and of a drafter, which shares modules with it, all but the first
pass of a step (`sketch_drafter.py`). A module costs one product, and a step one copy. Where a compiled or captured
graph runs, its modules are not called, and what is inside it is not seen: the header says of which modules nothing
came.

What fails stops the sketches and is said; the engine goes on.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any, Callable, Optional

import numpy as np

from parity.capture.sketch_table import PROJECTIONS, SKETCHES_SCHEMA
from parity_backends.worker.copies import host_copy
from parity_backends.worker.sketch_blocks import SketchBlocks, SketchStep
from parity_backends.worker.sketch_modules import LOGITS, Sketched, sketched_modules, token_vectors
from parity_backends.worker.sketch_sums import SketchSums

from .sketch_drafter import DrafterSketcher
from .step_requests import Named, is_plain

LOGITS_AT_ONCE = 1 << 23
"""Numbers of logits that are made float32 together: those of a whole prompt may be gigabytes."""

AS_PROMPTS = "prefill"
"""The phase in which an engine with a drafter computes its own completions once more, as prompts."""

ENOUGH = "%d tokens are as many as were asked for"
"""Why sketches end before the engine does, where nothing failed."""


class Unsketchable(Exception):
    """Why nothing can be sketched of this engine."""


class Sketcher:
    """Sketches the steps of one engine in this process, while `on`."""

    def __init__(
        self, runner: Any, write: Callable[[dict[str, Any]], None], arm: str, named: Named, level: str, most: int = 0
    ) -> None:
        """`most`: so many tokens of each phase and no more; 0 for all."""
        self.second = hasattr(runner, "req_states")
        """It is vLLM's second model runner, which makes its batch anew in each step."""
        batch = "prepare_inputs" if self.second else "input_batch"
        missing = [name for name in ("execute_model", "get_model", batch) if not hasattr(runner, name)]
        if missing:
            what = "%s.%s" % (type(runner).__module__, type(runner).__name__)
            raise Unsketchable("the model runner %s has no %s" % (what, ", ".join(missing)))
        self.runner, self.write, self.arm, self.named, self.level = runner, write, arm, named, level
        self.model = runner.get_model()
        self.modules = [*sketched_modules(self.model, level), Sketched(LOGITS, "logits")]
        if len(self.modules) < 3:
            raise Unsketchable("no decoder layers are to be seen in %s" % type(self.model).__name__)
        self.logits = len(self.modules) - 1
        self.drafter = DrafterSketcher.of(self)
        self.modules += self.drafter.modules if self.drafter is not None else []
        self.device = runner.device
        self.held = SketchSums(self.device)
        self.arithmetic = self.held.arithmetic
        self.on = self.stopped = self.header_sent = False
        self.phase = ""
        self.output: Any = None
        """What the scheduler asked for in this step; None outside of steps."""
        self.live: Optional[SketchStep] = None
        """The step whose model runs now."""
        self.done: Optional[SketchStep] = None
        """The step whose logits may still come."""
        self.step = self.total = -1
        self.most, self.given = most, 0
        self.names: list[str] = []
        """Of the rows of the second runner's batch."""
        self.numbers: dict[str, int] = {}
        """Of the requests that the engine has, by its name for them."""
        self.fresh: list[dict[str, Any]] = []
        self.room = 0
        self.fired: dict[int, int] = {}
        """When modules ran, in the first step in which they did."""
        self.blocks = SketchBlocks(self._write, self.logits, self._wait)
        self._hook()

    # ------------------------------------------------------------------ doors

    def _hook(self) -> None:
        runner, model = self.runner, self.model
        runner.execute_model = self._around_execute_model(runner.execute_model)
        if self.second:
            runner.prepare_inputs = self._around_prepare_inputs(runner.prepare_inputs)
        model.compute_logits = self._around_compute_logits(model.compute_logits)
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        for number, one in enumerate(self.modules[: self.logits]):
            if one.role != "output":
                one.module.register_forward_hook(self._after(number, one), with_kwargs=True)
        first = next(one.module for one in self.modules if one.role == "layer")
        first.register_forward_pre_hook(self._entry, with_kwargs=True)
        last = next(number for number, one in enumerate(self.modules) if one.role == "output")
        self.modules[last].module.register_forward_hook(self._end(last), with_kwargs=True, always_call=True)
        if self.drafter is not None:
            self.drafter.hook()

    def look(self, look: Callable[..., Any], *args: Any) -> None:
        """A reading; one that fails is the last."""
        if not self.on or self.stopped:
            return
        try:
            look(*args)
        except Exception as error:  # the engine must not pay for the sketches
            traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
            self.stopped, self.live, self.done = True, None, None
            self.blocks.clear()
            why = "%s: %s" % (type(error).__name__, error)
            self.write({"record": "sketches_stopped", "step": self.step, "why": why})

    def _around_execute_model(self, inner: Any) -> Any:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._keep()
            real = scheduler_output.total_num_scheduled_tokens > 0 and not kwargs.get("dummy_run", False)
            self.output = scheduler_output if real else None
            if real:
                self.step += 1
                self.look(self._meet, scheduler_output)
            return inner(scheduler_output, *args, **kwargs)

        return execute_model

    def _around_prepare_inputs(self, inner: Any) -> Any:
        def prepare_inputs(*args: Any, **kwargs: Any) -> Any:
            inputs = inner(*args, **kwargs)
            self.names = [] if inputs is None else list(inputs.req_ids)
            return inputs

        return prepare_inputs

    def _rows(self) -> list[str]:
        """The requests of the batch's rows, as the engine names them."""
        if self.second:
            return self.names
        batch = self.runner.input_batch
        return list(batch.req_ids[: batch.num_reqs])

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        if self.output is not None and self.live is None and self.done is None:
            self.look(self._start, args, kwargs)

    def _after(self, number: int, one: Sketched) -> Any:
        def after(module: Any, args: Any, kwargs: Any, given: Any) -> None:
            if self.live is not None:
                self.look(self.see, self.live, number, given, args, kwargs)

        return after

    def _entry(self, module: Any, args: Any, kwargs: Any) -> None:
        if self.live is not None and self.live.entry is None:
            self.look(self._digest_entry, args, kwargs)

    def _end(self, number: int) -> Any:
        def end(module: Any, args: Any, kwargs: Any, given: Any) -> None:
            if self.live is not None:
                self.look(self._finish, number, given, args, kwargs)
            self.live = None

        return end

    def _around_compute_logits(self, inner: Any) -> Any:
        def compute_logits(hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
            given = inner(hidden_states, *args, **kwargs)
            if self.done is not None and given is not None:
                self.look(self._logits, hidden_states, given)
            return given

        return compute_logits

    # ------------------------------------------------------------------ what is seen at each

    def _meet(self, output: Any) -> None:
        for name in output.finished_req_ids:
            self.numbers.pop(name, None)
        for data in output.scheduled_new_reqs:
            if data.req_id in self.numbers:
                continue
            self.total += 1
            self.numbers[data.req_id] = self.total
            record = {
                "number": self.total,
                "engine_id": data.req_id,
                "prompt_tokens": len(data.prompt_token_ids or ()),
                "plain": is_plain(data.sampling_params),
            }
            record.update(self.named(data.req_id) or {})
            self.fresh.append(record)

    def _start(self, args: Any, kwargs: Any) -> None:
        output, self.output = self.output, None
        asked, names = output.num_scheduled_tokens, self._rows()
        counts = np.array([asked.get(name, 0) for name in names], dtype=np.int64)
        total = int(output.total_num_scheduled_tokens)
        if int(counts.sum()) != total:
            raise RuntimeError("rows of %d tokens, %d scheduled" % (int(counts.sum()), total))
        ids = kwargs.get("input_ids", args[0] if args else None)
        positions = kwargs.get("positions", args[1] if len(args) > 1 else None)
        if ids is None:
            ids = getattr(getattr(self.runner, "input_ids", None), "gpu", None)
        if ids is None or positions is None:
            raise RuntimeError("the model is called without token ids or positions")
        if positions.dim() > 1:
            positions = positions[0]
        row = np.repeat(np.arange(len(names)), counts)
        numbers = np.array([self.numbers[name] for name in names], dtype=np.int64)
        self.live = SketchStep(
            {
                "step": np.full(total, self.step),
                "row": row,
                "request": numbers[row],
                "position": host_copy(positions, total),
                "token": host_copy(ids, total),
            },
            [],
        )
        self._reserve(total)

    def _reserve(self, tokens: int) -> None:
        if tokens > self.room:
            self.room = max(tokens, 64)
            shape = (len(self.modules), self.room, PROJECTIONS)
            self.sums, self.norms = self.arithmetic.zeros(shape), self.arithmetic.zeros(shape[:2])

    def see(self, live: SketchStep, number: int, given: Any, args: Any, kwargs: Any) -> None:
        """What a module gave in a pass over tokens."""
        one, tokens = self.modules[number], live.tokens
        vectors = token_vectors(one.role, given, args, kwargs)
        if vectors is None or vectors.shape[0] < tokens or number in live.seen:
            return
        vectors = vectors[:tokens].detach().float()
        place = len(live.seen)
        self.sums[place, :tokens], self.norms[place, :tokens] = self.arithmetic.sketch(
            vectors, self.held.signs(vectors.shape[1])
        )
        live.seen.append(number)
        if one.experts and one.experts < vectors.shape[1]:
            best = vectors.topk(one.experts + 1, dim=1)
            gap = best.values[:, -2] - best.values[:, -1]
            live.routed[number] = (host_copy(best.indices[:, :-1].sort(dim=1).values), host_copy(gap))

    def _digest_entry(self, args: Any, kwargs: Any) -> None:
        live = self.live
        assert live is not None
        entering = token_vectors("part", kwargs.get("hidden_states"), args, {})
        if entering is not None and entering.shape[0] >= live.tokens:
            live.entry = self.held.digests(entering[: live.tokens])

    def _finish(self, number: int, given: Any, args: Any, kwargs: Any) -> None:
        live = self.live
        assert live is not None
        self.see(live, number, given, (), {})
        last = token_vectors("output", given, (), {})
        if last is not None and last.shape[0] >= live.tokens:
            live.last = self.held.digests(last[: live.tokens])
        self.take(live, 0)
        self.done = live

    def take(self, live: SketchStep, before: int) -> None:
        """Copies of all that a pass gave; `before` so many modules run before it in a step."""
        seen = len(live.seen)
        live.sums = self.arithmetic.copy(self.sums[:seen, : live.tokens])
        live.norms = self.arithmetic.copy(self.norms[:seen, : live.tokens])
        for place, module in enumerate(live.seen):
            self.fired.setdefault(module, before + place)

    def _logits(self, hidden: Any, logits: Any) -> None:
        import torch

        done = self.done
        assert done is not None
        if done.last is None or logits.dim() != 2 or logits.shape[0] != hidden.shape[0]:
            return
        matrix = self.held.signs(logits.shape[1])
        parts = []
        for part in torch.split(logits.detach(), max(1, LOGITS_AT_ONCE // logits.shape[1])):
            values = part.float()
            parts.append([*self.arithmetic.sketch(values, matrix), *self.arithmetic.largest(values)])
        if parts:
            made = [self.arithmetic.joined(each) for each in zip(*parts)]  # noqa: B905
            done.logits.append((self.held.digests(hidden), *made))
            self.fired.setdefault(self.logits, self.logits)

    # ------------------------------------------------------------------ blocks

    def _keep(self) -> None:
        """The step before is over."""
        done, self.done = self.done, None
        if done is None:
            return
        self.given += done.tokens
        if self.blocks.add(done):
            self.look(lambda: self.blocks.close(wait=False))
        if self.enough and self.on:
            self.end()
            self.write({"record": "sketches_stopped", "step": self.step, "why": ENOUGH % self.given, "enough": True})

    @property
    def enough(self) -> bool:
        return 0 < self.most <= self.given

    def begin(self, phase: str) -> None:
        """Sketch from now on; another phase goes into another file, and so has a header of its own."""
        if phase != self.phase:
            self.phase, self.header_sent, self.step, self.given = phase, False, -1, 0
        self.on = not self.enough

    def end(self) -> None:
        """Write what is held, and sketch no more."""
        self._keep()
        self.look(lambda: self.blocks.close(wait=True))
        self.on, self.output = False, None

    def _wait(self) -> None:
        if self.device.type == "cpu":
            return
        import torch

        device: Any = getattr(torch, self.device.type, None)
        if device is not None:
            device.synchronize()

    def _write(self, block: dict[str, Any]) -> None:
        if not self.header_sent:
            self.header_sent = True
            self.write(self.header())
        fresh, self.fresh = self.fresh, []
        self.write({**block, "requests": fresh})

    def header(self) -> dict[str, Any]:
        return {
            "record": "sketches_header",
            "schema": SKETCHES_SCHEMA,
            "arm": self.arm,
            "device": str(self.device),
            "dtype": str(self.runner.model_config.dtype),
            "level": self.level,
            "prefill": self.phase == AS_PROMPTS,
            "modules": [
                {
                    "name": one.name,
                    "role": one.role,
                    "type": "" if one.module is None else type(one.module).__name__,
                    "drafter": number > self.logits,
                    "order": self.fired.get(number, -1),
                }
                for number, one in enumerate(self.modules)
            ],
        }
