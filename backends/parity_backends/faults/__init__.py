"""The fault lab, launcher side: which faults there are, and the environment that plants one.

The plugin itself is in `site/`: a directory with a package and the metadata of its entry point, which vLLM
finds when the directory, or a zip file of it, is on PYTHONPATH of the engine's process (see docs/fault-lab.md
for why this way). Nothing here imports an engine.
"""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from typing import Any

from parity_backends.faults.site.parity_faults.catalogue import FAULTS, Planting, parse, prompt_key

__all__ = ["FAULTS", "bundle", "describe", "environment", "parse", "plugin_directory", "prompt_key"]

BUNDLE_VARIABLE = "PARITY_FAULT_BUNDLE"
"""For a far host: the plugin as a base64 zip file, which the worker writes to a file of its own."""


def describe() -> list[dict[str, Any]]:
    """Every fault: name, summary, the threads it emulates, its hook, what it needs, the kinds expected."""
    return [fault.to_json() for fault in FAULTS.values()]


def plugin_directory() -> Path:
    """The directory that goes on PYTHONPATH of an engine on this machine."""
    return Path(__file__).resolve().parent / "site"


def bundle() -> bytes:
    """The plugin directory as a zip file (about 10 kB), the same bytes each time; PYTHONPATH may name it."""
    root = plugin_directory()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                info = zipfile.ZipInfo(path.relative_to(root).as_posix())  # its date is 1980: the same bytes each time
                archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def environment(
    name: str, rate: float = 1.0, seed: int = 0, log: str = "-", *, far: bool = False, **options: int | str
) -> dict[str, str]:
    """Variables for the environment of an arm's worker, so that its engine has the fault `name`.

    `rate` is per step in which the fault can happen, `log` a path on the engine's machine ("-" is stderr,
    which comes back in the arm's log), `options` those of the fault and `from_step`, `max`, `independent`,
    `from_version`, `noise`. With `far` the plugin itself is in the environment and not a path of this machine.

    Raises ValueError for an unknown fault, option or rate.
    """
    text = f"{name}:rate={rate!r}:seed={seed}" + "".join(f":{key}={value}" for key, value in options.items())
    planting: Planting = parse(text)
    variables = {"PARITY_FAULT": planting.to_text(), "PARITY_FAULT_LOG": log}
    if planting.noise or (planting.fault in FAULTS and FAULTS[planting.fault].layer == "runner"):
        # The second model runner of vLLM has no step between logits and tokens that could be wrapped.
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    if far:
        variables[BUNDLE_VARIABLE] = base64.b64encode(bundle()).decode("ascii")
    else:
        # Alone: what is on this process's own PYTHONPATH is for another interpreter.
        variables["PYTHONPATH"] = str(plugin_directory())
    return variables
