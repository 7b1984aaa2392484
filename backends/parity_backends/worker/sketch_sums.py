"""The arithmetic of sketches: signed sums, lengths and digests of vectors, on the host or on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.capture.sketch_table import signs

from .copies import host_copy


class OnHost:
    """Sums and norms by numpy: for a handful of tokens a product of torch's takes hundreds of times as long, as it
    wakes threads for each."""

    def zeros(self, shape: Any) -> Any:
        return np.zeros(shape, dtype=np.float32)

    def held(self, array: Any) -> Any:
        return array

    def copy(self, array: Any) -> Any:
        return np.array(array)

    def joined(self, arrays: Any) -> Any:
        return np.concatenate(arrays)

    def sketch(self, vectors: Any, matrix: Any) -> tuple[Any, Any]:
        """Products with the signs, and lengths."""
        array = vectors.numpy()
        return array @ matrix, np.sqrt(np.einsum("ij,ij->i", array, array))

    def largest(self, logits: Any) -> tuple[Any, Any]:
        """The argmax of each row, and how many are as large."""
        array = logits.numpy()
        best = array.argmax(axis=1)
        return best, (array == array[np.arange(len(array)), best][:, None]).sum(axis=1)


class OnDevice:
    """The same by torch, copies queued after the step's own work."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def zeros(self, shape: Any) -> Any:
        import torch

        return torch.zeros(shape, dtype=torch.float32, device=self.device)

    def held(self, array: Any) -> Any:
        import torch

        return torch.from_numpy(array).to(self.device)

    def copy(self, array: Any) -> Any:
        return host_copy(array)

    def joined(self, arrays: Any) -> Any:
        import torch

        return host_copy(torch.cat(list(arrays)))

    def sketch(self, vectors: Any, matrix: Any) -> tuple[Any, Any]:
        import torch

        return vectors @ matrix, torch.linalg.vector_norm(vectors, dim=1)

    def largest(self, logits: Any) -> tuple[Any, Any]:
        highest = logits.max(dim=1, keepdim=True)
        return highest.indices[:, 0], (logits == highest.values).sum(dim=1)


class SketchSums:
    """Signed sums and digests on one device; what they are made with is kept by width."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.arithmetic: Any = OnHost() if device.type == "cpu" else OnDevice(device)
        self._signs: dict[int, Any] = {}
        self._weights: dict[int, Any] = {}

    def signs(self, width: int) -> Any:
        if width not in self._signs:
            self._signs[width] = self.arithmetic.held(signs(width))
        return self._signs[width]

    def digests(self, vectors: Any) -> Any:
        """A number of 32 bits for the bits of each row: equal rows have equal ones, on every device."""
        import torch

        flat = vectors.detach().reshape(vectors.shape[0], -1).contiguous()
        bits = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
        wide = bits.shape[1]
        if wide not in self._weights:
            odd = (np.arange(wide, dtype=np.int64) * 0x9E3779B1 % (1 << 31)) | 1
            self._weights[wide] = torch.from_numpy(odd).to(self.device)
        return host_copy((bits.to(torch.int64) * self._weights[wide]).sum(dim=1))
