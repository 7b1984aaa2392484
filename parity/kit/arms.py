"""The arms of a kit: those of vllm#45100 and its controls, and production's own settings.

Under asynchronous scheduling, with full graphs, MTP mixed up rows in that report; each control leaves one of the three
out. Where graphs of a kind, or asynchronous scheduling, do not exist, the arms that need them are not there.
"""

from __future__ import annotations

from parity.plan.variants import DEPLOYED, Variant

_ROWS = (1, 2, 4, 8, 16, 32, 64)

FULL, PIECEWISE, NONE = "FULL_AND_PIECEWISE", "PIECEWISE", "NONE"

_ARMS: dict[str, tuple[str, str, bool]] = {
    "mtp-async-full": ("mtp", FULL, True),
    "mtp-async-piecewise": ("mtp", PIECEWISE, True),
    "mtp-async-eager": ("mtp", NONE, True),
    "mtp-full": ("mtp", FULL, False),
    "base-async-full": ("base", FULL, True),
}
"""By name: what it extends, its graphs, whether it is scheduled asynchronously."""

_HAS: dict[str, frozenset[str]] = {
    "cpu": frozenset(),
    "ascend-emulated": frozenset({"mtp-async-eager"}),
    "ascend": frozenset({"mtp-async-piecewise", "mtp-async-eager"}),  # to 0.18 full graphs become PIECEWISE in silence
}


def variants(backend: str, num_speculative_tokens: int) -> tuple[tuple[str, ...], dict[str, Variant]]:
    """Names of the variants in the order in which they run after the baseline, and those that no adapter brings."""
    wanted = _HAS.get(backend, frozenset(_ARMS))
    own = {name: _variant(name, num_speculative_tokens) for name in _ARMS if name in wanted}
    return ("base", *own, "mtp", DEPLOYED), own


def _variant(name: str, num_speculative_tokens: int) -> Variant:
    extends, mode, asynchronous = _ARMS[name]
    graphs: dict[str, object] = {"cudagraph_mode": mode}
    if mode != NONE:  # full graphs need multiples of k + 1
        graphs["cudagraph_capture_sizes"] = [(num_speculative_tokens + 1) * rows for rows in _ROWS]
    engine = {"enforce_eager": mode == NONE, "async_scheduling": asynchronous, "compilation_config": graphs}
    return Variant(name, extends, engine=engine)
