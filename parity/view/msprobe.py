"""Where an engineer with an NPU goes on: located modules as MindStudio's msprobe calls them, and what it is to dump.

Names and configuration: vllm-ascend 0.23.0, docs "MSProbe Debugging Guide" and `AscendConfig`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from parity.messages import Message, message

MOST_STEPS: Final = 8
"""Steps that are dumped: a dump of one is gigabytes."""


def msprobe(located: Iterable[tuple[str, str, int]]) -> Message | None:
    """Of (path of the module, its class, step); None where no class is known."""
    found = [one for one in located if one[1]]
    if not found:
        return None
    steps = sorted({step for _, _, step in found})[:MOST_STEPS]
    config = json.dumps({"task": "tensor", "level": "L0", "rank": [], "step": steps})
    names = sorted({f"Module.{module}.{kind}.forward.0" for module, kind, _ in found})
    return message("locate.msprobe", "in msprobe's words: {names}; {config}", names=names, config=config)
