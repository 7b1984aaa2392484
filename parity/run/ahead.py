"""Whether there is room to load an engine's code while another engine runs.

Python, torch and vLLM take 0.6 GiB and ten seconds of a processor before an engine does anything of its own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

ROOM_BYTES: Final = 6 << 30
"""Ten times what loading takes: the engine that runs meanwhile may still be growing."""

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def room_to_load(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> bool:
    """Whether this process has a second core and ROOM_BYTES of memory, as far as Linux says; elsewhere False."""
    free = _free_bytes(meminfo, cgroup)
    return free is not None and free >= ROOM_BYTES and len(os.sched_getaffinity(0)) > 1


def _free_bytes(meminfo: Path, cgroup: Path) -> int | None:
    """Of the machine, or of the container where that is less; None where Linux's files are not there."""
    try:
        found = re.search(r"(?m)^MemAvailable:\s*(\d+)", meminfo.read_text())
    except OSError:
        return None
    if found is None:
        return None
    machine = int(found.group(1)) << 10
    try:
        most, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return machine
    return min(machine, int(most) - int(used)) if most.isdigit() and used.isdigit() else machine
