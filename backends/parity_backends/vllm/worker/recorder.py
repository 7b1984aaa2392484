"""The flight recorder: what the host knows of every engine step, in blocks of the steps file.

It reads at five doors of vLLM's first model runner and its scheduler (vllm/v1/worker/gpu_model_runner.py of
0.32.0), wrapped on their instances:

    execute_model       what the scheduler asks for
    _model_forward      inside the forward context: what the layers get, whoever built it. Profiling and the drafter
                        do not come this way
    _sample             the logits, and what the sampler makes of them
    sample_tokens       what the runner hands to the scheduler, what the drafter proposes
    update_from_output  of the scheduler: what the caller gets

Tensors on the host are copied; those of a device are copied into pinned memory, queued on the stream of the step
itself and read after the step's own synchronisation. A recorder that fails stops and says so; the engine goes on.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any, Callable, Optional

import numpy as np

from parity.capture.step_table import (
    BLOCK_ROW_STEPS,
    BLOCK_TOKENS,
    COLUMN_BY_NAME,
    NOTHING,
    STEPS_SCHEMA,
    pack_block,
    split_name,
)

from .step_requests import Named, Requests
from .step_sight import Columns, Sight

NEEDED_DOORS = ("execute_model", "_model_forward", "_sample", "sample_tokens", "input_batch", "attn_groups")


class Unrecordable(Exception):
    """Why nothing can be recorded of this engine."""


def host_copy(tensor: Any, stop: Optional[int] = None) -> Any:
    """An array with the values of a tensor: at once on the host, after the step's synchronisation on a device."""
    part = tensor if stop is None else tensor[:stop]
    if part.device.type == "cpu":
        return part.numpy().copy()
    import torch

    held = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    held.copy_(part, non_blocking=True)
    return held.numpy()


def copied(owner: Any, name: str, stop: Optional[int] = None) -> Any:
    """`host_copy` of an attribute that is a tensor, None where it is none."""
    tensor = getattr(owner, name, None)
    return None if tensor is None else host_copy(tensor, stop)


class Recorder:
    """Records the steps of one engine in this process, while `on`."""

    def __init__(self, llm: Any, write: Callable[[dict[str, Any]], None], arm: str, named: Named) -> None:
        """`write` takes records of the steps file. Raises Unrecordable."""
        self.runner, self.scheduler = doors_of(llm)
        self.arm, self.named = arm, named
        self.on = False
        self.stopped = False
        self.sight: Optional[Sight] = None
        self.unseen: dict[str, str] = {}
        self.output: Any = None
        self.came: dict[str, int] = {}
        self.computed: dict[str, int] = {}
        self.blocks: dict[str, Any] = {}
        self.groups = list(self.runner.attn_groups)
        self.sizes = [block_size(self.runner, group) for group in range(len(self.groups))]
        self.kinds = ["unknown"] * len(self.groups)
        self.restart(write)
        if getattr(self.runner, "use_async_scheduling", False):
            for name in ("sampled", "chosen", "handed", "given", "proposed", "kept", "buffer_length", "buffer_last"):
                self.unseen[name] = "asynchronous scheduling: not on the host when the step ends"
        for owner, name in (
            (self.runner, "execute_model"),
            (self.runner, "_model_forward"),
            (self.runner, "_sample"),
            (self.runner, "sample_tokens"),
            (self.scheduler, "update_from_output"),
        ):
            setattr(owner, name, getattr(self, "_around_" + name.lstrip("_"))(getattr(owner, name)))

    def restart(self, write: Callable[[dict[str, Any]], None]) -> None:
        """Begin another file, steps and requests from 0. No request may be in the engine."""
        self.write = write
        self.step = -1
        self.began = time.perf_counter()
        self.held: list[Sight] = []
        self.row_steps = self.tokens = 0
        self.header_sent = False
        self.finished_before: list[int] = []
        self.requests = Requests(self.named, len(self.groups))

    # ------------------------------------------------------------------ doors

    def _look(self, look: Callable[..., Any], *args: Any) -> Any:
        if not self.on or self.stopped:
            return None
        try:
            return look(*args)
        except Exception as error:  # the engine must not pay for the recorder
            self.flush()
            self._stop(error)
            return None

    def _stop(self, error: Exception) -> None:
        """Record no more, and say why."""
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
        if not self.stopped:
            self.write({"record": "steps_stopped", "step": self.step, "why": "%s: %s" % (type(error).__name__, error)})
        self.stopped, self.sight, self.held = True, None, []

    def _around_execute_model(self, inner: Any) -> Any:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._look(self._scheduled, scheduler_output)
            return inner(scheduler_output, *args, **kwargs)

        return execute_model

    def _around_model_forward(self, inner: Any) -> Any:
        def model_forward(input_ids: Any = None, positions: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self.sight is not None and not self.sight.names:
                self._look(self._forward, input_ids, positions)
            return inner(input_ids, positions, *args, **kwargs)

        return model_forward

    def _around_sample(self, inner: Any) -> Any:
        def sample(logits: Any, metadata: Any) -> Any:
            if self.sight is None or not self.sight.names:
                return inner(logits, metadata)
            self._look(self._before_sampling, logits, metadata)
            output = inner(logits, metadata)
            self._look(self._after_sampling, output)
            return output

        return sample

    def _around_sample_tokens(self, inner: Any) -> Any:
        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            output = inner(*args, **kwargs)
            if self.sight is not None and self.sight.names:
                self._look(self._handed, output)
            return output

        return sample_tokens

    def _around_update_from_output(self, inner: Any) -> Any:
        def update_from_output(scheduler_output: Any, output: Any) -> Any:
            outputs = inner(scheduler_output, output)
            if self.sight is not None and self.sight.names:
                self._look(self._given, outputs)
            self.sight = None
            return outputs

        return update_from_output

    # ------------------------------------------------------------------ what is seen at each

    def _scheduled(self, output: Any) -> None:
        finished = self.requests.finish(output.finished_req_ids)
        self.sight = None
        if output.total_num_scheduled_tokens <= 0:
            self.finished_before += finished
            return
        self.step += 1
        sight = self.sight = Sight(self.step, round((time.perf_counter() - self.began) * 1e6))
        sight.finished = [*self.finished_before, *finished]
        self.finished_before = []
        self.output = output
        self.came, self.computed, self.blocks = self.requests.take(output)
        waiting = getattr(self.scheduler, "waiting", None)
        if waiting is not None:
            sight.step_numbers["waiting"] = len(waiting)

    def _forward(self, input_ids: Any, positions: Any) -> None:
        from vllm.forward_context import get_forward_context

        sight, output, batch = self.sight, self.output, self.runner.input_batch
        assert sight is not None
        count, total = int(batch.num_reqs), int(output.total_num_scheduled_tokens)
        names = sight.names = list(batch.req_ids[:count])
        known = [self.requests.known[name] for name in names]
        drafts, scheduled = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens
        sight.prompt_lengths = [one.prompt_tokens for one in known]
        sight.plain = [one.plain for one in known]
        sight.numbers = {
            "request": [one.number for one in known],
            "arrival": [self.came.get(name, 0) for name in names],
            "index_row": [batch.req_id_to_index.get(name, NOTHING) for name in names],
            "scheduled": [scheduled.get(name, 0) for name in names],
            "computed": [self.computed.get(name, NOTHING) for name in names],
        }
        sight.lists["drafts"] = [list(drafts.get(name, ())) for name in names]
        if sum(sight.numbers["scheduled"]) != total:
            raise RuntimeError("rows of %d tokens, %d scheduled" % (sum(sight.numbers["scheduled"]), total))
        ids = input_ids if input_ids is not None else getattr(getattr(self.runner, "input_ids", None), "gpu", None)
        if positions is not None and positions.dim() > 1:
            positions = positions[0]
        start = getattr(getattr(self.runner, "query_start_loc", None), "np", None)
        sight.arrays["input_ids"] = None if ids is None else host_copy(ids, total)
        sight.arrays["positions"] = None if positions is None else host_copy(positions, total)
        sight.arrays["query_start"] = None if start is None else start[: count + 1].copy()
        context = get_forward_context()
        described = context.batch_descriptor
        sight.step_numbers["padded"] = total if described is None else int(described.num_tokens)
        sight.step_numbers["padded_rows"] = int(getattr(described, "num_reqs", None) or NOTHING)
        sight.step_numbers["graph"] = int(context.cudagraph_runtime_mode.value)
        self._metadata(sight, context.attn_metadata, np.array([one.place for one in known]), count, total)

    def _metadata(self, sight: Sight, metadata: Any, places: Any, count: int, total: int) -> None:
        new = [self.blocks.get(name) for name in sight.names]
        for group, builders in enumerate(self.groups):
            found = sight.groups.setdefault(group, {})
            found["new_blocks"] = [() if one is None else list(one[group]) for one in new]
            table = self.runner.input_batch.block_table.block_tables[group]
            fits = int(table.block_size) == self.sizes[group]
            if fits or self.kinds[group] == "state":
                found.update(self.requests.table(group, places, table.block_table.np[:count]))
            else:
                self._not_seen("table_off", group, "kernel blocks of %d tokens" % table.block_size)
            if not isinstance(metadata, dict) or not builders:
                self._not_seen("*", group, "attention metadata is a %s" % type(metadata).__name__)
                continue
            given = metadata.get(builders[0].layer_names[0])
            if hasattr(given, "spec_sequence_masks_cpu") and hasattr(given, "num_spec_decodes"):
                self.kinds[group] = "state"
                found["state"] = state_readings(given)
            elif hasattr(given, "slot_mapping") and hasattr(given, "seq_lens"):
                self.kinds[group] = "attention"
                found["sequence_length"] = copied(given, "seq_lens", count)
                if fits:
                    found["slots"], found["size"] = copied(given, "slot_mapping", total), self.sizes[group]
            else:
                self._not_seen("*", group, "metadata of %s" % type(given).__name__)

    def _not_seen(self, name: str, group: int, why: str) -> None:
        self.unseen.setdefault("%s/%d" % (name, group), why)

    def _before_sampling(self, logits: Any, metadata: Any) -> None:
        sight = self.sight
        assert sight is not None
        if metadata is not None:
            sight.arrays["draft_counts"] = list(metadata.num_draft_tokens)
            sight.arrays["draft_ids"] = host_copy(metadata.draft_token_ids)
            sight.arrays["logits_indices"] = copied(metadata, "logits_indices")
        if logits is not None and "chosen" not in self.unseen:
            sight.arrays["best"] = host_copy(logits.argmax(-1))

    def _after_sampling(self, output: Any) -> None:
        sight = self.sight
        assert sight is not None
        if "sampled" in self.unseen:
            return
        sight.arrays["matrix"] = host_copy(output.sampled_token_ids)

    def _handed(self, output: Any) -> None:
        sight, batch = self.sight, self.runner.input_batch
        assert sight is not None
        names, count = sight.names, len(sight.names)
        if "sampled" in self.unseen:
            return
        places = [output.req_id_to_index.get(name) for name in names]
        sight.numbers["output_row"] = [NOTHING if place is None else place for place in places]
        lists = output.sampled_token_ids
        sight.lists["handed"] = [() if p is None or p >= len(lists) else list(lists[p]) for p in places]
        kept = getattr(batch, "num_accepted_tokens_cpu", None)
        if kept is not None and self.runner.speculative_config is not None and self.runner.model_config.is_hybrid:
            sight.numbers["kept"] = kept[:count].copy()
        else:
            self.unseen.setdefault("kept", "no speculation, or no recurrent layers")
        lengths = batch.num_tokens_no_spec[:count].copy()
        sight.numbers["buffer_length"] = lengths
        sight.numbers["buffer_last"] = batch.token_ids_cpu[np.arange(count), np.maximum(lengths - 1, 0)]
        proposed = getattr(self.runner, "_draft_token_ids", None)
        if proposed is None:
            sight.lists["proposed"] = [()] * count
        elif isinstance(proposed, list):
            sight.lists["proposed"] = [list(one) for one in proposed[:count]]
        elif proposed.device.type != "cpu":
            self.unseen["proposed"] = "the drafts are on %s" % proposed.device.type
        else:
            sight.lists["proposed"] = proposed[:count].tolist()

    def _given(self, outputs: Any) -> None:
        sight = self.sight
        assert sight is not None
        if "sampled" not in self.unseen:
            every = {one.request_id: one for group in outputs.values() for one in group.outputs}
            given = [every.get(name) for name in sight.names]
            sight.lists["given"] = [() if one is None else list(one.new_token_ids) for one in given]
            reasons = [None if one is None else one.finish_reason for one in given]
            sight.numbers["finish"] = [NOTHING if one is None else int(one) for one in reasons]
        self.held.append(sight)
        self.row_steps += len(sight.names)
        self.tokens += sum(sight.numbers["scheduled"])
        if self.row_steps >= BLOCK_ROW_STEPS or self.tokens >= BLOCK_TOKENS:
            self.flush()

    # ------------------------------------------------------------------ blocks

    def flush(self) -> None:
        """Write what is held."""
        if not self.held:
            return
        try:
            columns = Columns(self.held).all()
            if not self.header_sent:
                self.header_sent = True
                self.write(self.header(columns))
            block = {
                "record": "steps",
                "steps": len(self.held),
                "rows": self.row_steps,
                "requests": self.requests.fresh,
            }
            self.write({**block, **pack_block(columns)})
        except Exception as error:
            self._stop(error)
        self.held, self.requests.fresh = [], []
        self.row_steps = self.tokens = 0

    def header(self, columns: dict[str, Any]) -> dict[str, Any]:
        runner, config = self.runner, self.runner.vllm_config
        scheduler, speculation = config.scheduler_config, runner.speculative_config
        seen = {split_name(name)[0].name for name in columns}
        for name in COLUMN_BY_NAME:
            if name not in seen and not any(one.partition("/")[0] in (name, "*") for one in self.unseen):
                self.unseen[name] = "nothing of this kind in the engine's steps"
        return {
            "record": "steps_header",
            "schema": STEPS_SCHEMA,
            "arm": self.arm,
            "runner": "%s.%s" % (type(runner).__module__, type(runner).__name__),
            "device": str(getattr(runner, "device", "")),
            "groups": [
                {"kind": kind, "block_size": size, "layers": sum(len(one.layer_names) for one in builders)}
                for kind, size, builders in zip(self.kinds, self.sizes, self.groups)  # noqa: B905
            ],
            "speculative_tokens": 0 if speculation is None else int(speculation.num_speculative_tokens),
            "mamba_cache_mode": str(getattr(config.cache_config, "mamba_cache_mode", None)),
            "limits": {
                "max_num_seqs": int(scheduler.max_num_seqs),
                "max_num_batched_tokens": int(scheduler.max_num_batched_tokens),
                "max_model_len": int(runner.max_model_len),
            },
            "how": "instance methods of the model runner and the scheduler wrapped in the engine's process; host "
            "tensors copied, the argmax of the logits computed",
            "unseen": self.unseen,
        }


def state_readings(given: Any) -> dict[str, Any]:
    """Metadata of a gated delta net (vllm/v1/attention/backends/gdn_attn.py) as arrays."""
    return {
        "mask": copied(given, "spec_sequence_masks_cpu"),
        "decodes": int(given.num_decodes),
        "accepted": copied(given, "num_accepted_tokens"),
        "spec_slots": copied(given, "spec_state_indices_tensor"),
        "other_slots": copied(given, "non_spec_state_indices_tensor"),
        "initial": copied(given, "has_initial_state"),
        "spec_tokens": copied(given, "spec_token_indx"),
        "other_tokens": copied(given, "non_spec_token_indx"),
    }


def block_size(runner: Any, group: int) -> int:
    """Tokens in a block as the scheduler counts them; 0 where that cannot be seen."""
    groups = getattr(getattr(runner, "kv_cache_config", None), "kv_cache_groups", [])
    return int(groups[group].kv_cache_spec.block_size) if group < len(groups) else 0


def doors_of(llm: Any) -> tuple[Any, Any]:
    """The model runner and the scheduler of an engine in this process. Raises Unrecordable."""
    runner: Any = getattr(llm, "llm_engine", llm)
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, None)
    core: Any = getattr(llm, "llm_engine", llm)
    for name in ("engine_core", "engine_core", "scheduler"):
        core = getattr(core, name, None)
    if runner is None or core is None:
        raise Unrecordable("the engine runs in another process")
    missing = [name for name in NEEDED_DOORS if not hasattr(runner, name)]
    if missing:
        kind = "%s.%s" % (type(runner).__module__, type(runner).__name__)
        raise Unrecordable("the model runner %s has no %s" % (kind, ", ".join(missing)))
    return runner, core
