"""Faults in vLLM's second model runner (vllm/v1/worker/gpu/model_runner.py): its batch, its metadata, its tokens.

Its state is on the device and a request keeps its place there; the batch (`InputBatch`) is made anew in each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .arithmetic import OUTSIDE, PLACES, place_of
from .catalogue import FAULTS

Rows = list[int]

NEEDED = ("prepare_inputs", "prepare_attn", "sample", "req_states")


def request_at(runner: Any, name: str) -> tuple[Any, int]:
    """As much of a request as the log needs, and how many tokens it has put out."""
    there = runner.req_states
    place = there.req_id_to_index[name]
    prompt = int(there.prompt_len.np[place])
    tokens = there.all_token_ids.gpu[place, :prompt].tolist()
    return SimpleNamespace(req_id=name, prompt_token_ids=tokens), int(there.total_len.gpu[place]) - prompt


def decoding(inputs: Any) -> Rows:
    """Rows whose prompt is computed: they emit tokens and have emitted some."""
    return [row for row, prefilling in enumerate(inputs.is_prefilling_np.tolist()) if not prefilling]


# ------------------------------------------------------------------ before the batch is made


def drafts_off(runner: Any, draw: Any, names: list[str]) -> list[str]:
    """A draft in the runner's state is another than the drafter proposed."""
    name = draw.choice(names)
    runner.req_states.draft_tokens[runner.req_states.req_id_to_index[name], 0] ^= 1
    return [name]


BEFORE: dict[str, Callable[..., list[str]]] = {"drafts_off": drafts_off}


# ------------------------------------------------------------------ the batch


def position_off(inputs: Any, draw: Any, rows: Rows) -> Rows:
    row = draw.choice(rows)
    inputs.positions[int(inputs.query_start_loc_np[row])] += 1
    return [row]


def input_off(inputs: Any, draw: Any, rows: Rows) -> Rows:
    row = draw.choice(rows)
    inputs.input_ids[int(inputs.query_start_loc_np[row])] ^= 1
    return [row]


BATCH: dict[str, Callable[..., Rows]] = {"position_off": position_off, "input_off": input_off}


# ------------------------------------------------------------------ what layers get


def accepted_counts(metadata: list[Any], draw: Any, speculating: Rows) -> Rows:
    """A row's state is taken up at another row's count of accepted tokens."""
    counts = next(one.num_accepted_tokens for one in metadata if hasattr(one, "num_spec_decodes"))
    values = counts[: len(speculating)].tolist()
    able = [place for place, value in enumerate(values) if any(value != other for other in values)]
    if not able:
        return []
    place = draw.choice(able)
    counts[place] = draw.choice([value for value in values if value != values[place]])
    return [speculating[place]]


def state_slots_exchanged(metadata: list[Any], draw: Any, speculating: Rows) -> Rows:
    """Two speculating rows have each other's state slots."""
    if len(speculating) < 2:
        return []
    a, b = sorted(draw.sample(range(len(speculating)), 2))
    for one in metadata:
        if hasattr(one, "num_spec_decodes"):
            one.spec_state_indices_tensor = slots = one.spec_state_indices_tensor.clone()
            slots[[a, b]] = slots[[b, a]]
    return [speculating[a], speculating[b]]


STATES: dict[str, Callable[..., Rows]] = {
    "accepted_counts": accepted_counts,
    "state_slots_exchanged": state_slots_exchanged,
}


# ------------------------------------------------------------------ tokens


def row_swap(output: Any, counts: Any, draw: Any, rows: Rows) -> Rows:
    """Two rows exchange the tokens sampled in a step."""
    tokens, made = output.sampled_token_ids, counts.tolist()
    pairs = [
        (a, b)
        for at, a in enumerate(rows)
        for b in rows[at + 1 :]
        if made[a] == made[b] and tokens[a, : made[a]].tolist() != tokens[b, : made[b]].tolist()
    ]
    if not pairs:
        return []
    a, b = draw.choice(pairs)
    tokens[[a, b]] = tokens[[b, a]]
    return [a, b]


SAMPLED: dict[str, Callable[..., Rows]] = {"row_swap": row_swap}

ALL = (*BEFORE, *BATCH, *STATES, *SAMPLED, *OUTSIDE)


# ------------------------------------------------------------------ where they are planted


def wrap(state: Any, runner: Any) -> None:
    """Wrap a second model runner: its batch and sampler now, its model state when the model is loaded."""
    prepare, sample, execute_model = runner.prepare_inputs, runner.sample, runner.execute_model
    load_model = runner.load_model
    at_hand: list[Any] = [None]
    able: set[str] = set()

    def log(names: list[str], rows: Rows) -> None:
        for row in rows:
            request, position = request_at(runner, names[row])
            state.record(request, row, position)

    def loaded(*args: Any, **kwargs: Any) -> Any:
        made = load_model(*args, **kwargs)
        runner.model_state.prepare_attn = prepared_for_layers(runner.model_state.prepare_attn)
        for name in OUTSIDE:
            found = place_of(name, getattr(runner.speculator, "model", None))
            if found is not None:
                found[1].register_forward_hook(after_drafter(name, found[0]), with_kwargs=True, prepend=True)
                able.add(name)
        return made

    def after_drafter(name: str, path: str) -> Any:
        """Changes what a module of the drafter gives for one row, in the first pass of a step."""

        def after(module: Any, args: Any, kwargs: Any, given: Any) -> None:
            inputs = at_hand[0]
            if state.planting.fault != name or not state.in_step or state.active.get("drafted") == state.step:
                return
            state.active["drafted"] = state.step
            every, names = state.planting.every, inputs.req_ids
            struck: set[str] = state.active.setdefault("struck", set())
            rows = [row for row in decoding(inputs) if every or names[row] not in struck]
            draw = state.due() if rows else None
            if draw is None:
                return
            for row in rows if every else [draw.choice(rows)]:
                start, end = (int(one) for one in inputs.query_start_loc_np[row : row + 2])
                PLACES[name].change(state, runner, module, row, given, (start, end))
                if names[row] not in struck:
                    struck.add(names[row])
                    at, (request, position) = int(inputs.positions[start]), request_at(runner, names[row])
                    state.record(request, row, position, module="drafter." + path, at=at, tokens=end - start)

        return after

    def execute_counted(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        real = scheduler_output.total_num_scheduled_tokens > 0 and not kwargs.get("dummy_run", bool(args[1:]))
        mine = FAULTS.get(state.planting.fault)
        if mine is not None and mine.layer == "runner" and mine.name not in ALL:
            raise RuntimeError(f"{mine.name} cannot be planted in vLLM's second model runner")
        if mine is not None and mine.name in OUTSIDE and mine.name not in able:
            raise RuntimeError(f"no module of this model is fit for the fault {mine.name}")
        state.step += real and (mine is None or mine.layer == "runner")
        state.in_step = real
        return execute_model(scheduler_output, *args, **kwargs)

    def prepared(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        names: list[str] = []
        before = BEFORE.get(state.planting.fault)
        able = sorted(name for name, drafts in scheduler_output.scheduled_spec_decode_tokens.items() if drafts)
        draw = state.due() if before is not None and able else None
        if before is not None and draw is not None:
            names = before(runner, draw, able)
        inputs = prepare(scheduler_output, *args, **kwargs)
        at_hand[0] = inputs
        log(inputs.req_ids, [row for row, name in enumerate(inputs.req_ids) if name in names])
        plant, rows = BATCH.get(state.planting.fault), decoding(inputs)
        draw = state.due() if plant is not None and rows else None
        if plant is not None and draw is not None:
            log(inputs.req_ids, plant(inputs, draw, rows))
        return inputs

    def prepared_for_layers(prepare_attn: Any) -> Any:
        @functools.wraps(prepare_attn)  # the recorder, outside of it, goes by the names of its arguments
        def prepare_and_plant(*args: Any, **kwargs: Any) -> Any:
            metadata = prepare_attn(*args, **kwargs)
            plant, inputs = STATES.get(state.planting.fault), at_hand[0]
            if plant is None or inputs is None or not state.in_step:
                return metadata
            some = list({id(one): one for one in metadata.values()}.values())
            masks = next((one.spec_sequence_masks for one in some if hasattr(one, "num_spec_decodes")), None)
            speculating = [] if masks is None else [row for row, flag in enumerate(masks.tolist()) if flag]
            draw = state.due() if speculating else None
            if draw is not None:
                log(inputs.req_ids, plant(some, draw, speculating))
            return metadata

        return prepare_and_plant

    def sampled(hidden_states: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        made = sample(hidden_states, inputs, *args, **kwargs)
        plant, rows = SAMPLED.get(state.planting.fault), decoding(inputs) if state.in_step else []
        draw = state.due() if plant is not None and len(rows) > 1 else None
        if plant is not None and draw is not None:
            log(inputs.req_ids, plant(made[0], made[1], draw, rows))
        return made

    runner.load_model, runner.execute_model = loaded, execute_counted
    runner.prepare_inputs, runner.sample = prepared, sampled
