"""Digests of recurrent states: what their slots hold when a step ends, and when the next one begins.

A slot is written by its request's steps alone. What lies there when a step begins is what that request's last step
left; another request that wrote it in between shows in nothing but this. A digest is of some numbers of each state,
spread over it: whoever writes a state writes all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLED = 32
"""Numbers of a state that its digest is of."""

SLOT_LAYERS = 512
"""Slots times layers that are read when a step begins, and when it ends; of more slots some layers, in turn."""


class StateDigests:
    """Of the recurrent layers of one cache group, whose states are on the host."""

    def __init__(self, layers: list[list[Any]]) -> None:
        """`layers`: of each layer its states, tensors of shape (slots, …)."""
        self.views = [[_sampled(state) for state in states] for states in layers]
        self.begin, self.count = 0, len(layers)
        """The layers that the last step's end was read in, and how many; both sides of a step read the same."""

    def turn(self, step: int, slots: int) -> None:
        """Choose the layers that are read from the end of this step to the beginning of the next."""
        self.count = max(1, min(len(self.views), SLOT_LAYERS // max(1, slots)))
        self.begin = 0 if self.count == len(self.views) else step * self.count % len(self.views)

    @property
    def which(self) -> int:
        """A number for the layers that are read."""
        return self.begin * len(self.views) + self.count

    def of(self, slots: Any) -> Any:
        """Digests of slots, shape of `slots`, from 0 to 2^31; of what is no slot 0."""
        flat = np.asarray(slots).reshape(-1)
        places = np.maximum(flat, 0)
        found = np.zeros(len(flat), dtype=np.int64)
        for number in range(self.begin, self.begin + self.count):
            for place, (view, weights) in enumerate(self.views[number % len(self.views)]):
                found += (2 * (2 * number + place) + 1) * (view[places].astype(np.int64) * weights).sum(axis=1)
        found = (found ^ (found >> 31)) & 0x7FFFFFFF
        return np.where(flat < 0, 0, found).reshape(np.shape(slots))


def _sampled(state: Any) -> tuple[Any, Any]:
    """A view of some numbers of each slot as integers, shape (slots, SAMPLED) or less, and odd weights."""
    import torch

    bits = state.detach().flatten(1)
    bits = bits.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.element_size()])
    apart = max(1, bits.shape[1] // SAMPLED)
    view = bits.numpy()[:, ::apart][:, :SAMPLED]
    return view, (np.arange(view.shape[1], dtype=np.int64) * 0x9E3779B1 % (1 << 31)) | 1


def states_of(runner: Any, group: Any) -> list[list[Any]]:
    """The states of each layer of a cache group, on the host; nothing where there are none."""
    context = getattr(getattr(runner, "compilation_config", None), "static_forward_context", None) or {}
    found = []
    for builder in group:
        for name in builder.layer_names:
            kept = getattr(context.get(name), "kv_cache", None)
            if isinstance(kept, list) and len(kept) == 1:  # one for each virtual engine, before 0.20
                kept = kept[0]
            if isinstance(kept, (tuple, list)):
                found.append([one for one in kept if one.device.type == "cpu" and one.dim() > 1])
    return [one for one in found if one]
