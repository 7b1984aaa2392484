"""The faults themselves: functions that change what the engine has just made.

Six places: the logits before sampling, the sampled tokens of the batch (shape (rows, k + 1), -1 where
nothing was accepted), the metadata of the gated delta net, the outputs on their way to the caller, what goes into the
model and its layers, and what a request asks for. Each asks `state.due()` only in steps where it can do something, so
a rate is per eligible step; for requests it is their share (`state.chooses`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import delta_net, model, requests
from .conditions import able_rows, holds
from .rows import drafts_of, held, outputs_of, put, request_of, sampling_rows, tokens_of, width_of

Plant = Callable[..., Any]


# ---------------------------------------------------------------- sampled tokens


def unverified_drafts(state: Any, runner: Any, logits: Any, metadata: Any, output: Any) -> None:
    if metadata is None:
        return
    sampled = output.sampled_token_ids
    rejected = [
        row for row in able_rows(state, runner) if 0 < len(tokens_of(sampled, row)) <= metadata.num_draft_tokens[row]
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
    rows, able = sampling_rows(runner), set(able_rows(state, runner))
    pairs = [
        (a, b)
        for index, a in enumerate(rows)
        for b in rows[index + 1 :]
        if able & {a, b}
        and width_of(metadata, a) == width_of(metadata, b)
        and tokens_of(sampled, a) != tokens_of(sampled, b)
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
        victims = {request for request, row in rows.items() if holds(state, runner, row)}
        draw = state.due() if len(rows) > 1 and victims else None
        if draw is None:
            return
        order = draw.sample(sorted(rows), len(rows))
        victim = next(request for request in order if request in victims)
        donor = next(request for request in order if request != victim)
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
        and holds(state, runner, row)
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
        able = sorted(request for request, row in rows.items() if holds(state, runner, row))
        draw = state.due() if able else None
        if draw is None:
            return
        victim = draw.choice(able)
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
    rows = [row for row in able_rows(state, runner) if outputs_of(runner, row)]
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
    rows, able = sampling_rows(runner), able_rows(state, runner)
    draw = state.due() if tensors is not None and len(rows) > 1 and able else None
    if draw is None:
        return
    order = draw.sample(rows, len(rows))
    row = next(one for one in order if one in able)
    other = next(one for one in order if one != row)
    width = output.sampled_token_ids.shape[1]
    # The tokens keep their places; only the values become the neighbour's.
    values = tensors.logprobs
    values[row * width : (row + 1) * width] = values[other * width : (other + 1) * width].clone()
    state.record(held(runner, row), row, len(outputs_of(runner, row)), donor=request_of(runner, other))


# ---------------------------------------------------------------- logits


def rounded_otherwise(logits: Any, seed: int, ulps: int = 1) -> Any:
    """The logits, each moved by up to `ulps` units in the last place of bf16, as other hardware might round them. What
    the mask of a grammar forbids stays forbidden."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)
    noise = torch.rand(logits.shape, generator=generator).to(logits.device) * 2 - 1
    # One unit in the last place of bf16 is 2^-7 of the power of two below the value (8 bits of mantissa).
    unit = torch.exp2(torch.floor(torch.log2(logits.abs().float().clamp_min(2.0**-20))) - 7)
    moved = (logits.float() + noise * unit * ulps).to(logits.dtype)
    return torch.where(torch.isfinite(logits), moved, logits)


def logits_noise(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    rows = able_rows(state, runner)
    draw = state.due() if rows or not state.planting.conditions else None
    if draw is None:
        return logits
    for row in rows:
        state.record(held(runner, row), row, len(outputs_of(runner, row)))
    return _in_rows(
        state, metadata, rows, logits, rounded_otherwise(logits, draw.randrange(2**31), state.planting.ulps)
    )


def _in_rows(state: Any, metadata: Any, rows: list[int], before: Any, after: Any) -> Any:
    """The logits as they are `after`: all of them without a condition, else those of these rows."""
    if not state.planting.conditions:
        return after
    mixed = before.clone()
    for row in rows:
        mixed[_logits_of(metadata, row)] = after[_logits_of(metadata, row)]
    return mixed


def _logits_of(metadata: Any, row: int) -> slice:
    """Where the logits of this row's tokens lie."""
    if metadata is None:
        return slice(row, row + 1)
    end = int(metadata.bonus_logits_indices[row]) + 1
    return slice(end - width_of(metadata, row), end)


def garbled_row(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    import torch

    rows = {request_of(runner, row): row for row in sampling_rows(runner)}
    active = state.active
    if active and active["victim"] not in rows:
        active.clear()
    if not active:
        able = sorted(request for request, row in rows.items() if holds(state, runner, row))
        draw = state.due() if able else None
        if draw is None:
            return logits
        active.update(victim=draw.choice(able), left=state.planting.span, seed=draw.randrange(2**31))
    row = rows[active["victim"]]
    generator = torch.Generator(device="cpu").manual_seed(active["seed"] + active["left"])
    own = _logits_of(metadata, row)
    size = (own.stop - own.start, logits.shape[1])
    left = logits[own.start].float()
    left = left[torch.isfinite(left)]  # under a grammar it may be one alone
    noise = torch.randn(size, generator=generator) * (float(left.std()) if len(left) > 1 else 1.0)
    logits = logits.clone()
    logits[own] = noise.to(logits.device, logits.dtype)
    state.record(held(runner, row), row, len(outputs_of(runner, row)))
    active["left"] -= 1
    if active["left"] <= 0:
        active.clear()
    return logits


def logit_bias(state: Any, runner: Any, logits: Any, metadata: Any) -> Any:
    rows = able_rows(state, runner)
    if (state.planting.conditions and not rows) or state.due() is None:
        return logits
    if not state.planting.conditions:
        note(state, runner)
    else:
        for row in rows:
            state.record(held(runner, row), row, len(outputs_of(runner, row)))
    biased = logits.clone()
    biased[:, :: state.planting.share] += state.planting.millinats / 1000
    return _in_rows(state, metadata, rows, logits, biased)


def note(state: Any, runner: Any) -> None:
    """Logs each request once that a fault of whole steps has touched."""
    seen = state.active.setdefault("noted", set())
    for row in sampling_rows(runner):
        if request_of(runner, row) not in seen:
            seen.add(request_of(runner, row))
            state.record(held(runner, row), row, len(outputs_of(runner, row)))


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
MODEL: dict[str, Plant] = {"rope_off": model.rope_off}
"""Before the forward of the whole model."""
ATTENTION: dict[str, Plant] = {"kv_fp8": model.kv_fp8}
"""Before the forward of each attention layer."""
LINEAR: dict[str, Plant] = {"weight_scale": model.weight_scale, "weight_quant": model.weight_quant}
"""What one layer's output projection gives."""
REQUEST: dict[str, Plant] = {
    "penalties_ignored": requests.penalties_ignored,
    "temperature_leak": requests.temperature_leak,
    "bad_words_ignored": requests.bad_words_ignored,
    "allowed_ignored": requests.allowed_ignored,
    "min_tokens_ignored": requests.min_tokens_ignored,
    "stop_ignored": requests.stop_ignored,
    "grammar_ignored": requests.grammar_ignored,
}
"""Change a request's parameters (its own copy); whether there was anything to ignore."""
METADATA: dict[str, Plant] = {
    "accepted_counts": delta_net.accepted_counts,
    "unstable_order": delta_net.unstable_order,
    "state_not_reset": delta_net.state_not_reset,
}
OUTPUT: dict[str, Plant] = {"chunk_twice": chunk_twice, "bonus_lost": bonus_lost}
