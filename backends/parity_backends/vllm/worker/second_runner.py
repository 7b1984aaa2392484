"""The flight recorder at the doors of vLLM's second model runner (vllm/v1/worker/gpu/model_runner.py of 0.32.0).

    execute_model             what the scheduler asks for; not of dummy runs
    prepare_inputs            the batch (`InputBatch`)
    prepare_attn              block tables and slots; of the model state: what the layers get
    sample, compute_logits    the logits, and what the sampler makes of them
    sample_tokens             what the drafter proposes, and what is kept for the next step
    get_output                of what `sample_tokens` returns: what the runner hands to the scheduler

Its state is on the device, and a request keeps its place there: copies are gathered at each door and go to the host
after the step's own work (`StepCopies`), which goes on after its tokens are handed out (`postprocess_sampled`, the
drafter), and are waited for before columns are made. The scheduler does not know the drafts: `drafts` are those that
the runner's state holds for the request when the step begins.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from parity.capture.step_table import Ragged, spans

from .host_copies import copied, first_best, is_of_state, state_readings
from .recorder import Recorder, nothing_kept, unknown_metadata
from .step_sight import Sight, held, looked_up, ragged_rows


class SecondRunner(Recorder):
    needs = (
        "execute_model", "prepare_inputs", "prepare_attn", "sample", "sample_tokens", "req_states", "model_state",
        "model", "attn_groups",
    )  # fmt: skip
    how = (
        "methods of the second model runner, its model state and the scheduler wrapped on their instances; tensors "
        "copied after the step's own work, the argmax of the logits computed"
    )

    def wrap(self) -> None:
        self.sampling = False
        runner = self.runner
        self.door(runner, "execute_model", self._around_execute_model)
        self.door(runner, "prepare_inputs", lambda inner: self._after(inner, self._batch))
        self.door(runner, "prepare_attn", lambda inner: self._after(inner, self._tables))
        self.door(runner.model_state, "prepare_attn", self._around_layers)
        self.door(runner.model, "compute_logits", self._around_compute_logits)
        self.door(runner, "sample", self._around_sample)
        self.door(runner, "sample_tokens", self._around_sample_tokens)

    def _after(self, inner: Any, look: Any) -> Any:
        def door(*args: Any, **kwargs: Any) -> Any:
            made = inner(*args, **kwargs)
            if self.sight is not None:
                self.look(look, self.sight, made)
            return made

        return door

    def _around_layers(self, inner: Any) -> Any:
        signature = inspect.signature(inner)

        def prepare_attn(*args: Any, **kwargs: Any) -> Any:
            made = inner(*args, **kwargs)
            if self.sight is not None:
                given = signature.bind_partial(*args, **kwargs).arguments
                self.look(self._metadata, self.sight, made, given.get("cudagraph_mode"))
            return made

        return prepare_attn

    def _around_execute_model(self, inner: Any) -> Any:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self.sight = None
            if not kwargs.get("dummy_run", len(args) > 1 and args[1]):
                self.look(self.scheduled, scheduler_output)
            return inner(scheduler_output, *args, **kwargs)

        return execute_model

    def _around_compute_logits(self, inner: Any) -> Any:
        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = inner(*args, **kwargs)
            if self.sampling and self.sight is not None:
                self.look(self._logits, self.sight, logits)
            return logits

        return compute_logits

    def _around_sample(self, inner: Any) -> Any:
        def sample(hidden_states: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
            sight = self.sight
            if sight is None:
                return inner(hidden_states, input_batch, *args, **kwargs)
            self.look(self._before_sampling, sight, input_batch)
            self.sampling = True
            try:
                made = inner(hidden_states, input_batch, *args, **kwargs)
            finally:
                self.sampling = False
            self.look(self._after_sampling, sight, made)
            return made

        return sample

    def _around_sample_tokens(self, inner: Any) -> Any:
        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            output = inner(*args, **kwargs)
            sight, self.sight = self.sight, None
            if sight is not None and sight.names and output is not None:
                self.look(self._kept, sight)
                self._when_handed(sight, output)
            return output

        return sample_tokens

    def _when_handed(self, sight: Sight, output: Any) -> None:
        if not hasattr(output, "get_output"):
            self.look(self._handed, sight, output)
            return
        get_output = output.get_output

        def got() -> Any:
            made = get_output()
            self.look(self._handed, sight, made)
            return made

        output.get_output = got

    # ------------------------------------------------------------------ what is seen at each

    def _batch(self, sight: Sight, inputs: Any) -> None:
        names = list(inputs.req_ids)
        self.rows(sight, names)
        count, total, req_states = len(names), int(inputs.num_tokens), self.runner.req_states
        index = req_states.req_id_to_index
        sight.arrays["index"] = np.array(looked_up(index, names), dtype=np.int64)
        sight.arrays["index_of_row"] = self.copies.of(inputs.idx_mapping, count)
        counts = inputs.num_draft_tokens_per_req
        sight.arrays["drafts_asked"] = np.zeros(count, dtype=np.int64) if counts is None else np.array(counts[:count])
        sight.arrays["drafts_held"] = self.copies.of(req_states.draft_tokens[inputs.idx_mapping])
        sight.arrays["input_ids"] = self.copies.of(inputs.input_ids, total)
        sight.arrays["positions"] = self.copies.of(inputs.positions, total)
        sight.arrays["query_start"] = self.copies.of(inputs.query_start_loc, count + 1)
        sight.step_numbers["padded"] = int(inputs.num_tokens_after_padding)
        sight.step_numbers["padded_rows"] = int(inputs.num_reqs_after_padding)
        self.copies.gather()

    def _tables(self, sight: Sight, made: Any) -> None:
        tables, _ = made
        count = len(sight.names)
        for group, table in enumerate(tables):
            sight.groups[group]["table"] = self.copies.of(table[:count, : self.widest(group)])
        self.copies.gather()

    def _metadata(self, sight: Sight, metadata: Any, graph: Any) -> None:
        if graph is not None:
            sight.step_numbers["graph"] = int(graph.value)
        self.given_metadata(sight, metadata, lambda group, given: self._group(sight, group, given))
        self.copies.gather()

    def _group(self, sight: Sight, group: int, given: Any) -> None:
        found = sight.groups[group]
        if is_of_state(given):
            self.kinds[group] = "state"
            found["state"] = state_readings(self.copies.of, given)
        elif hasattr(given, "slot_mapping"):
            self.kinds[group] = "attention"
            self.lengths(sight, group, given)
            found["slots"] = copied(self.copies.of, given, "slot_mapping", len(sight.arrays["input_ids"]))
            found["size"] = self.sizes[group]
        else:
            self.not_seen("*", group, unknown_metadata(given))

    def _logits(self, sight: Sight, logits: Any) -> None:
        sight.arrays["best"] = first_best(self.copies.of, logits)
        self.copies.gather()

    def _before_sampling(self, sight: Sight, inputs: Any) -> None:
        if not inputs.num_draft_tokens:
            return
        sight.arrays["draft_counts"] = np.diff(inputs.cu_num_logits_np[: len(sight.names) + 1]) - 1
        sight.arrays["logits_indices"] = self.copies.of(inputs.logits_indices)
        sight.arrays["ids_of_logits"] = self.copies.of(inputs.input_ids[inputs.logits_indices])
        self.copies.gather()

    def _after_sampling(self, sight: Sight, made: Any) -> None:
        output, sampled, _ = made
        sight.arrays["matrix"] = self.copies.of(output.sampled_token_ids)
        sight.arrays["made"] = self.copies.of(sampled)
        self.copies.gather()

    def _kept(self, sight: Sight) -> None:
        import torch

        req_states = self.runner.req_states
        rows = torch.as_tensor(sight.arrays["index"], device=req_states.draft_tokens.device)
        sight.arrays["proposed"] = self.copies.of(req_states.draft_tokens[rows])
        kept = getattr(self.runner.model_state, "num_accepted_tokens_gpu", None)
        if kept is None or self.runner.speculative_config is None:
            self.unseen.setdefault("kept", nothing_kept())
        else:
            sight.numbers["kept"] = self.copies.of(kept[rows])
        lengths = req_states.total_len.gpu[rows]
        last = req_states.all_token_ids.gpu[rows, (lengths - 1).clamp_min(0).long()]
        sight.numbers["buffer_length"], sight.numbers["buffer_last"] = self.copies.of(lengths), self.copies.of(last)
        sight.resolve, sight.ready = resolve, self.copies.send()

    def _handed(self, sight: Sight, output: Any) -> None:
        sight.handed, sight.held["handed"] = dict(output.req_id_to_index), held(output.sampled_token_ids)
        if self.scheduler is None:
            self.finished(sight)


def resolve(sight: Sight) -> None:
    """Columns from the copies, which are there now."""
    arrays = sight.arrays
    row_of = {int(index): row for row, index in enumerate(arrays.pop("index_of_row"))}
    index = arrays.pop("index").tolist()
    sight.numbers["index_row"] = looked_up(row_of, index)
    asked, held = arrays.pop("drafts_asked").astype(np.int64), arrays.pop("drafts_held")
    columns = np.arange(held.shape[1])
    sight.lists["drafts"] = Ragged(asked, held[columns < asked[:, None]].astype(np.int64))
    sight.lists["proposed"] = ragged_rows(arrays.pop("proposed"))
    made, matrix = arrays.pop("made"), arrays["matrix"]
    arrays["matrix"] = np.where(np.arange(matrix.shape[1]) < made[:, None], matrix, -1)
    if "ids_of_logits" in arrays:
        counts, ids = arrays["draft_counts"], arrays.pop("ids_of_logits")
        begin = np.cumsum(counts + 1) - counts
        arrays["draft_ids"] = ids[spans(begin, counts)]
