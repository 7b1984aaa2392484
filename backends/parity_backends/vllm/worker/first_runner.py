"""The flight recorder at the doors of vLLM's first model runner (vllm/v1/worker/gpu_model_runner.py of 0.32.0).

    execute_model       what the scheduler asks for
    FORWARD_DOORS       inside the forward context: what the layers get, whoever built it. Profiling and the drafter
                        do not come this way
    _sample             the logits, and what the sampler makes of them
    sample_tokens       what the runner hands to the scheduler, what the drafter proposes

Tensors on the host are copied at each door; those of a device are gathered there, on the stream of the step itself, and
go to the host together (`StepCopies`). They are waited for before columns are made: the step's own synchronisation
comes before they go. Under asynchronous scheduling the scheduler has placeholders for the drafts: `drafts` are those
that the sampler got.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from parity.capture.step_table import NOTHING
from parity_backends.worker.sentences import message

from .host_copies import copied, first_best, is_of_state, state_readings
from .kv_watch import KV_COLUMNS, KeyValueWatch
from .recorder import Recorder, nothing_kept, unknown_metadata
from .state_digests import StateDigests, states_of
from .step_sight import Sight, held

FORWARD_DOORS = ("_generate_process_reqs_hidden_states", "_model_forward")
"""What runs the model; the first that a runner has. vllm-ascend 0.13.0 goes through a method of its own and never calls
the other, which it inherits; from 0.18.0 on its `_model_forward` has another argument before vLLM's."""

FED = ("input_ids", "positions")
"""Of their arguments, by position or by name."""

NOT_ON_THE_HOST = ("kept", "buffer_length", "buffer_last")
"""Columns that are not there under asynchronous scheduling: the host holds placeholders when a step ends."""


class FirstRunner(Recorder):
    needs = ("execute_model", "_model_forward", "_sample", "sample_tokens", "input_batch", "attn_groups")
    how = (
        "methods of the model runner and the scheduler wrapped on their instances; host tensors copied, those of a "
        "device after the step's own work, the argmax of the logits computed"
    )

    def wrap(self) -> None:
        self.forward_context: Any = None
        """vLLM's module of that name: to import it anew in each step takes longer than most readings."""
        self.key_values = KeyValueWatch(self.runner, self.groups, self.sizes)
        if self.asynchronous:
            why = message("unseen.asynchronous", "asynchronous scheduling: not on the host when the step ends")
            elsewhere = ("handed",) if self.scheduler is None else ()
            self.unseen.update(dict.fromkeys((*NOT_ON_THE_HOST, *elsewhere), why))
            if self.runner.speculative_config is not None:
                self.unseen["sampler_drafts"] = message(
                    "unseen.placeholders", "asynchronous scheduling: the scheduler does not know the drafts"
                )
        self.door(self.runner, "execute_model", self._around_execute_model)
        forward = next(name for name in FORWARD_DOORS if hasattr(self.runner, name))
        self.door(self.runner, forward, self._around_model_forward)
        self.door(self.runner, "_sample", self._around_sample)
        self.door(self.runner, "sample_tokens", self._around_sample_tokens)

    def _around_execute_model(self, inner: Any) -> Any:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self.look(self.scheduled, scheduler_output)
            return inner(scheduler_output, *args, **kwargs)

        return execute_model

    def _around_model_forward(self, inner: Any) -> Any:
        parameters = list(inspect.signature(inner).parameters)
        places = [parameters.index(name) if name in parameters else len(parameters) for name in FED]

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            if self.sight is not None and not self.sight.names:
                fed = [args[at] if at < len(args) else kwargs.get(name) for name, at in zip(FED, places)]  # noqa: B905
                self.look(self._forward, self.sight, *fed)
            return inner(*args, **kwargs)

        return model_forward

    def _around_sample(self, inner: Any) -> Any:
        def sample(logits: Any, metadata: Any) -> Any:
            sight = self.sight
            if sight is None or not sight.names:
                return inner(logits, metadata)
            self.look(self._before_sampling, sight, logits, metadata)
            output = inner(logits, metadata)
            self.look(self._after_sampling, sight, output)
            return output

        return sample

    def _around_sample_tokens(self, inner: Any) -> Any:
        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            output = inner(*args, **kwargs)
            sight, self.sight = self.sight, None
            if sight is not None and sight.names:
                self.look(self._handed, sight, output)
                self.output = None  # whoever made it frees it
            return output

        return sample_tokens

    def _forward(self, sight: Sight, input_ids: Any, positions: Any) -> None:
        if self.forward_context is None:
            self.forward_context = importlib.import_module("vllm.forward_context")
        output, batch = self.output, self.runner.input_batch
        count, total = int(batch.num_reqs), int(output.total_num_scheduled_tokens)
        names = list(batch.req_ids[:count])
        self.rows(sight, names)
        drafts = output.scheduled_spec_decode_tokens
        sight.index = dict(batch.req_id_to_index)
        if "sampler_drafts" in self.unseen:
            sight.drafts_are_the_samplers = True
        elif drafts:
            sight.drafted, sight.held["drafts"] = list(drafts), held(list(drafts.values()))
        else:
            sight.empty.append("drafts")
        ids = input_ids if input_ids is not None else getattr(getattr(self.runner, "input_ids", None), "gpu", None)
        if positions is not None and positions.dim() > 1:
            positions = positions[0]
        start = getattr(getattr(self.runner, "query_start_loc", None), "np", None)
        sight.arrays["input_ids"] = None if ids is None else self.copies.of(ids, total)
        sight.arrays["positions"] = None if positions is None else self.copies.of(positions, total)
        sight.arrays["query_start"] = None if start is None else start[: count + 1].copy()
        forward_context = self.forward_context.get_forward_context()
        described = forward_context.batch_descriptor
        sight.step_numbers["padded"] = total if described is None else int(described.num_tokens)
        sight.step_numbers["padded_rows"] = int(getattr(described, "num_reqs", None) or NOTHING)
        sight.step_numbers["graph"] = int(forward_context.cudagraph_runtime_mode.value)
        metadata = forward_context.attn_metadata
        self.given_metadata(sight, metadata, lambda group, given: self._group(sight, group, given, total))
        self._tables(sight)
        self.copies.gather()

    def _group(self, sight: Sight, group: int, given: Any, total: int) -> None:
        found = sight.groups[group]
        if is_of_state(given):
            self.kinds[group] = "state"
            found["state"] = state_readings(self.copies.of, given)
            if self.with_states:
                self._states_found(sight, group, found["state"])
        elif hasattr(given, "slot_mapping"):
            self.kinds[group] = "attention"
            self.lengths(sight, group, given)
            if self._table(group).block_size == self.sizes[group]:
                found["slots"], found["size"] = copied(self.copies.of, given, "slot_mapping", total), self.sizes[group]
            if self.with_states:
                self._key_values_found(sight, group)
        else:
            self.not_seen("*", group, unknown_metadata(given))

    def _states_found(self, sight: Sight, group: int, state: dict[str, Any]) -> None:
        """What the slots of the step hold as it begins."""
        if group not in self.states:
            layers = states_of(self.runner, self.groups[group])
            self.states[group] = StateDigests(layers) if layers else None
        digests = self.states[group]
        if digests is None:
            for name in ("state_found", "state_left"):
                self.not_seen(name, group, message("unseen.states", "states that are not on the host"))
            return
        sight.step_numbers["states_found_in"] = digests.which
        state["found"] = [None if slots is None else digests.of(slots) for slots in _slots(state)]

    def _states_left(self, sight: Sight) -> None:
        """What they hold when it is over."""
        for group, digests in self.states.items():
            state = sight.groups.get(group, {}).get("state")
            if digests is None or state is None:
                continue
            slots = _slots(state)
            digests.turn(sight.step, sum(one.size for one in slots if one is not None))
            sight.step_numbers["states_left_in"] = digests.which
            state["left"] = [None if one is None else digests.of(one) for one in slots]

    def _key_values_found(self, sight: Sight, group: int) -> None:
        why = self.unseen.get("computed")
        if why is None:
            why = self.key_values.begin(sight, group, int(self._table(group).block_size))
        if why is not None:
            for name in KV_COLUMNS:
                self.not_seen(name, group, why)

    def _table(self, group: int) -> Any:
        return self.runner.input_batch.block_table.block_tables[group]

    def _tables(self, sight: Sight) -> None:
        for group in range(len(self.groups)):
            table = self._table(group)
            if int(table.block_size) != self.sizes[group] and self.kinds[group] != "state":
                why = message("unseen.kernel_blocks", "kernel blocks of {size} tokens", size=int(table.block_size))
                self.not_seen("table_off", group, why)
                continue
            found = table.block_table.np[: len(sight.names), : self.widest(group)]
            sight.groups[group]["table"] = found.copy()

    def _before_sampling(self, sight: Sight, logits: Any, metadata: Any) -> None:
        if metadata is not None:
            sight.arrays["draft_counts"] = list(metadata.num_draft_tokens)
            sight.arrays["draft_ids"] = self.copies.of(metadata.draft_token_ids)
            sight.arrays["logits_indices"] = copied(self.copies.of, metadata, "logits_indices")
        if logits is not None:
            sight.arrays["best"] = first_best(self.copies.of, logits)
        self.copies.gather()

    def _after_sampling(self, sight: Sight, output: Any) -> None:
        sight.arrays["matrix"] = self.copies.of(output.sampled_token_ids)
        self.copies.gather()

    def _handed(self, sight: Sight, output: Any) -> None:
        if self.with_states:
            self._states_left(sight)
            self.key_values.end(sight, self.output.num_scheduled_tokens, self.output.scheduled_spec_decode_tokens)
        count, proposed = len(sight.names), getattr(self.runner, "_draft_token_ids", None)
        if proposed is None:
            sight.empty.append("proposed")
        elif isinstance(proposed, list):
            sight.held["proposed"] = held(proposed[:count])
        else:
            sight.proposed = self.copies.of(proposed, count)
        if not self.asynchronous:
            self._tokens(sight, output)
        sight.ready = self.copies.send()
        if self.scheduler is None:
            self.finished(sight)

    def taken(self, sight: Sight, output: Any) -> None:
        if self.asynchronous and sight.names:
            sight.handed, sight.held["handed"] = dict(output.req_id_to_index), held(output.sampled_token_ids)

    def _tokens(self, sight: Sight, output: Any) -> None:
        batch, count = self.runner.input_batch, len(sight.names)
        sight.handed, sight.held["handed"] = dict(output.req_id_to_index), held(output.sampled_token_ids)
        if "kept" not in self.unseen:
            self._counts_kept(sight, getattr(batch, "num_accepted_tokens_cpu", None))
        lengths = sight.numbers["buffer_length"] = batch.num_tokens_no_spec[:count].copy()
        last = [length - 1 if length > 0 else 0 for length in lengths.tolist()]
        sight.numbers["buffer_last"] = list(map(batch.token_ids_cpu.item, range(count), last))

    def _counts_kept(self, sight: Sight, kept: Any) -> None:
        if kept is not None and self.runner.speculative_config is not None and self.runner.model_config.is_hybrid:
            sight.numbers["kept"] = kept[: len(sight.names)].copy()
        else:
            self.unseen["kept"] = nothing_kept()


def _slots(state: dict[str, Any]) -> tuple[Any, Any]:
    """State slots of speculative rows, shape (rows, k + 1), and of others."""
    return state["spec_slots"], state["other_slots"]
