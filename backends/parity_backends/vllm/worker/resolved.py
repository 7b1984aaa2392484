"""What the engine made of what it was asked."""

from __future__ import annotations

import enum
import os
import sys
from typing import Any

from parity.records.engine_settings import engine_settings

from .rows import about_runner, ask_runner


def look(thing: Any, path: str) -> Any:
    """Attribute path to something JSON can hold; None where this engine version has no such attribute."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
    if isinstance(thing, enum.Enum):  # before int: the compilation mode is both
        return thing.name
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (list, tuple)):
        return [item if isinstance(item, (bool, int, float, str)) else str(item) for item in thing]
    return str(thing)


def config_of_additions(config: Any) -> dict[str, Any]:
    """What `additional_config` came to: vllm-ascend's own object, which every default is in; else as vLLM holds it."""
    module = sys.modules.get("vllm_ascend.ascend_config")
    own = getattr(module, "_ASCEND_CONFIG", None)
    found = plain(own, 3) if own is not None else plain(getattr(config, "additional_config", None), 3)
    return found if isinstance(found, dict) else {}


def plain(thing: Any, depth: int) -> Any:
    """Something JSON can hold: values and containers of them, and objects of vllm-ascend by their attributes."""
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if depth <= 0:
        return None
    if isinstance(thing, (list, tuple)):
        return [plain(item, depth - 1) for item in thing]
    if type(thing).__module__.startswith("vllm_ascend"):
        thing = vars(thing)
    if not isinstance(thing, dict):
        return None
    values = {str(name): plain(value, depth - 1) for name, value in thing.items() if not str(name).startswith("_")}
    return {name: value for name, value in values.items() if value is not None and value != {}}


def resolved_engine(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    no_mamba = look(config, "model_config.has_inner_state") is False
    read_back = {row.key: row.path for row in engine_settings() if row.path and not (row.of_mamba and no_mamba)}
    resolved = {name: look(config, path) for name, path in read_back.items()}
    resolved = {name: value for name, value in resolved.items() if value is not None}
    resolved["multiprocessing"] = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") != "0"
    resolved.update(ask_runner(llm, about_runner) or {})
    more = config_of_additions(config)
    if more:
        resolved["additional_config"] = more
    v2 = look(config, "use_v2_model_runner")
    if isinstance(v2, bool):
        resolved["use_v2_model_runner"] = v2
    resolved["asked"] = asked
    return resolved
