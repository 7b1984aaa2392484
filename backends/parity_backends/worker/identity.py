"""Which checkpoint this was: what two hosts must agree on."""

from __future__ import annotations

import glob
import hashlib
import os
from typing import Optional

SAMPLE_BYTES = 1 << 20


def fingerprint(model: str) -> Optional[dict[str, str]]:
    """SHA-256 of config.json, tokenizer.json and of samples of the weights; the same as parity.plan.checkpoint's.

    None where `model` is not a directory (a name on a hub) or a part cannot be read.
    """
    if not os.path.isdir(model):
        return None
    prints = {}
    try:
        for name in ("config.json", "tokenizer.json"):
            with open(os.path.join(model, name), "rb") as file:
                prints[name] = hashlib.sha256(file.read()).hexdigest()
        weights = hashlib.sha256()
        pattern = os.path.join(glob.escape(model), "*.")
        for path in sorted(glob.glob(pattern + "safetensors")) or sorted(glob.glob(pattern + "bin")):
            size = os.path.getsize(path)
            weights.update(("%s %d\n" % (os.path.basename(path), size)).encode())
            with open(path, "rb") as file:
                for start in sorted({0, max(0, size // 2), max(0, size - SAMPLE_BYTES)}):
                    file.seek(start)
                    weights.update(file.read(SAMPLE_BYTES))
    except OSError:
        return None
    prints["weights"] = weights.hexdigest()
    return prints
