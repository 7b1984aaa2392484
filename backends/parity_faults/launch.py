"""The launcher's side: the environment that plants a fault, and the package as a zip file that travels.

Standard library only, Python 3.9 or newer. Where this package is installed beside the engine, `environment` is
enough; elsewhere its zip file goes on PYTHONPATH (`unpacked`), or with the job (`packed`).
"""

from __future__ import annotations

import base64
import io
import zipfile
from importlib import resources
from pathlib import Path

from .catalogue import FAULTS
from .planting import parse

BUNDLE_VARIABLE = "PARITY_FAULT_BUNDLE"
"""For any host: the package as a base64 zip file, which the worker writes to a file of its own."""

ENTRY_POINTS = "[vllm.general_plugins]\nparity_faults = parity_faults:install\n"
METADATA = "Metadata-Version: 2.1\nName: parity-faults\nVersion: 1\n"


def bundle() -> bytes:
    """The package with its entry point as a zip file (27 kB), the same bytes each time; PYTHONPATH may name it."""
    files = sorted(resources.files("parity_faults").iterdir(), key=lambda file: file.name)
    texts = {f"parity_faults/{file.name}": file.read_text("utf-8") for file in files if file.name.endswith(".py")}
    texts["parity_faults-1.dist-info/METADATA"] = METADATA
    texts["parity_faults-1.dist-info/entry_points.txt"] = ENTRY_POINTS
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)  # its date is 1980: the same each time
    return buffer.getvalue()


def packed() -> dict[str, str]:
    """The variable that carries the package itself to parity's worker, on whatever host."""
    return {BUNDLE_VARIABLE: base64.b64encode(bundle()).decode("ascii")}


def unpacked(folder: Path) -> dict[str, str]:
    """Writes the zip file into `folder` and gives the variable that lets any Python here find it.

    Alone on PYTHONPATH: what is on this process's own is for another interpreter.
    """
    path = folder / "parity_faults.zip"
    path.write_bytes(bundle())
    return {"PYTHONPATH": str(path.resolve())}


def environment(name: str, rate: float = 1.0, seed: int = 0, log: str = "-", **options: int | str) -> dict[str, str]:
    """Variables for the environment of an engine that is to have the fault `name`.

    `rate` is per step in which the fault can happen, `log` a path on the engine's machine ("-" is stderr,
    which comes back in the arm's log), `options` those of the fault and `from_step`, `max`, `independent`,
    `from_version`, `noise`, `when`, `block`.

    Raises ValueError for an unknown fault, option or rate.
    """
    text = f"{name}:rate={rate!r}:seed={seed}" + "".join(f":{key}={value}" for key, value in options.items())
    planting = parse(text)
    variables = {"PARITY_FAULT": planting.to_text(), "PARITY_FAULT_LOG": log}
    if planting.noise or (planting.fault in FAULTS and FAULTS[planting.fault].layer == "runner"):
        # The second model runner of vLLM has no step between logits and tokens that could be wrapped.
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    return variables
