"""Faults of the model itself: what goes into it and its attention, and what its layers give."""

from __future__ import annotations

from typing import Any


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
