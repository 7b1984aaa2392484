"""Faults of the gated delta net: the metadata that its layers are given."""

from __future__ import annotations

from typing import Any

from .conditions import holds
from .rows import drafting_rows, held, outputs_of, request_of, sampling_rows


def accepted_counts(state: Any, runner: Any, builder: Any, build: Any, args: Any, kwargs: Any) -> Any:
    counts = kwargs.get("num_accepted_tokens")
    drafts = kwargs.get("num_decode_draft_tokens_cpu")
    if counts is None or drafts is None:
        return build(*args, **kwargs)
    requests = runner.input_batch.num_reqs
    values = [int(value) for value in counts[:requests].tolist()]
    rows = [row for row in range(requests) if int(drafts[row]) >= 0]
    able = [row for row in rows if any(values[other] != values[row] for other in rows) and holds(state, runner, row)]
    draw = state.due() if able else None
    if draw is None:
        return build(*args, **kwargs)
    row = draw.choice(able)
    donor = draw.choice([other for other in rows if values[other] != values[row]])
    counts = counts.clone()
    counts[row] = values[donor]
    state.record(
        held(runner, row),
        row,
        len(outputs_of(runner, row)),
        donor=request_of(runner, donor),
        before=values[row],
        after=values[donor],
    )
    return build(*args, **{**kwargs, "num_accepted_tokens": counts})


def unstable_partition(mask: list[bool]) -> list[int]:
    """Indices with False first, by exchange from both ends (Hoare): what an unstable sort may return."""
    index = list(range(len(mask)))
    left, right = 0, len(mask) - 1
    while left < right:
        if not mask[index[left]]:
            left += 1
        elif mask[index[right]]:
            right -= 1
        else:
            index[left], index[right] = index[right], index[left]
    return index


def unstable_order(state: Any, runner: Any, builder: Any, build: Any, args: Any, kwargs: Any) -> Any:
    import torch

    built = build(*args, **kwargs)
    spec, other = built.spec_token_indx, built.non_spec_token_indx
    if spec is None or other is None or not len(spec) or not len(other):
        return built
    mask = [False] * (len(spec) + len(other))
    for token in spec.tolist():
        mask[int(token)] = True
    index = unstable_partition(mask)
    stable = sorted(range(len(mask)), key=lambda token: mask[token])
    if index == stable:
        return built
    if state.due() is None:
        return built
    order = torch.tensor(index, dtype=spec.dtype, device=spec.device)
    built.non_spec_token_indx, built.spec_token_indx = order[: len(other)], order[len(other) :]
    common = args[1] if len(args) > 1 else kwargs["common_attn_metadata"]
    starts = [int(value) for value in common.query_start_loc_cpu.tolist()]
    moved = {token for place, token in enumerate(index) if stable[place] != token}
    emitting = set(sampling_rows(runner))
    for row in range(runner.input_batch.num_reqs):
        if moved.intersection(range(starts[row], starts[row + 1])):
            position = len(outputs_of(runner, row))
            state.record(held(runner, row), row, position, emits=row in emitting)
    return built


def state_not_reset(state: Any, runner: Any, builder: Any, build: Any, args: Any, kwargs: Any) -> Any:
    built = build(*args, **kwargs)
    slots = built.non_spec_state_indices_tensor
    fresh = built.has_initial_state
    seen: dict[int, str] = state.active.setdefault(id(builder), {})
    requests = runner.input_batch.num_reqs
    drafting = drafting_rows(built)
    ordinary = [row for row in range(requests) if drafting is None or not drafting[row]]
    starting = []
    if fresh is not None:
        starting = [place for place in range(len(ordinary)) if not bool(fresh[place])]
        starting = [place for place in starting if holds(state, runner, ordinary[place])]
    names = {place: request_of(runner, row) for place, row in enumerate(ordinary)}
    donors = {slot: name for slot, name in seen.items() if slot not in set(slots.tolist() if starting else [])}
    draw = state.due() if starting and donors else None
    if draw is not None:
        place = draw.choice(starting)
        donor = draw.choice(sorted(donors))
        victim = int(slots[place])
        for layer in builder.layer_names:
            for cache in runner.compilation_config.static_forward_context[layer].kv_cache:
                cache[victim].copy_(cache[donor])
        fresh[place] = True  # prefill_has_initial_state is a view of it, or it itself
        row = ordinary[place]
        state.record(held(runner, row), row, len(outputs_of(runner, row)), donor=donors[donor])
    remember(seen, built, names, runner)
    return built


def remember(seen: dict[int, str], built: Any, names: dict[int, str], runner: Any) -> None:
    """Notes which state slots hold a request's state, for later victims."""
    if built.non_spec_state_indices_tensor is not None:
        for place, slot in enumerate(built.non_spec_state_indices_tensor[: len(names)].tolist()):
            seen[int(slot)] = names[place]
    drafting = drafting_rows(built)
    if built.spec_state_indices_tensor is not None and drafting is not None:
        rows = [row for row in range(runner.input_batch.num_reqs) if drafting[row]]
        for place, row in enumerate(rows):
            seen[int(built.spec_state_indices_tensor[place, 0])] = request_of(runner, row)
