"""What the engine made of what it was asked."""

from __future__ import annotations

import enum
import os
from typing import Any

from parity.records.engine_settings import engine_settings


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


def resolved_engine(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    read_back = {row.key: row.path for row in engine_settings() if row.path}
    resolved = {name: look(config, path) for name, path in read_back.items()}
    resolved = {name: value for name, value in resolved.items() if value is not None}
    resolved["multiprocessing"] = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") != "0"
    runner = llm.llm_engine
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, runner)
    if "ModelRunner" in type(runner).__name__:  # only where the engine runs in this process
        resolved["model_runner"] = type(runner).__module__ + "." + type(runner).__name__
    v2 = look(config, "use_v2_model_runner")
    if isinstance(v2, bool):
        resolved["use_v2_model_runner"] = v2
    resolved["asked"] = asked
    return resolved
