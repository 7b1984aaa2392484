"""Device memory that an engine before this one may not have given back yet."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Optional

LOOK_SECONDS = 0.5
STARTING_SECONDS = 60.0
"""For Python and torch to load, beside the time to wait."""

WAIT_FOR_MEMORY = """
import importlib.util, json, sys, time
import torch
if importlib.util.find_spec("torch_npu"):  # torch loads it by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD is 0
    import torch_npu
share, seconds, needed, pause = (float(word) for word in sys.argv[1:])
kinds = [getattr(torch, name, None) for name in ("npu", "cuda")]
device = next(kind for kind in kinds if kind is not None and kind.is_available())
began, before, looks = time.monotonic(), None, 0
while True:
    now = [device.mem_get_info(index) for index in range(min(device.device_count(), int(needed)))]
    looks += 1
    enough = all(free >= share * total for free, total in now)
    settled = before is not None and all(free <= old + (64 << 20) for (free, _), (old, _) in zip(now, before))
    spent = time.monotonic() - began
    if (enough and settled) or spent >= seconds:
        break
    before = now
    time.sleep(pause)
print("PARITY" + json.dumps({"enough": enough, "seconds": round(spent, 1), "looks": looks,
                             "free_gib": [round(free / 2**30, 1) for free, _ in now]}))
"""
"""Looks until `share` of each device is free and no more comes back, `seconds` at most."""


def wait_for_memory(
    share: float, seconds: float, devices: int, pause: float = LOOK_SECONDS
) -> Optional[dict[str, Any]]:
    """Until the first `devices` have `share` of their memory free and no more of it comes back, `seconds` at most.

    What was found: `enough`, `seconds`, `free_gib` of each; None where it could not be asked. A process of its own
    asks: a device that this one had opened could not be handed to forked ranks. An engine that starts while memory
    comes back fails too ("Error in memory profiling", vLLM `v1/worker/gpu_worker.py`), so enough is not enough.
    """
    words = [str(share), str(seconds), str(devices), str(pause)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", WAIT_FOR_MEMORY, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            timeout=seconds + STARTING_SECONDS,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError):
        return None
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("PARITY"):
            found: dict[str, Any] = json.loads(line[len("PARITY") :])
            return found
    return None


def devices_of(engine: dict[str, Any]) -> int:
    """How many devices an engine with these arguments takes."""
    names = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    count = 1
    for name in names:
        count *= int(engine.get(name) or 1)
    return count
