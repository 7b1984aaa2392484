"""What a checkpoint's config.json says of its layers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Optional

LINEAR_ATTENTION = ("qwen3_next", "qwen3_5")
"""How the types of models with gated delta networks begin, where config.json lists no kinds of layers."""


def config_of(model: str) -> dict[str, Any]:
    """The config.json of a checkpoint's directory; {} where there is none, of which the engine will speak."""
    try:
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def parts_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """config.json, and the part of it that is about text where there is one."""
    text = config.get("text_config")
    return [config, text] if isinstance(text, Mapping) else [config]


def has_linear_attention(config: Mapping[str, Any]) -> bool:
    """Gated delta networks beside attention: what vLLM calls a hybrid model."""
    kinds = [part["layer_types"] for part in parts_of(config) if isinstance(part.get("layer_types"), list)]
    types = [str(part.get("model_type")) for part in parts_of(config)]
    return any("linear_attention" in some for some in kinds) or any(kind.startswith(LINEAR_ATTENTION) for kind in types)


def linear_head_sizes(config: Mapping[str, Any]) -> set[int]:
    """Sizes of the heads of its gated delta networks, of keys and values; none where it has none."""
    names = ("linear_key_head_dim", "linear_value_head_dim")
    found = [part.get(name) for part in parts_of(config) for name in names]
    return {size for size in found if isinstance(size, int)}


def model_type_of(config: Mapping[str, Any]) -> Optional[str]:
    """Its family, by the name that engines know it by."""
    return str(config["model_type"]) if config.get("model_type") else None
