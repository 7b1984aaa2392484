"""A checkout of vllm-ascend in the place of the installed release: what its developers change, run as it lies there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from parity_emulated_npu import EMULATES

VARIABLE = "PARITY_VLLM_ASCEND"

BUILT: dict[str, dict[str, Any]] = {
    "vllm_ascend._build_info": {"__device_type__": "A2"},
    "vllm_ascend._version": {"__version__": "0.0.0+checkout", "version": "0.0.0+checkout"},
}
"""Modules that a build writes and a checkout lacks."""


def folder() -> Path | None:
    """The checkout, where there is one."""
    value = os.environ.get(VARIABLE)
    return Path(os.path.expanduser(value)).absolute() if value else None


def put_first() -> None:
    """Have `import vllm_ascend` find the checkout."""
    place = folder()
    if place is not None and str(place) not in sys.path:
        sys.path.insert(0, str(place))


def commit(place: Path) -> str:
    """Of the checkout, with "-dirty" where files differ from it; "not under git" where it is no repository of its own:
    the commit of one that it happens to lie in is not vllm-ascend's."""
    command = ["git", "-C", str(place), "describe", "--always", "--dirty", "--tags"]
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(place.resolve().parent)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    except (OSError, subprocess.SubprocessError):
        return "not under git"
    return done.stdout.strip()


def described() -> str:
    """What the device calls itself, and whose code runs on it."""
    place = folder()
    device = f"{EMULATES}, emulated on the CPU"
    return device if place is None else f"{device}; vllm-ascend from a checkout ({commit(place)})"
