"""Faults of one module's arithmetic or of what it keeps: of one row, in one step, by a share of `permille` thousandths;
with `every=1` of all rows, in every step in which it is due. Under a condition (`when`) only rows that emit are struck.

No number of the engine's bookkeeping is wrong, and most of them damage no token: they are there for what looks at
activations (docs/sketches.md). What a module keeps (states, keys and values) stays wrong for the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .conditions import able_rows
from .rows import drafting_rows, held, outputs_of, request_of


class Place(NamedTuple):
    """Where a fault sits."""

    ends: tuple[str, ...]
    """The module's path ends in one of these; of several modules the middle one."""
    before: bool
    """Before the module runs, else after."""
    change: Callable[..., bool]
    """(state, runner, module, row, what it gave or is given, first token of the row and one past its last): whether it
    could."""
    found_at: str
    """What `sketch_modules` calls the module that shows it first, from its layer on; the drafter's is the path."""
    decoding: bool = False
    """Only of rows that have emitted tokens."""


def size_of(state: Any) -> float:
    return float(state.planting.permille) / 1000


def scaled(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    """What the module gave for the row is too large."""
    tensor = given[0] if isinstance(given, (tuple, list)) else given
    tensor[span[0] : span[1]].mul_(1 + size_of(state))
    return True


def noisy(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    """What the module gave for the row has a share of another token's in it."""
    tensor = given[0] if isinstance(given, (tuple, list)) else given
    part = tensor[span[0] : span[1]]
    part.add_(part.roll(1, dims=-1) * size_of(state))
    return True


def _slots(runner: Any, module: Any, row: int) -> list[int]:
    """State slots that the layer takes this row's state from: of the convolution, and of the recurrence."""
    from vllm.forward_context import get_forward_context

    given = get_forward_context().attn_metadata[module.prefix]
    drafting = drafting_rows(given) or []
    if row < len(drafting) and drafting[row]:
        place = sum(drafting[:row])
        slots = given.spec_state_indices_tensor[place].tolist()
        return [int(slots[0]), int(slots[int(given.num_accepted_tokens[place]) - 1])]
    place = row - sum(drafting[:row])
    slot = int(given.non_spec_state_indices_tensor[place])
    return [slot, slot]


def gdn_state(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    cache = module.kv_cache[1][_slots(runner, module, row)[1]]
    cache.add_(cache.roll(1, dims=-1) * size_of(state))
    return bool(cache.abs().sum() > 0)


def conv_state(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    cache = module.kv_cache[0][_slots(runner, module, row)[0]]
    cache.add_(cache.flip(-1) * size_of(state))
    return bool(cache.abs().sum() > 0)


def _block(runner: Any, module: Any, row: int) -> tuple[Any, int]:
    """The first block of the row's keys and values in this layer's cache, and how many of its tokens it has."""
    cache = module.kv_cache[0] if isinstance(module.kv_cache, (tuple, list)) else module.kv_cache
    group = next(
        number
        for number, one in enumerate(runner.kv_cache_config.kv_cache_groups)
        if module.layer_name in one.layer_names
    )
    table = runner.input_batch.block_table.block_tables[group]
    computed = int(runner.input_batch.num_computed_tokens_cpu[row])
    return cache[int(table.block_table.np[row][0])], min(computed, int(table.block_size))


def kv_entry(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    """One earlier token's key and value are partly another's."""
    block, computed = _block(runner, module, row)
    if computed < 2:
        return False
    token = computed // 2
    flat = block.reshape(-1)
    places = _entry(module, block, token) if block.is_contiguous() else None
    if places is None:  # tokens before heads
        block[token].add_(block[token].roll(1, dims=-1) * size_of(state))
        return True
    entry = flat[places]
    flat[places] = entry + entry.roll(1) * size_of(state)
    return True


def _entry(module: Any, block: Any, token: int) -> Any:
    """Where in a block a token's numbers lie, which is the backend's own: its own method writes them into a block of
    nothing. None where it has none."""
    import torch

    write = getattr(module.impl, "do_kv_cache_update", None)
    if write is None:
        return None
    scratch = torch.zeros_like(block)[None]
    ones = torch.ones((1, module.num_kv_heads, module.head_size), dtype=block.dtype)
    write(module, ones, ones.clone(), scratch, torch.tensor([token]))
    return scratch.reshape(-1).nonzero()[:, 0]


def kv_head(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    block, computed = _block(runner, module, row)
    if computed < 2:
        return False
    block[0].add_(block[0].roll(1, dims=-1) * size_of(state))
    return True


def rope_row(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    """Positions of the row are too large in the rotary embedding, by permille/100."""
    args, kwargs, replaced = given
    if not replaced:
        replaced.append((args[0] if len(args) else kwargs["positions"]).clone())
    replaced[0][..., span[0] : span[1]] += max(1, round(10 * size_of(state)))
    return True


def router(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    tensor = given[0] if isinstance(given, (tuple, list)) else given
    part = tensor[span[0] : span[1]]
    part.copy_(part + size_of(state) * (part.roll(1, dims=-1) - part))
    return True


def lm_head(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
    """Logits of the row's first sampled place are partly their neighbours'."""
    drafts = state.scheduled.scheduled_spec_decode_tokens
    names = runner.input_batch.req_ids
    place = sum(1 + len(drafts.get(name, ())) for name in names[:row])
    if place >= len(given):
        return False
    given[place].add_((given[place].roll(1) - given[place]) * size_of(state))
    return True


PLACES: dict[str, Place] = {
    "norm_off": Place(("input_layernorm",), False, scaled, "input_layernorm"),
    "gates_off": Place(("in_proj_ba",), False, noisy, "linear_attn"),
    "gdn_state_off": Place(("linear_attn",), True, gdn_state, "linear_attn", decoding=True),
    "conv_state_off": Place(("linear_attn",), True, conv_state, "linear_attn", decoding=True),
    "kv_entry_off": Place(("self_attn.attn",), True, kv_entry, "self_attn", decoding=True),
    "kv_head_off": Place(("self_attn.attn",), True, kv_head, "self_attn", decoding=True),
    "rope_row_off": Place(("self_attn.rotary_emb",), True, rope_row, "self_attn", decoding=True),
    "attention_off": Place(("self_attn.o_proj",), False, scaled, "self_attn"),
    "mlp_off": Place(("mlp.shared_expert", "mlp.down_proj"), False, noisy, "mlp"),
    "experts_off": Place(("mlp.experts", "mlp.down_proj"), False, noisy, "mlp"),
    "router_off": Place(("mlp.gate",), False, router, "mlp.gate"),
    "lm_head_off": Place(("logits_processor",), False, lm_head, "logits", decoding=True),
    "drafter_off": Place(("layers.0",), False, noisy, "layers.0"),
    "drafter_input_off": Place(("model.fc", "eh_proj", "input_proj"), False, noisy, "fc"),
}


def wrap(state: Any, runner: Any) -> set[str]:
    """Hooks for every place that this model has; the faults that can be planted."""
    able = set()
    for name, place in PLACES.items():
        model = runner.model
        if name in OUTSIDE:
            model = getattr(getattr(runner, "drafter", None), "model", None)
        found = place_of(name, model)
        if found is not None:
            _hook(state, runner, name, place, *found)
            able.add(name)
    return able


def place_of(name: str, model: Any) -> tuple[str, Any] | None:
    """Path and module in which a fault sits in this model; None where there is none, or no model."""
    named = [] if model is None else list(model.named_modules())
    for end in PLACES[name].ends:
        some = [one for one in named if one[0].endswith(end)]
        if some:
            path, module = some[len(some) // 2]
            return path, module
    return None


def _hook(state: Any, runner: Any, name: str, place: Place, path: str, module: Any) -> None:
    def before(_: Any, args: Any, kwargs: Any) -> Any:
        replaced: list[Any] = []
        if not _strike(state, runner, name, place, path, module, (args, kwargs, replaced)) or not replaced:
            return None
        return ((replaced[0], *args[1:]), kwargs) if args else (args, {**kwargs, "positions": replaced[0]})

    def after(_: Any, args: Any, kwargs: Any, given: Any) -> None:
        _strike(state, runner, name, place, path, module, given)

    # Before other hooks: who looks at the module sees what came of the fault.
    if place.before:
        module.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
    else:
        module.register_forward_hook(after, with_kwargs=True, prepend=True)


def _strike(state: Any, runner: Any, name: str, place: Place, path: str, module: Any, given: Any) -> bool:
    if state.planting.fault != name or not (state.in_step or name in OUTSIDE):
        return False
    if name in OUTSIDE:
        if state.active.get("drafted") == state.step:
            return False  # a later pass, with other rows
        state.active["drafted"] = state.step
    able = able_rows(state, runner) if state.planting.conditions else range(runner.input_batch.num_reqs)
    rows = [row for row in able if outputs_of(runner, row) or not place.decoding]
    if name in OUTSIDE:
        rows = [row for row in rows if _computed(runner, row) >= len(held(runner, row).prompt_token_ids)]
    struck: set[str] = state.active.setdefault("struck", set())
    if not state.planting.every:
        rows = [row for row in rows if request_of(runner, row) not in struck]
    draw = state.due() if rows else None
    if draw is None or state.active.get("last") == state.step:
        return False
    starts = runner.query_start_loc.np
    changed = []
    for row in rows if state.planting.every else [draw.choice(rows)]:
        if place.change(state, runner, module, row, given, (int(starts[row]), int(starts[row + 1]))):
            changed.append(row)
    if not changed:
        return False
    state.active["last"] = state.step
    shown = place.found_at if place.found_at == "logits" else _layer_of(path) + place.found_at
    if name in OUTSIDE:
        shown = "drafter." + path
    for row in changed:
        if request_of(runner, row) in struck and not state.planting.conditions:
            continue  # with every=1 a request's first row-step says when it began; under a condition each counts
        struck.add(request_of(runner, row))
        at, tokens = _computed(runner, row), int(starts[row + 1] - starts[row])
        state.record(held(runner, row), row, len(outputs_of(runner, row)), module=shown, at=at, tokens=tokens)
    return True


def _computed(runner: Any, row: int) -> int:
    return int(runner.input_batch.num_computed_tokens_cpu[row])


def _layer_of(path: str) -> str:
    """`model.layers.3.` of a path in it."""
    begin, _, rest = path.rpartition("layers.")
    return begin + "layers." + rest.split(".")[0] + "." if begin or rest else ""


OUTSIDE = ("drafter_off", "drafter_input_off")
"""In the drafter's first pass, after the model has run in the same step, of rows whose prompt is computed: what the
same engine gives for completions as prompts is what its sketches are set against."""
