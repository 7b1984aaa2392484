"""The faults themselves: functions that change what the engine has just made.

Six places: the logits before sampling, the sampled tokens of the batch (shape (rows, k + 1), -1 where
nothing was accepted), the metadata of the gated delta net, the outputs on their way to the caller, what goes into the
model and its layers, and what a request asks for. Each asks `state.due()` only in steps where it can do something, so
a rate is per eligible step; for requests it is their share (`state.chooses`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Plant = Callable[..., Any]


# ---------------------------------------------------------------- rows and requests


def sampling_rows(runner: Any) -> list[int]:
    """Rows that emit tokens in this step (not in the middle of a chunked prefill)."""
    count = runner.input_batch.num_reqs
    discarded = runner.discard_request_mask.np[:count]
    return [row for row in range(count) if not discarded[row]]


def request_of(runner: Any, row: int) -> str:
    return str(runner.input_batch.req_ids[row])


def held(runner: Any, row: int) -> Any:
    """The runner's own object for the request in this row."""
    return runner.requests[runner.input_batch.req_ids[row]]


def outputs_of(runner: Any, row: int) -> list[int]:
    return list(held(runner, row).output_token_ids)


def drafts_of(metadata: Any, row: int) -> list[int]:
    if metadata is None:
        return []
    counts = metadata.num_draft_tokens
    start = sum(counts[:row])
    return [int(token) for token in metadata.draft_token_ids[start : start + counts[row]].tolist()]


def tokens_of(sampled: Any, row: int) -> list[int]:
    return [int(token) for token in sampled[row].tolist() if token != -1]


def put(sampled: Any, row: int, tokens: list[int]) -> None:
    """Writes the tokens of one row, -1 after them."""
    import torch

    padded = tokens + [-1] * (sampled.shape[1] - len(tokens))
    sampled[row] = torch.tensor(padded, dtype=sampled.dtype, device=sampled.device)


def width_of(metadata: Any, row: int) -> int:
    """How many tokens the row may emit in this step."""
    return 1 if metadata is None else int(metadata.num_draft_tokens[row]) + 1


# ---------------------------------------------------------------- sampled tokens


def unverified_drafts(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    if metadata is None:
        return
    sampled = output.sampled_token_ids
    rejected = [
        row for row in sampling_rows(runner) if 0 < len(tokens_of(sampled, row)) <= metadata.num_draft_tokens[row]
    ]
    draw = state.due() if rejected else None
    if draw is None:
        return
    row = draw.choice(rejected)
    before = tokens_of(sampled, row)
    bonus = int(logits[metadata.bonus_logits_indices[row]].argmax())
    after = [*drafts_of(metadata, row), bonus]
    put(sampled, row, after)
    position = len(outputs_of(runner, row)) + len(before) - 1
    state.record(held(runner, row), row, position, before=before, after=after)


def row_swap(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    sampled = output.sampled_token_ids
    rows = sampling_rows(runner)
    pairs = [
        (a, b)
        for index, a in enumerate(rows)
        for b in rows[index + 1 :]
        if width_of(metadata, a) == width_of(metadata, b) and tokens_of(sampled, a) != tokens_of(sampled, b)
    ]
    draw = state.due() if pairs else None
    if draw is None:
        return
    a, b = draw.choice(pairs)
    tokens = {a: tokens_of(sampled, a), b: tokens_of(sampled, b)}
    for row, other in ((a, b), (b, a)):
        put(sampled, row, tokens[other])
        position = len(outputs_of(runner, row)) + common_prefix(tokens[row], tokens[other])
        state.record(
            held(runner, row),
            row,
            position,
            before=tokens[row],
            after=tokens[other],
            donor=request_of(runner, other),
        )


def common_prefix(a: list[int], b: list[int]) -> int:
    for index, (left, right) in enumerate(zip(a, b)):  # noqa: B905 - Python 3.9 has no `strict`
        if left != right:
            return index
    return min(len(a), len(b))


def row_leak(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    sampled = output.sampled_token_ids
    rows = {request_of(runner, row): row for row in sampling_rows(runner)}
    active = state.active
    if active and (active["victim"] not in rows or active["donor"] not in rows):
        active.clear()
    if not active:
        draw = state.due() if len(rows) > 1 else None
        if draw is None:
            return
        victim, donor = draw.sample(sorted(rows), 2)
        active.update(victim=victim, donor=donor, left=state.planting.span)
    row, other = rows[active["victim"]], rows[active["donor"]]
    before, after = tokens_of(sampled, row), tokens_of(sampled, other)[: width_of(metadata, row)]
    active["left"] -= 1
    if before != after:
        put(sampled, row, after)
        position = len(outputs_of(runner, row)) + common_prefix(before, after)
        state.record(held(runner, row), row, position, before=before, after=after, donor=active["donor"])
    if active["left"] == 0:
        active.clear()


def stale_chunk(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    sampled = output.sampled_token_ids
    rows = {request_of(runner, row): row for row in sampling_rows(runner)}
    last: dict[str, list[int]] = state.active
    able = sorted(
        request
        for request, row in rows.items()
        if request in last
        and len(last[request]) <= width_of(metadata, row)
        and last[request] != tokens_of(sampled, row)
    )
    draw = state.due() if able else None
    if draw is not None:
        request = draw.choice(able)
        row = rows[request]
        before, after = tokens_of(sampled, row), last[request]
        put(sampled, row, after)
        position = len(outputs_of(runner, row)) + common_prefix(before, after)
        state.record(held(runner, row), row, position, before=before, after=after)
    last.clear()
    last.update({request: tokens_of(sampled, row) for request, row in rows.items()})


def loop(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    sampled = output.sampled_token_ids
    rows = {request_of(runner, row): row for row in sampling_rows(runner) if outputs_of(runner, row)}
    active = state.active
    if active and active["victim"] not in rows:
        active.clear()
    if not active:
        draw = state.due() if rows else None
        if draw is None:
            return
        victim = draw.choice(sorted(rows))
        active.update(victim=victim, token=tokens_of(sampled, rows[victim])[0], left=state.planting.span, first=True)
    row = rows[active["victim"]]
    before, after = tokens_of(sampled, row), [active["token"]]
    if not active.pop("first", False) or len(before) > 1:
        put(sampled, row, after)
        position = len(outputs_of(runner, row)) + common_prefix(before, after)
        state.record(held(runner, row), row, position, before=before, after=after)
    active["left"] -= 1
    if active["left"] <= 0:
        active.clear()


def early_eos(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    sampled = output.sampled_token_ids
    eos = runner.model_config.hf_text_config.eos_token_id
    eos = eos[0] if isinstance(eos, (list, tuple)) else eos
    if eos is None:
        raise RuntimeError("the model's configuration names no eos_token_id, so early_eos cannot be planted")
    rows = [row for row in sampling_rows(runner) if outputs_of(runner, row)]
    rows = [row for row in rows if eos not in tokens_of(sampled, row)]
    draw = state.due() if rows else None
    if draw is None:
        return
    row = draw.choice(rows)
    before = tokens_of(sampled, row)
    after = [*before[:-1], eos]
    put(sampled, row, after)
    position = len(outputs_of(runner, row)) + len(before) - 1
    state.record(held(runner, row), row, position, before=before, after=after)


def wrong_logprobs(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    tensors = output.logprobs_tensors
    rows = sampling_rows(runner)
    draw = state.due() if tensors is not None and len(rows) > 1 else None
    if draw is None:
        return
    row, other = draw.sample(rows, 2)
    width = output.sampled_token_ids.shape[1]
    # The tokens keep their places; only the values become the neighbour's.
    values = tensors.logprobs
    values[row * width : (row + 1) * width] = values[other * width : (other + 1) * width].clone()
    state.record(held(runner, row), row, len(outputs_of(runner, row)), donor=request_of(runner, other))


# ---------------------------------------------------------------- logits


def rounded_otherwise(logits: Any, seed: int, ulps: int = 1) -> Any:
    """The logits, each moved by up to `ulps` units in the last place of bf16, as other hardware might round them."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)
    noise = torch.rand(logits.shape, generator=generator).to(logits.device) * 2 - 1
    # One unit in the last place of bf16 is 2^-7 of the power of two below the value (8 bits of mantissa).
    unit = torch.exp2(torch.floor(torch.log2(logits.abs().float().clamp_min(2.0**-20))) - 7)
    return (logits.float() + noise * unit * ulps).to(logits.dtype)


def logits_noise(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    draw = state.due()
    if draw is None:
        return logits
    for row in sampling_rows(runner):
        state.record(held(runner, row), row, len(outputs_of(runner, row)))
    return rounded_otherwise(logits, draw.randrange(2**31), state.planting.ulps)


def garbled_row(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    import torch

    rows = {request_of(runner, row): row for row in sampling_rows(runner)}
    active = state.active
    if active and active["victim"] not in rows:
        active.clear()
    if not active:
        draw = state.due() if rows else None
        if draw is None:
            return logits
        active.update(victim=draw.choice(sorted(rows)), left=state.planting.span, seed=draw.randrange(2**31))
    row = rows[active["victim"]]
    generator = torch.Generator(device="cpu").manual_seed(active["seed"] + active["left"])
    if metadata is None:
        start, width = row, 1
    else:
        width = width_of(metadata, row)
        start = int(metadata.bonus_logits_indices[row]) - width + 1
    noise = torch.randn((width, logits.shape[1]), generator=generator) * float(logits[start].float().std())
    logits = logits.clone()
    logits[start : start + width] = noise.to(logits.device, logits.dtype)
    state.record(held(runner, row), row, len(outputs_of(runner, row)))
    active["left"] -= 1
    if active["left"] <= 0:
        active.clear()
    return logits


def logit_bias(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    if state.due() is None:
        return logits
    note(state, runner)
    logits = logits.clone()
    logits[:, :: state.planting.share] += state.planting.millinats / 1000
    return logits


def note(state: Any, runner: Any) -> None:
    """Logs each request once that a fault of whole steps has touched."""
    seen = state.active.setdefault("noted", set())
    for row in sampling_rows(runner):
        if request_of(runner, row) not in seen:
            seen.add(request_of(runner, row))
            state.record(held(runner, row), row, len(outputs_of(runner, row)))


# ---------------------------------------------------------------- the model


def rope_off(state: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before the model's forward."""
    positions = kwargs.get("positions")
    if positions is None:
        raise RuntimeError("the model of this engine is not called with `positions`, so rope_off cannot be planted")
    return args, {**kwargs, "positions": (positions - 1).clamp_min(0)}


def kv_fp8(state: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before an attention layer's forward(query, key, value, ...)."""
    query, *pair = args[:3]
    return (query, *(None if one is None else as_e4m3(one) for one in pair), *args[3:]), kwargs


def as_e4m3(values: Any) -> Any:
    """Rounded to 8 bits with a scale of 1, as a KV cache without calibration."""
    import torch

    most = torch.finfo(torch.float8_e4m3fn).max
    return values.float().clamp(-most, most).to(torch.float8_e4m3fn).to(values.dtype)


def weight_scale(state: Any, layer: Any, given: Any, apply: Any, args: Any, kwargs: Any) -> Any:
    return (given.float() * (1 + state.planting.permille / 1000)).to(given.dtype)


def weight_quant(state: Any, layer: Any, given: Any, apply: Any, args: Any, kwargs: Any) -> Any:
    import torch

    x = args[0]
    if "change" not in state.active:
        # What the layer makes of unit vectors is its weights, also where a backend packs them and keeps no others.
        weights = apply(layer, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).float()
        state.active["change"] = rounded(weights, state.planting.bits, fp8=bool(state.planting.fp8)) - weights
    return (given.float() + x.float() @ state.active["change"]).to(given.dtype)


def rounded(weights: Any, bits: int, *, fp8: bool) -> Any:
    """Symmetric, with one scale for the whole tensor."""
    import torch

    if fp8:
        scale = weights.abs().max() / torch.finfo(torch.float8_e4m3fn).max
        return (weights / scale).to(torch.float8_e4m3fn).float() * scale
    scale = weights.abs().max() / (2 ** (bits - 1) - 1)
    return (weights / scale).round() * scale


# ---------------------------------------------------------------- requests


def penalties_ignored(params: Any, others: list[Any]) -> bool:
    asked = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)
    params.repetition_penalty, params.presence_penalty, params.frequency_penalty = 1.0, 0.0, 0.0
    return asked


def temperature_leak(params: Any, others: list[Any]) -> bool:
    if not params.temperature:
        return False
    other = [one.temperature for one in others if one.temperature != params.temperature]
    params.temperature = other[-1] if other else 0.0
    return True


def bad_words_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.bad_words)
    params.bad_words, params._bad_words_token_ids = [], None
    return asked


def allowed_ignored(params: Any, others: list[Any]) -> bool:
    asked = params.allowed_token_ids is not None
    params.allowed_token_ids = None
    return asked


def min_tokens_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.min_tokens)
    params.min_tokens = 0
    return asked


def stop_ignored(params: Any, others: list[Any]) -> bool:
    asked = bool(params.stop or params.stop_token_ids)
    params.stop, params.stop_token_ids = [], []
    return asked


# ---------------------------------------------------------------- gated delta net


def accepted_counts(state: Any, runner: Any, builder: Any, build: Any, args: Any, kwargs: Any) -> Any:
    counts = kwargs.get("num_accepted_tokens")
    drafts = kwargs.get("num_decode_draft_tokens_cpu")
    if counts is None or drafts is None:
        return build(*args, **kwargs)
    requests = runner.input_batch.num_reqs
    values = [int(value) for value in counts[:requests].tolist()]
    rows = [row for row in range(requests) if int(drafts[row]) >= 0]
    able = [row for row in rows if any(values[other] != values[row] for other in rows)]
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
    if built.spec_sequence_masks_cpu is None:
        ordinary = list(range(requests))
    else:
        ordinary = [row for row in range(requests) if not bool(built.spec_sequence_masks_cpu[row])]
    starting = []
    if fresh is not None:
        starting = [place for place in range(len(ordinary)) if not bool(fresh[place])]
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
    if built.spec_state_indices_tensor is not None and built.spec_sequence_masks_cpu is not None:
        rows = [row for row in range(runner.input_batch.num_reqs) if bool(built.spec_sequence_masks_cpu[row])]
        for place, row in enumerate(rows):
            seen[int(built.spec_state_indices_tensor[place, 0])] = request_of(runner, row)


# ---------------------------------------------------------------- outputs


def _logprobs_at(lists: Any | None, places: list[int]) -> Any | None:
    """The same logprobs at these positions of the step, in this order."""
    if lists is None:
        return None
    return type(lists)(lists.logprob_token_ids[places], lists.logprobs[places], lists.sampled_token_ranks[places], None)


def _emit(state: Any, requests: Any, output: Any, places: list[int], first: int) -> None:
    before = list(output.new_token_ids)
    output.new_token_ids = [before[place] for place in places]
    output.new_logprobs = _logprobs_at(output.new_logprobs, places)
    position = state.emitted.get(output.request_id, 0) + first
    state.record(requests[output.request_id], -1, position, before=before, after=list(output.new_token_ids))


def chunk_twice(state: Any, requests: Any, scheduler_output: Any, outputs: list[Any]) -> None:
    able = [output for output in outputs if len(output.new_token_ids) > 1 and output.finish_reason is None]
    draw = state.due() if able else None
    if draw is None:
        return
    output = draw.choice(able)
    count = len(output.new_token_ids)
    _emit(state, requests, output, [*range(count), *range(count)], count)


def bonus_lost(state: Any, requests: Any, scheduler_output: Any, outputs: list[Any]) -> None:
    drafted = scheduler_output.scheduled_spec_decode_tokens
    able = [
        output
        for output in outputs
        if output.finish_reason is None
        and drafted.get(output.request_id)
        and len(output.new_token_ids) == len(drafted[output.request_id]) + 1
    ]
    draw = state.due() if able else None
    if draw is None:
        return
    output = draw.choice(able)
    count = len(output.new_token_ids)
    _emit(state, requests, output, list(range(count - 1)), count - 1)


SAMPLED: dict[str, Plant] = {
    "unverified_drafts": unverified_drafts,
    "row_swap": row_swap,
    "row_leak": row_leak,
    "stale_chunk": stale_chunk,
    "loop": loop,
    "early_eos": early_eos,
    "wrong_logprobs": wrong_logprobs,
}
LOGITS: dict[str, Plant] = {"logits_noise": logits_noise, "garbled_row": garbled_row, "logit_bias": logit_bias}
MODEL: dict[str, Plant] = {"rope_off": rope_off}
"""Before the forward of the whole model."""
ATTENTION: dict[str, Plant] = {"kv_fp8": kv_fp8}
"""Before the forward of each attention layer."""
LINEAR: dict[str, Plant] = {"weight_scale": weight_scale, "weight_quant": weight_quant}
"""What one layer's output projection gives."""
REQUEST: dict[str, Plant] = {
    "penalties_ignored": penalties_ignored,
    "temperature_leak": temperature_leak,
    "bad_words_ignored": bad_words_ignored,
    "allowed_ignored": allowed_ignored,
    "min_tokens_ignored": min_tokens_ignored,
    "stop_ignored": stop_ignored,
}
"""Change a request's parameters (its own copy); whether there was anything to ignore."""
METADATA: dict[str, Plant] = {
    "accepted_counts": accepted_counts,
    "unstable_order": unstable_order,
    "state_not_reset": state_not_reset,
}
OUTPUT: dict[str, Plant] = {"chunk_twice": chunk_twice, "bonus_lost": bonus_lost}
