"""Faults of the engine's bookkeeping: one number of one row-step is wrong, and right again in the next.

Each breaks one of the equalities that parity's flight recorder lives from (docs/steps.md), and most of them damage no
token. Four places: what the scheduler asks for, the prepared batch, the metadata that layers get, what is kept for the
next step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .rows import drafting_rows, held, outputs_of, sampling_rows

Planted = list[int]
"""Rows in which something is wrong now; empty: nothing could be planted."""


def decoding(runner: Any) -> list[int]:
    """Rows that emit tokens and have emitted some."""
    return [row for row in sampling_rows(runner) if outputs_of(runner, row)]


def start_of(runner: Any, row: int) -> int:
    return int(runner.query_start_loc.np[row])


# ------------------------------------------------------------------ what the scheduler asks for


def computed_off(state: Any, scheduled: Any) -> list[str]:
    """One computed token less than there are. Gives the names of requests, as the row is not known yet."""
    cached = scheduled.scheduled_cached_reqs
    able = [
        place
        for place, name in enumerate(cached.req_ids)
        if scheduled.scheduled_spec_decode_tokens.get(name) and cached.num_computed_tokens[place] > 1
    ]
    draw = state.due() if able else None
    if draw is None:
        return []
    place = draw.choice(able)
    cached.num_computed_tokens[place] -= 1
    return [str(cached.req_ids[place])]


def drafts_off(state: Any, scheduled: Any) -> list[str]:
    """One draft is another token than the drafter proposed."""
    drafts = scheduled.scheduled_spec_decode_tokens
    able = sorted(name for name, tokens in drafts.items() if tokens)
    draw = state.due() if able else None
    if draw is None:
        return []
    name = draw.choice(able)
    drafts[name] = [drafts[name][0] ^ 1, *drafts[name][1:]]
    return [str(name)]


SCHEDULED: dict[str, Callable[..., list[str]]] = {"computed_off": computed_off, "drafts_off": drafts_off}


# ------------------------------------------------------------------ the prepared batch


def position_off(runner: Any, draw: Any, rows: list[int], prepared: Any) -> Planted:
    row = draw.choice(rows)
    runner.positions[start_of(runner, row)] += 1
    return [row]


def input_off(runner: Any, draw: Any, rows: list[int], prepared: Any) -> Planted:
    row = draw.choice(rows)
    runner.input_ids.gpu[start_of(runner, row)] ^= 1
    return [row]


def logits_off(runner: Any, draw: Any, rows: list[int], prepared: Any) -> Planted:
    """The logits of a row's first token are those of the token before it."""
    metadata = prepared[1]
    rows = [] if metadata is None else [row for row in rows if row and metadata.num_draft_tokens[row]]
    if not rows:
        return []
    row = draw.choice(rows)
    metadata.logits_indices[sum(metadata.num_draft_tokens[:row]) + row] -= 1
    return [row]


def sampler_drafts_off(runner: Any, draw: Any, rows: list[int], prepared: Any) -> Planted:
    """The sampler verifies another draft than the model has seen."""
    metadata = prepared[1]
    rows = [] if metadata is None else [row for row in rows if metadata.num_draft_tokens[row]]
    if not rows:
        return []
    row = draw.choice(rows)
    metadata.draft_token_ids[sum(metadata.num_draft_tokens[:row])] ^= 1
    return [row]


PREPARED: dict[str, Callable[..., Planted]] = {
    "position_off": position_off,
    "input_off": input_off,
    "logits_off": logits_off,
    "sampler_drafts_off": sampler_drafts_off,
}


# ------------------------------------------------------------------ the metadata that layers get


def query_start_off(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """A row's stretch of the batch ends one token late, in its neighbour's; until the layers run, which would not."""
    starts = runner.query_start_loc.np
    rows = [row for row in rows if row + 1 < runner.input_batch.num_reqs and starts[row + 2] - starts[row + 1] > 1]
    if not rows:
        return []
    row = draw.choice(rows)
    starts[row + 1] += 1

    def restore() -> None:
        starts[row + 1] -= 1

    state.undo_early.append(restore)
    return [row, row + 1]


def row_map(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """Two requests have each other's row in the batch's index."""
    if len(rows) < 2:
        return []
    a, b = draw.sample(rows, 2)
    names, index = runner.input_batch.req_ids, runner.input_batch.req_id_to_index

    def exchange() -> None:
        index[names[a]], index[names[b]] = index[names[b]], index[names[a]]

    exchange()
    state.undo.append(exchange)
    return sorted((a, b))


def block_table_off(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """A row's first block is another row's."""
    if len(rows) < 2:
        return []
    row, donor = draw.sample(rows, 2)
    table = runner.input_batch.block_table.block_tables[state.group_of[id(built)]].block_table.np
    before = int(table[row, 0])
    table[row, 0] = table[donor, 0]

    def restore() -> None:
        table[row, 0] = before

    state.undo.append(restore)
    return [row]


def sequence_length_off(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    row = draw.choice(rows)
    built.seq_lens = built.seq_lens.clone()
    built.seq_lens[row] -= 1
    return [row]


def slot_off(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """Keys and values of a row's last token go into another place of its block."""
    row = draw.choice(rows)
    built.slot_mapping = built.slot_mapping.clone()
    built.slot_mapping[start_of(runner, row + 1) - 1] ^= 1
    return [row]


def slot_shared(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """Keys and values of a row's last token go where those of another row go."""
    if len(rows) < 2:
        return []
    row, donor = draw.sample(rows, 2)
    built.slot_mapping = built.slot_mapping.clone()
    built.slot_mapping[start_of(runner, row + 1) - 1] = built.slot_mapping[start_of(runner, donor + 1) - 1]
    return [row]


def state_slots_exchanged(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """Two speculating rows have each other's state slots."""
    slots = built.spec_state_indices_tensor
    drafting = drafting_rows(built)
    if slots is None or drafting is None:
        return []
    speculating = [row for row, flag in enumerate(drafting[: runner.input_batch.num_reqs]) if flag]
    if len(speculating) < 2:
        return []
    a, b = sorted(draw.sample(range(len(speculating)), 2))
    built.spec_state_indices_tensor = slots = slots.clone()
    slots[[a, b]] = slots[[b, a]]
    return [speculating[a], speculating[b]]


def state_overwritten(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """A speculating row's recurrent states are another row's, written into its slots between two steps; every number is
    right."""
    slots = built.spec_state_indices_tensor
    drafting = drafting_rows(built)
    if slots is None or drafting is None:
        return []
    speculating = [row for row, flag in enumerate(drafting[: runner.input_batch.num_reqs]) if flag]
    # What a row's first step after its prompt left in slots but its first is nothing.
    able = [place for place, row in enumerate(speculating) if len(outputs_of(runner, row)) > 1]
    if len(able) < 2:
        return []
    victim, donor = draw.sample(able, 2)
    for layer in runner.compilation_config.static_forward_context.values():
        caches = getattr(layer, "kv_cache", None)
        if isinstance(caches, tuple):  # recurrent layers have two; those of attention are one tensor
            for cache in caches:
                for to, of in zip(slots[victim].tolist(), slots[donor].tolist()):  # noqa: B905 - Python 3.9
                    cache[to].copy_(cache[of])
    return [speculating[victim]]


def kv_overwritten(state: Any, runner: Any, draw: Any, rows: list[int], built: Any) -> Planted:
    """A row's first block of keys and values is another row's, written there between two steps; every number is
    right."""
    rows = [row for row in rows if outputs_of(runner, row)]
    if len(rows) < 2:
        return []
    victim, donor = draw.sample(rows, 2)
    for group, spec in enumerate(runner.kv_cache_config.kv_cache_groups):
        table = runner.input_batch.block_table.block_tables[group].block_table.np
        for name in spec.layer_names:
            layer = runner.compilation_config.static_forward_context[name]
            if hasattr(layer, "num_kv_heads"):  # recurrent layers have none
                layer.kv_cache[int(table[victim][0])].copy_(layer.kv_cache[int(table[donor][0])])
    return [victim]


BUILT: dict[str, Callable[..., Planted]] = {
    "query_start_off": query_start_off,
    "row_map": row_map,
    "block_table_off": block_table_off,
    "sequence_length_off": sequence_length_off,
    "slot_off": slot_off,
    "slot_shared": slot_shared,
    "kv_overwritten": kv_overwritten,
}
"""In the metadata of attention."""
BUILT_STATE: dict[str, Callable[..., Planted]] = {
    "state_slots_exchanged": state_slots_exchanged,
    "state_overwritten": state_overwritten,
}
"""In the metadata of recurrent layers."""


# ------------------------------------------------------------------ what is kept for the next step


def kept_off(state: Any, runner: Any, draw: Any, rows: list[int]) -> Planted:
    """The count of accepted tokens kept for the next step is one too large."""
    row = draw.choice(rows)
    kept = runner.input_batch.num_accepted_tokens_cpu
    kept[row] += 1

    def restore() -> None:
        kept[row] -= 1

    state.undo.append(restore)
    return [row]


def buffer_off(state: Any, runner: Any, draw: Any, rows: list[int]) -> Planted:
    """The last token in the runner's buffer is another than was handed out."""
    row = draw.choice(rows)
    tokens, last = runner.input_batch.token_ids_cpu, int(runner.input_batch.num_tokens_no_spec[row]) - 1
    tokens[row, last] ^= 1

    def restore() -> None:
        tokens[row, last] ^= 1

    state.undo.append(restore)
    return [row]


KEPT: dict[str, Callable[..., Planted]] = {"kept_off": kept_off, "buffer_off": buffer_off}

NEEDED = ("_prepare_inputs", "_model_forward", "_sample", "sample_tokens")
ALL = (*SCHEDULED, *PREPARED, *BUILT, *BUILT_STATE, *KEPT)


# ------------------------------------------------------------------ where they are planted


def wrap_scheduler(state: Any, scheduler: Any) -> None:
    schedule = scheduler.schedule

    def schedule_and_plant(self: Any, *args: Any, **kwargs: Any) -> Any:
        scheduled = schedule(self, *args, **kwargs)
        plant = SCHEDULED.get(state.planting.fault)
        if plant is not None and scheduled.total_num_scheduled_tokens > 0:
            state.asked = plant(state, scheduled)
        return scheduled

    scheduler.schedule = schedule_and_plant


def wrap_runner(state: Any, runner: Any) -> None:
    """Of vLLM's first model runner; where it lacks a method these faults are refused."""
    missing = [name for name in NEEDED if not hasattr(runner, name)]
    if missing:
        if state.planting.fault in ALL:
            raise RuntimeError(
                f"{state.planting.fault} cannot be planted: the model runner has no {', '.join(missing)}"
            )
        return
    prepare, forward = runner._prepare_inputs, runner._model_forward
    sample, hand = runner._sample, runner.sample_tokens

    def prepare_and_plant(*args: Any, **kwargs: Any) -> Any:
        prepared = prepare(*args, **kwargs)
        names, state.asked = state.asked, []
        log(state, runner, [row for row, name in enumerate(runner.input_batch.req_ids) if name in names])
        plant = PREPARED.get(state.planting.fault)
        rows = decoding(runner) if plant is not None and state.in_step else []
        draw = state.due() if rows else None
        if plant is not None and draw is not None:
            log(state, runner, plant(runner, draw, rows, prepared))
        return prepared

    @functools.wraps(forward)  # the recorder, outside of it, goes by the names of its arguments
    def forward_after_undoing(*args: Any, **kwargs: Any) -> Any:
        undo(state.undo_early)
        return forward(*args, **kwargs)

    def sample_after_undoing(*args: Any, **kwargs: Any) -> Any:
        undo(state.undo)
        return sample(*args, **kwargs)

    def hand_and_plant(*args: Any, **kwargs: Any) -> Any:
        made = hand(*args, **kwargs)
        plant = KEPT.get(state.planting.fault)
        rows = decoding(runner) if plant is not None else []
        draw = state.due() if rows else None
        if plant is not None and draw is not None:
            log(state, runner, plant(state, runner, draw, rows))
        return made

    runner._prepare_inputs, runner._model_forward = prepare_and_plant, forward_after_undoing
    runner._sample, runner.sample_tokens = sample_after_undoing, hand_and_plant


def log(state: Any, runner: Any, rows: Planted) -> None:
    for row in rows:
        state.record(held(runner, row), row, len(outputs_of(runner, row)))


def wrap_builders(state: Any, runner: Any) -> None:
    """Of every cache group, once they are there."""
    for number, groups in enumerate(runner.attn_groups):
        for group in groups:
            builder = group.get_metadata_builder(0)
            builder.build = building(state, runner, number, builder.build)


def building(state: Any, runner: Any, group: int, build: Any) -> Any:
    def build_and_plant(*args: Any, **kwargs: Any) -> Any:
        built = build(*args, **kwargs)
        some = BUILT_STATE if hasattr(built, "num_spec_decodes") else BUILT
        plant = some.get(state.planting.fault)
        rows = decoding(runner) if plant is not None and state.in_step else []
        draw = state.due() if rows else None
        if plant is not None and draw is not None:
            state.group_of = {id(built): group}
            log(state, runner, plant(state, runner, draw, rows, built))
        return built

    return build_and_plant


def undo(some: list[Callable[[], None]]) -> None:
    """Put right what must not last."""
    for one in some:
        one()
    some.clear()
