"""How much memory is free on a host: of its devices where it has any, of the machine where not.

The program that looks is the standard library's and asks the vendors' own tools. That of `npu-smi` is read by the shape
of its table; it was not tried on an NPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from parity.errors import BackendError
from parity.plan.hosts import Host
from parity.run.launch import run_python

_LOOK = r"""
import json, re, subprocess

def said_by(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return ""

def megabytes():
    rows = said_by("nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits")
    pairs = re.findall(r"(?m)^\s*(\d+)\s*,\s*(\d+)\s*$", rows)
    if not pairs:  # the last pair of a line of npu-smi's table is that of the device's memory
        pairs = re.findall(r"(?m)(\d+)\s*/\s*([1-9]\d{3,})\s*\|\s*$", said_by("npu-smi", "info"))
    return [int(total) - int(used) for used, total in pairs]

def available():
    try:
        with open("/proc/meminfo") as lines:
            found = re.search(r"(?m)^MemAvailable:\s*(\d+)", lines.read())
    except OSError:
        found = None
    return int(found.group(1)) // 1024 if found else None

devices = megabytes()
print(json.dumps({"devices": devices, "machine": None if devices else available()}))
"""

STILL_THERE = 0.05
"""Share of the memory that may be missing afterwards: drivers and contexts keep some."""

WAIT_SECONDS = 60.0
"""For memory to come back: vllm-ascend's own tests wait 50 s between engines (tests/e2e/conftest.py)."""


@dataclass(frozen=True, slots=True)
class Free:
    """MiB that are free: of the fullest device, or of the machine where `device` is False."""

    megabytes: int
    device: bool

    def lacks(self, before: Free) -> bool:
        """Whether an engine that has ended still holds memory. A machine's own says nothing: it caches files."""
        return self.device and self.megabytes < before.megabytes * (1 - STILL_THERE)


def free_memory(host: Host) -> Free | None:
    """None where nothing says it; the answer comes from another host and is checked."""
    try:
        found = json.loads(run_python(host, _LOOK, timeout=60).splitlines()[-1])
        devices, machine = found["devices"], found["machine"]
        if devices:
            return Free(min(int(one) for one in devices), device=True)
        return None if machine is None else Free(int(machine), device=False)
    except (BackendError, ValueError, KeyError, TypeError, IndexError):
        return None


def free_again(
    look: Callable[[], Free | None], before: Free | None, pause: Callable[[float], None] = time.sleep
) -> Free | None:
    """What is free once an engine has ended; waits for a device's memory to come back, WAIT_SECONDS at most."""
    now, waited = look(), 0.0
    while before is not None and now is not None and now.lacks(before) and waited < WAIT_SECONDS:
        pause(2.0)
        waited += 2.0
        now = look()
    return now
