"""The safetensors format, as far as writing small files goes.

Eight bytes with the length of a JSON header (little endian), the header, the data
(https://github.com/huggingface/safetensors, README, "Format").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[np.float32]

KEPT_F32 = ("e_score_correction_bias",)
"""Names that end like this stay in float32, as their makers store them; all else is bfloat16."""


def to_bfloat16(values: Tensor) -> npt.NDArray[np.uint16]:
    """The upper halves of float32, rounded to nearest even. For finite values."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """All tensors in one file, sorted by name. Raises OSError."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    offset = 0
    for name in sorted(tensors):
        values = tensors[name]
        f32 = name.endswith(KEPT_F32)
        data = (values.astype("<f4") if f32 else to_bfloat16(values).astype("<u2")).tobytes()
        header[name] = {
            "dtype": "F32" if f32 else "BF16",
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for part in parts:
            file.write(part)
